"""Holds a subject with wildcards against all subjects of one configuration at once.

Each subject is one bit of a number. For each position and token there is the number of those that have the token
there, so one step of a comparison is one AND, whatever the wildcards are. A tree of tokens would have to follow every
branch below a wildcard (SF-36). The numbers grow with the count of subjects: it is for hundreds or thousands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

_JUDGED_KEPT = 4


class _Position:
    """Who has what as the token of one position."""

    __slots__ = ("any", "ends", "literal", "star", "tail")

    def __init__(self) -> None:
        self.any = 0
        """A token or `*`."""
        self.star = 0
        self.tail = 0
        """A last `>`."""
        self.literal: dict[str, int] = {}
        self.ends = 0
        """No token at all, and one before it."""


class SubjectSet:
    """See the module. `steps` counts positions that were looked at."""

    def __init__(self, subjects: Iterable[str] = ()) -> None:
        self.steps = 0
        self._subjects: list[str] = []
        self._positions: list[_Position] = [_Position()]
        for subject in subjects:
            self.add(subject)

    def add(self, subject: str) -> None:
        bit = 1 << len(self._subjects)
        self._subjects.append(subject)
        tokens = subject.split(".")
        positions = self._positions
        positions += [_Position() for _ in range(len(tokens) + 1 - len(positions))]
        for position, token in zip(positions, tokens, strict=False):
            if token == ">":
                position.tail |= bit
                return
            position.any |= bit
            if token == "*":
                position.star |= bit
            else:
                position.literal[token] = position.literal.get(token, 0) | bit
        positions[len(tokens)].ends |= bit

    def overlapping(self, subject: str) -> str | None:
        """The first of them with which the subject has a literal one in common."""
        return self._first(self._found(subject, is_within=False))

    def covering(self, at: int) -> str | None:
        """The first of them that takes in all of the one at that place, which is another one."""
        return self._first(self._found(self._subjects[at], is_within=True) & ~(1 << at))

    def _first(self, found: int) -> str | None:
        return self._subjects[(found & -found).bit_length() - 1] if found else None

    def _found(self, subject: str, *, is_within: bool) -> int:
        left, tails = (1 << len(self._subjects)) - 1, 0
        tokens = subject.split(".")
        for at, token in enumerate(tokens):
            position = self._positions[at] if at < len(self._positions) else _NOWHERE
            self.steps += 1
            tails |= position.tail
            if token == ">":
                return left & (tails if is_within else tails | position.any)
            if token == "*":
                fits = position.star if is_within else position.any
            else:
                fits = position.star | position.literal.get(token, 0)
            left &= tails | fits
            if not left:
                return 0
        ends = self._positions[len(tokens)].ends if len(tokens) < len(self._positions) else 0
        return left & (tails | ends)


_NOWHERE = _Position()


@lru_cache(maxsize=_JUDGED_KEPT)
def first_overlap(subjects: tuple[str, ...]) -> tuple[str, str] | None:
    """The first of the subjects that overlaps with one before it, behind that one. A configuration is judged by every broker and
    replica that it comes through, and often these are one process: the last answers are kept."""
    before = SubjectSet()
    for subject in subjects:
        other = before.overlapping(subject)
        if other is not None:
            return other, subject
        before.add(subject)
    return None


def first_within(filters: Sequence[str]) -> tuple[str, str] | None:
    """The first of the filters that another one of them takes in as a whole, and that one. Filters that only have some subjects in
    common may stand beside one another."""
    every = SubjectSet(filters)
    for at, item in enumerate(filters):
        other = every.covering(at)
        if other is not None:
            return item, other
    return None
