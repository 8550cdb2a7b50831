"""What streams cost that nobody uses: traffic between the brokers, processor time and memory, with few and with many;
and how soon many streams go on when they are used again, and when a broker is killed.

The traffic is what the servers themselves count on their routes. It is measured after the groups had time to fall
silent; who asks only for the leaders' names would wake none of them.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psutil
from benchmarks.client import BenchError, RawClient, wait_for_jetstream
from benchmarks.course import Course
from benchmarks.footprint import start_and_time
from benchmarks.many_streams import all_take
from benchmarks.servers import MONITOR_PORT, Fleet
from benchmarks.table import Row, Target

FEW = 10
MANY = 1_000
REPLICAS = 3
SETTLE_SECONDS = 15.0
"""More than groups take to fall silent, and than what was written takes to become durable."""
IDLE_SECONDS = 20.0
CREATE_SECONDS = 900.0
CREATORS_PER_BROKER = 6
SILENT_SECONDS = 5.0
"""After so long groups that nobody uses are silent again."""
RUNS_MAX = 1
KIB = 1024


@dataclass(frozen=True, slots=True)
class Idle:
    """Three brokers over some seconds in which nobody asked them for anything."""

    bytes_per_s: float
    """Sent on all routes together."""
    processor_percent: float
    """Of a core, the busiest broker's."""
    memory_kib: float
    """Resident, the largest broker's."""


def idle_streams(course: Course) -> list[Row]:
    few = Row(f"three idle brokers, {FEW} streams R{REPLICAS}: traffic between them", "B/s")
    many = Row(f"three idle brokers, {MANY:,} streams R{REPLICAS}: traffic between them", "B/s")
    growth = Row(f"idle traffic: what {MANY:,} streams add to that of {FEW}", "%", Target(10, at_least=False))
    processor = Row(
        f"idle broker of three, {MANY:,} streams R{REPLICAS}: processor",
        "% of a core",
        Target(5, at_least=False),
    )
    awake = Row(f"{MANY:,} idle streams R{REPLICAS}: all have stored a message after", "s")
    half = Row(f"one of three brokers killed, {MANY:,} streams R{REPLICAS}: half take messages after", "s")
    every = Row("the same: all take messages after", "s")
    back = Row("that broker started again: ready after", "s")
    memory = Row(f"idle broker of three: memory per idle stream R{REPLICAS}", "KiB")
    creation = Row(f"creation of {MANY - FEW} streams R{REPLICAS}, 18 at a time", "streams/s")
    for run in range(min(course.runs, RUNS_MAX)):
        for kind, fleet_type in course.fleets.items():
            with fleet_type(course.directory / f"{kind}-{run}", 3) as fleet:
                wait_for_jetstream(fleet.urls[0])
                create(fleet, 0, FEW)
                before = measure(fleet)
                started = time.monotonic()
                create(fleet, FEW, MANY)
                creation.add(kind, (MANY - FEW) / (time.monotonic() - started))
                after = measure(fleet)
                few.add(kind, before.bytes_per_s)
                many.add(kind, after.bytes_per_s)
                growth.add(kind, 100 * (after.bytes_per_s / before.bytes_per_s - 1))
                processor.add(kind, after.processor_percent)
                memory.add(kind, (after.memory_kib - before.memory_kib) / (MANY - FEW))
                staying = fleet.brokers[1].url
                awake.add(kind, all_take(staying, _subject, MANY, "awake")[-1])
                time.sleep(SILENT_SECONDS)
                fleet.brokers[0].kill()
                taken = all_take(staying, _subject, MANY, "killed")
                half.add(kind, taken[len(taken) // 2])
                every.add(kind, taken[-1])
                back.add(kind, start_and_time(fleet))
    growth.note = f"at most {RUNS_MAX} run, whatever --runs says: creating the streams takes most of the time"
    return [few, many, growth, processor, memory, creation, awake, half, every, back]


def _subject(number: int) -> str:
    return f"idle.{number}.x"


def create(fleet: Fleet, first: int, end: int) -> None:
    """Streams first … end - 1, several at a time on every broker.

    Raises:
        BenchError: a stream could not be created in time, or a broker does not know all of them afterwards.
    """
    deadline = time.monotonic() + CREATE_SECONDS
    lines = len(fleet.urls) * CREATORS_PER_BROKER
    with ThreadPoolExecutor(lines) as pool:
        for done in [
            pool.submit(
                create_some, fleet.urls[line % len(fleet.urls)], range(first + line, end, lines), deadline
            )
            for line in range(lines)
        ]:
            done.result()
    for url in fleet.urls:
        with RawClient(url) as client:
            known = client.request("$JS.API.STREAM.NAMES")["total"]
        if known != end:
            raise BenchError(f"{known} of {end} streams are known at {url}")


def create_some(url: str, numbers: Iterable[int], deadline: float) -> None:
    with RawClient(url) as client:
        for number in numbers:
            name = f"idle-{number}"
            config = {"name": name, "subjects": [f"idle.{number}.>"], "num_replicas": REPLICAS}
            answer = None
            while answer is None or answer.get("error"):
                if time.monotonic() > deadline:
                    raise BenchError(f"stream {name} could not be created; last answer: {answer}")
                answer = client.try_request(f"$JS.API.STREAM.CREATE.{name}", config, seconds=5.0)


def measure(fleet: Fleet) -> Idle:
    """Let the brokers be for a while, and look at what they did meanwhile."""
    time.sleep(SETTLE_SECONDS)
    processes = [psutil.Process(broker.pid) for broker in fleet.brokers]
    sent = route_bytes(fleet)
    started = time.monotonic()
    used = [sum(process.cpu_times()[:2]) for process in processes]
    time.sleep(IDLE_SECONDS)
    used = [sum(process.cpu_times()[:2]) - before for process, before in zip(processes, used, strict=True)]
    seconds = time.monotonic() - started
    sent = route_bytes(fleet) - sent
    return Idle(
        sent / seconds,
        100 * max(used) / seconds,
        max(process.memory_info().rss for process in processes) / KIB,
    )


def route_bytes(fleet: Fleet) -> int:
    """Bytes that all brokers have sent to each other so far, as /routez counts them."""
    total = 0
    for broker in fleet.brokers:
        with urllib.request.urlopen(f"http://{broker.host}:{MONITOR_PORT}/routez", timeout=10) as answer:
            total += sum(route["out_bytes"] for route in json.load(answer)["routes"])
    return total
