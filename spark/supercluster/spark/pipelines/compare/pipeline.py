"""The pipeline `compare`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from supercluster.spark.datasource.options import ReadOptions
from supercluster.spark.jetstream import StreamState
from supercluster.spark.pipelines.compare.differences import Comparison, compare
from supercluster.spark.pipelines.parameters import ParameterError, Parameters, StreamNames
from supercluster.spark.pipelines.pipeline import FindingsError, Pipeline, RunOptions
from supercluster.spark.pipelines.read_task import Block, Reading, read_state, reading_of
from supercluster.spark.pipelines.rounds import Runner, SparkRunner, plan_evenly
from supercluster.spark.pipelines.running import source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES_MAX = 1_000


class CompareParameters(Parameters):
    """What is compared, and where the other side is. Options of the data source say where this side is."""

    streams: StreamNames = Field(description="Names of the streams, which are the same on both sides.")
    other_url: str = Field(min_length=1, description="Brokers of the other side, such as tls://host:4222.")
    other_credentials_file: str = Field(
        default="", description="Credentials for the other side, as credentialsFile."
    )
    other_ca_file: str = Field(
        default="", description="Authority of the other side's certificates, as caFile."
    )
    other_cert_file: str = Field(default="", description="Own certificate for the other side, as certFile.")
    other_key_file: str = Field(default="", description="Its key, as keyFile.")
    times: bool = Field(default=False, description="Whether times of messages have to be the same.")
    ends: bool = Field(
        default=True, description="Whether streams have to begin and to end at the same sequences."
    )

    def other(self) -> dict[str, str]:
        """Options of the data source for the other side."""
        given = {
            "url": self.other_url,
            "credentialsFile": self.other_credentials_file,
            "caFile": self.other_ca_file,
            "certFile": self.other_cert_file,
            "keyFile": self.other_key_file,
        }
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True)
class Side:
    """One of the two copies."""

    options: ReadOptions
    state: StreamState


@dataclass(frozen=True)
class CompareBlock:
    """The task: reads a block from both sides at once.

    Raises, when called: as ReadTask.
    """

    here: Side
    there: Side
    with_times: bool

    def __call__(self, block: Block) -> Comparison:
        with self._reading(self.here, block) as here, self._reading(self.there, block) as there:
            found = compare(block, here, there, with_times=self.with_times)
            begins_at = max(here.begins_at, there.begins_at)
        # What retention removed on one side in the meantime is no difference.
        found.differences = [each for each in found.differences if each.last >= begins_at]
        return found

    def _reading(self, side: Side, block: Block) -> AbstractContextManager[Reading]:
        return reading_of(side.options, side.state.lineage, block, fail_on_data_loss=False)


class ComparePipeline(Pipeline[CompareParameters]):
    """Compares streams on two clusters message by message, and fails when they differ."""

    name = "compare"
    summary = "Compares streams on two clusters, and names the sequences that differ."
    parameters = CompareParameters

    def __init__(self, say: Callable[[str], None] = print) -> None:
        self._say = say
        self._lines = 0

    def start(self, spark: SparkSession, parameters: CompareParameters, options: RunOptions) -> None:
        self.run(SparkRunner(spark), parameters, options)

    def run(self, runner: Runner, parameters: CompareParameters, options: RunOptions) -> None:
        """As `start`, with tasks wherever the runner has them."""
        if options.is_continuous:
            raise ParameterError("compare has an end; start it on a schedule instead of continuously")
        bad = 0
        for stream in parameters.streams:
            sources = source_of(options.source, stream), source_of(parameters.other(), stream)
            here, there = (Side(each, read_state(each)) for each in sources)
            bad += self._compare(runner, parameters, options, stream, here, there)
        if bad:
            raise FindingsError(f"{bad:,} differences")

    def _compare(
        self,
        runner: Runner,
        parameters: CompareParameters,
        options: RunOptions,
        stream: str,
        here: Side,
        there: Side,
    ) -> int:
        bad = self._ends(stream, here.state, there.state) if parameters.ends else 0
        first = max(here.state.first_sequence, there.state.first_sequence)
        last = min(here.state.last_sequence, there.state.last_sequence)
        task = CompareBlock(here, there, parameters.times)
        rows = 0
        while first <= last:
            blocks = plan_evenly(first, last, runner.parallelism)
            for found in runner.map(task, blocks):
                rows += found.rows_here
                for each in found.differences:
                    self._show(
                        f"stream {stream}: {each.kind}, sequences {each.first} to {each.last} ({each.count})"
                    )
                bad += sum(each.count for each in found.differences) + found.unnamed
                options.report(
                    {
                        "stream": stream,
                        "first": found.block.first,
                        "next": found.block.last + 1,
                        "last": last,
                        "messages": found.rows_here,
                        "digest": found.digest_here,
                        "otherDigest": found.digest_there,
                    }
                )
            first = blocks[-1].last + 1
        self._say(f"stream {stream}: {rows:,} messages compared, {bad:,} differences")
        return bad

    def _ends(self, stream: str, here: StreamState, there: StreamState) -> int:
        bad = 0
        for what, one, other in (
            ("begins", here.first_sequence, there.first_sequence),
            ("ends", here.last_sequence, there.last_sequence),
        ):
            if one != other:
                self._show(f"stream {stream}: {what} at sequence {one} here and at {other} there")
                bad += abs(one - other)
        return bad

    def _show(self, line: str) -> None:
        self._lines += 1
        if self._lines <= LINES_MAX:
            self._say(line)
        elif self._lines == LINES_MAX + 1:
            self._say("further differences are only counted")
