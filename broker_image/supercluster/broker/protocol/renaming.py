"""Subjects with another name in another account: `orders.*.>` there is `from.$1.>` here.

Unlike a transform (`subject_transform.py`) a renaming loses no information. So it works in both directions,
and on patterns: the tokens for wildcards are copied as they are, including wildcards.
"""

from __future__ import annotations

from supercluster.broker.protocol.subjects import is_valid_filter


class RenamingError(ValueError):
    """The two subjects do not fit."""


def intersection(one: bytes, other: bytes) -> bytes | None:
    """The pattern of what both patterns match; None when that is nothing."""
    left, right = one.split(b"."), other.split(b".")
    found: list[bytes] = []
    for at in range(max(len(left), len(right))):
        if at >= len(left) or at >= len(right):
            return None
        mine, theirs = left[at], right[at]
        if mine == b">":
            return b".".join(found + right[at:])
        if theirs == b">":
            return b".".join(found + left[at:])
        if mine == b"*":
            found.append(theirs)
        elif theirs in (b"*", mine):
            found.append(mine)
        else:
            return None
    return b".".join(found)


class _Way:
    """One direction: for each token of the result what it is, or which token it is taken from."""

    __slots__ = ("_steps", "_tail")

    def __init__(self, steps: list[bytes | int], tail: int) -> None:
        self._steps = steps
        self._tail = tail
        """Where the rest begins that `>` stands for; 0: there is none."""

    def __call__(self, subject: bytes) -> bytes:
        tokens = subject.split(b".")
        found = [tokens[step] if type(step) is int else step for step in self._steps]
        if self._tail:
            found += tokens[self._tail - 1 :]
        return b".".join(found)  # type: ignore[arg-type]  # Numbers are gone.


class Renaming:
    """`there` is a pattern; `here` names its wildcards: `$1`, `$2`, or `*` for the next one."""

    __slots__ = ("here", "inward", "is_same", "outward", "there")

    def __init__(self, there: bytes, here: bytes) -> None:
        """
        Raises:
            RenamingError: one of them is no subject, or a wildcard of one is not in the other just once.
        """
        for subject in (there, here):
            if not is_valid_filter(subject):
                raise RenamingError(f"{_shown(subject)} is no subject")
        left, right = there.split(b"."), here.split(b".")
        stars = [at for at, token in enumerate(left) if token == b"*"]
        places: dict[int, int] = {}
        """Token there → token here."""
        plain: list[bytes] = []
        following = 0
        for at, token in enumerate(right):
            number = following + 1 if token == b"*" else _number(token)
            if number is None:
                plain.append(token)
                continue
            following += token == b"*"
            if not 1 <= number <= len(stars) or stars[number - 1] in places:
                raise RenamingError(
                    f"{_shown(token)} in {_shown(here)} names none of the {len(stars)} wildcards of {_shown(there)} that is "
                    "not taken yet"
                )
            places[stars[number - 1]] = at
            plain.append(b"*")
        if len(places) < len(stars) or (left[-1] == b">") != (right[-1] == b">"):
            raise RenamingError(f"{_shown(here)} does not have each wildcard of {_shown(there)}")
        self.there = there
        self.here = b".".join(plain)
        self.is_same = self.here == there and all(one == other for one, other in places.items())
        back = {mine: theirs for theirs, mine in places.items()}
        self.inward = _way(plain, back, left)
        """The name here of a subject, or of a pattern below `there`."""
        self.outward = _way(left, places, plain)
        """The other way round."""


class Fixed:
    """One subject there, whatever matches `here`: what a service without wildcards may be called."""

    __slots__ = ("_there", "here", "is_same", "there")

    def __init__(self, there: bytes, here: bytes) -> None:
        if not is_valid_filter(here):
            raise RenamingError(f"{_shown(here)} is no subject")
        self.there = self._there = there
        self.here = here
        self.is_same = False

    def outward(self, subject: bytes) -> bytes:
        """The subject there."""
        return self._there


def _way(result: list[bytes], sources: dict[int, int], given: list[bytes]) -> _Way:
    tail = len(given) if given[-1] == b">" else 0
    steps: list[bytes | int] = [sources.get(at, token) for at, token in enumerate(result) if token != b">"]
    return _Way(steps, tail)


def _number(token: bytes) -> int | None:
    return int(token[1:]) if token.startswith(b"$") and token[1:].isdigit() and len(token) < 6 else None


def _shown(subject: bytes) -> str:
    return repr(subject.decode("utf-8", "replace"))
