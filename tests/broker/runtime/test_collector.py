"""The cyclic collector works while a broker is idle, and not in the middle of a load."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from supercluster.broker.runtime.collector import (
    BUSY_MAX_MS,
    IDLE_TURNS,
    NEVER_ROUNDS,
    WORTH_ROUNDS,
    Collector,
)


@dataclass
class Recorded:
    """Module `gc` as far as it is used, noting what it was asked for."""

    rounds: int = 0
    done: list[str] = field(default_factory=list)
    thresholds: tuple[int, int, int] = (0, 0, 0)

    def collect(self) -> int:
        self.done.append("collect")
        self.rounds = 0
        return 0

    def freeze(self) -> None:
        self.done.append("freeze")

    def unfreeze(self) -> None:
        self.done.append("unfreeze")

    def get_count(self) -> tuple[int, int, int]:
        return 0, 0, self.rounds

    def set_threshold(self, threshold0: int, threshold1: int, threshold2: int, /) -> None:
        self.thresholds = threshold0, threshold1, threshold2


def begun() -> tuple[Recorded, Collector]:
    tracer = Recorded()
    collector = Collector(tracer)
    collector.begin(1000)
    tracer.done.clear()
    return tracer, collector


def test_what_is_there_at_the_start_is_taken_out_of_sight_and_the_oldest_generation_left_alone() -> None:
    tracer = Recorded()
    Collector(tracer).begin(0)
    assert tracer.done == ["freeze"]
    assert tracer.thresholds[2] == NEVER_ROUNDS


def test_an_idle_broker_that_has_grown_collects_everything() -> None:
    tracer, collector = begun()
    tracer.rounds = WORTH_ROUNDS
    assert collector.look(IDLE_TURNS - 1, 2000)
    assert tracer.done == ["unfreeze", "collect", "freeze"]
    assert not collector.look(IDLE_TURNS - 1, 3000)


def test_an_idle_broker_that_has_not_grown_does_nothing() -> None:
    tracer, collector = begun()
    tracer.rounds = WORTH_ROUNDS - 1
    assert not collector.look(0, 2000)
    assert tracer.done == []


def test_a_busy_broker_waits_for_a_quiet_second_within_a_bound() -> None:
    tracer, collector = begun()
    tracer.rounds = 100 * WORTH_ROUNDS
    turns = 0
    for now_ms in range(2000, 10_000, 1000):
        turns += IDLE_TURNS
        assert not collector.look(turns, now_ms)
    assert collector.look(turns + IDLE_TURNS, 1000 + BUSY_MAX_MS)
    assert tracer.done == ["unfreeze", "collect", "freeze"]


@pytest.fixture
def real_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("real_thresholds")
def test_a_cycle_that_was_frozen_is_found_once_the_broker_is_idle() -> None:
    class Node:
        other: "Node"
        freed: list[str]

        def __del__(self) -> None:
            self.freed.append("freed")

    first, second = Node(), Node()
    freed = first.freed = second.freed = list[str]()
    first.other, second.other = second, first
    collector = Collector()
    collector.begin(0)
    del first, second
    kept: list[list[list[int]]] = []
    while gc.get_count()[2] < WORTH_ROUNDS:
        kept.append([[] for _ in range(100)])
    assert freed == []
    assert collector.look(0, 1000)
    assert freed == ["freed", "freed"]
