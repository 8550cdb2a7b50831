"""Reads that a leader has to confirm: it still leads after they were requested, so its commit index is new
enough.

A read is given the commit index of the moment, and is confirmed once a quorum answered a heartbeat round that
started later. Reads of one turn share a round; their number is bounded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from supercluster.broker.raft.config import ReadState
from supercluster.broker.raft.messages import ReadResponse
from supercluster.broker.raft.state import State


@dataclass(frozen=True, slots=True)
class PendingRead:
    """A read that waits for a quorum; `origin` is the follower that asked, "" for the leader itself."""

    context: int
    origin: str
    index: int
    round: int
    """Confirmed by a quorum of answers to this heartbeat round or a later one."""


@dataclass(slots=True, eq=False)
class ReadQueue:
    """The reads of one leadership. Each gets exactly one answer."""

    reads_max: int
    state: State
    _early: list[tuple[int, str]] = field(default_factory=list)
    """Asked before the leader committed an entry of its own term: it does not yet know the commit index."""
    _waiting: deque[PendingRead] = field(default_factory=deque)
    """Oldest first; neither index nor round decreases."""

    def __len__(self) -> int:
        return len(self._early) + len(self._waiting)

    def add(self, context: int, origin: str, next_round: int) -> None:
        """Queue a read. It fails at once when there are too many."""
        if len(self) >= self.reads_max:
            self.fail(context, origin)
        elif self.state.ready_to_serve:
            self._waiting.append(PendingRead(context, origin, self.state.commit_index, next_round))
        else:
            self._early.append((context, origin))

    def start_early(self, next_round: int) -> None:
        """The leader now knows the commit index."""
        index = self.state.commit_index
        self._waiting.extend(
            PendingRead(context, origin, index, next_round) for context, origin in self._early
        )
        self._early.clear()

    def wants_round(self, last_round: int) -> bool:
        """Does a read wait for a round that has not been sent?"""
        return bool(self._waiting) and self._waiting[-1].round > last_round

    def confirm(self, round_: int) -> None:
        """Answer the reads that a quorum's answers to `round_` confirm."""
        while self._waiting and self._waiting[0].round <= round_:
            read = self._waiting.popleft()
            if read.origin:
                self._respond(read.context, read.origin, read.index, ok=True)
            else:
                self.state.ready.reads.append(ReadState(read.context, read.index))

    def fail(self, context: int, origin: str) -> None:
        """Nobody can confirm it now."""
        if origin:
            self._respond(context, origin, 0, ok=False)
        else:
            self.state.ready.failed_reads.append(context)

    def fail_all(self) -> None:
        """The leadership ended."""
        for context, origin in (*self._early, *((read.context, read.origin) for read in self._waiting)):
            self.fail(context, origin)
        self._early.clear()
        self._waiting.clear()

    def _respond(self, context: int, to: str, index: int, *, ok: bool) -> None:
        self.state.send(ReadResponse(*self.state.head(to), context, index, ok))
