"""The data source that Spark finds under the name `supercluster`, and its two readers.

Partitions are ranges of sequences; each is read by `reader.read_range`, which is complete or raises. Nothing is kept
between calls: readers are pickled to executors, which connect by themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from supercluster.spark.client import Servers
from supercluster.spark.datasource.options import ReadOptions, read_options
from supercluster.spark.datasource.plan import Offset, admit, split_range
from supercluster.spark.datasource.rows import SCHEMA_DDL, check_columns, to_batches
from supercluster.spark.jetstream import DataRemovedError, Session, StreamState
from supercluster.spark.reader import read_range

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
        return SCHEMA_DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(read_options(self.options, streaming=False), _columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(read_options(self.options, streaming=True), _columns(schema))


def _columns(schema: StructType) -> tuple[str, ...]:
    return check_columns((field.name, field.dataType.simpleString()) for field in schema.fields)


@dataclass(frozen=True, slots=True)
class _Range:
    """How a task reads its range; shared by both readers."""

    options: ReadOptions
    columns: tuple[str, ...]

    def session(self, *, seed: int | None = None) -> Session:
        options = self.options
        servers = Servers(
            options.addresses, options.current_credentials(), tls=options.current_tls(), seed=seed
        )
        return Session(servers, patience_seconds=self.options.patience_seconds)

    def state(self) -> StreamState:
        session = self.session()
        try:
            return session.stream_state(self.options.stream)
        finally:
            session.drop()

    def first_of(self, state: StreamState) -> int:
        """Where a query begins that has read nothing yet.

        Raises:
            DataRemovedError: a sequence was asked for, and the stream begins behind it.
        """
        wanted = self.options.starting_sequence
        if wanted is None or wanted >= state.first_sequence:
            return wanted or state.first_sequence
        if self.options.fail_on_data_loss:
            raise DataRemovedError(state.name, wanted, state.first_sequence)
        return state.first_sequence

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SequenceRange):
            return  # Spark makes one task without a range when there is nothing to read
        session = self.session(seed=partition.first ^ os.getpid())
        try:
            stream = self.options.stream
            planned = Offset(stream, partition.lineage, partition.first)
            planned.check(stream=stream, lineage=session.stream_state(stream).lineage)
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
            planned.check(stream=stream, lineage=session.stream_state(stream).lineage)
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
        ending = self._options.ending_sequence
        last = state.last_sequence if ending is None else min(ending, state.last_sequence)
        ranges = split_range(first, last, self._options.partitions)
        return [SequenceRange(low, high, state.lineage) for low, high in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._range.read(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches; offsets carry the stream's lineage, so that another stream of that name is noticed."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._range = _Range(options, columns)
        self._target_end: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        state = self._range.state()
        if self._options.starts_at_latest:
            first = state.last_sequence + 1
        else:
            first = self._range.first_of(state)
        return Offset(state.name, state.lineage, first).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.messages_per_batch_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target_end = self._range.state().last_sequence + 1

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        offset = Offset.from_json(start)
        state = self._checked(offset)
        if isinstance(limit, ReadMaxRows):
            # What was removed before it could be read costs no batches: the limit counts from what exists.
            begin = max(offset.next_sequence, state.first_sequence)
            end = admit(begin, state.last_sequence + 1, self._target_end, limit.max_rows)
        else:
            end = admit(offset.next_sequence, state.last_sequence + 1, self._target_end, None)
        return Offset(offset.stream, offset.lineage, max(end, offset.next_sequence)).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        state = self._range.state()
        return Offset(state.name, state.lineage, state.last_sequence + 1).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, stop = Offset.from_json(start), Offset.from_json(end)
        if stop.next_sequence <= begin.next_sequence:
            return []
        state = self._checked(begin)
        if state.last_sequence + 1 < stop.next_sequence:
            raise DataRemovedError(state.name, begin.next_sequence, state.last_sequence + 1)
        first = max(begin.next_sequence, state.first_sequence)
        ranges = split_range(first, stop.next_sequence - 1, self._options.partitions)
        return [SequenceRange(low, high, state.lineage) for low, high in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._range.read(partition)

    def _checked(self, offset: Offset) -> StreamState:
        """The stream's state, after a check that the offset belongs to it and that nothing unread is gone."""
        state = self._range.state()
        offset.check(stream=self._options.stream, lineage=state.lineage)
        if offset.next_sequence < state.first_sequence and self._options.fail_on_data_loss:
            raise DataRemovedError(state.name, offset.next_sequence, state.first_sequence)
        return state
