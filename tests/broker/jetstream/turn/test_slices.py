"""Long jobs of groups: a slice at a time, in turn, and an error stays with its group."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any

import pytest

from supercluster.broker.jetstream.turn.slices import Job, Slices, at_once, emptying
from supercluster.broker.raft.errors import DiskError


class Copy:
    """What a job needs of a group."""

    def __init__(self) -> None:
        self.failed: BaseException | None = None
        self.how = ""

    def fail(self, error: Exception) -> None:
        self.failed, self.how = error, "disk"

    def halt(self, error: Exception) -> None:
        self.failed, self.how = error, "code"


class Work:
    """A job of so many slices that notes what is done of it."""

    def __init__(self, name: str, done: list[str], slices: int, units: int = 1) -> None:
        self.name, self.done, self.slices, self.units = name, done, slices, units

    def job(self) -> Job:
        try:
            for _ in range(self.slices):
                self.done.append(self.name)
                yield self.units
        finally:
            self.done.append(f"{self.name} ends")


@pytest.fixture
def slices() -> Slices:
    found = Slices()
    found.units_per_turn = 4
    return found


def begin(slices: Slices, group: Any, job: Job) -> None:
    slices.begin(group, job)


@pytest.mark.covers("SF-29")
def test_a_turn_does_no_more_than_its_units_and_jobs_take_turns(slices: Slices) -> None:
    done: list[str] = []
    begin(slices, Copy(), Work("a", done, 3, units=3).job())
    begin(slices, Copy(), Work("b", done, 2, units=1).job())
    slices.go_on()
    assert done == ["a", "b"]
    slices.go_on()
    assert done[2:] == ["a", "b"]
    slices.go_on()
    assert done[4:] == ["a", "b ends", "a ends"]
    assert not slices


@pytest.mark.covers("SF-25", "SF-29")
@pytest.mark.parametrize(("error", "how"), [(DiskError("full"), "disk"), (ValueError("wrong"), "code")])
def test_an_error_ends_the_jobs_of_its_group_alone(slices: Slices, error: Exception, how: str) -> None:
    done: list[str] = []
    bad, good = Copy(), Copy()

    def raises() -> Job:
        yield 1
        raise error

    begin(slices, bad, raises())
    begin(slices, bad, Work("of-bad", done, 9).job())
    begin(slices, good, Work("good", done, 2).job())
    for _ in range(9):
        slices.go_on()
    assert (bad.failed, bad.how, good.failed) == (error, how, None)
    assert done.count("of-bad ends") == 1
    assert done.count("of-bad") < 9
    assert done.count("good") == 2
    assert not slices


@pytest.mark.covers("SF-29")
def test_the_jobs_of_a_group_that_goes_are_closed(slices: Slices) -> None:
    done: list[str] = []
    gone, stays = Copy(), Copy()
    begin(slices, gone, Work("gone", done, 9).job())
    begin(slices, stays, Work("stays", done, 3).job())
    slices.go_on()
    slices.end(gone)  # type: ignore[arg-type]  # Stands in for a group.
    done.clear()
    slices.go_on()
    assert done == ["stays", "stays ends"]


def test_a_job_that_somebody_closed_is_over(slices: Slices) -> None:
    done: list[str] = []
    job = Work("a", done, 9).job()
    begin(slices, Copy(), job)
    slices.go_on()
    job.close()
    slices.go_on()
    assert done[-1] == "a ends"
    assert not slices


def test_what_nobody_needs_is_freed_in_slices(slices: Slices) -> None:
    held: list[dict[int, int] | list[int] | deque[int]] = [
        dict.fromkeys(range(20_000), 0),
        [0] * 20_000,
        deque([0] * 20_000),
    ]
    for container in held:
        slices.begin(None, emptying(container))
        left = [len(container)]
        while slices:
            slices.go_on()
            left.append(len(container))
        assert left[-1] == 0
        assert max(before - after for before, after in pairwise(left)) < 10_000


def test_a_whole_job_can_be_done_at_once() -> None:
    done: list[str] = []
    at_once(Work("a", done, 3).job())
    assert done == ["a", "a", "a", "a ends"]
