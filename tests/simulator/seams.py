"""A simulated broker's clocks and network: `ports.Clock` and `ports.Network` over the world."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.own_time import OwnTime
from supercluster.broker.ports import Channel, Ticket
from supercluster.broker.storage.volume.store import DueSync, VolumeStore

if TYPE_CHECKING:
    from tests.simulator.world import World


EPOCH_NS = 1_700_000_000_000_000_000


class SimClock(OwnTime):
    """A broker's clocks: wall time drifts and is off, monotonic time has a start of its own."""

    def __init__(self, world: World, offset_ns: int, drift_ppm: int) -> None:
        self._world = world
        self._offset_ns = offset_ns
        self._drift_ppm = drift_ppm
        self.step_ns = 0
        """The wall clock is wrong by so much (SF-28)."""
        super().__init__(self._machine_ms)

    def now_ns(self) -> int:
        ns = self._world.now_us * 1000
        return EPOCH_NS + self.step_ns + self._offset_ns + ns + ns * self._drift_ppm // 1_000_000

    def _machine_ms(self) -> int:
        us = self._world.now_us
        return (us + us * self._drift_ppm // 1_000_000) // 1000


class SimNetwork:
    """`ports.Network` of one broker."""

    def __init__(self, world: World, node: str) -> None:
        self._world = world
        self._node = node

    def send(self, node: str, frame_type: int, body: Sequence[bytes | memoryview], channel: Channel) -> bool:
        return self._world.send(self._node, node, frame_type, b"".join(body), channel)

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        self._world.to_client(subject, header, bytes(payload))

    def publish_many(self, account: str, messages: Sequence[tuple[bytes, bytes]]) -> None:
        for subject, payload in messages:
            self._world.to_client(subject, b"", payload)

    def deliver(self, account: str, inbox: bytes, items: Sequence[tuple[bytes, bytes, bytes, Any]]) -> None:
        self._world.deliver(inbox, items)

    def has_interest(self, account: str, subject: bytes, queue: bytes = b"") -> bool:
        return True

    def pending_bytes(self, account: str, inbox: bytes) -> int:
        return 0


# An fsync takes so long at most, but for a disk that has much else to do.
SYNC_MS_MAX = 4.0
BUSY_MS_MAX = 400.0


class SimCore(BrokerCore):
    """A broker's core whose entries and votes become durable a while after they were written, as on a process's threads."""

    def __init__(self, world: World, key: str, *arguments: Any, **named: Any) -> None:
        """`key`: what the world calls it, where two brokers have one name."""
        self._world = world
        self.key = key
        self._lots = random.Random(f"{world.seed} {key}")
        super().__init__(*arguments, **named)
        # However small the state, entries are applied between two slices of a job.
        self.copies.slices.units_per_turn = 1

    def _wire_node(self, *parts: Any) -> None:
        super()._wire_node(*parts)
        # One opener is shared by all that open copies.
        opener = self.copy_manager._opener
        config_of = opener._raft_config
        opener._raft_config = lambda group_id, member: replace(  # type: ignore[method-assign]
            config_of(group_id, member), **self._world.frame_limits
        )

    def turn(self) -> None:
        super().turn()
        store = self.store
        assert isinstance(store, VolumeStore)
        for due in store.due_syncs(self.clock.monotonic_ms()):
            if (group := self.groups.get(due.group)) is not None:
                self.copies.reschedule(group)
            self._world.at(self._disk_ms(), partial(self._sync, due))

    def _disk_ms(self) -> float:
        # By lots of its own: what else happens in the world does not depend on how often a disk is written to.
        return self._lots.random() * (BUSY_MS_MAX if self._lots.random() < 0.02 else SYNC_MS_MAX)

    def _sync(self, due: DueSync) -> None:
        if self._world.nodes[self.key].core is not self:
            self._world.met["end in an fsync"] += 1
            return
        due.ticket.run()
        self._synced(due)

    def _synced(self, due: DueSync) -> None:
        if self._world.nodes[self.key].core is not self:
            return
        if self._world.waits(self.key, partial(self._synced, due)):
            return
        if self.entries_synced(due.group, due.log, partial(due.log.finish_sync, due.ticket)):
            self._world.want_turn(self.key)

    def start_votes(self, votes: list[tuple[str, Ticket]]) -> None:
        rng = self._world.rng
        for group_id, ticket in votes:
            wait_ms = rng.random() * (BUSY_MS_MAX if rng.random() < 0.02 else SYNC_MS_MAX)
            self._world.at(wait_ms, partial(self._vote_is_through, group_id, ticket))

    def save_checkpoint(self, group_id: str, ticket: Ticket) -> None:
        # By lots of its own: what else happens in the world does not depend on when a checkpoint is taken.
        wait_ms = self._lots.random() * BUSY_MS_MAX
        self._world.at(wait_ms, partial(self._checkpoint_is_through, group_id, ticket))

    def _checkpoint_is_through(self, group_id: str, ticket: Ticket) -> None:
        if self._world.nodes[self.key].core is not self:
            return  # The process ended before.
        ticket.run()
        self.checkpoint_saved(group_id, ticket)
        self._world.want_turn(self.key)

    def _vote_is_through(self, group_id: str, ticket: Ticket) -> None:
        if self._world.nodes[self.key].core is not self:
            return  # The process ended before.
        if self._world.waits(self.key, partial(self._vote_is_through, group_id, ticket)):
            return
        ticket.run()
        self.vote_saved(group_id, ticket)
        self._world.want_turn(self.key)
