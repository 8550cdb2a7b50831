"""The data source that Spark finds under the name `supercluster`, and its two readers.

Partitions are ranges of sequences; each is read by `reader.read_range`, which is complete or raises. Nothing is kept
between calls: readers are pickled to executors, which connect by themselves.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from supercluster.spark.client import Servers
from supercluster.spark.datasource.options import (
    EARLIEST,
    LATEST,
    PARTITIONS_DEFAULT,
    OptionError,
    Position,
    ReadOptions,
    has_headers,
    read_options,
)
from supercluster.spark.datasource.plan import Offset, admit, split_range
from supercluster.spark.datasource.row_columns import RowColumns
from supercluster.spark.datasource.rows import COLUMNS, check_columns, to_batches
from supercluster.spark.datasource.sink import SinkBatchWriter, SinkStreamWriter
from supercluster.spark.datasource.write_options import write_options
from supercluster.spark.jetstream import (
    DataRemovedError,
    JetStreamSession,
    StartBeyondEndError,
    StreamCutOffError,
    StreamState,
)
from supercluster.spark.reader import read_range
from supercluster.spark.retention import OVERTAKEN, RetentionWatch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME = "supercluster"


class SequenceRange(InputPartition):
    """What one task reads: the sequences first … last, inclusive, of one life of the stream."""

    def __init__(self, first: int, last: int, lineage: str) -> None:
        super().__init__((first, last, lineage))
        self.first = first
        self.last = last
        self.lineage = lineage


class SuperclusterDataSource(DataSource):
    """`spark.read.format("supercluster")` and `spark.readStream.format("supercluster")`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        shown = [name for name in COLUMNS if name != "headers" or has_headers(self.options)]
        return ", ".join(f"{name} {COLUMNS[name]}" for name in shown)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(read_options(self.options, streaming=False), _columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(read_options(self.options, streaming=True), _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> SinkBatchWriter:
        options = write_options(self.options)
        _refuse_overwrite(overwrite)
        return SinkBatchWriter(options, RowColumns.of(_kinds(schema), options.subject))

    def streamWriter(self, schema: StructType, overwrite: bool) -> SinkStreamWriter:  # noqa: N802
        options = write_options(self.options)
        _refuse_overwrite(overwrite)
        return SinkStreamWriter(options, RowColumns.of(_kinds(schema), options.subject))


def _columns(schema: StructType) -> tuple[str, ...]:
    return check_columns(_kinds(schema))


def _kinds(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise OptionError("mode", "overwrite", "a stream is appended to; write with mode append")


@dataclass(frozen=True, slots=True)
class _Range:
    """How a task reads its range; shared by both readers."""

    options: ReadOptions
    columns: tuple[str, ...]

    def session(self, *, seed: int | None = None) -> JetStreamSession:
        options = self.options
        servers = Servers(
            options.current_addresses(), options.current_credentials(), tls=options.current_tls(), seed=seed
        )
        return JetStreamSession(servers, patience_seconds=self.options.patience_seconds)

    def state(self, *, was_read: bool = False) -> StreamState:
        session = self.session()
        try:
            return session.stream_state(self.options.stream, was_read=was_read)
        finally:
            session.drop()

    def sequence_of(self, position: Position, state: StreamState) -> int:
        if isinstance(position, int):
            bounds = {EARLIEST: state.first_sequence, LATEST: state.last_sequence + 1}
            return bounds.get(position, position)
        session = self.session()
        try:
            return session.first_since(state, position)
        finally:
            session.drop()

    def first_of(self, state: StreamState) -> int:
        """Where a query begins that has read nothing yet.

        Raises:
            DataRemovedError: a sequence was asked for, and the stream begins behind it.
            StartBeyondEndError: the stream has not come to the sequence, or the clock not to the time, that was asked for.
        """
        starting = self.options.starting
        wanted = self.sequence_of(starting, state)
        is_to_come = isinstance(starting, dt.datetime) and starting > dt.datetime.now(dt.UTC)
        if is_to_come or wanted > state.last_sequence + 1:
            raise StartBeyondEndError(state.name, starting, state.last_sequence)
        if wanted < state.first_sequence and self.options.fail_on_data_loss:
            raise DataRemovedError(state.name, wanted, state.first_sequence)
        return max(wanted, state.first_sequence)

    def split(self, first: int, last: int, lineage: str) -> list[SequenceRange]:
        wanted = self.options.partitions_min
        ranges = (
            split_range(first, last, PARTITIONS_DEFAULT)
            if wanted is None
            else split_range(first, last, wanted, least=1)
        )
        return [SequenceRange(low, high, lineage) for low, high in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SequenceRange):
            return  # Spark makes one task without a range when there is nothing to read
        session = self.session(seed=partition.first ^ os.getpid())
        try:
            stream = self.options.stream
            planned = Offset(stream, partition.lineage, partition.first)
            planned.check(stream=stream, lineage=session.stream_state(stream, was_read=True).lineage)
            records = read_range(
                session,
                stream,
                partition.first,
                partition.last,
                patience_seconds=self.options.patience_seconds,
                fail_on_data_loss=self.options.fail_on_data_loss,
            )
            yield from to_batches(records, self.columns)
            # A consumer that was renewed may have read another stream of that name; Spark throws a failed task's rows away.
            planned.check(stream=stream, lineage=session.stream_state(stream, was_read=True).lineage)
        finally:
            session.drop()


class BatchReader(DataSourceReader):
    """Reads what the stream holds when the query is planned."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._range = _Range(options, columns)

    def partitions(self) -> Sequence[InputPartition]:
        state = self._range.state()
        first = self._range.first_of(state)
        last = min(self._range.sequence_of(self._options.ending, state) - 1, state.last_sequence)
        return self._range.split(first, last, state.lineage)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._range.read(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches; offsets carry the stream's lineage, so that another stream of that name is noticed."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._range = _Range(options, columns)
        self._target_end: int | None = None
        self._triggered_at_s: float | None = None
        self._position: int | None = None
        """What is below is read when the batch has ended that was planned last."""
        self._watch = RetentionWatch()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        state = self._range.state()
        return Offset(state.name, state.lineage, self._range.first_of(state)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows_max, rows_min = self._options.trigger_rows_max, self._options.trigger_rows_min
        if rows_max is not None:
            return ReadMaxRows(rows_max)
        return ReadAllAvailable() if rows_min is None else ReadMinRows(rows_min)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target_end = self._range.state().last_sequence + 1

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        offset = Offset.from_json(start)
        state = self._checked(offset)
        # What was removed before it could be read costs no batches: limits count from what exists.
        begin = max(offset.next_sequence, state.first_sequence)
        self._position = offset.next_sequence
        if self._waits(state.last_sequence + 1 - begin, limit):
            return start
        end = admit(begin, state.last_sequence + 1, self._target_end, _rows_max(limit, state))
        self._position = end
        return Offset(offset.stream, offset.lineage, end).to_json()

    def _waits(self, available: int, limit: ReadLimit) -> bool:
        """Are there fewer rows than the minimum, and has the last batch begun less than maxTriggerDelay ago? Spark knows one
        limit at a time, so the option counts beside a ReadMaxRows. The first batch does not wait."""
        if self._target_end is not None or isinstance(limit, ReadAllAvailable):
            return False
        rows_min = limit.min_rows if isinstance(limit, ReadMinRows) else self._options.trigger_rows_min or 0
        now_s, last_s = time.monotonic(), self._triggered_at_s
        delay_s = self._options.trigger_delay_seconds_max
        if available < rows_min and last_s is not None and now_s - last_s < delay_s:
            return True
        self._triggered_at_s = now_s
        return False

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        session = self._range.session()
        try:
            state = session.stream_state(self._options.stream, was_read=True)
            overtaken_s = self._overtaken_s(session, state)
        finally:
            session.drop()
        found = Offset(state.name, state.lineage, state.last_sequence + 1).to_json()
        return found if overtaken_s is None else {**found, OVERTAKEN: overtaken_s}

    def _overtaken_s(self, session: JetStreamSession, state: StreamState) -> int | None:
        """When retention will remove messages that were not read, in seconds since 1970; None: none are in danger."""
        position, now, now_s = self._position, dt.datetime.now(dt.UTC), time.monotonic()
        if position is None:
            return None
        self._watch.look(partial(session.left, state, position, now), now_s)
        return self._watch.overtaken_s(now, now_s)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, stop = Offset.from_json(start), Offset.from_json(end)
        if stop.next_sequence <= begin.next_sequence:
            return []
        state = self._checked(begin)
        if state.last_sequence + 1 < stop.next_sequence:
            raise StreamCutOffError(state.name, stop.next_sequence - 1, state.last_sequence)
        first = max(begin.next_sequence, state.first_sequence)
        return self._range.split(first, stop.next_sequence - 1, state.lineage)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._range.read(partition)

    def _checked(self, offset: Offset) -> StreamState:
        """The stream's state, after a check that the offset belongs to it and that nothing unread is gone."""
        state = self._range.state(was_read=True)
        offset.check(stream=self._options.stream, lineage=state.lineage)
        if offset.next_sequence < state.first_sequence and self._options.fail_on_data_loss:
            raise DataRemovedError(state.name, offset.next_sequence, state.first_sequence)
        return state


def _rows_max(limit: ReadLimit, state: StreamState) -> int | None:
    if isinstance(limit, ReadMaxRows):
        return int(limit.max_rows)
    if isinstance(limit, ReadMaxBytes):  # by the mean size: a stream does not tell sizes of ranges
        return max(1, limit.max_bytes * state.messages // max(1, state.bytes))
    return None
