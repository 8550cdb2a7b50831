"""The pipeline `archive_replay`: an archive's messages into a stream.

The driver publishes them in the order of their sequences, each with a Nats-Msg-Id made of the archived stream, its lineage and the
sequence. The stream's window of message ids refuses repeats, and the ids of the stream's last messages say where a run that was killed
goes on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pydantic import Field

from supercluster.spark.datasource.streams import open_session
from supercluster.spark.jetstream import JetStreamSession
from supercluster.spark.pipelines.archive.layout import (
    RECORDS,
    ArchiveName,
    ArchiveRecord,
    parse_name,
    stream_folder,
)
from supercluster.spark.pipelines.archive.verify import ROWS_PER_READ, rows_of
from supercluster.spark.pipelines.locations import Location
from supercluster.spark.pipelines.parameters import ParameterError, Parameters, StreamName
from supercluster.spark.pipelines.pipeline import Pipeline, RunOptions
from supercluster.spark.pipelines.rounds import Record
from supercluster.spark.pipelines.running import source_of
from supercluster.spark.publisher import ID_HEADER, ROWS_PER_PUBLISH, Outgoing, Publisher, bounded
from supercluster.spark.reader import read_range
from supercluster.spark.wire import header_block, parse_headers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TAIL_MESSAGES = 2 * ROWS_PER_PUBLISH
RESERVED = "nats-"
"""Headers that begin so mean something to the stream that takes the message."""


class ReplayParameters(Parameters):
    """What is published, and where."""

    stream: StreamName = Field(description="Name of the archived stream.")
    location: str = Field(min_length=1, description="Folder or URI of the archive.")
    into: StreamName = Field(
        description="Name of the stream that takes the messages; its subjects have to match."
    )
    subject_prefix: str = Field(default="", description="Put before each subject, such as `restored.`.")


class ReplayPipeline(Pipeline[ReplayParameters]):
    """Publishes an archive's messages into a stream, in order."""

    name = "archive_replay"
    summary = "Publishes an archive's messages into a stream, each with an id that refuses repeats."
    parameters = ReplayParameters

    def __init__(self, say: Callable[[str], None] = print) -> None:
        self._say = say

    def start(self, spark: SparkSession | None, parameters: ReplayParameters, options: RunOptions) -> None:
        location = Location(parameters.location)
        found = Record(location.below(RECORDS), f"{parameters.stream}.json").load()
        if found is None:
            raise ParameterError(
                f"location {location.where!r} has no archive of stream {parameters.stream!r}; check both names"
            )
        record = ArchiveRecord.from_json(found["work"])
        wrong = record.differs_from(location.files(stream_folder(parameters.stream)))
        if wrong:
            raise ParameterError(
                f"the archive of stream {parameters.stream!r} in {location.where!r} is not whole: {wrong}; run archive_verify, and bring back"
                " the files"
            )
        archived_to = record.archived_to
        source = source_of(options.source, parameters.into)
        session = open_session(source)
        prefix = f"{parameters.stream}:{found['lineage']}:"
        publisher = Publisher(session, parameters.into, patience_seconds=source.patience_seconds)
        try:
            there = replayed(session, parameters.into, prefix, source.patience_seconds)
            count = repeats = 0
            every = archived_rows(location, parameters.stream, min(there, default=1), archived_to)
            rows = (row for row in every if row[0] not in there)
            for batch in bounded(outgoing(row, prefix, parameters.subject_prefix) for row in rows):
                repeats += publisher.publish(batch)
                count += len(batch)
                done = int(batch[-1][0].removeprefix(prefix))
                options.report(
                    {"stream": parameters.stream, "next": done + 1, "last": archived_to, "messages": count}
                )
        finally:
            session.drop()
        self._say(
            f"stream {parameters.stream}: {count:,} messages published into {parameters.into}, {repeats:,} were there"
        )


def replayed(session: JetStreamSession, into: str, prefix: str, patience_seconds: float) -> set[int]:
    """Archived sequences among the stream's last messages. They reach back beyond the batch that a killed run left in part.

    Raises:
        ParameterError: a limit per subject has removed some. They would be taken for missing, and published behind newer ones.
    """
    state = session.stream_state(into)
    tail = max(1, state.last_sequence - TAIL_MESSAGES + 1)
    first = max(state.first_sequence, tail)
    found = set()
    count = 0
    for records in read_range(
        session, into, first, state.last_sequence, patience_seconds=patience_seconds, fail_on_data_loss=False
    ):
        count += len(records)
        for record in records:
            name = next(iter(parse_headers(record[3]).get(ID_HEADER, ())), "")
            number = name.removeprefix(prefix)
            if name.startswith(prefix) and number.isdigit():
                found.add(int(number))
    if found and state.messages_per_subject and count <= state.last_sequence - tail:
        raise ParameterError(
            f"parameter 'into': an earlier replay has written into stream {into!r}, which keeps {state.messages_per_subject} messages of a"
            " subject, so nobody can tell its missing messages from removed ones; delete the stream, make it again, and replay once more"
        )
    return found


def archived_rows(
    location: Location, stream: str, first: int, last: int
) -> Iterator[tuple[int, int, str, Any, bytes]]:
    """Rows with sequences first … last in their order. A block has a file for each date, which are merged."""
    blocks: dict[Any, list[str]] = {}
    for name in location.files(stream_folder(stream)):
        found: ArchiveName | None = parse_name(name)
        if found is not None and found.block.last >= first and found.block.first <= last:
            blocks.setdefault(found.block, []).append(name)
    for block in sorted(blocks):
        files = [_rows(location, name) for name in blocks[block]]
        for row in heapq.merge(*files, key=lambda row: row[0]):
            if row[0] >= first:
                yield row


def _rows(location: Location, name: str) -> Iterator[tuple[int, int, str, Any, bytes]]:
    import pyarrow.parquet as pq

    with location.local_file(name) as path, pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_PER_READ):
            yield from rows_of(batch)


def outgoing(row: tuple[int, int, str, Any, bytes], prefix: str, subject_prefix: str) -> Outgoing:
    """
    Raises:
        ValueError: a header cannot be published.
    """
    sequence, _, subject, headers, payload = row
    kept = (
        (name, value)
        for name, values in headers or ()
        if not name.lower().startswith(RESERVED)
        for value in values
    )
    try:
        header = header_block(kept)
    except ValueError as error:
        raise ValueError(f"a header of sequence {sequence} {error}") from None
    return f"{prefix}{sequence}", ((subject_prefix + subject).encode(), header, payload)
