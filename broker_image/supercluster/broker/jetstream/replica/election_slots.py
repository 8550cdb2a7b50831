"""Bounds the number of a broker's groups that stand for election at the same time (RP-3).

When a broker is lost that led hundreds of groups, each of them elects a leader. All at once they would delay
each other at every stage, until their time-outs were over and all began again. A few at a time finish at
once, and make room for the next. A group that stands late does no harm: its time-out was longer.

A slot is held until the election ends, at the latest until the group's next time-out. A group that cannot
win, because too few of its voters are linked, takes none. The meta group never waits.
"""

from __future__ import annotations

from supercluster.broker.jetstream.replica.lineage import is_meta
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.raft.config import Role

# So many elections fill a turn of the loop and the disk's next fsync, and are over well before a time-out.
STANDING_MAX = 32


class ElectionSlots:
    def __init__(self) -> None:
        self._standing: set[str] = set()
        self._waiting: dict[str, None] = {}
        """In the order in which they were due."""

    def takes(self, replica: Replica, now_ms: int) -> bool:
        """Would a tick make the group stand? Then it is in line for a place, and `admit` names it when it has one."""
        if is_meta(replica.id) or not replica.raft.is_due_to_stand(now_ms):
            return False
        # If it stood before, nothing came of it: others go first.
        self._standing.discard(replica.id)
        if not replica.raft.could_win():
            return False
        self._waiting.setdefault(replica.id)
        return True

    def admit(self) -> list[str]:
        """Those who have waited longest, as many as there are places."""
        free = max(STANDING_MAX - len(self._standing), 0)
        admitted = [group_id for group_id, _ in zip(self._waiting, range(free), strict=False)]
        for group_id in admitted:
            del self._waiting[group_id]
        return admitted

    @property
    def could_admit(self) -> bool:
        """Does somebody wait, and is there a place?"""
        return bool(self._waiting) and len(self._standing) < STANDING_MAX

    def follow(self, replica: Replica) -> None:
        """The group was ticked or had a turn: it may stand now, or not any more."""
        if replica.failed is None and replica.raft.role in (Role.PRECANDIDATE, Role.CANDIDATE):
            if not is_meta(replica.id) and replica.raft.could_win():
                self._standing.add(replica.id)
        else:
            self._standing.discard(replica.id)

    def end(self, group_id: str) -> None:
        """The group is gone."""
        self._standing.discard(group_id)
        self._waiting.pop(group_id, None)
