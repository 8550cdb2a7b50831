"""`python -m benchmarks.idle_cutover`: how long idle streams take from blue to green, three brokers each, on real processes.

R3 file streams with a message each, and no client. The time begins with the call that starts the migration, before the brokers of both
are linked, and ends when blue's status has all streams as open.

Exit codes: 0 the target is reached, 1 it is not, 2 it could not be run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.table import Row, Target, exit_code, markdown
from tests.support.blue_green import BlueGreen

from benchmarks import machine

STREAMS = 50
BROKERS = REPLICAS = 3
SECONDS_MAX = 30.0
CREATORS = 6
POLL_SECONDS = 0.1
ANSWER_SECONDS = 60.0
GIVE_UP_SECONDS = 300.0
OPEN = ("open", "redirected")


async def create(sides: BlueGreen, count: int) -> None:
    """The streams on blue, several at a time, each with one message."""
    clients = [await sides.blue.client(broker) for broker in sides.blue.running]
    js = [client.jetstream(timeout=ANSWER_SECONDS) for client in clients]
    room = asyncio.Semaphore(CREATORS)

    async def one(number: int) -> None:
        async with room:
            found = js[number % len(js)]
            config: dict[str, Any] = {
                "name": f"I{number}",
                "subjects": [f"idle.{number}"],
                "num_replicas": REPLICAS,
            }
            await found.add_stream(**config)
            await found.publish(f"idle.{number}", b"idle")

    await asyncio.gather(*(one(number) for number in range(count)))
    for client in clients:
        await client.close()


async def cut_over(sides: BlueGreen, count: int) -> tuple[float, float]:
    """Seconds from the call until the first stream is open on green, and until all are.

    Raises:
        TimeoutError: they are not in time; the message has the last status.
    """
    began = time.monotonic()
    first = 0.0
    is_started = False
    found: dict[str, Any] = {}
    while time.monotonic() - began < GIVE_UP_SECONDS:
        if not is_started:
            status, found = await sides.call("", sides.body())
            is_started = status in (200, 202)
        else:
            found = await sides.status() or {}
            stages = found.get("stages", {})
            there = sum(stages.get(stage, 0) for stage in OPEN)
            took = time.monotonic() - began
            first = first or (took if there else 0.0)
            if there == count:
                return first, took
        await asyncio.sleep(POLL_SECONDS)
    raise TimeoutError(f"{count} streams are not open after {GIVE_UP_SECONDS:g} s: {found}")


async def run_once(folder: Path, count: int) -> tuple[float, float]:
    sides = BlueGreen(folder)
    try:
        await sides.start(BROKERS)
        await create(sides, count)
        return await cut_over(sides, count)
    finally:
        await sides.stop()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.idle_cutover",
        description=f"Cut {STREAMS} idle streams over between two super-clusters of {BROKERS} brokers.",
        epilog="Exit codes: 0 the target is reached, 1 it is not, 2 it could not be run.",
    )
    parser.add_argument("--runs", type=int, default=3, help="medians and extremes are shown (default 3)")
    parser.add_argument("--streams", type=int, default=STREAMS, help=f"default {STREAMS}")
    arguments = parser.parse_args(argv)
    if arguments.runs < 1 or arguments.streams < 1:
        parser.error("--runs and --streams: at least 1")
    count = arguments.streams
    described = machine.describe()
    first = Row(f"{count} idle streams R{REPLICAS} to green: the first is open after", "s")
    every = Row("the same: all are open after", "s", Target(SECONDS_MAX, at_least=False), by_worst=True)
    failed: list[str] = []
    for run in range(arguments.runs):
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory(prefix="supercluster-bench-cutover-") as folder:
            try:
                took = asyncio.run(run_once(Path(folder), count))
            except Exception as error:
                failed.append(f"run {run + 1}: {type(error).__name__}: {error}")
                print(failed[-1], file=sys.stderr, flush=True)
                continue
        print(
            f"run {run + 1}: first {took[0]:.1f} s, all {took[1]:.1f} s; load average {load:.1f} before",
            file=sys.stderr,
            flush=True,
        )
        first.add("supercluster", took[0])
        every.add("supercluster", took[1])
    print(markdown([first, every], described, arguments.runs, failed))
    return exit_code([first, every], failed)


if __name__ == "__main__":
    sys.exit(main())
