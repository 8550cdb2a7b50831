"""Turns of a broker's core: which groups work in one, in which order, for how long, and when time alone brings the next.

Groups that nobody touched and whose deadlines are not due are not looked at (RP-3). A turn goes in passes, since what one group
does may touch another, and is bounded in passes and time: what is left is for the next, when links and sockets were served.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from supercluster.broker.jetstream.core.dispatch import dispatch
from supercluster.broker.jetstream.links.frames import Body
from supercluster.broker.jetstream.links.raft_outbox import RaftMail
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.replica.timers import GroupTimers
from supercluster.broker.jetstream.turn.questions import Questions
from supercluster.broker.jetstream.turn.share import TurnShare
from supercluster.broker.jetstream.turn.slices import Slices
from supercluster.broker.ports import Ticket

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core.broker import BrokerCore

# A turn ends after so many passes over its own effects; what is left is for the next.
PASSES_MAX = 8
# Frames that a broker sent to itself and that wait within a turn.
LOCAL_FRAMES_MAX = 65536
# As many of them are taken in one pass: clients of this broker may ask thousands of questions in one turn.
LOCAL_FRAMES_OF_A_PASS = 256
# A turn that took so long ends; what is left is for the next, behind the links' heartbeats.
TURN_MS_MAX = 50


class Timed(Protocol):
    """A part of a core that has something to do by time alone."""

    def tick(self, now_ms: int, /) -> None: ...

    def deadline_ms(self) -> int | None: ...


class Turns:
    """See the module. One per broker."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self.mail = RaftMail(core.network)
        """Raft messages, which leave at the end of a turn."""
        self.votes: list[tuple[str, Ticket]] = []
        """Terms and votes that go to the disk together at the end of a pass."""
        self._local: deque[tuple[int, memoryview]] = deque()
        self._dirty: dict[str, None] = {}
        self._next: dict[str, None] = {}
        self._schedule = GroupTimers(core.clock)
        self.slices = Slices()
        """Long jobs of groups; they go on at the end of each turn."""
        self.share = TurnShare()
        self.questions = Questions(self.slices)

    # ---- what is to be done ---------------------------------------------------------------------------------------

    def touch(self, group_id: str) -> None:
        """The group has something to do in this turn."""
        self._dirty[group_id] = None

    def touch_next(self, group_id: str) -> None:
        """The group has more to do than is good for one turn."""
        self._next[group_id] = None

    def post_here(self, frame: int, body: Body) -> bool:
        """A frame of this broker to itself waits for the next pass. False: too many wait."""
        if len(self._local) >= LOCAL_FRAMES_MAX:
            return False
        self._local.append((frame, memoryview(body[0] if len(body) == 1 else b"".join(body))))
        return True

    @property
    def has_work(self) -> bool:
        """Is there something that the next turn would do without any new input?"""
        return bool(self._has_input or self.slices)

    @property
    def _has_input(self) -> bool:
        return bool(self._dirty or self._local or self._core.ingest.dirty or self._core.acks)

    def begin(self, group: Replica) -> None:
        """This broker holds a replica of the group from now on."""
        self._schedule.begin(group.id)
        self.touch(group.id)

    def end(self, group_id: str, group: Replica | None) -> None:
        """It does not any more."""
        self._schedule.end(group_id)
        if group is not None:
            self.slices.end(group)
            self.slices.begin_for_nobody(group.discarding())

    def reschedule(self, group: Replica) -> None:
        """Whatever a group waits for may be due at another time now."""
        if self._core.groups.get(group.id) is group:
            self._schedule.follow(group)

    # ---- a turn ---------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Do it, within the bounds."""
        core = self._core
        now_ms, began_ms = core.clock.monotonic_ms(), core.clock.machine_ms()
        turned: dict[str, Replica] = {}
        self.share.renew()
        self.questions.renew()
        for number in range(PASSES_MAX):
            core.ingest.flush(now_ms)
            core.acks.flush(now_ms)
            for _ in range(min(len(self._local), LOCAL_FRAMES_OF_A_PASS)):
                frame, body = self._local.popleft()
                dispatch(core, core.node, frame, body)
            if not self._has_input:
                break
            # However long the intake took, somebody has a turn: what fills the windows never outruns what empties them.
            if number and core.clock.machine_ms() - began_ms >= TURN_MS_MAX:
                break
            turned |= self._turn_groups(now_ms, began_ms)
            if self.votes:
                votes, self.votes = self.votes, []
                core.start_votes(votes)
            core.leaderships.flush()
        self.slices.go_on()
        self.mail.flush()
        for group in turned.values():
            self.reschedule(group)
        self._dirty |= self._next
        self._next = {}

    def _turn_groups(self, now_ms: int, began_ms: int) -> dict[str, Replica]:
        """The touched groups' turns, as many as the time allows: the rest keeps its place in line. A thousand elections at
        once, whose votes have to be durable, would otherwise keep the loop from its links until these count as silent,
        which would lead to a thousand elections more."""
        core = self._core
        turned: dict[str, Replica] = {}
        dirty, self._dirty = self._dirty, {}
        if core.meta_id in dirty:  # While it has no leader, nobody takes messages for any stream.
            dirty = {core.meta_id: None} | dirty
        left = iter(dirty)
        for group_id in left:
            group = core.groups.get(group_id)
            if group is None:
                continue
            group.turn(now_ms)
            turned[group_id] = group
            if core.clock.machine_ms() - began_ms >= TURN_MS_MAX:
                self._dirty = dict.fromkeys(left) | self._dirty
                break
        return turned

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick_groups(self, now_ms: int) -> None:
        """Those whose deadlines are due have something to do."""
        for group_id in self._schedule.tick(now_ms, self._core.groups):
            self.touch(group_id)

    def deadline_ms(self) -> int | None:
        """When the next group has something to do."""
        return self._schedule.next_ms()
