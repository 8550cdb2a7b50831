"""The pipeline `stream_stats`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field

from supercluster.spark.jetstream import StreamState
from supercluster.spark.pipelines import fields
from supercluster.spark.pipelines.locations import Location
from supercluster.spark.pipelines.parameters import Parameters, StreamNames
from supercluster.spark.pipelines.pipeline import Pipeline, Report, RunOptions
from supercluster.spark.pipelines.read_task import Block, Reading
from supercluster.spark.pipelines.rounds import Runner, SparkRunner, plan_evenly
from supercluster.spark.pipelines.running import run_works
from supercluster.spark.pipelines.stats.windows import Row, Windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StatsParameters(Parameters):
    """What is counted, and how finely."""

    of_state = ("window_seconds", "prefix_tokens", "publisher")

    streams: StreamNames = Field(description="Names of the streams.")
    window_seconds: int = Field(default=60, ge=1, le=86_400, description="Length of a window.")
    prefix_tokens: int = Field(
        default=1,
        ge=0,
        le=16,
        description="Tokens of a subject that make its prefix. 0: all subjects together.",
    )
    publisher: fields.Field | None = Field(
        default=None,
        description="Field with the publisher's name: json:PATH, header:NAME or subject:N. Unset: publishers are not counted.",
    )
    location: str = Field(
        default="",
        description="Folder or URI, which the driver reaches, for files of JSON lines. Unset: rows are printed.",
    )


@dataclass(frozen=True)
class CountMessages:
    """The core of the tasks."""

    window_seconds: int
    prefix_tokens: int
    publisher: fields.FieldSource | None

    def windows(self) -> Windows:
        return Windows(self.window_seconds, self.prefix_tokens, self.publisher)

    def __call__(self, reading: Reading) -> Windows:
        windows = self.windows()
        for records in reading:
            windows.take(records)
        return windows


class StatsWork:
    """The statistics of one stream in rounds. Files are numbered, so that a repeated round replaces its own."""

    fail_on_data_loss = False

    def __init__(self, stream: str, parameters: StatsParameters, say: Callable[[str], None]) -> None:
        self.parameters = parameters
        self.core = CountMessages(parameters.window_seconds, parameters.prefix_tokens, parameters.publisher)
        self._stream = stream
        self._location = Location(parameters.location) if parameters.location else None
        self._say = say
        self._windows = self.core.windows()
        self._files = 0
        self._skipped = 0

    def plan(
        self, first: int, last: int, state: StreamState, parallelism: int, *, is_last: bool
    ) -> list[Block]:
        return plan_evenly(first, last, parallelism)

    def fold(self, skipped: int, results: list[Windows], caught_up_at_ns: int | None) -> bool:
        self._skipped += skipped
        for each in results:
            self._windows.add(each)
        now_ns = max(self._windows.last_time_ns, caught_up_at_ns or 0)
        return self.put(self._windows.close(self._stream, now_ns))

    def finish(self) -> None:
        """Put out windows that are open."""
        self.put(self._windows.close(self._stream, None))

    def put(self, rows: list[Row]) -> bool:
        lines = [json.dumps(row) for row in rows]
        if self._location is None:
            for line in lines:
                self._say(line)
        elif lines:
            self._location.write(
                f"{self._stream}-{self._files:010d}.jsonl", ("\n".join(lines) + "\n").encode()
            )
            self._files += 1
        return bool(rows)

    def facts(self) -> Report:
        return {"skipped": self._skipped, "files": self._files}

    def to_json(self) -> dict[str, Any]:
        return {"files": self._files, "skipped": self._skipped, **self._windows.to_json()}

    def restore(self, value: dict[str, Any]) -> None:
        self._files, self._skipped = value["files"], value["skipped"]
        self._windows.restore(value)


class StatsPipeline(Pipeline[StatsParameters]):
    """Counts messages, bytes, rates, peaks and publishers per window and subject prefix."""

    name = "stream_stats"
    summary = "Counts messages, bytes, rates, peaks and publishers per window and subject prefix."
    parameters = StatsParameters

    def __init__(
        self, say: Callable[[str], None] = print, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self._say, self._wait = say, wait

    def start(self, spark: SparkSession, parameters: StatsParameters, options: RunOptions) -> None:
        self.run(SparkRunner(spark), parameters, options)

    def run(self, runner: Runner, parameters: StatsParameters, options: RunOptions) -> None:
        """As `start`, with tasks wherever the runner has them."""
        works = {stream: StatsWork(stream, parameters, self._say) for stream in parameters.streams}
        run_works(self.name, works, options, runner, wait=self._wait)
        if options.checkpoint is None:
            # Nobody goes on with them.
            for work in works.values():
                work.finish()
