"""The order in which pending messages are due for redelivery, earliest first.

Deadlines are kept a stretch of messages at a time and checked against the consumer's state when they come up,
so an acknowledgement costs nothing here. Stale deadlines are removed when they outnumber pending ones, so
memory is bounded by the pending messages and not by the rate.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from supercluster.broker.jetstream.state.consumer import NEVER_NS, ConsumerState

# Below this many remembered sequences sweeping is not worth it.
_SWEEP_FROM = 16_384
# As many are lined up in one go, and a stretch beyond.
LINED_UP_MAX = 4096
_ALL_PENDING: Sequence[int] = ()
"""Stands for all that is pending when a queue begins."""


class RedeliveryQueue:
    """Deadlines of one consumer's pending messages."""

    __slots__ = ("_count", "_due", "_heap", "_number", "_queued", "_state")

    def __init__(self, state: ConsumerState) -> None:
        self._state = state
        self._heap: list[tuple[int, int, Sequence[int]]] = []
        self._due: deque[int] = deque()
        self._queued: set[int] = set()
        self._number = 0
        self._count = 0
        # When anything is due at all is known quickly. What is due when is found out then: a leader that begins has many
        # consumers to begin with.
        first_ns = min(map(itemgetter(1), state.pending.values()), default=NEVER_NS)
        if first_ns < NEVER_NS:
            self._push(first_ns, _ALL_PENDING)

    def _rebuild(self) -> None:
        pending, exhausted = self._state.pending, self._state.exhausted
        self._heap = []
        self._count = 0
        # What was delivered together is due together, and stands side by side.
        pairs = zip(map(itemgetter(1), pending.values()), pending, strict=True)
        for due_ns, group in groupby(pairs, key=itemgetter(0)):
            seqs = [seq for _, seq in group]
            if exhausted:
                seqs = [seq for seq in seqs if seq not in exhausted]
            if seqs:
                self._push(due_ns, seqs)

    def _push(self, due_ns: int, seqs: Sequence[int]) -> None:
        self._number += 1
        self._count += len(seqs)
        heapq.heappush(self._heap, (due_ns, self._number, seqs))

    def add(self, due_ns: int, seqs: Sequence[int]) -> None:
        """These messages are due at `due_ns`, unless the state says otherwise by then."""
        self._push(due_ns, seqs)
        if self._count > _SWEEP_FROM and self._count > 4 * len(self._state.pending):
            self._rebuild()

    def collect(self, now_ns: int) -> None:
        """Line up what is due."""
        heap, pending, queued = self._heap, self._state.pending, self._queued
        while heap and heap[0][0] <= now_ns and len(self._due) < LINED_UP_MAX:
            _, _, seqs = heapq.heappop(heap)
            if seqs is _ALL_PENDING:
                self._rebuild()
                heap = self._heap
                continue
            self._count -= len(seqs)
            for seq in seqs:
                waiting = pending.get(seq)
                if waiting is not None and waiting[1] <= now_ns and seq not in queued:
                    queued.add(seq)
                    self._due.append(seq)

    def peek(self, now_ns: int) -> int | None:
        """The next message to deliver again; it stays until `pop`."""
        pending = self._state.pending
        while self._due:
            seq = self._due[0]
            waiting = pending.get(seq)
            if waiting is not None and waiting[1] <= now_ns:
                return seq
            self.pop()
        return None

    def pop(self) -> None:
        self._queued.discard(self._due.popleft())

    def next_due_ns(self) -> int | None:
        """When something is due: 0 when something is now."""
        if self._due:
            return 0
        return self._heap[0][0] if self._heap else None
