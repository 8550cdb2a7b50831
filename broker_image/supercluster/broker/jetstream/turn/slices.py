"""Runs long work in slices, and sockets are served in between (SF-29).

A job is a generator. Between two `yield`s it does one slice, and it yields the estimated duration of that
slice in microseconds. That is a count of items and not a measurement, so that every run does the same. No
slice grows with the size of the state. The jobs of all groups of a broker share UNITS_PER_TURN: each gets one
slice after the other.

Entries may be applied between two slices. A job that works on a group's state has to allow for that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

from supercluster.broker.raft.errors import DiskError, ReplicaError

Job = Generator[int, None, None]
T = TypeVar("T")

SLICE_UNITS = 2000
"""What a job aims at between two `yield`s."""
UNITS_PER_TURN = 4000
"""A turn of the loop begins no slice beyond this."""
_FREED = 8192


class JobOwner(Protocol):
    """The group that a job is done for, which an error of the job takes down (SF-25)."""

    @property
    def failed(self) -> ReplicaError | None: ...

    def fail(self, error: ReplicaError) -> None: ...

    def halt(self, cause: Exception) -> None: ...


class Slices:
    """The jobs of one broker's groups."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[JobOwner | None, Job]] = deque()
        self.units_per_turn = UNITS_PER_TURN

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def begin(self, owner: JobOwner | None, job: Job) -> None:
        """Do the job from the end of this turn on. The generator is closed early when the group fails or goes, so its `finally`
        is the place to clean up. Whoever began a job may close it, too. No owner: its group is gone."""
        self._jobs.append((owner, job))

    def end(self, owner: JobOwner) -> None:
        """The broker holds the group no more."""
        for found, job in list(self._jobs):
            if found is owner:
                self._jobs.remove((found, job))
                job.close()

    def go_on(self) -> None:
        """Do what one turn has time for."""
        left = self.units_per_turn
        while self._jobs and left > 0:
            owner, job = self._jobs.popleft()
            units = _slice(owner, job)
            if units is not None:
                self._jobs.append((owner, job))
                left -= max(units, 1)


def _slice(owner: JobOwner | None, job: Job) -> int | None:
    """Do the next slice; None: there is none. An error is that of the group (SF-25)."""
    if owner is None:
        return next(job, None)
    if owner.failed is not None:
        job.close()
        return None
    try:
        return next(job, None)
    except DiskError as error:
        owner.fail(error)
    except Exception as error:
        owner.halt(error)
    return None


def emptying(container: dict[Any, Any] | list[Any] | deque[Any]) -> Job:
    """Let go of what nobody uses any more: to free a million entries at once takes 60 ms."""
    take: Callable[[], object] = container.popitem if isinstance(container, dict) else container.pop
    while container:
        count = min(len(container), _FREED)
        for _ in range(count):
            take()
        yield count // 5


def at_once(job: Generator[int, None, T]) -> T:
    """Do a whole job now: where nobody waits for the loop. Returns what the job does."""
    while True:
        try:
            next(job)
        except StopIteration as end:
            found: T = end.value
            return found
