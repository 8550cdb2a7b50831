"""The map of streams as one broker sees it: the meta group's state as applied here, and how fresh it is.

The broker's parts read it. Bootstrap sets the replica, the map reader sets the freshness, and the map's
lineages determine which meta group counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from supercluster.broker.jetstream.meta.accounts import NO_LIMITS, AccountLimits
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.map_replica import MapReplica
from supercluster.broker.jetstream.meta.migration import Migration
from supercluster.broker.jetstream.replica.lineage import META_GROUP


@dataclass(frozen=True, slots=True)
class FarCapture:
    """What a stream of another super-cluster captures there."""

    version: int
    """Of its configuration. Those of two streams do not compare: the version that a stream had before it came goes on. A map that is
    recovered by force may go back to an earlier one."""
    index: int
    """The last entry of the map there behind which that is known to have been so. A recovered map counts on from a later one."""
    subjects: tuple[str, ...]


class MapView:
    def __init__(self, meta_id: str) -> None:
        self.meta_id = meta_id
        """The meta group's name, which has the lineage of the map that this volume has joined (SF-9)."""
        self.replica: MapReplica | None = None
        self.index = 0
        """The meta group's entry up to which the map was applied here."""
        self.is_fresh = False
        """Was the map read since the last time that it may have changed without this broker?"""
        self.unread_since_ms = 0
        """Monotonic: since when it is not fresh."""
        self.far_subjects: dict[tuple[str, str], FarCapture] = {}
        """By world and group (`node/far_subjects.py`)."""

    @property
    def lineage(self) -> str:
        """What HELLO says of it: nothing before the first recovery of the map."""
        return self.meta_id if self.is_recovered else ""

    @property
    def is_recovered(self) -> bool:
        """Was the map recovered by force (SF-9)? Then its lineage began with one member, and everybody else came as a learner."""
        return self.meta_id != META_GROUP

    @property
    def bootstrap_id(self) -> str:
        """Which beginning the map goes back to that this broker goes by; empty while it has read none (SF-26)."""
        return self.replica.state.bootstrap_id if self.replica is not None else ""

    def has_nobody_but(self, node: str) -> bool:
        """Is there a map, and no other broker in it?"""
        return self.replica is not None and self.replica.state.brokers.keys() <= {node}

    @property
    def level(self) -> int:
        """What a broker has to speak to read this broker's map."""
        return self.replica.state.level if self.replica is not None else 0

    @property
    def streams(self) -> Iterable[Assignment]:
        """All streams, also those that are being restored or on their way here. Where subjects overlap, the first stream has them: one
        that is still here, then those of another super-cluster, and of those the one that got its subjects last. The others may have been
        deleted there."""
        streams = self.replica.state.streams.values() if self.replica is not None else ()
        if not self.far_subjects:
            return streams

        def order(found: Assignment) -> tuple[bool, int]:
            told = self.far_subjects.get((found.far_world, found.group)) if found.far_world else None
            return bool(found.far_world), -told.index if told is not None else 1

        return sorted(map(self._as_told, streams), key=order)

    def streams_of(self, account: str) -> list[Assignment]:
        """An account's."""
        return (
            list(map(self._as_told, self.replica.state.of_account(account)))
            if self.replica is not None
            else []
        )

    def _as_told(self, found: Assignment) -> Assignment:
        told = self.far_subjects.get((found.far_world, found.group)) if found.far_world else None
        if told is None or told.subjects == found.config.subjects:
            return found
        return replace(found, config=replace(found.config, subjects=told.subjects))

    def by_group(self, group_id: str) -> Assignment | None:
        """The stream that has the group."""
        return self.replica.state.by_group(group_id) if self.replica is not None else None

    def find(self, account: str, name: str) -> Assignment | None:
        """What the map has of a stream, whole or not."""
        return self.replica.state.streams.get((account, name)) if self.replica is not None else None

    def stream_of(self, account: str, name: str) -> Assignment | None:
        """What the map has of a stream that is whole, and here or in green."""
        found = self.find(account, name)
        return found if found is not None and found.is_shown else None

    def goes_on_as(self, group: str) -> str:
        """The group of the same stream in another super-cluster, where that has the stream; otherwise the group itself."""
        state = self.replica.state if self.replica is not None else None
        key = state.other_groups.get(group) if state is not None else None
        found = state.streams.get(key) if state is not None and key is not None else None
        return found.group if found is not None and found.far_world else group

    def migration(self, migration_id: str) -> Migration | None:
        return self.replica.state.migrations.get(migration_id) if self.replica is not None else None

    def cluster_of(self, node: str) -> str | None:
        """The cluster that the meta group has a broker's name for."""
        record = self.replica.state.brokers.get(node) if self.replica is not None else None
        return record.cluster if record is not None else None

    def process_count_of(self, node: str, incarnation: str) -> int:
        """The number of the last process that the meta group knows on that volume of the broker; 0: it knows none."""
        state = self.replica.state if self.replica is not None else None
        record = state.brokers.get(node) if state is not None else None
        if state is None or record is None or record.incarnation != incarnation:
            return 0
        return state.processes.get(node, 0)

    def account_limits(self, account: str) -> AccountLimits:
        """What the map has of an account."""
        return self.replica.state.accounts.limits_of(account) if self.replica is not None else NO_LIMITS

    def has_failed(self, group_id: str, node: str) -> bool:
        """Does the map say that the broker's copy has been of no use for a while?"""
        return self.replica is not None and group_id in self.replica.state.failed_copies.get(node, ())
