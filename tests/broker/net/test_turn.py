"""When the turns of a loop run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supercluster.broker.net.routing.turn import Turn
from supercluster.broker.own_time import OwnTime

TICKS = 20


class Loop:
    """Of asyncio, by hand."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []

    def call_soon(self, run: Callable[[], None]) -> None:
        self.soon.append(run)

    def call_later(self, seconds: float, run: Callable[[], None]) -> Any:
        self.timers.append(run)
        return Timer()

    def go_round(self) -> int:
        """What was asked for runs, then sockets would be read; returns how much it was."""
        soon, self.soon = self.soon, []
        for run in soon:
            run()
        return len(soon)

    def ring(self) -> None:
        """The timer of the next tick."""
        timers, self.timers = self.timers, []
        for run in timers:
            if run.__name__ == "_tick":
                run()


class Timer:
    def cancel(self) -> None: ...


class Core:
    """It always has more to do, and something is always due."""

    has_work = True

    def turn(self) -> None: ...

    def tick(self) -> None: ...

    def next_deadline_ms(self) -> int:
        return 0


@pytest.mark.covers("SF-36")
def test_ticks_add_no_turns_between_two_looks_at_the_sockets() -> None:
    """Each tick in which a turn was asked for left one more behind that went on for as long as there was work: after a minute a ping
    waited for 60 turns (fuzz, seed 5006)."""
    loop: Any = Loop()
    turn = Turn(loop, OwnTime(lambda: 0))
    core: Any = Core()
    turn.start(core, lambda error: pytest.fail(str(error)))
    turn.want()
    for _ in range(TICKS):
        loop.ring()
        assert loop.go_round() == 1
