"""Rounds: a range of sequences is cut into blocks, tasks read them in parallel, and the driver adds up the
results in order.

A pipeline's whole knowledge of a stream is in one small record, which is written with the position at the end
of a round. A run that was killed repeats its last round from the record before it, with the same blocks: they
are written before the tasks begin. So results may depend on nothing but the record and the messages, and a
repeated task replaces its own files.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from supercluster.spark.datasource.options import ReadOptions
from supercluster.spark.datasource.plan import Offset, split_range
from supercluster.spark.jetstream import DataRemovedError, StreamCutOffError, StreamState, settled
from supercluster.spark.pipelines.locations import Location
from supercluster.spark.pipelines.parameters import Parameters, ParametersChangedError
from supercluster.spark.pipelines.pipeline import Report
from supercluster.spark.pipelines.read_task import Block, Reading, ReadTask, read_left, read_state
from supercluster.spark.retention import OVERTAKEN, RetentionWatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

R = TypeVar("R")
T = TypeVar("T")
POLL_SECONDS = 1.0
SEQUENCES_PER_BLOCK = 50_000


class Runner(Protocol):
    """Where tasks run. Results are in the order of the items."""

    parallelism: int

    def map(self, task: Callable[[T], R], items: Sequence[T]) -> list[R]: ...


class SparkRunner:
    """Each item is a task of one Spark job, which Spark retries and places."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self.parallelism = int(self._context.defaultParallelism)

    def map(self, task: Callable[[T], R], items: Sequence[T]) -> list[R]:
        found: list[R] = self._context.parallelize(items, len(items)).map(task).collect()
        return found


class Work(Protocol[R]):
    """A pipeline's part of the rounds of one stream."""

    @property
    def parameters(self) -> Parameters: ...

    @property
    def core(self) -> Callable[[Reading], R]:
        """Runs in the tasks, and has to be small to send."""
        ...

    @property
    def fail_on_data_loss(self) -> bool: ...

    def plan(
        self, first: int, last: int, state: StreamState, parallelism: int, *, is_last: bool
    ) -> list[Block]:
        """Adjacent blocks from `first` on; none to wait for more. `is_last`: nothing will follow."""
        ...

    def fold(self, skipped: int, results: list[R], caught_up_at_ns: int | None) -> bool:
        """Add up results in order, behind `skipped` sequences that retention removed before. `caught_up_at_ns`: all messages that were stored
        until then are in. Whether something was put out, so that the record has to know."""
        ...

    def facts(self) -> Report:
        """What a report says beside the position."""
        ...

    def to_json(self) -> dict[str, Any]: ...

    def restore(self, value: dict[str, Any]) -> None: ...


def plan_evenly(first: int, last: int, parallelism: int) -> list[Block]:
    """One block for each task that runs at the same time."""
    end = min(last, first + SEQUENCES_PER_BLOCK * parallelism - 1)
    return [Block(*each) for each in split_range(first, end, parallelism)]


class RecordTakenError(Exception):
    """Another run goes on with the same record."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where} was written by another run since this one has read it; let one of them run, with a checkpoint or"
            " location of its own"
        )


class Record:
    """The record of one stream: a file, or nothing but memory. A second run that writes it is noticed, unless both write at once."""

    def __init__(self, location: Location | None, name: str) -> None:
        self._location, self._name = location, name
        self._data: bytes | None = None
        """The file's content, as this run knows it."""

    @property
    def where(self) -> str:
        return f"{self._name} in {self._location.where if self._location is not None else 'memory'}"

    def load(self) -> dict[str, Any] | None:
        """Raises ValueError when the file is none of ours."""
        self._data = self._location.read(self._name) if self._location is not None else None
        if self._data is None:
            return None
        found = json.loads(self._data)
        if not isinstance(found, dict) or not {"lineage", "next", "open", "work"} <= found.keys():
            raise ValueError(f"{self.where} is no record of a pipeline")
        return found

    def save(self, value: Mapping[str, Any]) -> None:
        """Raises RecordTakenError when it is not what this run has read or written."""
        if self._location is None:
            return
        if self._location.read(self._name) != self._data:
            raise RecordTakenError(self.where)
        self._data = json.dumps(value).encode()
        self._location.write(self._name, self._data)


