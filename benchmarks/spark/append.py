"""How fast Spark's sink writes a stream, beside a sink that does no I/O in the same run.

Each case runs once to warm up, then as often as `--runs` says, in turn with the others, so that a busy moment hits all alike. All write
the same rows: payloads of 128 bytes, 16 subjects, two partitions. Blocks go to the bulk port, or all over
NATS. "Staged" and "released" are the sink's calls without Spark, over NATS: one writer that encodes batches of Arrow, and its commit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar

from benchmarks.machine import describe
from benchmarks.servers import Fleet, SuperclusterBrokers
from e2e import spark_local
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from supercluster.spark.client import Address, Credentials, Servers
from supercluster.spark.datasource.row_columns import RowColumns
from supercluster.spark.jetstream import JetStreamSession
from supercluster.spark.sink_calls import SinkCalls, Staged

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROWS = 2_000_000
RUNS = 5
PARTITIONS = 2
PAYLOAD_BYTES = 128
SUBJECTS = 16
ROWS_PER_BATCH = 10_000
STREAM = "OUT"
PATIENCE_SECONDS = 60.0
NO_IO, SINK, OVER_NATS = "no I/O", "df.write", "df.write, bulk off"
STAGED, RELEASED = "staged", "released"


BULK_PORT = 8333


class BulkBrokers(SuperclusterBrokers):
    """With the port that blocks go to."""

    more_settings: ClassVar[dict[str, object]] = {"bulk": {"port": BULK_PORT}}


class NoIoSink(DataSource):
    """Takes rows and counts them."""

    @classmethod
    def name(cls) -> str:
        return "no_io_sink"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _NoIoWriter()


@dataclass
class _Counted(WriterCommitMessage):
    rows: int


class _NoIoWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _Counted(sum(batch.num_rows for batch in iterator))


@dataclass(slots=True)
class Rates:
    """Rows a second of each run behind the first one, by case."""

    rows: int
    found: dict[str, list[float]] = field(default_factory=dict)

    def note(self, case: str, seconds: float) -> None:
        self.found.setdefault(case, []).append(self.rows / seconds)
        print(f"{case}: {self.rows / seconds:,.0f} rows/s", file=sys.stderr, flush=True)

    def timed(self, case: str, act: Callable[[], object]) -> None:
        began = time.monotonic()
        act()
        self.note(case, time.monotonic() - began)

    def lines(self) -> list[str]:
        """A table in Markdown."""
        table = ["| case | rows/s, median (least to most) | of no I/O |", "|---|---|---|"]
        for case, rates in self.found.items():
            median = statistics.median(rates[1:])
            ratio = f"{median / statistics.median(self.found[NO_IO][1:]):.2f}"
            table.append(
                f"| {case} | {median:,.0f} ({min(rates[1:]):,.0f} to {max(rates[1:]):,.0f}) | {ratio} |"
            )
        return table


def frame(spark: SparkSession, rows: int) -> DataFrame:
    """Rows that cost Spark little."""
    payload = "x" * PAYLOAD_BYTES
    return spark.range(0, rows, 1, PARTITIONS).selectExpr(
        f"concat('out.', id % {SUBJECTS}) as subject", f"cast('{payload}' as binary) as payload"
    )


def batch() -> pa.RecordBatch:
    """As Spark gives them to a writer."""
    import pyarrow as pa

    subjects = pa.array([f"out.{number % SUBJECTS}" for number in range(ROWS_PER_BATCH)])
    payloads = pa.array([b"x" * PAYLOAD_BYTES] * ROWS_PER_BATCH)
    return pa.RecordBatch.from_arrays([subjects, payloads], ["subject", "payload"])


class Direct:
    """The sink's calls, and those that make and empty the stream."""

    def __init__(self, urls: Sequence[str]) -> None:
        servers = Servers([Address.parse(url) for url in urls], Credentials())
        self._session = JetStreamSession(servers, patience_seconds=PATIENCE_SECONDS)
        self._calls = SinkCalls(self._session, STREAM, patience_seconds=PATIENCE_SECONDS)
        self._columns = RowColumns(("subject", "payload"), "")
        self._numbers = count(1)

    def create(self, replicas: int) -> None:
        config = {"name": STREAM, "subjects": ["out.>"], "num_replicas": replicas}
        self._session.ask(f"$JS.API.STREAM.CREATE.{STREAM}", config)

    def purge(self) -> None:
        self._session.ask(f"$JS.API.STREAM.PURGE.{STREAM}", {})

    def stage(self, rows: int) -> Staged:
        number, batches = next(self._numbers), repeat(batch(), rows // ROWS_PER_BATCH)
        return self._calls.stage(
            "direct", number, f"t{number}", lambda bytes_max: self._columns.blocks(batches, bytes_max)
        )

    def release(self, staged: Staged) -> None:
        self._calls.commit("direct", staged.batch, [staged], "")

    def close(self) -> None:
        self._session.drop()


def measure(spark: SparkSession, fleet: Fleet, rows: int, runs: int, replicas: int = 1) -> Rates:
    """Write to the fleet, into a stream that is made for it."""
    spark.dataSource.register(NoIoSink)
    direct, rates, rows_of_frame = Direct(fleet.urls), Rates(rows), frame(spark, rows)
    direct.create(replicas)
    sink = rows_of_frame.write.format("supercluster").options(url=",".join(fleet.urls), stream=STREAM)
    for _ in range(runs + 1):
        rates.timed(NO_IO, rows_of_frame.write.format("no_io_sink").mode("append").save)
        direct.purge()
        for case, bulk in ((SINK, "auto"), (OVER_NATS, "off")):
            rates.timed(case, sink.option("bulk", bulk).mode("append").save)
            direct.purge()
        began = time.monotonic()
        staged = direct.stage(rows)
        rates.note(STAGED, time.monotonic() - began)
        assert staged.rows == rows
        began = time.monotonic()
        direct.release(staged)
        rates.note(RELEASED, time.monotonic() - began)
    direct.close()
    return rates


def measure_on_one(directory: Path, spark: SparkSession, rows: int, runs: int) -> Rates:
    """Write to one broker that is started for it."""
    with BulkBrokers(directory, 1) as fleet:
        return measure(spark, fleet, max(1, rows // ROWS_PER_BATCH) * ROWS_PER_BATCH, runs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.append", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of a write (%(default)s)")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each case (%(default)s)")
    parser.add_argument("--brokers", type=int, default=1, help="brokers, and replicas (%(default)s)")
    arguments = parser.parse_args()
    rows = max(1, arguments.rows // ROWS_PER_BATCH) * ROWS_PER_BATCH
    with TemporaryDirectory() as folder:
        directory = Path(folder)
        spark = spark_local.start(directory / "spark")
        with BulkBrokers(directory / "broker", arguments.brokers) as fleet:
            rates = measure(spark, fleet, rows, arguments.runs, arguments.brokers)
        spark.stop()
    print("\n".join([*describe(), "", *rates.lines()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
