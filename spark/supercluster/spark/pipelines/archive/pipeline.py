"""The pipelines `archive` and `archive_verify`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import Field

from supercluster.spark.jetstream import StreamState
from supercluster.spark.pipelines.archive.day_file import WriteBlock, WrittenBlock, facts_of
from supercluster.spark.pipelines.archive.layout import (
    RECORDS,
    ArchiveRecord,
    FileFacts,
    parse_name,
    stream_folder,
)
from supercluster.spark.pipelines.archive.verify import verify_stream
from supercluster.spark.pipelines.locations import Location
from supercluster.spark.pipelines.parameters import Bytes, Parameters, StreamNames
from supercluster.spark.pipelines.pipeline import FindingsError, Pipeline, Report, RunOptions
from supercluster.spark.pipelines.read_task import Block
from supercluster.spark.pipelines.rounds import Runner, SparkRunner
from supercluster.spark.pipelines.running import run_works

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCATION = "Folder or URI of the archive, which all executors reach."


class ArchiveParameters(Parameters):
    """What is archived, and where."""

    streams: StreamNames = Field(description="Names of the streams.")
    location: str = Field(min_length=1, description=LOCATION)
    target_file_size: Bytes = Field(
        default=128 * 2**20,
        description="Bytes of messages in a file, before compression; also with Ki, Mi or Gi.",
    )
    file_age_seconds: int = Field(
        default=300,
        ge=0,
        description="For so long a continuous archive waits for a file's messages before it writes a smaller one.",
    )
    fail_on_data_loss: bool = Field(
        default=True, description="Stop when retention or a purge removed messages before they were archived."
    )


class VerifyParameters(Parameters):
    """Which archive is verified."""

    streams: StreamNames = Field(description="Names of the streams.")
    location: str = Field(min_length=1, description=LOCATION)


class ArchiveWork:
    """The archive of one stream in rounds."""

    def __init__(
        self, stream: str, parameters: ArchiveParameters, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._location = Location(parameters.location)
        self.core = WriteBlock(self._location, stream)
        self.parameters = parameters
        self._now_s = now_s
        self._waiting_since_s: float | None = None
        self.fail_on_data_loss = parameters.fail_on_data_loss
        self.record = ArchiveRecord()

    def plan(
        self, first: int, last: int, state: StreamState, parallelism: int, *, is_last: bool
    ) -> list[Block]:
        """Whole files; a smaller one at the end, or when its messages have waited for long enough."""
        size = max(1, self.parameters.target_file_size * max(1, state.messages) // max(1, state.bytes))
        starts = range(first, last + 1, size)[:parallelism]
        blocks = [Block(start, min(start + size - 1, last)) for start in starts]
        now_s = self._now_s()
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        has_waited = now_s - self._waiting_since_s >= self.parameters.file_age_seconds
        if not is_last and not has_waited and blocks[-1].last - blocks[-1].first + 1 < size:
            blocks.pop()
        if blocks:
            self._waiting_since_s = None
        return blocks

    def fold(self, skipped: int, results: list[WrittenBlock], caught_up_at_ns: int | None) -> bool:
        leftovers = self._leftovers(results)
        for each in results:
            self.record.add(
                each.block, [*each.files, *(left for block, left in leftovers if block == each.block)]
            )
        return bool(results)

    def _leftovers(self, results: list[WrittenBlock]) -> list[tuple[Block, FileFacts]]:
        """The blocks of a run or a task that was killed are written again. Where all messages of a date were removed meanwhile, the file of
        the first attempt is the only one that has them."""
        written = {file.name for each in results for file in each.files}
        blocks = {each.block: each.lineage for each in results if not each.is_whole}
        if not blocks:
            return []
        found = []
        for name in self._location.files(stream_folder(self._stream)):
            parsed = parse_name(name)
            if parsed is not None and parsed.block in blocks and name not in written:
                facts = facts_of(self._location, name, blocks[parsed.block])
                found += [(parsed.block, facts)] if facts is not None else []
        return found

    def facts(self) -> Report:
        rows = sum(each.rows for each in self.record.dates.values())
        return {"archivedTo": self.record.archived_to, "rows": rows}

    def to_json(self) -> dict[str, Any]:
        return self.record.to_json()

    def restore(self, value: dict[str, Any]) -> None:
        self.record = ArchiveRecord.from_json(value)
        self._location.remove_unfinished(stream_folder(self._stream))


class ArchivePipeline(Pipeline[ArchiveParameters]):
    """Writes streams to Parquet files, one folder for each stream and UTC date."""

    name = "archive"
    summary = "Writes streams to Parquet files by stream and UTC date, each message once."
    parameters = ArchiveParameters

    def __init__(self, wait: Callable[[float], None] = time.sleep) -> None:
        self._wait = wait

    def start(self, spark: SparkSession, parameters: ArchiveParameters, options: RunOptions) -> None:
        self.run(SparkRunner(spark), parameters, options)

    def run(self, runner: Runner, parameters: ArchiveParameters, options: RunOptions) -> None:
        """As `start`, with tasks wherever the runner has them. The archive has its own record, and needs no checkpoint."""
        works = {stream: ArchiveWork(stream, parameters) for stream in parameters.streams}
        records = Location(parameters.location).below(RECORDS)
        run_works(self.name, works, options, runner, records=records, wait=self._wait)


class VerifyPipeline(Pipeline[VerifyParameters]):
    """Reads an archive, and fails when a file is missing, damaged or not of this archive."""

    name = "archive_verify"
    summary = "Reads an archive's files and compares them with its record."
    parameters = VerifyParameters

    def __init__(self, say: Callable[[str], None] = print) -> None:
        self._say = say

    def start(self, spark: SparkSession, parameters: VerifyParameters, options: RunOptions) -> None:
        self.run(SparkRunner(spark), parameters, options)

    def run(self, runner: Runner, parameters: VerifyParameters, options: RunOptions) -> None:
        """As `start`, with tasks wherever the runner has them."""
        bad = 0
        for stream in parameters.streams:
            found = verify_stream(Location(parameters.location), stream, runner)
            for line in found.findings:
                self._say(line)
            bad += len(found.findings)
            self._say(
                f"stream {stream}: {found.rows:,} rows in {found.files:,} files, archived to {found.archived_to}"
            )
            options.report(
                {"stream": stream, "archivedTo": found.archived_to, "findings": len(found.findings)}
            )
        if bad:
            raise FindingsError(f"{bad:,} findings in the archive {parameters.location}")