@dataclass
class StreamRounds(Generic[R]):
    """The rounds of one stream."""

    options: ReadOptions
    work: Work[R]
    runner: Runner
    record: Record
    report: Callable[[Report], None]
    now_ns: Callable[[], int]
    look: Callable[[ReadOptions], StreamState] = read_state
    watch: RetentionWatch = field(default_factory=RetentionWatch)
    _lineage: str = ""
    _next: int = 0
    """Below it, all is done. 0: nothing was read yet."""
    _open: tuple[Block, ...] = ()
    end: int | None = None
    """Where a run that is not continuous ends (exclusive)."""

    def open(self, *, is_continuous: bool) -> None:
        """Begin where the record says.

        Raises:
            StreamReplacedError: the record is of another life of the stream.
            ParametersChangedError: the record is of a run with other parameters.
        """
        found = self.record.load()
        if found is not None:
            before = found.get("parameters", {})
            for name, now in self.work.parameters.state_texts().items():
                if before.get(name, "") != now:
                    raise ParametersChangedError(self.record.where, name, before.get(name, ""), now)
            self._lineage, self._next = found["lineage"], found["next"]
            self._open = tuple(Block(*each) for each in found["open"])
            self.work.restore(found["work"])
        state = self._state()
        if not is_continuous:
            self.end = state.last_sequence + 1

    def _state(self) -> StreamState:
        return settled(self._look)

    def _look(self) -> StreamState:
        state = self.look(self.options)
        self._lineage = self._lineage or state.lineage
        Offset(self.options.stream, self._lineage, self._next).check(
            stream=self.options.stream, lineage=state.lineage
        )
        if self._next > state.last_sequence + 1:
            raise StreamCutOffError(self.options.stream, self._next - 1, state.last_sequence)
        return state

    def round(self) -> bool:
        """Read the next blocks; False when there are none yet."""
        now_ns = self.now_ns()
        state = self._state()
        before = self._next or 1
        end = state.last_sequence + 1 if self.end is None else min(self.end, state.last_sequence + 1)
        if not self._open:
            first = max(before, state.first_sequence)
            if self._next and first > before and self.work.fail_on_data_loss:
                raise DataRemovedError(state.name, before, first)
            is_last = self.end is not None
            blocks = (
                self.work.plan(first, end - 1, state, self.runner.parallelism, is_last=is_last)
                if first < end
                else []
            )
            if not blocks:
                if first >= state.last_sequence + 1 and self.work.fold(0, [], now_ns):
                    self.save()
                return False
            self._open = tuple(blocks)
            self.save()
        task = ReadTask(
            self.options, self._lineage, self.work.core, fail_on_data_loss=self.work.fail_on_data_loss
        )
        results = self.runner.map(task, self._open)
        next_sequence = self._open[-1].last + 1
        is_caught_up = next_sequence > state.last_sequence
        self.work.fold(self._open[0].first - before, results, now_ns if is_caught_up else None)
        self._next, self._open = next_sequence, ()
        self.save()
        found: dict[str, object] = {
            "stream": self.options.stream,
            "next": self._next,
            "last": state.last_sequence,
            **self.work.facts(),
        }
        overtaken_s = self._overtaken_s(state)
        self.report(found if overtaken_s is None else {**found, OVERTAKEN: overtaken_s})
        return True

    def _overtaken_s(self, state: StreamState) -> int | None:
        """When retention will remove messages that were not read; None: none are in danger."""
        now_s = self.now_ns() / 1e9
        now = dt.datetime.fromtimestamp(now_s, dt.UTC)
        self.watch.look(partial(read_left, self.options, state, self._next, now), now_s)
        return self.watch.overtaken_s(now, now_s)

    def save(self) -> None:
        self.record.save(
            {
                "lineage": self._lineage,
                "parameters": self.work.parameters.state_texts(),
                "next": self._next,
                "open": self._open,
                "work": self.work.to_json(),
            }
        )


def run_rounds(
    streams: Sequence[StreamRounds[Any]], *, is_continuous: bool, wait: Callable[[float], None]
) -> None:
    """Rounds of all streams in turn, to the end of each, or until this thread is interrupted."""
    for each in streams:
        each.open(is_continuous=is_continuous)
    while True:
        has_moved = False
        for each in streams:
            has_moved = each.round() or has_moved
        if not has_moved:
            if not is_continuous:
                return
            wait(POLL_SECONDS)
