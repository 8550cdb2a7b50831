"""The program of a driver: a Python file, or a pipeline that ships with the product."""

from __future__ import annotations

import json
import runpy
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import thread
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from supercluster.spark.pipelines.parameters import ParameterError, Parameters, read_parameters
from supercluster.spark.pipelines.pipeline import Pipeline, Report, RunOptions, print_report
from supercluster.spark.pipelines.registry import PIPELINES, find_pipeline
from supercluster.spark.runner.machine import MachineError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQueryManager

CONTINUOUS = "Continuous"
POLL_SECONDS = 2
"""So soon is another query's failure or start noticed."""
QUIET_SECONDS = 0.1
QUIET_ROUNDS = 2
MANAGER = "_ExecutorManagerThread"


class Program(Protocol):
    @property
    def kind(self) -> str:
        """What a checkpoint's record calls it."""

    def check(self) -> None:
        """Before Spark starts.

        Raises:
            MachineError, ParameterError: it can't be run, and another try would end in the same way.
        """

    def run(self, environment: Mapping[str, str], report: Callable[[Report], None]) -> None:
        """Run to the end. `report`: takes the progress of a pipeline that ships."""


class FileProgram:
    """A Python file, as `python FILE [ARGUMENT …]` would run it."""

    kind = "Python file"

    def __init__(self, file: str, arguments: Sequence[str]) -> None:
        self.file, self.arguments = file, arguments

    def check(self) -> None:
        if not Path(self.file).is_file():
            raise MachineError(f"the Python file {self.file} is not there")

    def run(self, environment: Mapping[str, str], report: Callable[[Report], None]) -> None:
        sys.argv = [self.file, *self.arguments]
        sys.path.insert(0, str(Path(self.file).parent))
        before = threading.enumerate()
        try:
            runpy.run_path(self.file, run_name="__main__")
        except SystemExit as ended:
            # Others end as well: `sys.exit(main())`. Python takes every other value, such as "", for a failure.
            if not (ended.code is None or (isinstance(ended.code, int) and ended.code == 0)):
                raise
        _await_end(before)


class PipelineProgram:
    """A pipeline by its name, with its parameters as a JSON object."""

    def __init__(
        self, name: str, parameters: str, pipelines: Mapping[str, type[Pipeline[Any]]] = PIPELINES
    ) -> None:
        self.name, self.parameters, self.pipelines = name, parameters, pipelines

    @property
    def kind(self) -> str:
        return f"pipeline {self.name}"

    def check(self) -> None:
        self._read()

    def run(self, environment: Mapping[str, str], report: Callable[[Report], None]) -> None:
        from pyspark.sql import SparkSession

        pipeline, parameters = self._read()

        def tell(found: Report) -> None:
            print_report(found)
            report(found)

        options = RunOptions(
            checkpoint=environment.get("SUPERCLUSTER_CHECKPOINT"),
            is_continuous=environment.get("SUPERCLUSTER_TRIGGER") == CONTINUOUS,
            report=tell,
        )
        pipeline().start(SparkSession.builder.getOrCreate(), parameters, options)

    def _read(self) -> tuple[type[Pipeline[Any]], Parameters]:
        pipeline = find_pipeline(self.name, self.pipelines)
        try:
            given = json.loads(self.parameters)
        except ValueError as error:
            raise ParameterError(f"the parameters are not JSON: {error}") from None
        if not isinstance(given, dict):
            raise ParameterError("the parameters are not a JSON object")
        return pipeline, read_parameters(pipeline.parameters, given)


def _await_end(before: Sequence[threading.Thread]) -> None:
    """Wait for queries and threads that the file started and did not wait for: queries of the builder's session or the active one, and
    threads that are not `before` and that Python would wait for.

    Raises:
        StreamingQueryException: a query failed, before the file's end or behind it. A file that handled the failure calls
            `spark.streams.resetTerminated()`, as for Spark's `awaitAnyTermination`.
    """
    # Twice: a pool's thread that has just taken its work looks idle, and Spark takes a query from its list a moment before it notes its error.
    quiet = 0
    while quiet < QUIET_ROUNDS:
        # Threads first: the queries of one that has ended are there.
        threads = [each for each in threading.enumerate() if each not in before and _is_awaited(each)]
        managers = _query_managers()
        active = [query for manager in managers for query in manager.active]
        if active:
            active[0].awaitTermination(POLL_SECONDS)
        elif threads and threads[0].is_alive():
            threads[0].join(POLL_SECONDS)
        else:
            time.sleep(QUIET_SECONDS)
        quiet = 0 if active or threads else quiet + 1
        for manager in managers:
            manager.awaitAnyTermination(0)


def _is_awaited(each: threading.Thread) -> bool:
    """Does Python wait for the thread at its end? It ends those of pools that have nothing to do, and those that manage pools of processes,
    as joblib does."""
    frame = sys._current_frames().get(each.ident or 0)
    is_idle = frame is not None and frame.f_code is thread._worker.__code__
    return not each.daemon and not is_idle and type(each).__name__ != MANAGER


def _query_managers() -> list[StreamingQueryManager]:
    """Of the sessions; none when the file has ended Spark, or has not started it."""
    from pyspark.sql import SparkSession

    sessions = (SparkSession._instantiatedSession, SparkSession.getActiveSession())
    return [each.streams for each in sessions if each is not None and each.sparkContext._jsc is not None]
