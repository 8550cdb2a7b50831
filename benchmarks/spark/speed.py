"""`make bench-spark`: how fast Spark reads and writes streams, beside a source and a sink that do no I/O in the same run.

Each case runs once to warm up, then as often as `--runs` says, in turn with the others of its group, so that a busy moment hits all
alike. A rate is rows a second of a query that keeps nothing (`noop`); the ratio is to the source without I/O with as many partitions and the
same columns. "First" is read behind a restart of the broker, which empties its cache. "NATS" is what a tail goes by.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psutil
from benchmarks.machine import describe
from benchmarks.one_broker import BenchClock, CpuMeter, OneBroker
from benchmarks.servers import CLIENT_PORT, READY_SECONDS, Fleet, SuperclusterBrokers
from benchmarks.spark import append, beside
from e2e import spark_local
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks import one_broker
from supercluster.localplane import certificates

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROWS = 5_000_000
RUNS = 5
PAYLOAD_BYTES = 128
SUBJECTS = 16
PER_ENTRY = (1, 20, 512)
SINGLE_ROWS_MAX = 1_000_000
"""Of the stream with one message an entry: to write one takes a turn of the broker, 0.2 to 0.4 ms."""
PARTITIONS = (1, 4)
ROWS_PER_BATCH = 10_000
AUDITED_MAX = 500_000
ALL = ("sequence", "time", "subject", "headers", "payload")
FOUR = ("sequence", "time", "subject", "payload")
BROKER = "east-0"
NAME = "kubernetes"
"""One of the names that certificates of the embedded plane have."""


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


def rows_of(per_entry: int, rows: int) -> int:
    return rows if per_entry > 1 else min(rows, SINGLE_ROWS_MAX)


def fill(directory: Path, rows: int, per_entry: Sequence[int]) -> None:
    """A data directory with a stream for each number of messages an entry, written by a broker's core in this process."""
    broker = OneBroker(directory, CpuMeter(), BenchClock(), name=BROKER)
    payload = b"x" * PAYLOAD_BYTES
    for count in per_entry:
        name, began, total = stream_name(count), time.monotonic(), rows_of(count, rows)
        broker.create(name)
        one_broker.BLOCK_MESSAGES = count
        subjects = [name.encode() + b"." + subject(at) for at in range(ROWS_PER_BATCH)]
        for at in range(0, total, ROWS_PER_BATCH):
            broker.publish(subjects[: min(ROWS_PER_BATCH, total - at)], payload)
        print(f"{name}: {total:,} messages in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    broker.stop()


# ---- measuring ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Case:
    """A query and what it took."""

    name: str
    rows: int
    query: Callable[[], object]
    limit: float = 0.0
    """Of the case beside it; 0: none."""
    beside: str = ""
    """The case that it is compared with."""
    before: Callable[[], object] = lambda: None
    seconds: list[float] = field(default_factory=list)
    spark_s: list[float] = field(default_factory=list)
    broker_s: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.rows / statistics.median(self.seconds)


def used_s(pid: int, *, without: int = 0) -> float:
    """Processor time of a process and all that it started, in seconds, but for those of one of them."""
    process, found = psutil.Process(pid), 0.0
    left_out = {each.pid for each in [psutil.Process(without), *_started_by(without)]} if without else set()
    for each in [process, *_started_by(pid)]:
        if each.pid in left_out:
            continue
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found += times.user + times.system + times.children_user + times.children_system
    return found


def _started_by(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def measure(cases: Sequence[Case], runs: int, fleet: Fleet) -> None:
    """The first run of each warms up."""
    for number in range(runs + 1):
        for case in cases:
            case.before()
            broker = fleet.brokers[0].pid
            broker_s, spark_s = used_s(broker), used_s(os.getpid(), without=broker)
            began = time.monotonic()
            case.query()
            seconds = time.monotonic() - began
            if number:
                case.seconds.append(seconds)
                case.broker_s.append(used_s(broker) - broker_s)
                case.spark_s.append(used_s(os.getpid(), without=broker) - spark_s)
            print(f"{case.name}: {case.rows / seconds:,.0f} rows/s", file=sys.stderr, flush=True)


def lines(cases: Sequence[Case]) -> list[str]:
    """A table in Markdown."""
    found = [
        "| case | rows/s, median (least to most) | ratio | limit | Spark µs a row | broker µs a row |",
        "|---|---|---|---|---|---|",
    ]
    by_name = {case.name: case for case in cases}
    for case in cases:
        rates = [case.rows / seconds for seconds in case.seconds]
        ratio, limit = "", ""
        if case.beside:
            of = case.rate / by_name[case.beside].rate
            ratio = f"{of:.2f} of {case.beside}"
            limit = f"{case.limit:.2f}{'' if of >= case.limit else ' MISSED'}" if case.limit else ""
        per_row = [1e6 * statistics.median(each) / case.rows for each in (case.spark_s, case.broker_s)]
        found.append(
            f"| {case.name} | {case.rate:,.0f} ({min(rates):,.0f} to {max(rates):,.0f}) | {ratio} | {limit}"
            f" | {per_row[0]:.2f} | {per_row[1]:.2f} |"
        )
    return found


def draw(cases: Sequence[Case], path: Path) -> None:
    """Write the PNG: a bar for each case."""
    import matplotlib as mpl  # Here, since only this picture needs it.

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 0.32 * len(cases) + 1), layout="constrained")
    shown = list(reversed(cases))
    rates = [case.rate / 1e6 for case in shown]
    spread = [
        [rate - case.rows / max(case.seconds) / 1e6 for rate, case in zip(rates, shown, strict=True)],
        [case.rows / min(case.seconds) / 1e6 - rate for rate, case in zip(rates, shown, strict=True)],
    ]
    colours = ["#999999" if "no I/O" in case.name else "#1668b8" for case in shown]
    axes.barh([case.name for case in shown], rates, xerr=spread, color=colours)
    axes.set_xlabel("million rows a second, median, least and most")
    figure.savefig(path, dpi=110)
    plt.close(figure)


