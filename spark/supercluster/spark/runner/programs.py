"""What a driver runs: a Python file, or a pipeline that ships with the product."""

from __future__ import annotations

import json
import runpy
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from supercluster.spark.pipelines.parameters import ParameterError, Parameters, read_parameters
from supercluster.spark.pipelines.pipeline import Pipeline, Report, RunOptions, print_report
from supercluster.spark.pipelines.registry import PIPELINES, find_pipeline
from supercluster.spark.runner.machine import MachineError

CONTINUOUS = "Continuous"
FAILED_POLL_SECONDS = 2
"""So soon is another query's failure noticed."""
NOTED_SECONDS = 0.1


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
        try:
            runpy.run_path(self.file, run_name="__main__")
        except SystemExit as ended:
            # Others end as well: `sys.exit(main())`. Python takes every other value, such as "", for a failure.
            if not (ended.code is None or (isinstance(ended.code, int) and ended.code == 0)):
                raise
        _await_queries()


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


def _await_queries() -> None:
    """Wait for queries that the file started and did not wait for, in the builder's session or the active one.

    Raises:
        StreamingQueryException: one failed, before the file's end or behind it. A file that handled the failure calls
            `spark.streams.resetTerminated()`, as for Spark's `awaitAnyTermination`.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.active()
    except PySparkRuntimeError:
        return  # There is none.
    if session.sparkContext._jsc is None:
        return  # The file has ended it, and the builder would make another one.
    managers = (SparkSession.builder.getOrCreate().streams, session.streams)
    while True:
        active = [query for manager in managers for query in manager.active]
        if active:
            active[0].awaitTermination(FAILED_POLL_SECONDS)
        else:
            # Spark takes a query from this list a moment before it notes its error.
            time.sleep(NOTED_SECONDS)
        for manager in managers:
            manager.awaitAnyTermination(0)
        if not active:
            return
