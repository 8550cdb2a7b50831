"""Ticks the groups of a broker: each at its own deadline, and at no other time (RP-3).

A group's deadline is read after its turns and ticks. A caller that changes a group otherwise touches it,
which leads to a turn.
"""

from __future__ import annotations

from collections.abc import Mapping

from supercluster.broker.jetstream.replica.deadlines import Deadlines
from supercluster.broker.jetstream.replica.election_slots import ElectionSlots
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.ports import Clock
from supercluster.broker.raft.errors import DiskError

# When the wall clock has moved so far against the monotonic one, all deadlines are looked at anew.
CLOCK_MOVED_MS = 50
# And not again before: of a process that gets little processor time, the monotonic clock stays behind all the time.
CLOCK_LOOK_MS = 1000


class GroupTimers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines = Deadlines()
        self._slots = ElectionSlots()
        self._wall_ahead_ms = self._wall_ms() - clock.monotonic_ms()
        self._followed_ms = -CLOCK_LOOK_MS

    def begin(self, group_id: str) -> None:
        """A new group: its first tick is due at once."""
        self._deadlines.set(group_id, self._clock.monotonic_ms())

    def end(self, group_id: str) -> None:
        """The group is gone."""
        self._deadlines.set(group_id, None)
        self._slots.end(group_id)

    def follow(self, replica: Replica) -> None:
        """Whatever the group waits for may be due at another time now."""
        self._deadlines.set(replica.id, replica.deadline_ms() if replica.failed is None else None)
        self._slots.follow(replica)

    def tick(self, now_ms: int, groups: Mapping[str, Replica]) -> list[str]:
        """Tick what is due. Returns the groups that want a turn by it."""
        self._follow_wall_clock(now_ms, groups)
        stirred = []
        for group_id in self._deadlines.due(now_ms):
            replica = groups.get(group_id)
            if replica is None or replica.failed is not None or self._slots.takes(replica, now_ms):
                continue
            if self._tick(replica, now_ms):
                stirred.append(group_id)
        for group_id in self._slots.admit():
            replica = groups.get(group_id)
            if replica is not None and replica.failed is None and self._tick(replica, now_ms):
                stirred.append(group_id)
        return stirred

    def _tick(self, replica: Replica, now_ms: int) -> bool:
        """True when the group wants a turn by it."""
        try:
            if replica.tick(now_ms):
                self._slots.follow(replica)
                return True
        except DiskError as error:
            # One group's disk error is that group's alone.
            replica.fail(error)
            return False
        except Exception as error:
            replica.halt(error)
            return False
        self.follow(replica)
        return False

    def next_ms(self) -> int | None:
        """When the next group is due."""
        return self._clock.monotonic_ms() if self._slots.could_admit else self._deadlines.next_ms()

    def _wall_ms(self) -> int:
        return self._clock.now_ns() // 1_000_000

    def _follow_wall_clock(self, now_ms: int, groups: Mapping[str, Replica]) -> None:
        """What waits for a time of day (expiry, redelivery) was given a deadline by the monotonic clock: when the one
        has moved against the other, these are wrong."""
        ahead_ms = self._wall_ms() - now_ms
        is_due = now_ms - self._followed_ms >= CLOCK_LOOK_MS
        if is_due and abs(ahead_ms - self._wall_ahead_ms) > CLOCK_MOVED_MS:
            self._wall_ahead_ms, self._followed_ms = ahead_ms, now_ms
            for replica in groups.values():
                self.follow(replica)
