"""The records of a migration to another super-cluster in a map of streams (`docs/adr/cutover.md`).

Blue's map holds the migration itself and the progress of each of its streams. Green's map holds the group of
blue that each incoming stream's copies follow, and for a stream that has arrived the state in which it was
opened. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from supercluster.broker.jetstream.replica.lineage import next_lineage

# Migrations that ended and are remembered by their ids, so that a call that comes late starts nothing.
ENDED_MAX = 16
# Streams that green may have copies of and blue keeps, or deleted. Of more than these the oldest are forgotten, and an event names
# those that green has not answered.
DROPPED_MAX = 1024
# A map that was recovered by force does not know how many attempts there were since: it goes on behind all that there can be.
ATTEMPTS_SKIPPED = 1000
_TOKEN_BYTES = 4


def next_group(group: str, migration: str, attempt: int) -> str:
    """Green's group of a stream that is `group` in blue: another one with each attempt."""
    token = blake2b(f"{migration} {attempt}".encode(), digest_size=_TOKEN_BYTES).hexdigest()
    return next_lineage(group, token)


# ---- blue ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Green:
    """The super-cluster that a migration leads to."""

    identity: str
    name: str = ""
    addresses: tuple[str, ...] = ()
    """Of its migration port, `host:port`."""
    tls_name: str = ""
    """What its certificate names, where that is not the address."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration, in blue's map."""

    id: str
    green: Green
    world: str
    """Green's."""
    account: str = ""
    """The account whose streams go; empty: all."""
    clusters: tuple[tuple[str, str], ...] = ()
    """Names of blue's clusters, each with the name of the one that takes its place on green."""
    bridges: bool = False
    """Are clients that cannot follow served over the bridge? Else preflight refuses them."""
    started_ns: int = 0
    cancelled: bool = False
    """No stream begins any more, and those that are not handed go back. Those that are open stay open."""
    final: bool = False
    """Nobody goes back: blue's copies go as soon as the evidence is there. No stream begins any more."""
    final_ns: int = 0
    """Since when."""
    ended_ns: int = 0
    """When the last of its streams was cleaned, or had gone back."""
    dropped: tuple[tuple[str, int], ...] = ()
    """Groups of blue's, each with the last attempt, that green is to follow no more."""

    @property
    def runs(self) -> bool:
        return not self.ended_ns

    def called(self, cluster: str) -> str:
        """What green is to call that cluster of blue's; empty: nothing is said of it."""
        return dict(self.clusters).get(cluster, "")

    def covers(self, account: str) -> bool:
        return self.account in ("", account)

    def overlaps(self, account: str) -> bool:
        """May another migration, of that scope, have a stream in common with it?"""
        return not (self.account and account) or self.account == account

    def bars(self, account: str, ways: Iterable[StreamMigration]) -> bool:
        """Does it keep another migration, of that scope, from beginning? One that is called off does until its streams are back, and a final
        one until they are cleaned; then green alone is told what to follow no more, by numbers of attempts that the next ones do not have.
        `ways`: of all streams."""
        if not (self.runs and self.overlaps(account)):
            return False
        mine = [way for way in ways if way.id == self.id]
        if self.final:
            return any(way.stage is not StreamStage.CLEANED for way in mine)
        return not self.cancelled or any(not way.is_far for way in mine)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Migration:
        """Fields of a later version are passed over."""
        known = {name: data[name] for name in _names(Migration) if name in data}
        green = {name: data["green"][name] for name in _names(Green) if name in data["green"]}
        green["addresses"] = tuple(map(str, green.get("addresses", ())))
        known["clusters"] = tuple((str(blue), str(near)) for blue, near in data.get("clusters", ()))
        known["dropped"] = tuple((str(group), int(attempt)) for group, attempt in data.get("dropped", ()))
        return Migration(**{**known, "green": Green(**green)})


class StreamStage(StrEnum):
    """How far a stream is, as blue's map knows it."""

    LEARNING = "learning"
    """Green's copies are learners of blue's group, or are about to be."""
    HANDING = "handing"
    """The stream's leader may fence it and hand it over: from now on nobody but green, by its refusal, gives it back to a blue
    that has lost its log."""
    OPEN = "open"
    """Green has it. Blue's copies are closed and kept."""
    CLEANED = "cleaned"
    """And blue's copies are dropped."""


@dataclass(frozen=True, slots=True)
class StreamMigration:
    """One stream's way, in blue's map."""

    id: str
    """The migration's."""
    attempt: int
    """1 <= attempt: one more than the stream's last one of any migration, and than one that green refused."""
    stage: StreamStage
    world: str
    """Green's."""
    source: str
    """Blue's group, G."""
    next_group: str
    """Green's group of this attempt, G'."""
    digest: str = ""
    """Of the cut, hexadecimal, as blue's group has it. From OPEN on; before, where a map that was recovered by force learned of HANDED."""
    last_seq: int = 0
    """The stream's at the cut. From OPEN on."""
    term: int = 0
    """Of the leader of G that asked for HANDING: nobody else may fence the stream under it."""
    members: tuple[str, ...] = ()
    """With HANDING: green's copies, under their far names, that alone may be handed the stream under this mark."""
    discarded: bool = False
    """With CLEANED: by a person's word, without evidence. The stream does not count as one of the migration's any more."""

    @property
    def is_far(self) -> bool:
        """Is the stream green's?"""
        return self.stage in (StreamStage.OPEN, StreamStage.CLEANED)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StreamMigration:
        known = {name: data[name] for name in _names(StreamMigration) if name in data}
        known["members"] = tuple(map(str, data.get("members", ())))
        return StreamMigration(**{**known, "stage": StreamStage(data["stage"])})


# ---- green -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Following:
    """A stream on its way here, in green's map: shown to nobody."""

    migration: str
    attempt: int
    source: str
    """Blue's group, G, which the copies follow."""
    world: str
    """Blue's."""
    members: tuple[str, ...]
    """The copies in blue's group, under their far names: the assignment's own members are the same ones under near names."""
    cluster: str = ""
    """What green calls the cluster of the stream's placement. The configuration that follows has blue's name, until it is open."""
    version: int = 0
    """Of the configuration in blue, as far as green was asked for it."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Following:
        known = {name: data[name] for name in _names(Following) if name in data}
        return Following(**{**known, "members": tuple(map(str, data["members"]))})


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a stream came here, in green's map: what its group said when it opened. Kept as evidence."""

    migration: str
    attempt: int
    source: str
    world: str
    digest: str
    """Of the cut, hexadecimal, as green's group has it."""
    last_seq: int
    """At the cut."""
    at_ns: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Arrival:
        return Arrival(**{name: data[name] for name in _names(Arrival) if name in data})


def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
