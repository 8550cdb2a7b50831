"""The interface of a broker to its replica of the meta group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from supercluster.broker.jetstream.config.limits import ServerLimits
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import Migration
from supercluster.broker.jetstream.meta.stream_recovery import CopiesTold
from supercluster.broker.jetstream.placement.room import Room
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts
from supercluster.broker.jetstream.replica.host import GroupHost


class MetaHost(GroupHost, Protocol):
    """What the meta group needs from its broker besides a group's host."""

    def map_changed(self, groups: list[str]) -> None:
        """Entries were applied: open, change or remove these groups, and the capture map."""

    def version_of(self, node: str) -> int | None:
        """The frame version of a broker in contact, this one included; None: it is not in contact."""

    def process_count_of(self, node: str) -> int:
        """The number of the process of a broker in contact on its volume, this one included; 0: it did not say."""

    @property
    def world(self) -> str:
        """What other super-clusters call this one in the names of its brokers (`migration/worlds.py`)."""

    def drop_far(self, world: str, group: str, attempt: int, migration_id: str) -> None:
        """Tell the brokers of another super-cluster that its copies are to follow the group no more."""

    def ask_cut(self, world: str, next_group: str, attempt: int) -> None:
        """Ask the brokers of another super-cluster what became of an attempt; the group's leader answers."""

    def clients_left(self, migration: Migration) -> str:
        """Why clients of the migration's scope are still to go to the other super-cluster, in words; empty: none is."""

    @property
    def server_limits(self) -> ServerLimits:
        """What this broker allows every stream and consumer."""

    def store_bytes_max(self, storage: str) -> int:
        """What this broker was told that its streams may take; 0: nothing was said."""

    def room_of(self, node: str) -> Room | None:
        """What may still be stored on a broker; None while it has not said."""

    def ask_stream(self, found: Assignment, then: Callable[[StreamFacts | None], None]) -> None:
        """Ask the stream's leader; None when it does not answer in time."""

    def ask_copies(self, found: Assignment, then: CopiesTold) -> None:
        """Ask every broker in contact what copies of the stream it holds, within a bound; who did not answer in time is
        told too."""

    def map_index_of(self, node: str) -> int:
        """The meta index whose map that broker has said to have."""

    def map_was_read(self) -> None:
        """Everything that was committed when the read was asked for is applied here."""

    def map_read_failed(self) -> None:
        """Nobody could confirm the read: ask again later."""

    def meta_leader_heard(self, *, heard: bool) -> None:
        """This replica hears a leader, again or another one; or none any more."""

    def meta_leadership_lost(self) -> None:
        """This replica does not lead any more: its map may not be the newest one."""
