"""What `make bench-spark` measures besides rows a second: the lag of a streaming query, what a reader costs publishers, the audit
beside window functions in SQL, and nats-server read by the same reader.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.client import RawClient, block_of, equal_messages, make_stream, publish_block
from benchmarks.servers import Fleet, NatsServers

from supercluster.spark.datasource.options import read_options
from supercluster.spark.datasource.source import BatchReader
from supercluster.spark.pipelines.audit.pipeline import AuditParameters, AuditPipeline
from supercluster.spark.pipelines.fields import FieldSource
from supercluster.spark.pipelines.pipeline import RunOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAG_RATE, LAG_SECONDS, TICK_S = 20_000, 20.0, 0.02
PUBLISHED = 200_000
PAYLOAD_BYTES = 128
SLOWER_MAX = 0.10
"""Of a publisher, beside a reader that reads as fast as it can."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report."""

    name: str
    text: str
    is_missed: bool = False

    @property
    def line(self) -> str:
        return f"| {self.name} | {self.text}{' MISSED' if self.is_missed else ''} |"


def lag(spark: SparkSession, fleet: Fleet, folder: Path) -> Finding:
    """How old messages are when their batch is over, beside a publisher of 20,000 a second."""
    url, found, count = fleet.urls[0], list[tuple[float, int]](), int(LAG_RATE * LAG_SECONDS)
    make_stream(url, "LAG", ["lag.>"], 1)
    source = spark.readStream.format("supercluster").option("url", url).option("stream", "LAG")

    def take(batch: DataFrame, number: int) -> None:
        """Where half of the batch's messages are older, and where the oldest is."""
        times = batch.selectExpr("min(time) as first", "max(time) as last", "count(*) as count").collect()[0]
        if times["count"]:
            found.append((time.time() - times["first"].timestamp(), times["count"]))

    query = source.load().writeStream.foreachBatch(take)
    running = query.option("checkpointLocation", str(folder / "lag")).start()
    tick = equal_messages("lag.x", "_INBOX.none", PAYLOAD_BYTES, int(LAG_RATE * TICK_S))
    with RawClient(url) as client:
        began = time.monotonic()
        for number in range(int(LAG_SECONDS / TICK_S)):
            client.socket.sendall(tick.data)
            time.sleep(max(0.0, began + number * TICK_S - time.monotonic()))
    running.processAllAvailable()
    running.stop()
    read = sum(rows for _, rows in found)
    warm = [(seconds, rows) for seconds, rows in found if rows][1:] or found
    worst = sorted(warm)
    total, reached, p99 = sum(rows for _, rows in worst), 0, 0.0
    for seconds, rows in worst:
        reached += rows
        p99 = seconds
        if reached >= 0.99 * total:
            break
    text = (
        f"p99 {p99:.2f} s, by the oldest message of each of {len(found)} batches; {read:,} of {count:,} read"
    )
    return Finding(f"readStream beside {LAG_RATE:,} messages/s", text, read != count)


@contextmanager
def _reading(url: str, stream: str) -> Iterator[list[int]]:
    """A thread reads the stream over and over, in this process; the list has the rows of each time."""
    given = {"url": url, "stream": stream, "bulk": "only", "minPartitions": "1"}
    reader, rows, is_over = (
        BatchReader(read_options(given, streaming=False), ("payload",)),
        [0],
        threading.Event(),
    )

    def go_on() -> None:
        while not is_over.is_set():
            for partition in reader.partitions():
                for batch in reader.read(partition):
                    rows[0] += batch.num_rows
                    if is_over.is_set():
                        return

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield rows
    finally:
        is_over.set()
        thread.join()


