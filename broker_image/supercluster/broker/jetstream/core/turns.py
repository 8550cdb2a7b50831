"""Turns of a broker's core: the groups that work in a turn, their order, and the time that they may take.

A group without events and without a due deadline costs nothing (RP-3). A turn runs in passes, since one
group's work may cause work for another. It is bounded in passes and time; the remaining work waits for the
next turn, after links and sockets were served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from supercluster.broker.jetstream.core.host import ReplicaHost
from supercluster.broker.jetstream.frontend.ack_forwarder import AckForwarder
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.links.raft_outbox import RaftOutbox
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.publish.windows import PublishWindows
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.ports import Clock, Ticket

# A turn ends after so many passes over its own effects; what is left is for the next.
PASSES_MAX = 8
# As many of its own frames are taken in one pass: clients of this broker may ask thousands of questions in one turn.
OWN_FRAMES_OF_A_PASS = 64
# A turn that took so long ends; what is left is for the next, behind the links' heartbeats.
TURN_MS_MAX = 50


class Timed(Protocol):
    """A part of a core that has something to do by time alone."""

    def tick(self, now_ms: int, /) -> None: ...

    def deadline_ms(self) -> int | None: ...


class Turns:
    """See the module. One per broker."""

    def __init__(
        self,
        clock: Clock,
        peers: Peers,
        copies: Copies,
        map_view: MapView,
        leaderships: Leaderships,
        outbox: RaftOutbox,
        ingest: PublishWindows,
        acks: AckForwarder,
        host: ReplicaHost,
        start_votes: Callable[[list[tuple[str, Ticket]]], None],
        dispatch: Callable[[str, int, memoryview], None],
    ) -> None:
        self._clock = clock
        self._peers = peers
        self._copies = copies
        self._map = map_view
        self._leaderships = leaderships
        self._outbox = outbox
        self._ingest = ingest
        self._acks = acks
        self._share, self._questions = host.turn_share, host.questions
        self.start_votes = start_votes
        self._dispatch = dispatch
        self.votes: list[tuple[str, Ticket]] = []
        """Terms and votes that go to the disk together at the end of a pass."""

    @property
    def has_work(self) -> bool:
        """Is there something that the next turn would do without any new input?"""
        return bool(self._has_input or self._copies.slices)

    @property
    def _has_input(self) -> bool:
        return bool(self._copies.touched or self._peers.own_frames or self._ingest.dirty or self._acks)

    def turn(self) -> None:
        """Do it, within the bounds."""
        now_ms, began_ms = self._clock.monotonic_ms(), self._clock.machine_ms()
        own_frames = self._peers.own_frames
        turned: dict[str, Replica] = {}
        self._share.renew()
        self._questions.renew()
        for number in range(PASSES_MAX):
            self._ingest.flush(now_ms)
            self._acks.flush(now_ms)
            for _ in range(min(len(own_frames), OWN_FRAMES_OF_A_PASS)):
                frame, body = own_frames.popleft()
                self._dispatch(self._peers.node, frame, body)
            if not self._has_input:
                break
            # However long the intake took, somebody has a turn: what fills the windows never outruns what empties them.
            if number and self._clock.machine_ms() - began_ms >= TURN_MS_MAX:
                break
            turned |= self._turn_groups(now_ms, began_ms)
            if self.votes:
                votes, self.votes = self.votes, []
                self.start_votes(votes)
            self._leaderships.flush()
        self._copies.slices.go_on()
        self._outbox.flush()
        for group in turned.values():
            self._copies.reschedule(group)
        self._copies.turn_is_over()

    def _turn_groups(self, now_ms: int, began_ms: int) -> dict[str, Replica]:
        """The touched groups' turns, as many as the time allows: the rest keeps its place in line. A thousand elections at
        once, whose votes have to be durable, would otherwise keep the loop from its links until these count as silent,
        which would lead to a thousand elections more."""
        copies, meta_id = self._copies, self._map.meta_id
        turned: dict[str, Replica] = {}
        touched, copies.touched = copies.touched, {}
        if meta_id in touched:  # While it has no leader, nobody takes messages for any stream.
            touched = {meta_id: None} | touched
        left = iter(touched)
        for group_id in left:
            group = copies.groups.get(group_id)
            if group is None:
                continue
            group.turn(now_ms)
            turned[group_id] = group
            if self._clock.machine_ms() - began_ms >= TURN_MS_MAX:
                copies.touched = dict.fromkeys(left) | copies.touched
                break
        return turned
