"""The pipeline `archive_replay`: publishes an archive's messages into a stream.

The driver publishes them in the order of their sequences, each with a Nats-Msg-Id made of the archived
stream, its lineage, the subject prefix and the sequence. The stream's duplicate window refuses repeats, and
the ids of the stream's last messages give the position at which a killed run continues. The checkpoint
records a completed replay, since newer messages may follow its own by then.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from pydantic import Field

from supercluster.spark.datasource.streams import open_session
from supercluster.spark.jetstream import JetStreamSession, StreamState
from supercluster.spark.nats.reader import read_range
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
from supercluster.spark.wire import Record as MessageRecord
from supercluster.spark.wire import header_block, parse_headers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TAIL_MESSAGES = 2 * ROWS_PER_PUBLISH
ArchivedRow = tuple[int, int, str, Any, bytes]
"""(sequence, time in microseconds, subject, headers, payload)."""
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
        stream, into = parameters.stream, parameters.into
        location = Location(parameters.location)
        archive, lineage = _archived(location, stream)
        archived_to = archive.archived_to
        checkpoint = options.checkpoint
        notes = None if checkpoint is None else Location(checkpoint).below(f"{self.name}/{stream}")
        way = f".{quote(parameters.subject_prefix, safe='')}" if parameters.subject_prefix else ""
        note = Record(notes, f"{into}{way}.json")
        source = source_of(options.source, into)
        session = open_session(source)
        prefix = f"{stream}:{lineage}:" + (
            f"{parameters.subject_prefix}:" if parameters.subject_prefix else ""
        )
        publisher = Publisher(session, into, patience_seconds=source.patience_seconds)
        try:
            state = session.stream_state(into)
            ended = _ended(note, prefix, archive, state)
            if 0 < archived_to <= ended.to:
                self._say(
                    f"stream {stream}: 0 messages published into {into}; an earlier replay has published those to sequence {ended.to}."
                    f" If {into} was emptied since, delete {note.where} and wait for its duplicate window to publish them again"
                )
                return

            def save(following: int, last: int) -> None:
                work = {"prefix": prefix, "skipped": archive.skipped, "to": archived_to, "last": last}
                note.save({"lineage": state.lineage, "next": following, "open": [], "work": work})

            def rows_from(first: int) -> Iterator[ArchivedRow]:
                return archived_rows(location, stream, first, archived_to)

            def first_row() -> int:
                return next((row[0] for row in rows_from(ended.to + 1)), 0)

            there = replayed(session, state, prefix, ended.last, first_row, source.patience_seconds)
            count = repeats = 0
            # A run that is killed goes on with this archive, or with one that has skipped the same ranges.
            save(ended.to + 1, ended.last)
            rows = (row for row in rows_from(min(there, default=ended.to + 1)) if row[0] not in there)
            messages = (outgoing(row, prefix, parameters.subject_prefix) for row in rows)
            # The first one alone: a run that ends with it leaves no later one, at which the next run would begin.
            for batch in chain(bounded(islice(messages, 1)), bounded(messages)):
                is_first = not (there or count or repeats)
                answers = publisher.publish(batch)
                old = repeated(session, state, answers, source.patience_seconds, is_first=is_first)
                repeats += old
                count += len(batch) - old
                done = int(batch[-1][0].removeprefix(prefix))
                options.report({"stream": stream, "next": done + 1, "last": archived_to, "messages": count})
            save(archived_to + 1, session.stream_state(into).last_sequence)
        finally:
            session.drop()
        self._say(f"stream {stream}: {count:,} messages published into {into}, {repeats:,} were there")


def _archived(location: Location, stream: str) -> tuple[ArchiveRecord, str]:
    """What is archived of a stream, and the stream's lineage.

    Raises:
        ParameterError: there is no archive of it, or not all of its files.
    """
    found = Record(location.below(RECORDS), f"{stream}.json").load()
    if found is None:
        raise ParameterError(
            f"location {location.where!r} has no archive of stream {stream!r}; check both names"
        )
    record = ArchiveRecord.from_json(found["work"])
    wrong = record.differs_from(location.files(stream_folder(stream)))
    if wrong:
        raise ParameterError(
            f"the archive of stream {stream!r} in {location.where!r} is not as it was written: {wrong}; run archive_verify,"
            " and bring back files that are missing, or move away those that are too many"
        )
    return record, str(found["lineage"])


class Ended(NamedTuple):
    """A replay that has ended. Both are 0 when none has."""

    to: int
    """The last archived sequence."""
    last: int
    """The stream's last sequence behind it."""


