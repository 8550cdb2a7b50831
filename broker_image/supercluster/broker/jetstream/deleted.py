"""The sequences inside of a stream that have no message any more, and how many of them lie behind a given one.

A set, so that asking for one sequence costs what it costs in C; besides, it counts per stretch of sequences, so that
counting behind a place looks at the stretches and not at the sequences.
"""

from __future__ import annotations

from collections.abc import Iterable

STRETCH_BITS = 12


class DeletedSeqs(set[int]):
    """Changed by `add`, `discard` and `clear` alone."""

    __slots__ = ("_stretches",)

    def __init__(self, seqs: Iterable[int] = ()) -> None:
        super().__init__()
        self._stretches: dict[int, int] = {}
        for seq in seqs:
            self.add(seq)

    def add(self, seq: int) -> None:
        if seq not in self:
            super().add(seq)
            stretch = seq >> STRETCH_BITS
            self._stretches[stretch] = self._stretches.get(stretch, 0) + 1

    def discard(self, seq: object) -> None:
        if isinstance(seq, int) and seq in self:
            super().discard(seq)
            stretch = seq >> STRETCH_BITS
            left = self._stretches[stretch] - 1
            if left:
                self._stretches[stretch] = left
            else:
                del self._stretches[stretch]

    def clear(self) -> None:
        super().clear()
        self._stretches.clear()

    def stretches(self) -> list[tuple[int, int]]:
        """(number of a stretch of sequences, how many of them it has)."""
        return list(self._stretches.items())

    def count_behind(self, seq: int) -> int:
        """How many are greater than `seq`."""
        own = seq >> STRETCH_BITS
        behind = sum(count for stretch, count in self._stretches.items() if stretch > own)
        if own in self._stretches:
            behind += sum(1 for at in range(seq + 1, (own + 1) << STRETCH_BITS) if at in self)
        return behind