def publishing(fleet: Fleet, stream: str, runs: int) -> Finding:
    """Rates of a publisher alone and beside a reader of another stream's columns, in turn."""
    url = fleet.urls[0]
    make_stream(url, "PUB", ["pub.>"], 1)
    block = equal_messages("pub.x", "_INBOX.acks.all", PAYLOAD_BYTES, 8192)
    alone, beside, read = list[float](), list[float](), 0
    for _ in range(runs + 1):
        alone.append(publish_block(url, block, PUBLISHED))
        with _reading(url, stream) as rows:
            beside.append(publish_block(url, block, PUBLISHED))
        read += rows[0]
    slower = 1 - statistics.median(beside[1:]) / statistics.median(alone[1:])
    text = (
        f"{statistics.median(alone[1:]):,.0f} messages/s alone, {statistics.median(beside[1:]):,.0f} beside it:"
        f" {100 * slower:.0f} % slower, limit {100 * SLOWER_MAX:.0f} %; {read:,} rows were read meanwhile"
    )
    return Finding("publishing beside a reader", text, slower > SLOWER_MAX)


def audit(spark: SparkSession, fleet: Fleet, rows: int) -> Finding:
    """Numbers without a gap in payloads: the pipeline, and window functions over the same stream."""
    url = fleet.urls[0]
    make_stream(url, "NUM", ["num.>"], 1)
    messages = []
    for number in range(1, rows + 1):
        payload = json.dumps({"n": number}).encode()
        messages.append(b"PUB num.x _INBOX.acks.all %d\r\n%b\r\n" % (len(payload), payload))
    publish_block(url, block_of(messages), rows)
    took: dict[str, float] = {}

    def timed(name: str, act: Callable[[], object]) -> None:
        began = time.monotonic()
        act()
        took[name] = min(took.get(name, 1e9), time.monotonic() - began)

    parameters = AuditParameters(streams=("NUM",), number=FieldSource.parse("json:n"))
    for _ in range(2):
        pipeline = AuditPipeline(say=lambda line: None)
        timed("audit", lambda each=pipeline: each.start(spark, parameters, RunOptions(source={"url": url})))  # type: ignore[misc]
        timed("SQL", lambda: _by_windows(spark, url))
    rates = {name: rows / seconds for name, seconds in took.items()}
    text = f"{rates['audit']:,.0f} rows/s, window functions in SQL {rates['SQL']:,.0f} rows/s"
    return Finding(f"audit of {rows:,} messages", text)


def _by_windows(spark: SparkSession, url: str) -> None:
    frame = spark.read.format("supercluster").option("url", url).option("stream", "NUM").load()
    frame.createOrReplaceTempView("num")
    found = spark.sql(
        "select count(*) as bad from (select n, lag(n) over (order by sequence) as before from "
        "(select sequence, cast(get_json_object(cast(payload as string), '$.n') as bigint) as n from num)) "
        "where before is not null and n != before + 1"
    ).collect()[0]["bad"]
    assert found == 0, f"{found} messages are out of order"


def of_nats_server(
    directory: Path, rows: int, read: Callable[[str, str], object], options: Mapping[str, str] | None = None
) -> Finding:
    """nats-server 2.15.1, read by our reader over NATS."""
    with NatsServers(directory, 1) as fleet:
        url = fleet.urls[0]
        make_stream(url, "S", ["s.>"], 1)
        publish_block(url, equal_messages("s.x", "_INBOX.acks.all", PAYLOAD_BYTES, 8192), rows)
        seconds = []
        for _ in range(3):
            began = time.monotonic()
            read(url, "S")
            seconds.append(time.monotonic() - began)
    return Finding(
        f"nats-server, {rows:,} rows over NATS", f"{rows / statistics.median(seconds):,.0f} rows/s"
    )


def disk_of_cache(directory: Path, rows: int) -> Finding:
    """Bytes of columns on disk a row of the stream that was read since the broker was last restarted."""
    size = sum(path.stat().st_size for path in (directory / "bulk").rglob("*") if path.is_file())
    return Finding("disk of the cache", f"{size:,} bytes for {rows:,} rows, {size / max(1, rows):.0f} a row")
