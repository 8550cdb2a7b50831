"""Green's next step with a stream that blue has handed over: a table for the leader of green's group.

OPENED and REFUSED are entries of one log, so the one that is committed first holds, and the other has no
effect (`state/cut.py`). Green opens a stream after it has compared the cut. It refuses a stream that differs,
and one that blue wants back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class OpeningDo(StrEnum):
    """What the leader of green's group does."""

    WAIT = "wait"
    COMPARE = "compare"
    OPEN = "open"
    REFUSE = "refuse"
    TELL_OPEN = "tell blue, and note in green's map"
    TELL_REFUSED = "tell blue"


class End(StrEnum):
    """What green's log ends with."""

    HANDED = "handed"
    OPEN = "open"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class OpeningView:
    """All that a step depends on."""

    end: End = End.HANDED
    applied: bool = True
    """Everything in the log is applied."""
    is_followed: bool = True
    """Green's map names this attempt."""
    is_noted: bool = False
    """Green's map has the stream as one of its own."""
    blue_wants_it: bool = False
    """Blue has asked green to refuse."""
    compared: bool = False
    differs: bool = False


@dataclass(frozen=True, slots=True)
class OpeningStep:
    do: OpeningDo
    why: str


_ROWS: dict[End, tuple[tuple[Callable[[OpeningView], bool], OpeningDo, str], ...]] = {
    End.HANDED: (
        (lambda v: not v.applied, OpeningDo.WAIT, "the log's end is not committed yet"),
        (lambda v: not v.is_followed, OpeningDo.WAIT, "green's map does not name this attempt"),
        (lambda v: v.blue_wants_it, OpeningDo.REFUSE, "blue wants the stream back"),
        (lambda v: not v.compared, OpeningDo.COMPARE, "the digest of the cut is being made"),
        (lambda v: v.differs, OpeningDo.REFUSE, "green's copy differs from blue's"),
        (lambda v: True, OpeningDo.OPEN, "green's copy is equal to blue's"),
    ),
    End.OPEN: (
        (lambda v: v.is_noted, OpeningDo.WAIT, "the stream is green's"),
        (lambda v: True, OpeningDo.TELL_OPEN, "the stream is open"),
    ),
    End.REFUSED: ((lambda v: True, OpeningDo.TELL_REFUSED, "the attempt is refused"),),
}


def next_opening(view: OpeningView) -> OpeningStep:
    """The next step; see the module."""
    return next(OpeningStep(do, why) for when, do, why in _ROWS[view.end] if when(view))