# ---- cases ----------------------------------------------------------------------------------------------------------------


def _run(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _schema(columns: Sequence[str]) -> str:
    from supercluster.spark.columns import KINDS

    return ", ".join(f"{name} {KINDS[name]}" for name in columns)


@dataclass(frozen=True, slots=True)
class Reads:
    """Queries on the streams of one broker, by one transport."""

    spark: SparkSession
    fleet: Fleet
    rows: int
    folder: Path
    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    transport: str = "plain"
    awaited: str = ""
    """A stream: the broker has started when it is there."""

    def no_io(self, partitions: int, columns: Sequence[str], rows: int) -> DataFrame:
        source = self.spark.read.format("no_io").schema(_schema(columns))
        return source.option("rows", rows).option("partitions", partitions).load()

    def stream(
        self, name: str, partitions: int, columns: Sequence[str] = ALL, *, bulk: str = "only"
    ) -> DataFrame:
        source = self.spark.read.format("supercluster").schema(_schema(columns)).options(**self.options)
        source = source.option("url", self.url).option("stream", name).option("bulk", bulk)
        return source.option("minPartitions", partitions).load()

    def available_now(self, name: str, partitions: int) -> None:
        source = self.spark.readStream.format("supercluster").schema(_schema(ALL)).options(**self.options)
        source = source.option("url", self.url).option("stream", name).option("startingOffsets", "earliest")
        frame = source.option("minPartitions", partitions).load()
        checkpoint = self.folder / f"checkpoint-{time.monotonic_ns()}"
        query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    def restart(self) -> None:
        """The broker begins with an empty cache."""
        broker = self.fleet.brokers[0]
        broker.stop()
        broker.start()
        broker.wait_until_accepting(time.monotonic() + READY_SECONDS)
        wait_for_stream(self.url, self.options, self.awaited)

    def cases(self, per_entry: Sequence[int], limits: Limits) -> list[Case]:
        found: list[Case] = []
        for partitions, cached in zip(PARTITIONS, limits.cached, strict=True):
            where = f"{self.transport}, {partitions} partition{'s' * (partitions > 1)}"

            def case(
                name: str,
                query: Callable[[], object],
                limit: float = 0.0,
                beside: str = "",
                before: Callable[[], object] = lambda: None,
                *,
                where: str = where,
                rows: int = self.rows,
            ) -> str:
                title = f"{name}, {where}"
                beside = f"{beside}, {where}" if beside else ""
                found.append(Case(title, rows, query, limit, beside, before))
                return title

            case("no I/O", partial(self._read_no_io, partitions, self.rows))
            for count in per_entry:
                name, an_entry, rows = stream_name(count), f"{count} an entry", rows_of(count, self.rows)
                no_io = "no I/O"
                if rows != self.rows:  # A query has its price, whatever it reads.
                    no_io = f"no I/O, {rows:,} rows"
                    case(no_io, partial(self._read_no_io, partitions, rows), rows=rows)
                read = partial(self._read, name, partitions)
                case(f"first, {an_entry}", read, limits.first, no_io, self.restart, rows=rows)
                case(f"cached, {an_entry}", read, cached, no_io, rows=rows)
                over_nats = partial(self._read, name, partitions, bulk="off")
                case(f"NATS, {an_entry}", over_nats, limits.tail, no_io, rows=rows)
            name, an_entry = stream_name(per_entry[-1]), f"{per_entry[-1]} an entry"
            all_columns = f"cached, {an_entry}"
            case("sequence only", partial(self._read, name, partitions, ["sequence"]), 2.0, all_columns)
            case("filtered by subject", partial(self._read_one_subject, name, partitions), 0.0, all_columns)
            case("AvailableNow", partial(self.available_now, name, partitions), 0.0, all_columns)
        return found

    def _read_no_io(self, partitions: int, rows: int) -> None:
        _run(self.no_io(partitions, ALL, rows))

    def _read(self, name: str, partitions: int, columns: Sequence[str] = ALL, *, bulk: str = "only") -> None:
        _run(self.stream(name, partitions, columns, bulk=bulk))

    def _read_one_subject(self, name: str, partitions: int) -> None:
        _run(self.stream(name, partitions).where(f"subject = '{name}.3'"))


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the source without I/O in the same run."""

    cached: tuple[float, ...]
    """By number of partitions."""
    first: float
    tail: float


LIMITS = {"plain": Limits((0.80, 0.75), 0.3, 0.25), "TLS": Limits((0.70, 0.60), 0.3, 0.25)}


def wait_for_stream(url: str, options: Mapping[str, str], stream: str) -> None:
    """Until its leader answers."""
    from supercluster.spark.datasource.options import read_options
    from supercluster.spark.pipelines.read_task import read_state

    read_state(read_options({"url": url, "stream": stream, **options}, streaming=False))


def brokers_with(settings: Mapping[str, object]) -> type[SuperclusterBrokers]:
    """Brokers with a bulk port, and these settings."""
    more = {"bulk": {"port": append.BULK_PORT, "quotaBytes": 8 << 30}, **settings}
    return type("BulkBrokers", (SuperclusterBrokers,), {"more_settings": more})


def run(
    directory: Path,
    spark: SparkSession,
    transport: str,
    arguments: argparse.Namespace,
    findings: list[beside.Finding],
) -> list[Case]:
    """All cases over one transport."""
    settings: dict[str, object] = {}
    options: dict[str, str] = {}
    if transport == "TLS":
        found = certificates.ensure(directory, dt.datetime.now(dt.UTC), "broker")
        settings["clientTls"] = {"certFile": str(found.certificate), "keyFile": str(found.key)}
        options["caFile"] = str(found.certificate)
    with brokers_with(settings)(directory / "broker", 1) as fleet:
        url = fleet.urls[0]
        if transport == "TLS":  # By a name that the certificate has.
            (directory / "hosts").write_text(f"{fleet.hosts[0]} {NAME}\n", encoding="utf-8")
            url = f"tls://{NAME}:{CLIENT_PORT}"
        awaited = stream_name(arguments.per_entry[-1])
        reads = Reads(spark, fleet, arguments.rows, directory, url, options, transport, awaited)
        cases = reads.cases(arguments.per_entry, LIMITS[transport])
        measure(cases, arguments.runs, fleet)
        if transport == "plain":
            findings += [
                beside.disk_of_cache(directory / "broker" / BROKER, arguments.rows),
                beside.lag(spark, fleet, directory),
                beside.publishing(fleet, awaited, arguments.runs),
                beside.audit(spark, fleet, min(arguments.rows, AUDITED_MAX)),
            ]
    if transport == "plain":

        def over_nats(url: str, name: str) -> None:
            frame = spark.read.format("supercluster").schema(_schema(ALL)).option("url", url)
            _run(frame.option("stream", name).option("minPartitions", 1).load())

        findings.append(beside.of_nats_server(directory / "nats", arguments.rows, over_nats))
    return cases


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.speed", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="messages of a stream (%(default)s)")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each case (%(default)s)")
    parser.add_argument(
        "--per-entry", type=int, nargs="+", default=list(PER_ENTRY), help="messages an entry (%(default)s)"
    )
    parser.add_argument(
        "--transport", choices=tuple(LIMITS), nargs="+", default=list(LIMITS), help="plain, TLS (both)"
    )
    parser.add_argument("--out", type=Path, help="write a table and a picture there, as NAME.md and NAME.png")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        directory = Path(folder)
        os.environ["SUPERCLUSTER_HOSTS_FILE"] = str(directory / "hosts")
        fill(directory / "broker" / BROKER, arguments.rows, arguments.per_entry)
        spark = spark_local.start(directory / "spark")
        spark.dataSource.register(NoIo)
        findings: list[beside.Finding] = []
        cases: list[Case] = []
        for transport in arguments.transport:
            cases += run(directory, spark, transport, arguments, findings)
        rates = append.measure_on_one(directory / "append", spark, arguments.rows, arguments.runs)
        spark.stop()
    besides = ["| besides | |", "|---|---|", *(finding.line for finding in findings)]
    report = "\n".join([*describe(), "", *lines(cases), "", *rates.lines(), "", *besides])
    print(report)
    if arguments.out is not None:
        arguments.out.with_suffix(".md").write_text(report + "\n", encoding="utf-8")
        draw(cases, arguments.out.with_suffix(".png"))
    return 1 if "MISSED" in report else 0


if __name__ == "__main__":
    sys.exit(main())
