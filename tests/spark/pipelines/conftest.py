"""Pipelines over real brokers, with tasks in this process instead of Spark's."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

R = TypeVar("R")
T = TypeVar("T")


class TasksHere:
    """Runs tasks one after another, as they arrive at an executor. `die_in` fails before the task of that number. With `before_retry` the
    first task is run again behind it: its executor was gone before it answered."""

    parallelism = 3

    def __init__(self) -> None:
        self.die_in: int | None = None
        self.before_retry: Callable[[], object] | None = None
        self.tasks = 0

    def map(self, task: Callable[[T], R], items: Sequence[T]) -> list[R]:
        found = []
        for item in items:
            self.tasks += 1
            if self.tasks == self.die_in:
                raise InterruptedError("killed")
            if self.before_retry is not None:
                pickle.loads(pickle.dumps(task))(item)
                self.before_retry()
                self.before_retry = None
            found.append(pickle.loads(pickle.dumps(task))(item))
        return found


@pytest.fixture
def runner() -> TasksHere:
    return TasksHere()
