"""The input of plans for Users. It contains no password and no seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from supercluster.api import SuperCluster, User
from supercluster.reconcilers.planners.cluster.certificates import MarksView


@dataclass(frozen=True, slots=True)
class ClientView:
    """Connections of one client program."""

    address: str
    name: str
    client: str
    connections: int


@dataclass(frozen=True, slots=True)
class CredentialUse:
    """What one broker says of one credential that it accepts, or that connections show which are about to end."""

    connections: int = 0
    idle: timedelta | None = None
    """Since it was last shown; None: never since the broker began to take clients."""
    digest: str = ""
    """Of the entry in users.json that is in force."""
    is_accepted: bool = True
    clients: tuple[ClientView, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """What one broker says of all credentials."""

    up: timedelta = timedelta()
    """How long it takes clients; what was shown before it has forgotten."""
    uses: Mapping[str, CredentialUse] = field(default_factory=dict)
    """By label; and of users without one, by `hand_label`."""
    numbers: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By uid of the User: its credentials of `uses`."""
    accepted: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Those of them that are accepted."""
    links: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By file, then by login: how many connections between brokers were made with it."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of the files that are in force."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """By file: why a newer one is not in force."""

    is_whole: bool = True
    """It has said all; there may be more credentials than it names."""

    def is_quiet(self, label: str, quiet: timedelta) -> bool:
        """Has nobody shown the credential for so long?"""
        use = self.uses.get(label)
        if use is None and not self.is_whole:
            return False
        if use is not None and use.connections:
            return False
        idle = use.idle if use is not None else None
        return self.up >= quiet and (idle is None or idle >= quiet)


Reports = Mapping[str, BrokerReport | None]
"""Of every broker that there is, or is to be, by name; None: it does not answer."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Which credentials a User has. A number is never used again."""

    current: int | None = None
    """The one that clients read."""
    next: int | None = None
    """Brokers take it over; no client has it."""
    previous: int | None = None
    """Clients leave it."""
    lost: frozenset[int] = frozenset()
    """Brokers accept them, the Secret has not got them any more, and clients may still show them: they go with `previous`."""

    @property
    def all(self) -> frozenset[int]:
        return self.lost.union(each for each in (self.current, self.next, self.previous) if each is not None)

    @property
    def leaving(self) -> frozenset[int]:
        """Those that clients have to leave."""
        return self.lost if self.previous is None else self.lost | {self.previous}


@dataclass(frozen=True, slots=True)
class UserSecretView:
    """The Secret of a User."""

    numbers: Numbers = Numbers()
    last: int = 0
    """The highest number that was ever used."""
    kinds: Mapping[int, str] = field(default_factory=dict)
    """By number: Password or NKey."""
    given: frozenset[int] = frozenset()
    """Numbers of those that a person has chosen."""
    secrets: frozenset[int] = frozenset()
    """Numbers whose password, or public key, is in the Secret and is one."""
    since: datetime | None = None
    """When `current` became that."""
    rolling_since: datetime | None = None
    """When clients could read the new credential; None: no client has to roll."""
    asked: str = ""
    """What asked for a rotation when the last one began."""
    is_returned: bool = False
    """The rotation was taken back: `previous` is the one that was new."""
    public: Mapping[str, str] = field(default_factory=dict)
    """What is no secret: user, url, urls."""
    broken: str = ""
    """Why it can't be read."""
    is_edited: bool = False
    """A person has written another password into it than the one that brokers accept."""
    problem: str = ""
    """Why what clients read in it is no credential; a person has changed it."""
    marks: MarksView = field(default_factory=MarksView)
    resource_version: str = ""

    @property
    def is_released(self) -> bool:
        """No credential of it is to be accepted any more."""
        return not self.numbers.all


@dataclass(frozen=True, slots=True)
class EntryView:
    """One credential of a User in users.json."""

    declared: Mapping[str, Any]
    """The entry without its hash or key."""
    digest: str
    """Of the whole entry, as brokers tell it of what is in force."""
    nkey: str = ""
    """Its public key; empty: it has a password."""


@dataclass(frozen=True, slots=True)
class GivenView:
    """A password or a public key that a person gives."""

    field: str
    problem: str = ""
    """Why it can't be used, with the remedy; empty: it can."""
    is_key: bool = False
    number: int | None = None
    """The credential that has it already; None: none of the Secret."""


@dataclass(frozen=True, slots=True)
class UserObserved:
    """One look at a User."""

    super_cluster: SuperCluster | None = None
    first: User | None = None
    """The oldest User of its account and name; None: itself."""
    key_owner: str = ""
    """An older User that has the same public key."""
    accounts: frozenset[str] = frozenset()
    """Those that users.json declares by hand."""
    by_hand: frozenset[tuple[str, str]] = frozenset()
    """Account and name of users in users.json that no User has made."""
    secret: UserSecretView | None = None
    given: GivenView | None = None
    authorities: str = ""
    """That its clients are to trust, as PEM; empty: they connect in plain."""
    entries: Mapping[int, EntryView] = field(default_factory=dict)
    """Its credentials in users.json, by number."""
    url: str = ""
    urls: str = ""
    reports: Reports = field(default_factory=dict)
    refusal: str | None = None
    """Why a step was refused for good."""


OURS = "user-"
"""How labels of Users begin; people may give other ones."""


def label(uid: str, number: int) -> str:
    """How an entry of users.json names its credential."""
    return f"{OURS}{uid}.{number}"


def owner_of(name: str) -> tuple[str, int] | None:
    """Uid of the User and number of the credential that a label names; None: it is of no User."""
    uid, _, number = name.removeprefix(OURS).rpartition(".")
    return (uid, int(number)) if name.startswith(OURS) and uid and number.isdecimal() else None


def numbers_by_user(labels: Iterable[str]) -> dict[str, frozenset[int]]:
    """Of those labels, the numbers of each User's credentials, by uid."""
    found: dict[str, set[int]] = {}
    for each in labels:
        if (owner := owner_of(each)) is not None:
            found.setdefault(owner[0], set()).add(owner[1])
    return {uid: frozenset(numbers) for uid, numbers in found.items()}
