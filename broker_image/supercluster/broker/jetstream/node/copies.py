"""The copies of groups that a broker holds, those that have work, and their long jobs.

Callers find a stream or the map here by its interface; only the modules that open copies know their classes.
"""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.jetstream.meta_leader.map_leader import MapLeader
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.replica.timers import GroupTimers
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.jetstream.turn.slices import Slices
from supercluster.broker.ports import Clock
from supercluster.broker.raft.confchange import node_of


class Copies:
    """See the module. One per broker."""

    def __init__(self, clock: Clock, broker_of: Callable[[str, str], str]) -> None:
        """`broker_of(group, node)`: what this broker calls the one that the group's log calls `node`."""
        self._broker_of = broker_of
        self.groups: dict[str, Replica] = {}
        """By the group's name."""
        self.streams: dict[str, StreamCopy] = {}
        """Those of streams."""
        self.map: MapLeader | None = None
        """That of the map, which may lead it."""
        self.slices = Slices()
        """Long jobs of groups; they go on at the end of each turn."""
        self.schedule = GroupTimers(clock)
        """When time alone gives a group something to do."""
        self.touched: dict[str, None] = {}
        """Groups that have something to do in this turn, in the order in which they were touched."""
        self._touched_next: dict[str, None] = {}

    def add(self, replica: Replica) -> None:
        """This broker holds a replica of the group from now on."""
        self.groups[replica.id] = replica
        self.schedule.begin(replica.id)
        self.touch(replica.id)

    def add_stream(self, copy: StreamCopy) -> None:
        """It is a stream's."""
        self.streams[copy.replica.id] = copy
        self.add(copy.replica)

    def drop(self, group_id: str) -> Replica | None:
        """It does not any more."""
        self.streams.pop(group_id, None)
        group = self.groups.pop(group_id, None)
        self.schedule.end(group_id)
        if group is not None:
            self.slices.end(group)
            self.slices.begin(None, group.discarding())
        return group

    def touch(self, group_id: str) -> None:
        """The group has something to do in this turn."""
        self.touched[group_id] = None

    def touch_next(self, group_id: str) -> None:
        """The group has more to do than is good for one turn: it goes on when sockets were served."""
        self._touched_next[group_id] = None

    def turn_is_over(self) -> None:
        """What was left for the next turn is touched in it."""
        self.touched |= self._touched_next
        self._touched_next = {}

    def reschedule(self, replica: Replica) -> None:
        """Whatever a group waits for may be due at another time now."""
        if self.groups.get(replica.id) is replica:
            self.schedule.follow(replica)

    def tick(self, now_ms: int) -> None:
        """Groups whose deadlines are due have something to do."""
        for group_id in self.schedule.tick(now_ms, self.groups):
            self.touch(group_id)

    def wake(self, node: str, now_ms: int, spread_ms: int | None = None) -> None:
        """Wake the groups that this broker shares with another one; their elections may be spread over some time."""
        for group in self.groups.values():
            if any(self._is_on(group, member, node) for member in group.raft.membership.members):
                group.raft.wake(now_ms, node, spread_ms)
                self.touch(group.id)

    def led_by(self, node: str) -> int:
        """How many groups follow that broker, as far as this one's replicas know."""
        found = ((group, group.raft.leader) for group in self.groups.values())
        return sum(leader is not None and self._is_on(group, leader, node) for group, leader in found)

    def _is_on(self, replica: Replica, member: str, node: str) -> bool:
        return self._broker_of(replica.id, node_of(member)) == node