def _ended(note: Record, prefix: str, archive: ArchiveRecord, state: StreamState) -> Ended:
    """What the note of a replay that has begun or ended says of messages with ids of this prefix and of the stream in this life.

    Raises:
        ParameterError: it is about an archive that has skipped other ranges.
    """
    says = note.load()
    if says is None or (says["lineage"], says["work"]["prefix"]) != (state.lineage, prefix):
        return Ended(0, 0)
    found = Ended(says["next"] - 1, says["work"]["last"])
    if says["work"]["skipped"] != [each for each in archive.skipped if each[0] <= says["work"]["to"]]:
        raise ParameterError(
            f"parameter 'location': {note.where} says that another archive was replayed into stream {state.name!r}, which has skipped other"
            f" ranges than this one; replay into an empty stream, with a checkpoint of its own. If {state.name} was emptied since, delete"
            f" {note.where} and wait for its duplicate window"
        )
    return found if found.last <= state.last_sequence else Ended(0, 0)


def replayed(
    session: JetStreamSession,
    state: StreamState,
    prefix: str,
    ended: int,
    first_row: Callable[[], int],
    patience_seconds: float,
) -> set[int]:
    """Archived sequences among the stream's last messages. They reach back beyond the batch that a killed run left in part.

    `ended`: the stream's last sequence when an earlier replay had ended; 0: none has. `first_row`: the first sequence to replay.

    Raises:
        ParameterError: a limit per subject has removed some, or other messages are there. Old messages would replace newer ones.
    """
    last = state.last_sequence
    tail = max(ended + 1, last - TAIL_MESSAGES + 1)
    first = max(state.first_sequence, tail)
    numbers: list[int | None] = []
    for records in read_range(
        session, state.name, first, last, patience_seconds=patience_seconds, fail_on_data_loss=False
    ):
        numbers += [_number(record, prefix) for record in records]
    found = {number for number in numbers if number is not None}
    limit = state.messages_per_subject
    if not limit or not state.messages or last < tail:
        return found
    if first > tail and numbers[:1] == [first_row()]:
        # Nothing that was removed before it is of this replay.
        tail = first
    if found and len(numbers) == last - tail + 1:
        return found
    if found and not ended:
        raise ParameterError(
            f"parameter 'into': an earlier replay has written into stream {state.name!r}, which keeps {limit} messages of a subject, so its"
            " missing messages cannot be told from removed ones. If that replay has ended, leave the stream as it is. If it has not, and nothing"
            " else has written since, delete the stream, make it again, and replay once more"
        )
    raise ParameterError(
        f"parameter 'into': stream {state.name!r} keeps {limit} messages of a subject and has some that are not of this replay, so archived"
        " messages would replace newer ones; replay into an empty stream"
    )


def repeated(
    session: JetStreamSession,
    state: StreamState,
    sequences: Sequence[int],
    patience_seconds: float,
    *,
    is_first: bool,
) -> int:
    """How many of these sequences, of messages that the stream refused as repeats, it had before this run.

    `is_first`: nothing of the replay is behind them in the stream, at which another run would begin.

    Raises:
        ParameterError: such a message was removed since: it is missing, and was refused.
    """
    before = {each for each in sequences if each <= state.last_sequence}
    if not before or state.is_interest:
        return len(before)
    missing = set(before)
    for records in read_range(
        *(session, state.name, min(before), max(before)),
        patience_seconds=patience_seconds,
        fail_on_data_loss=False,
    ):
        missing -= {record[0] for record in records}
    if missing:
        way = "start again" if is_first else f"purge {state.name} or make it again, and replay once more"
        raise ParameterError(
            f"parameter 'into': messages of an earlier replay were removed from stream {state.name!r}, among them sequence {min(missing)}, and"
            f" its duplicate window still refuses their ids; {way} when the window has passed"
        )
    return len(before)


def _number(record: MessageRecord, prefix: str) -> int | None:
    """The archived sequence of a message of the stream; None when it is not of this replay."""
    name = next(iter(parse_headers(record[3]).get(ID_HEADER, ())), "")
    number = name.removeprefix(prefix)
    return int(number) if name.startswith(prefix) and number.isdigit() else None


def archived_rows(location: Location, stream: str, first: int, last: int) -> Iterator[ArchivedRow]:
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


def _rows(location: Location, name: str) -> Iterator[ArchivedRow]:
    import pyarrow.parquet as pq

    with location.local_file(name) as path, pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_PER_READ):
            yield from rows_of(batch)


def outgoing(row: ArchivedRow, prefix: str, subject_prefix: str) -> Outgoing:
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
