"""Reads that a leader has to confirm: it still was the leader after they were asked, so its commit index is new enough.

A read is given the commit index of the moment, and is confirmed once a quorum answered a heartbeat round that started
later. Reads of one turn share a round; their number is bounded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PendingRead:
    """A read on its way; `origin` is the follower that asked, "" for the leader itself."""

    context: int
    origin: str
    index: int
    round: int
    """Confirmed by a quorum of answers to this heartbeat round or a later one."""


class ReadQueue:
    """The reads of one leadership."""

    def __init__(self, reads_max: int) -> None:
        self._reads_max = reads_max
        self._early: list[tuple[int, str]] = []
        """Asked before the leader committed an entry of its own term: it does not yet know the commit index."""
        self._waiting: deque[PendingRead] = deque()

    def __len__(self) -> int:
        return len(self._early) + len(self._waiting)

    def add(self, context: int, origin: str, commit_index: int | None, next_round: int) -> bool:
        """Queue a read; False when there are too many. `commit_index` is None while it is not yet trustworthy."""
        if len(self) >= self._reads_max:
            return False
        if commit_index is None:
            self._early.append((context, origin))
        else:
            self._waiting.append(PendingRead(context, origin, commit_index, next_round))
        return True

    def start_early(self, commit_index: int, next_round: int) -> None:
        """The leader now knows the commit index."""
        self._waiting.extend(
            PendingRead(context, origin, commit_index, next_round) for context, origin in self._early
        )
        self._early.clear()

    def wants_round(self, last_round: int) -> bool:
        """Does a read wait for a round that has not been sent?"""
        return bool(self._waiting) and self._waiting[-1].round > last_round

    def confirmed(self, round_: int) -> list[PendingRead]:
        """Take out the reads that a quorum's answers to `round_` confirm."""
        done: list[PendingRead] = []
        while self._waiting and self._waiting[0].round <= round_:
            done.append(self._waiting.popleft())
        return done

    def drain(self) -> list[tuple[int, str]]:
        """Take out everything as (context, origin): the leadership ended."""
        rest = self._early + [(read.context, read.origin) for read in self._waiting]
        self._early = []
        self._waiting.clear()
        return rest
