"""Terms along a log, as runs: a log has as many runs as it has had leaders, however many entries there are."""

from __future__ import annotations

from bisect import bisect_right


class TermRuns:
    """(first index, term) pairs, both growing. What is before the first run is not held."""

    __slots__ = ("_firsts", "_terms")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._terms: list[int] = []

    def __len__(self) -> int:
        return len(self._firsts)

    def note(self, index: int, term: int) -> None:
        """The entry at `index`, behind all that were noted, has `term`."""
        if not self._terms or self._terms[-1] != term:
            self._firsts.append(index)
            self._terms.append(term)

    def term(self, index: int) -> int:
        """Term of a noted index."""
        return self._terms[bisect_right(self._firsts, index) - 1]

    def truncate_after(self, index: int) -> None:
        while self._firsts and self._firsts[-1] > index:
            self._firsts.pop()
            self._terms.pop()

    def drop_through(self, index: int) -> None:
        """Forget what lies at or before `index`."""
        keep = bisect_right(self._firsts, index + 1) - 1
        if keep > 0:
            del self._firsts[:keep]
            del self._terms[:keep]

    def between(self, first: int, last: int) -> list[tuple[int, int]]:
        """The runs that cover first … last."""
        begin = max(bisect_right(self._firsts, first) - 1, 0)
        return [
            (max(start, first), term)
            for start, term in zip(self._firsts[begin:], self._terms[begin:], strict=True)
            if start <= last
        ]
