"""Pipelines over real brokers, with tasks in this process instead of Spark's."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from supercluster.spark.pipelines.read_task import Block

R = TypeVar("R")


class TasksHere:
    """Runs tasks one after another, as they arrive at an executor. `die_in` fails before the task of that number."""

    parallelism = 3

    def __init__(self) -> None:
        self.die_in: int | None = None
        self.tasks = 0

    def map(self, task: Callable[[Block], R], blocks: Sequence[Block]) -> list[R]:
        found = []
        for block in blocks:
            self.tasks += 1
            if self.tasks == self.die_in:
                raise InterruptedError("killed")
            found.append(pickle.loads(pickle.dumps(task))(block))
        return found


@pytest.fixture
def runner() -> TasksHere:
    return TasksHere()
