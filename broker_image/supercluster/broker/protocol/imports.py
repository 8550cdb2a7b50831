"""Exports and imports of subjects between accounts, by nats-server's rules.

An export offers a pattern: other accounts subscribe to a *stream*, and send requests to a *service*. An
import names the exporting account and a subject of its export, and may rename it locally. The whole set is
checked when it is read (`AccountBook`): every import must have an export, and no message may go round in a
circle. A book contains only valid imports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from supercluster.broker.protocol.renaming import Fixed, Renaming
from supercluster.broker.protocol.subject_transform import SubjectTransform
from supercluster.broker.protocol.subjects import is_subset, matches, overlap

SINGLETON, STREAMED, CHUNKED = "singleton", "stream", "chunked"
RESPONSE_TYPES = (SINGLETON, STREAMED, CHUNKED)
THRESHOLD_DEFAULT_MS = 120_000
"""NATS's own: so long a responder may think, and pause between answers."""

Path = tuple[str | int, ...]
"""Where something stands in what was read: keys and indexes from the map of accounts on."""


class WrongImportError(ValueError):
    """Imports and exports do not fit; `path` says which one, the text why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(why)
        self.path = path


@dataclass(frozen=True, slots=True)
class Export:
    """An offer."""

    subject: bytes
    is_service: bool
    accounts: frozenset[str] | None = None
    """To whom; None: to all."""
    account_token: int = 0
    """The token that has to be the name of the account that imports, counted from 1; 0: none."""
    response: str = SINGLETON
    """Of a service: how many answers a request gets."""
    threshold_ms: int = THRESHOLD_DEFAULT_MS
    path: Path = field(default=(), compare=False)

    def admits(self, account: str, subject: bytes) -> bool:
        """May this account import that?"""
        if not is_subset(subject, self.subject) or (
            self.accounts is not None and account not in self.accounts
        ):
            return False
        return not self.account_token or subject.split(b".")[self.account_token - 1] == account.encode()


@dataclass(frozen=True, slots=True)
class StreamImport:
    """What is published there comes to subscribers here."""

    account: str
    """Who offers it."""
    naming: Renaming
    path: Path = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class ServiceImport:
    """What is asked here goes there, and the answer comes back."""

    account: str
    """Who offers it."""
    naming: Renaming | Fixed
    shares: bool = False
    """Is the responder told who asks?"""
    path: Path = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Destination:
    """One of the subjects that a mapping leads to."""

    transform: SubjectTransform
    percent: int = 100


@dataclass(frozen=True, slots=True)
class SubjectMapping:
    """What clients of an account publish to `subject` goes elsewhere; what is wanting to 100 percent stays where it is."""

    subject: bytes
    destinations: tuple[Destination, ...]
    path: Path = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class AccountSpec:
    """One account, as it is declared."""

    name: str
    exports: tuple[Export, ...] = ()
    streams: tuple[StreamImport, ...] = ()
    services: tuple[ServiceImport, ...] = ()
    mappings: tuple[SubjectMapping, ...] = ()
    has_jetstream: bool = True


class AccountBook:
    """All accounts that say something; the others have neither imports nor exports."""

    def __init__(self, accounts: Iterable[AccountSpec] = ()) -> None:
        """
        Raises:
            WrongImportError: an import is not offered, or goes round in a circle.
        """
        self.accounts: dict[str, AccountSpec] = {spec.name: spec for spec in accounts}
        self.without_jetstream = frozenset(
            spec.name for spec in self.accounts.values() if not spec.has_jetstream
        )
        self.listeners: dict[str, tuple[tuple[str, StreamImport], ...]] = {}
        """By the account that offers: who listens to what of it."""
        listeners: dict[str, list[tuple[str, StreamImport]]] = {}
        for spec in self.accounts.values():
            for stream in spec.streams:
                self.export_for(spec.name, stream)
                listeners.setdefault(stream.account, []).append((spec.name, stream))
            for service in spec.services:
                self.export_for(spec.name, service)
        self.listeners = {name: tuple(found) for name, found in listeners.items()}
        for spec in self.accounts.values():
            for export in spec.exports:
                self._check_named(export)
        self._check_circles()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccountBook) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(tuple(self.accounts))

    def _facts(self) -> Mapping[str, object]:
        return {name: _facts(spec) for name, spec in self.accounts.items()}

    def export_for(self, account: str, wanted: StreamImport | ServiceImport) -> Export:
        """The offer that an import is about: that of just this subject, else the first that has it.

        Raises:
            WrongImportError: there is none, or not for this account.
        """
        is_service = isinstance(wanted, ServiceImport)
        kind = "service" if is_service else "stream"
        owner = self.accounts.get(wanted.account)
        subject = wanted.naming.there
        if owner is None:
            raise WrongImportError(
                wanted.path, f"account {wanted.account!r} of the {kind} import is not declared"
            )
        offers = [one for one in owner.exports if one.is_service == is_service]
        offers.sort(key=lambda one: one.subject != subject)
        for offer in offers:
            if offer.admits(account, subject):
                return offer
        raise WrongImportError(
            wanted.path,
            f"{kind} import {subject.decode()!r}: account {wanted.account!r} does not export it"
            + (f" to {account!r}" if any(is_subset(subject, one.subject) for one in offers) else ""),
        )

    def asked(self, account: str, subject: bytes) -> tuple[str, bytes]:
        """Where a request of an account's client is answered, and as what: over one import after the other."""
        spec = self.accounts.get(account)
        for service in spec.services if spec is not None else ():
            if matches(subject, service.naming.here):
                return self.asked(service.account, service.naming.outward(subject))
        return account, subject

    def hears(self, account: str, other: str, subject: bytes) -> bool:
        """Does what the other account publishes to the subject come to this one, under the same name?"""
        if account == other:
            return True
        spec = self.accounts.get(account)
        return any(
            one.account == other
            and matches(subject, one.naming.there)
            and one.naming.inward(subject) == subject
            for one in (spec.streams if spec is not None else ())
        )

    def _check_named(self, export: Export) -> None:
        unknown = sorted((export.accounts or frozenset()) - self.accounts.keys())
        if unknown:
            raise WrongImportError(export.path, f"account {unknown[0]!r} of the export is not declared")

    def _check_circles(self) -> None:
        """Does something that is asked here, or heard there, come back to where it began?"""
        services = [(spec.name, one) for spec in self.accounts.values() for one in spec.services]
        streams = [(spec.name, one) for spec in self.accounts.values() for one in spec.streams]
        _check_circle(
            [(name, one.naming.here, one.account, one.naming.there, one.path) for name, one in services]
        )
        _check_circle(
            [(name, one.naming.here, one.account, one.naming.there, one.path) for name, one in streams]
        )


