"""One connection of a user is redirected first; the others follow when green reports that the user is
connected there (rule 22).

A user whose connections do not arrive stays on blue, and is listed as failing. Redirecting the others as well
could end them, since a client gives up after its second refused login. A later report from green releases
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

SCOUT_MS = 10_000
"""Clients wait two seconds between two attempts, and may know several servers."""

SCOUTS_MAX = 3

RETURNS_MAX = 6
"""Scouts that came back say nothing about green, as many clients try any server that they know: so many do not count."""


class Stage(Enum):
    """How far a user is."""

    UNTRIED = "nobody was sent ahead"
    TRYING = "one connection was sent ahead"
    SEEN = "seen on green"
    FAILING = "not seen on green"


class Event(Enum):
    """What happens to a user."""

    SENT = "one connection is asked"
    REPORTED = "green has the user"
    CAME_BACK = "the one that was sent ahead is served on blue again"
    IN_VAIN = "the time is up, and others may be sent ahead"
    EXHAUSTED = "the time is up for the last one"


TABLE: dict[tuple[Stage, Event], Stage] = {
    (Stage.UNTRIED, Event.SENT): Stage.TRYING,
    (Stage.UNTRIED, Event.REPORTED): Stage.SEEN,
    (Stage.TRYING, Event.REPORTED): Stage.SEEN,
    (Stage.TRYING, Event.CAME_BACK): Stage.UNTRIED,
    (Stage.TRYING, Event.IN_VAIN): Stage.UNTRIED,
    (Stage.TRYING, Event.EXHAUSTED): Stage.FAILING,
    (Stage.FAILING, Event.REPORTED): Stage.SEEN,
    (Stage.SEEN, Event.SENT): Stage.SEEN,
    (Stage.SEEN, Event.REPORTED): Stage.SEEN,
}


@dataclass(slots=True)
class Scouting:
    """Of one user."""

    stage: Stage = Stage.UNTRIED
    scouts: int = 0
    """Connections that were sent ahead, and count; at most `SCOUTS_MAX`."""
    returns: int = 0
    since_ms: int = 0

    @property
    def may_ask(self) -> bool:
        return self.stage in (Stage.UNTRIED, Stage.SEEN)

    def sent(self, now_ms: int) -> None:
        """A connection of the user is asked."""
        if self.stage is Stage.UNTRIED:
            self.scouts += 1
        self._take(Event.SENT, now_ms)

    def reported(self, now_ms: int) -> None:
        """Green says that the user is connected there."""
        self._take(Event.REPORTED, now_ms)

    def came_back(self, now_ms: int) -> None:
        """A connection of the user that was asked is served again."""
        if self.stage is not Stage.TRYING:
            return
        self.returns += 1
        if self.returns <= RETURNS_MAX:
            self.scouts -= 1
        self._take(Event.EXHAUSTED if self.scouts >= SCOUTS_MAX else Event.CAME_BACK, now_ms)

    def look(self, now_ms: int) -> None:
        """Is the time up?"""
        if self.stage is Stage.TRYING and now_ms - self.since_ms >= SCOUT_MS:
            self._take(Event.EXHAUSTED if self.scouts >= SCOUTS_MAX else Event.IN_VAIN, now_ms)

    def _take(self, event: Event, now_ms: int) -> None:
        before, self.stage = self.stage, TABLE[self.stage, event]
        if self.stage is not before:
            self.since_ms = now_ms
