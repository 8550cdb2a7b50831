"""What a broker costs while nobody uses it, and how soon it is ready."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

import psutil
from benchmarks.client import BenchError, RawClient, make_stream, publish_acknowledged, wait_for_jetstream
from benchmarks.course import Course
from benchmarks.servers import MONITOR_PORT, BrokerProcess, Fleet
from benchmarks.table import Row, Target

IDLE_SECONDS = 10.0
SETTLE_SECONDS = 3.0
STORED = 1_000_000
READY_SECONDS_MAX = 120.0
MIB = 2**20


def is_healthy(broker: BrokerProcess, *, query: str) -> bool:
    try:
        with urllib.request.urlopen(
            f"http://{broker.host}:{MONITOR_PORT}/healthz{query}", timeout=1
        ) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def start_and_time(fleet: Fleet) -> float:
    """Start the fleet's first broker; seconds until its health endpoint says ready."""
    broker = fleet.brokers[0]
    # Ours tells ready from live; nats-server's plain answer includes JetStream.
    query = "?probe=ready" if fleet.kind == "supercluster" else ""
    started = time.monotonic()
    broker.start()
    while not is_healthy(broker, query=query):
        if time.monotonic() - started > READY_SECONDS_MAX:
            raise BenchError(
                f"broker {broker.name} is not ready after {READY_SECONDS_MAX:g} s; see {broker.log_path}"
            )
        time.sleep(0.005)
    return time.monotonic() - started


def idle(course: Course) -> list[Row]:
    """The greatest figures among three idle brokers of a cluster."""
    memory = Row("idle broker of three: resident memory", "MiB", Target(80, at_least=False))
    processor = Row("idle broker of three: processor", "% of a core", Target(1, at_least=False))
    for run in range(course.runs):
        for kind, fleet_type in course.fleets.items():
            with fleet_type(course.directory / f"{kind}-{run}", 3) as fleet:
                wait_for_jetstream(fleet.urls[0])
                time.sleep(SETTLE_SECONDS)
                processes = [psutil.Process(broker.pid) for broker in fleet.brokers]
                before = [sum(process.cpu_times()[:2]) for process in processes]
                time.sleep(IDLE_SECONDS)
                used = [
                    sum(process.cpu_times()[:2]) - start
                    for process, start in zip(processes, before, strict=True)
                ]
                memory.add(kind, max(process.memory_info().rss for process in processes) / MIB)
                processor.add(kind, 100 * max(used) / IDLE_SECONDS)
    return [memory, processor]


def ready(course: Course) -> list[Row]:
    """From the process's start to ready, on an empty volume."""
    row = Row("ready after its start, empty", "s", Target(1, at_least=False))
    for run in range(course.runs):
        for kind, fleet_type in course.fleets.items():
            fleet = fleet_type(course.directory / f"{kind}-{run}", 1)
            try:
                row.add(kind, start_and_time(fleet))
            finally:
                fleet.close()
    return [row]


def ready_full(course: Course) -> list[Row]:
    """The same with a million messages on the volume, all of which the stream must still have."""
    row = Row("ready after its start, 1 M messages of 128 B on disk", "s", Target(2, at_least=False))
    for kind, fleet_type in course.fleets.items():
        fleet = fleet_type(course.directory / kind, 1)
        try:
            start_and_time(fleet)
            url = fleet.urls[0]
            wait_for_jetstream(url)
            make_stream(url, "B", ["b.>"], 1)
            publish_acknowledged(url, "b.x", STORED)
            for _ in range(course.runs):
                fleet.brokers[0].stop()
                row.add(kind, start_and_time(fleet))
                with RawClient(url) as client:
                    held = client.request("$JS.API.STREAM.INFO.B")["state"]["messages"]
                if held != STORED:
                    raise BenchError(f"{kind}: the stream holds {held} of {STORED} messages after a restart")
        finally:
            fleet.close()
    return [row]
