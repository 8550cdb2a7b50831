"""`make bench-spark`: how fast Spark reads streams, beside a source that does no I/O in the same run.

Each case is read once to warm up, then as often as `--runs` says, in turn with the others of its number of partitions, so that a busy moment
hits all alike. A rate is rows a second of a query that keeps nothing (`noop`); the ratio is to the source without I/O with as many
partitions and the same columns, in the same round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import psutil
from benchmarks.machine import describe
from benchmarks.one_broker import BenchClock, CpuMeter, OneBroker
from benchmarks.servers import Fleet, SuperclusterBrokers
from e2e import spark_local
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks import one_broker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROWS = 5_000_000
RUNS = 5
PAYLOAD_BYTES = 128
SUBJECTS = 16
PER_ENTRY = (1, 20, 512)
PARTITIONS = (1, 4)
ROWS_PER_BATCH = 10_000
ALL = ("sequence", "time", "subject", "headers", "payload")
FOUR = ("sequence", "time", "subject", "payload")
BROKER = "east-0"
BULK_PORT = 8333


# ---- a source that does no I/O --------------------------------------------------------------------------------------------


class _Range(InputPartition):
    def __init__(self, first: int, last: int) -> None:
        super().__init__((first, last))
        self.first, self.last = first, last


class NoIo(DataSource):
    """As many rows of the same columns, which are in memory already."""

    @classmethod
    def name(cls) -> str:
        return "no_io"

    def schema(self) -> str:
        return "sequence bigint, time timestamp, subject string, headers map<string,array<string>>, payload binary"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _NoIoReader(
            int(self.options["rows"]),
            int(self.options["partitions"]),
            tuple(each.name for each in schema.fields),
        )


class _NoIoReader(DataSourceReader):
    def __init__(self, rows: int, partitions: int, names: tuple[str, ...]) -> None:
        self._rows, self._count, self._names = rows, partitions, names

    def partitions(self) -> Sequence[InputPartition]:
        size = -(-self._rows // self._count)
        return [_Range(at, min(at + size, self._rows)) for at in range(0, self._rows, size)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Range)
        batch = _batch(self._names)
        for at in range(partition.first, partition.last, ROWS_PER_BATCH):
            yield batch.slice(0, min(ROWS_PER_BATCH, partition.last - at))


def _batch(names: tuple[str, ...]) -> pa.RecordBatch:
    import pyarrow as pa

    from supercluster.spark.columns import arrow_schema

    values: dict[str, list[Any]] = {
        "sequence": list(range(ROWS_PER_BATCH)),
        "time": [1_700_000_000_000_000 + at for at in range(ROWS_PER_BATCH)],
        "subject": [subject(at).decode() for at in range(ROWS_PER_BATCH)],
        "headers": [None] * ROWS_PER_BATCH,
        "payload": [b"x" * PAYLOAD_BYTES] * ROWS_PER_BATCH,
    }
    schema = arrow_schema(names)
    return pa.RecordBatch.from_arrays(
        [pa.array(values[each.name], type=each.type) for each in schema], schema=schema
    )


# ---- streams --------------------------------------------------------------------------------------------------------------


def subject(number: int) -> bytes:
    return b"%d" % (number % SUBJECTS)


def stream_name(per_entry: int) -> str:
    return f"E{per_entry}"


def fill(directory: Path, rows: int, per_entry: Sequence[int]) -> None:
    """A data directory with a stream for each number of messages an entry, written by a broker's core in this process."""
    broker = OneBroker(directory, CpuMeter(), BenchClock(), name=BROKER)
    payload = b"x" * PAYLOAD_BYTES
    for count in per_entry:
        name, began = stream_name(count), time.monotonic()
        broker.create(name)
        one_broker.BLOCK_MESSAGES = count
        subjects = [name.encode() + b"." + subject(at) for at in range(ROWS_PER_BATCH)]
        for at in range(0, rows, ROWS_PER_BATCH):
            broker.publish(subjects[: min(ROWS_PER_BATCH, rows - at)], payload)
        print(f"{name}: {rows:,} messages in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    broker.stop()


class BulkBrokers(SuperclusterBrokers):
    """With a bulk port."""

    more_settings: ClassVar[dict[str, object]] = {"bulk": {"port": BULK_PORT, "quotaBytes": 8 << 30}}


# ---- measuring ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Case:
    """A query and what it took."""

    name: str
    rows: int
    query: Callable[[], object]
    limit: float = 0.0
    """Of the source without I/O."""
    beside: str = ""
    """The case that does no I/O."""
    before: Callable[[], object] = lambda: None
    seconds: list[float] = field(default_factory=list)
    spark_s: list[float] = field(default_factory=list)
    broker_s: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.rows / statistics.median(self.seconds)


@dataclass(slots=True)
class Processor:
    """Processor time of a process and all that it started, in seconds."""

    pid: int

    def used_s(self) -> float:
        process, found = psutil.Process(self.pid), 0.0
        for each in [process, *process.children(recursive=True)]:
            try:
                times = each.cpu_times()
            except psutil.NoSuchProcess:
                continue
            found += times.user + times.system + times.children_user + times.children_system
        return found


def measure(cases: Sequence[Case], runs: int, broker_pid: int) -> None:
    spark, broker = Processor(os.getpid()), Processor(broker_pid)
    for number in range(runs + 1):
        for case in cases:
            case.before()
            broker_s, spark_s, began = broker.used_s(), spark.used_s(), time.monotonic()
            case.query()
            seconds = time.monotonic() - began
            broker_s, all_s = broker.used_s() - broker_s, spark.used_s() - spark_s
            if number:  # The first one warms up.
                case.seconds.append(seconds)
                case.broker_s.append(broker_s)
                case.spark_s.append(all_s - broker_s)
            print(f"{case.name}: {case.rows / seconds:,.0f} rows/s", file=sys.stderr, flush=True)


def lines(cases: Sequence[Case]) -> list[str]:
    """A table in Markdown."""
    found = [
        "| case | rows/s, median (least to most) | of no I/O | limit | Spark µs a row | broker µs a row |",
        "|---|---|---|---|---|---|",
    ]
    by_name = {case.name: case for case in cases}
    for case in cases:
        rates = [case.rows / seconds for seconds in case.seconds]
        ratio, limit = "", ""
        if case.beside:
            of = case.rate / by_name[case.beside].rate
            ratio = f"{of:.2f}"
            limit = f"{case.limit:.2f}{'' if of >= case.limit else ' MISSED'}" if case.limit else ""
        per_row = [1e6 * statistics.median(each) / case.rows for each in (case.spark_s, case.broker_s)]
        found.append(
            f"| {case.name} | {case.rate:,.0f} ({min(rates):,.0f} to {max(rates):,.0f}) | {ratio} | {limit}"
            f" | {per_row[0]:.2f} | {per_row[1]:.2f} |"
        )
    return found


# ---- cases ----------------------------------------------------------------------------------------------------------------


def _run(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def no_io(spark: SparkSession, rows: int, partitions: int, columns: Sequence[str]) -> DataFrame:
    source = spark.read.format("no_io").schema(_schema(columns))
    return source.option("rows", rows).option("partitions", partitions).load()


def _schema(columns: Sequence[str]) -> str:
    from supercluster.spark.columns import KINDS

    return ", ".join(f"{name} {KINDS[name]}" for name in columns)


def stream(
    spark: SparkSession, url: str, name: str, partitions: int, columns: Sequence[str], **options: str
) -> DataFrame:
    source = spark.read.format("supercluster").schema(_schema(columns)).options(**options)
    return source.option("url", url).option("stream", name).option("minPartitions", partitions).load()


def cases_of(spark: SparkSession, fleet: Fleet, rows: int, per_entry: Sequence[int]) -> list[Case]:
    url, cases = fleet.urls[0], []
    for partitions, limit in zip(PARTITIONS, (0.80, 0.75), strict=True):
        beside = f"no I/O, {partitions} partitions"
        cases.append(
            Case(beside, rows, lambda count=partitions: _run(no_io(spark, rows, count, ALL)))  # type: ignore[misc]
        )
        for count in per_entry:
            for way, least in (("off", 0.0), ("auto", limit)):
                title = f"{count} an entry, {partitions} partitions, {'NATS' if way == 'off' else 'cached'}"

                def query(name: str = stream_name(count), parts: int = partitions, bulk: str = way) -> None:
                    _run(stream(spark, url, name, parts, ALL, bulk=bulk))

                cases.append(Case(title, rows, query, least, beside))
        sequence = f"{per_entry[-1]} an entry, {partitions} partitions, sequence only"
        cases.append(
            Case(
                sequence,
                rows,
                lambda count=partitions: _run(  # type: ignore[misc]
                    stream(spark, url, stream_name(per_entry[-1]), count, ["sequence"])
                ),
            )
        )
    return cases


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_speed", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="messages of a stream (%(default)s)")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each case (%(default)s)")
    parser.add_argument(
        "--per-entry", type=int, nargs="+", default=list(PER_ENTRY), help="messages an entry (%(default)s)"
    )
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        directory = Path(folder)
        fill(directory / "broker" / BROKER, arguments.rows, arguments.per_entry)
        spark = spark_local.start(directory / "spark")
        spark.dataSource.register(NoIo)
        with BulkBrokers(directory / "broker", 1) as fleet:
            cases = cases_of(spark, fleet, arguments.rows, arguments.per_entry)
            measure(cases, arguments.runs, fleet.brokers[0].pid)
        spark.stop()
    print("\n".join([*describe(), "", *lines(cases)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
