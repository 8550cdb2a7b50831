"""The next deadline of each of many groups: a heap of times that may be outdated, and the true times.

A broker holds thousands of groups of which nearly all are idle, so neither a turn nor a tick may examine each
of them (RP-3). Setting a time later than the one in the heap costs nothing: busy groups postpone their
deadlines all the time. An entry of the heap is compared with the true time when it comes up.

`next_ms` is the earliest time that was set. `due` returns each key once per time that came.
"""

from __future__ import annotations

import heapq

# Void entries that the heap may hold beside one per key before it is made anew.
VOID_MAX = 64


class Deadlines:
    """Keys with a time each, or with none."""

    def __init__(self) -> None:
        self._at_ms: dict[str, int] = {}
        """The truth."""
        self._heap: list[tuple[int, str]] = []
        self._filed_ms: dict[str, int] = {}
        """The one entry of the heap that counts for a key, never later than the truth; other entries are void."""

    def __len__(self) -> int:
        return len(self._at_ms)

    def set(self, key: str, at_ms: int | None) -> None:
        """The key's time is this from now on; None: it has none."""
        if at_ms is None:
            self._at_ms.pop(key, None)
            return
        self._at_ms[key] = at_ms
        filed_ms = self._filed_ms.get(key)
        if filed_ms is None or at_ms < filed_ms:
            self._filed_ms[key] = at_ms
            heapq.heappush(self._heap, (at_ms, key))
            if len(self._heap) > 2 * len(self._at_ms) + VOID_MAX:
                self._file_anew()

    def _file_anew(self) -> None:
        """Void entries for far times would stay until those come."""
        self._filed_ms = dict(self._at_ms)
        self._heap = [(at_ms, key) for key, at_ms in self._at_ms.items()]
        heapq.heapify(self._heap)

    def due(self, now_ms: int) -> list[str]:
        """Keys whose time has come, the earliest first. They have none until it is set anew."""
        found = []
        while self._settle_top() and self._heap[0][0] <= now_ms:
            _, key = heapq.heappop(self._heap)
            del self._filed_ms[key], self._at_ms[key]
            found.append(key)
        return found

    def next_ms(self) -> int | None:
        """The earliest time of all; None when there is none."""
        return self._heap[0][0] if self._settle_top() else None

    def _settle_top(self) -> bool:
        """Make the heap's first entry a true one. False when nothing is left."""
        heap = self._heap
        while heap:
            at_ms, key = heap[0]
            if self._filed_ms.get(key) != at_ms:
                heapq.heappop(heap)
                continue
            true_ms = self._at_ms.get(key)
            if true_ms == at_ms:
                return True
            if true_ms is None:
                del self._filed_ms[key]
                heapq.heappop(heap)
            else:
                self._filed_ms[key] = true_ms
                heapq.heapreplace(heap, (true_ms, key))
        return False
