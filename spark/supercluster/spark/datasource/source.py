"""The data source that Spark finds under the name `supercluster`, and its readers.

Partitions are ranges of sequences; a RangeReader reads each completely or raises. Readers keep no
connection between calls: they are pickled to executors, which connect by themselves.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Iterator, Mapping, Sequence
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

from supercluster.spark.bulk.bulk_reader import BULK_BYTES_MIN, BulkReader
from supercluster.spark.columns import KINDS, STREAM, check_columns
from supercluster.spark.datasource.option_values import OptionError
from supercluster.spark.datasource.options import (
    AUTO,
    OFF,
    ONLY,
    PARTITIONS_DEFAULT,
    ReadOptions,
    has_headers,
    has_stream_column,
    read_options,
)
from supercluster.spark.datasource.plan import (
    Offset,
    Offsets,
    begin_of_batch,
    end_of_batch,
    moved,
    offsets_from_json,
    offsets_to_json,
    ranges_of_batch,
    share_tasks,
    unread,
)
from supercluster.spark.datasource.row_columns import RowColumns
from supercluster.spark.datasource.sink import SinkBatchWriter, SinkStreamWriter
from supercluster.spark.datasource.streams import looking_at
from supercluster.spark.datasource.write_options import write_options
from supercluster.spark.jetstream import JetStreamSession, StreamState, settled
from supercluster.spark.nats.nats_reader import NatsReader
from supercluster.spark.range_reader import RangeReader
from supercluster.spark.retention import OVERTAKEN, RetentionWatch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME = "supercluster"


class SequenceRange(InputPartition):
    """What one task reads: the sequences first … last, inclusive, of one life of a stream."""

    def __init__(self, stream: str, first: int, last: int, lineage: str) -> None:
        super().__init__((stream, first, last, lineage))
        self.stream = stream
        self.first = first
        self.last = last
        self.lineage = lineage


class SuperclusterDataSource(DataSource):
    """`spark.read.format("supercluster")` and `spark.readStream.format("supercluster")`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        hidden = set() if has_headers(self.options) else {"headers"}
        if not has_stream_column(self.options):
            hidden.add(STREAM)
        return ", ".join(f"{name} {kind}" for name, kind in KINDS.items() if name not in hidden)

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
class _Tasks:
    """How ranges become tasks, and what a task does; shared by both readers."""

    options: ReadOptions
    columns: tuple[str, ...]

    def share(
        self, ranges: Mapping[str, tuple[int, int]], states: Mapping[str, StreamState]
    ) -> list[SequenceRange]:
        wanted = self.options.partitions_min
        pieces = (
            share_tasks(ranges, PARTITIONS_DEFAULT)
            if wanted is None
            else share_tasks(ranges, wanted, least=1)
        )
        return [SequenceRange(name, low, high, states[name].lineage) for name, low, high in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SequenceRange):
            return  # Spark makes one task without a range when there is nothing to read
        with looking_at(self.options, seed=partition.first ^ os.getpid()) as streams:
            session, stream = streams.session, partition.stream
            planned = Offset(stream, partition.lineage, partition.first)
            state = session.stream_state(stream, was_read=True)
            planned.check(stream=stream, lineage=state.lineage)
            yield from self._reader(session, state, partition).read(partition.first, partition.last)
            # A consumer that was renewed may have read another stream of that name; Spark throws a failed task's rows away.
            planned.check(stream=stream, lineage=session.stream_state(stream, was_read=True).lineage)

    def _reader(self, session: JetStreamSession, state: StreamState, partition: SequenceRange) -> RangeReader:
        options = self.options
        over_nats = NatsReader(
            session,
            partition.stream,
            self.columns,
            patience_seconds=options.patience_seconds,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        size_bytes = (partition.last - partition.first + 1) * state.bytes // max(1, state.messages)
        if options.bulk == OFF or (options.bulk == AUTO and size_bytes < BULK_BYTES_MIN):
            return over_nats
        return BulkReader(over_nats, partition.lineage, state.followers, is_required=options.bulk == ONLY)


class BatchReader(DataSourceReader):
    """Reads what the streams hold when the query is planned."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._tasks = _Tasks(options, columns)

    def partitions(self) -> Sequence[InputPartition]:
        with looking_at(self._options) as streams:
            states = streams.states()
            streams.check_any(states)
            ranges = {
                name: (streams.first_of(state), streams.last_of(state)) for name, state in states.items()
            }
        return self._tasks.share(ranges, states)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._tasks.read(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches; offsets carry the streams' lineages, so that another stream of a name is noticed."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._tasks = _Tasks(options, columns)
        self._target: dict[str, int] | None = None
        self._triggered_at_s: float | None = None
        self._position: Offsets = {}
        """What is below is read when the batch has ended that was planned last."""
        self._watches: dict[str, RetentionWatch] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        with looking_at(self._options) as streams:
            return offsets_to_json(
                {
                    name: Offset(name, state.lineage, streams.first_of(state))
                    for name, state in streams.states().items()
                }
            )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows_max, rows_min = self._options.trigger_rows_max, self._options.trigger_rows_min
        if rows_max is not None:
            return ReadMaxRows(rows_max)
        return ReadAllAvailable() if rows_min is None else ReadMinRows(rows_min)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {name: state.last_sequence + 1 for name, state in self._states().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        states, begin = settled(lambda: self._begin(offsets_from_json(start)))
        self._position = begin
        if self._waits(sum(unread(begin, states).values()), limit):
            return start
        self._position = end_of_batch(begin, states, target=self._target, limit=_rows_max(limit, states))
        return offsets_to_json(self._position)

    def _begin(self, before: Offsets) -> tuple[dict[str, StreamState], dict[str, Offset]]:
        states = self._states(before)
        begin = begin_of_batch(
            before,
            states,
            fail_on_data_loss=self._options.fail_on_data_loss,
            forgets=self._options.forgets_streams,
        )
        return states, begin

    def _waits(self, available: int, limit: ReadLimit) -> bool:
        """Are there fewer rows than the minimum, and has the last batch begun less than maxTriggerDelay ago? Spark knows one
        limit at a time, so the option counts beside a ReadMaxRows. The first batch does not wait."""
        if self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        rows_min = limit.min_rows if isinstance(limit, ReadMinRows) else self._options.trigger_rows_min or 0
        now_s, last_s = time.monotonic(), self._triggered_at_s
        delay_s = self._options.trigger_delay_seconds_max
        if available < rows_min and last_s is not None and now_s - last_s < delay_s:
            return True
        self._triggered_at_s = now_s
        return False

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        with looking_at(self._options) as streams:
            states = streams.states(was_read=True)
            overtaken = self._overtaken_s(streams.session, states)
        latest = {
            name: Offset(name, state.lineage, state.last_sequence + 1) for name, state in states.items()
        }
        found = offsets_to_json(latest)
        for each in found.get("streams", [found]):
            if each["stream"] in overtaken:
                each[OVERTAKEN] = overtaken[each["stream"]]
        return found

    def _overtaken_s(self, session: JetStreamSession, states: Mapping[str, StreamState]) -> dict[str, int]:
        """When retention will remove messages that were not read, in seconds since 1970, of streams where some are in danger."""
        now, now_s = dt.datetime.now(dt.UTC), time.monotonic()
        watched = [name for name in states if name in self._position]
        self._watches = {name: self._watches.get(name, RetentionWatch()) for name in watched}
        found = {}
        for name, watch in self._watches.items():
            position = self._position[name].next_sequence
            watch.look(partial(session.left, states[name], position, now), now_s)
            overtaken_s = watch.overtaken_s(now, now_s)
            if overtaken_s is not None:
                found[name] = overtaken_s
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, stop = offsets_from_json(start), offsets_from_json(end)
        wanted = {name: stop[name] for name in moved(begin, stop)}
        if not wanted:
            return []

        def look() -> Sequence[InputPartition]:
            with looking_at(self._options) as streams:
                streams.check_own((*begin, *stop))
                states = streams.states_of(wanted, is_required=not self._options.forgets_streams)
            ranges = ranges_of_batch(
                begin,
                stop,
                states,
                fail_on_data_loss=self._options.fail_on_data_loss,
                forgets=self._options.forgets_streams,
            )
            return self._tasks.share(ranges, states)

        return settled(look)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._tasks.read(partition)

    def _states(self, before: Offsets | None = None, *, was_read: bool = False) -> dict[str, StreamState]:
        with looking_at(self._options) as streams:
            return streams.states(before or {}, was_read=was_read)


def _rows_max(limit: ReadLimit, states: Mapping[str, StreamState]) -> int | None:
    if isinstance(limit, ReadMaxRows):
        return int(limit.max_rows)
    if isinstance(limit, ReadMaxBytes):  # by the mean size: a stream does not tell sizes of ranges
        messages = sum(state.messages for state in states.values())
        size_bytes = sum(state.bytes for state in states.values())
        return max(1, limit.max_bytes * messages // max(1, size_bytes))
    return None
