"""Whoever takes nothing by the deadline is late; whom the broker itself kept waiting is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from supercluster.broker.net.clients.write_deadline import WriteDeadline


class Loop:
    """Time and timers of the test's own."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, act: Callable[..., None], *words: Any) -> object:
        self.timers.append((when_s, lambda: act(*words)))
        return self.timers[-1]

    def run_at(self, now_s: float) -> None:
        """All that is due by then."""
        self.now_s = now_s
        due = [act for when_s, act in self.timers if when_s <= now_s]
        self.timers = [timer for timer in self.timers if timer[0] > now_s]
        for act in due:
            act()


class Buffer:
    def __init__(self) -> None:
        self.waiting = 0

    def get_write_buffer_size(self) -> int:
        return self.waiting


def begun() -> tuple[Loop, Buffer, WriteDeadline, list[float]]:
    loop, buffer = Loop(), Buffer()
    late: list[float] = []
    deadline = WriteDeadline(cast("asyncio.AbstractEventLoop", loop), lambda: late.append(loop.now_s))
    buffer.waiting = 10
    deadline.wrote(buffer, 0, 1000)
    return loop, buffer, deadline, late


def test_who_takes_nothing_by_the_deadline_is_late() -> None:
    loop, _, _, late = begun()
    loop.run_at(100.9)
    assert late == []
    loop.run_at(101.0)
    assert late == [101.0]


def test_who_takes_what_waited_first_gets_the_time_for_what_came_behind_it() -> None:
    loop, buffer, deadline, late = begun()
    buffer.waiting = 30
    deadline.wrote(buffer, 10, 1000)
    buffer.waiting = 20
    loop.run_at(101.0)
    assert late == []
    loop.run_at(102.0)
    assert late == [102.0]


def test_a_broker_that_stood_still_itself_gives_the_time_anew() -> None:
    loop, _, _, late = begun()
    loop.run_at(105.0)
    assert late == []
    loop.run_at(106.0)
    assert late == [106.0]
