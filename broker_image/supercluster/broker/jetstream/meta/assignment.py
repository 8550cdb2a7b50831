"""A stream's record in the map."""

from __future__ import annotations

from dataclasses import dataclass

from supercluster.broker.jetstream.config.metadata_keys import RESOURCE_KEY
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.meta.map_recovery import Standing
from supercluster.broker.jetstream.meta.migration import Arrival, Following, StreamMigration
from supercluster.broker.jetstream.meta.move_record import Move, MoveReport
from supercluster.broker.jetstream.meta.restoring import Restoring
from supercluster.broker.jetstream.meta.stream_recovery import Recovery


@dataclass(frozen=True, slots=True)
class Assignment:
    """One stream: its configuration, and the members that its group was started with or that its last move ended with.
    For the membership in force the stream's own group has the last word (SF-5)."""

    account: str
    name: str
    group: str
    config: StreamConfig
    version: int
    """Meta index of the last change of the configuration; more than that where the stream's own log came with a later one from another
    super-cluster."""
    members: tuple[str, ...]
    created_ns: int
    move: Move | None = None
    """The move that runs. From its start `config` has the new placement, or the new count of replicas."""
    last_move: MoveReport | None = None
    recovery: Recovery | None = None
    """The forced recovery that began the stream's present lineage (SF-9)."""
    standing: Standing = Standing.KNOWN
    restoring: Restoring | None = None
    """The restore that makes it, while the stream is not whole and nobody sees it."""
    migration: StreamMigration | None = None
    """Its way to another super-cluster (green)."""
    following: Following | None = None
    """Its way here from another super-cluster (blue), until it is open and somebody sees it: `group` is its own, to be."""
    arrival: Arrival | None = None
    """How it came from another super-cluster."""
    attempts: int = 0
    """The number of the last attempt to take it to another super-cluster, of whatever migration."""

    @property
    def wanted(self) -> StreamConfig:
        """The configuration that it has, or gets when it is whole: what names, subjects and bytes it takes from others."""
        return self.restoring.config if self.restoring is not None else self.config

    def next_version(self, index: int) -> int:
        """Of a configuration that the entry at `index` puts: the stream's log takes later ones only."""
        return max(index, self.version + 1)

    @property
    def is_shown(self) -> bool:
        """Does anybody see it: is it neither being restored nor on its way here?"""
        return self.restoring is None and self.following is None

    @property
    def far_world(self) -> str:
        """The super-cluster that has the stream instead of this one; empty: this one has it. Nobody makes, moves, repairs or deletes
        it here."""
        return self.migration.world if self.migration is not None and self.migration.is_far else ""

    @property
    def source_group(self) -> str:
        """Blue's group, where that is another one than `group`: of a stream that went, comes or came."""
        if self.following is not None:
            return self.following.source
        if self.arrival is not None:
            return self.arrival.source
        return self.migration.source if self.migration is not None and self.migration.is_far else ""

    @property
    def other_groups(self) -> tuple[str, ...]:
        """Groups besides `group` under which the stream is known."""
        to_be = (self.migration.next_group,) if self.migration is not None else ()
        return tuple(
            found for found in dict.fromkeys((self.source_group, *to_be)) if found not in ("", self.group)
        )

    @property
    def has_begun_before(self) -> bool:
        """Is there a group already, which nobody may begin empty? Of a stream that was there when the map was recovered
        nobody knows who had begun it, and who had dropped it since."""
        came = self.following is not None or self.arrival is not None
        return self.has_moved or self.recovery is not None or self.standing is not Standing.KNOWN or came

    @property
    def is_unconfirmed(self) -> bool:
        """Is it as a recovered map has it, and its own group has not said who its members are (SF-5)?"""
        return self.standing is Standing.UNCONFIRMED

    @property
    def is_short(self) -> bool:
        """Does it lack members that a forced recovery left behind, and nobody brings any?"""
        lacks = len(self.members) < self.config.num_replicas
        return self.recovery is not None and self.move is None and lacks and not self.far_world

    @property
    def has_moved(self) -> bool:
        """Did a move of this very group end? One that began anew in memory has the last move of the group before it."""
        return self.last_move is not None and self.last_move.ended_ns > self.created_ns

    @property
    def declared_by(self) -> str:
        """The resource that declares the stream (`namespace/name`), empty when none does (SF-23)."""
        return dict(self.config.metadata).get(RESOURCE_KEY, "")