_Step = tuple[str, bytes, str, bytes, Path]
"""An import: the account that has it, its subject at home, the account that it leads to, and the subject there."""


def _check_circle(steps: list[_Step]) -> None:
    by_account: dict[str, list[int]] = {}
    for at, step in enumerate(steps):
        by_account.setdefault(step[0], []).append(at)
    following = [
        [other for other in by_account.get(step[2], ()) if overlap(step[3], steps[other][1])]
        for step in steps
    ]
    done: set[int] = set()
    for start in range(len(steps)):
        way: list[tuple[int, int]] = [(start, 0)]
        on_way = {start}
        while way and start not in done:
            at, branch = way[-1]
            if branch < len(following[at]):
                way[-1] = (at, branch + 1)
                other = following[at][branch]
                if other in on_way:
                    raise WrongImportError(
                        steps[other][4],
                        f"import {steps[other][3].decode()!r} of account {steps[other][2]!r} forms a cycle",
                    )
                if other not in done:
                    way.append((other, 0))
                    on_way.add(other)
            else:
                done.add(at)
                on_way.discard(at)
                way.pop()


def _facts(spec: AccountSpec) -> object:
    """What makes two declarations the same."""
    return (
        spec.exports,
        [(one.account, one.naming.there, one.naming.here, _swaps(one.naming)) for one in spec.streams],
        [
            (one.account, one.naming.there, one.naming.here, _swaps(one.naming), one.shares)
            for one in spec.services
        ],
        [(one.subject, [(d.transform, d.percent) for d in one.destinations]) for one in spec.mappings],
        spec.has_jetstream,
    )


def _swaps(naming: Renaming | Fixed) -> bytes:
    """Which wildcard is which: told by an example."""
    example = b".".join(
        b"%d" % at if token in (b"*", b">") else token for at, token in enumerate(naming.here.split(b"."))
    )
    return naming.outward(example)


NO_ACCOUNTS = AccountBook()
