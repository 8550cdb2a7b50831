"""What the operator costs with 3,000 busy Streams of three StreamMoves each, one of which waits for an approval: processor time of a
resync, and writes to the API server while nothing but the traffic changes.

The rounds are the operator's own; Kubernetes and the brokers are the tests' fakes, whose time is counted too. Time is virtual, but for
the processor's.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.client import BenchError
from benchmarks.table import Row, Target, exit_code, markdown
from tests.reconcilers.handlers.test_rounds import NS, World

from benchmarks import machine
from supercluster.reconcilers.handlers.status_writes import FIGURES_KEPT
from supercluster.reconcilers.kinds.reconcilers import RECONCILERS
from supercluster.reconcilers.ports import BrokerTarget, Json, Key

STREAMS, MOVES_EACH = 3_000, 3
CPU_S_MAX, WRITES_A_MINUTE_MAX = 5.0, 60.0
RESYNC_MS = 5_000
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Found:
    """One run."""

    resync_s: float
    writes_a_minute: float
    rss_mib: float


class Site(World):
    """A converged namespace whose streams take messages all the time."""

    def __init__(self, streams: int, moves_each: int) -> None:
        super().__init__()
        self._seq = 0
        self._info = self.brokers.stream_info
        self.brokers.stream_info = self._busy_info  # type: ignore[method-assign]
        self._plan = self.brokers.moves.plan
        self.brokers.moves.plan = self._busy_plan  # type: ignore[method-assign]
        to_west: dict[str, Any] = {"destination": {"cluster": "west"}, "approval": "Manual"}
        self.declare("Cluster", "west", superCluster="demo")
        for number in range(streams):
            name = f"s{number}"
            self.declare("Stream", name, superCluster="demo", subjects=[f"{name}.>"])
            for turn in range(moves_each - 1):
                self._declare_ended_move(name, f"{name}-move-{turn}")
            if moves_each:
                self.declare("StreamMove", f"{name}-waits", superCluster="demo", streamRef=name, **to_west)

    def _declare_ended_move(self, stream: str, name: str) -> None:
        spec = {"superCluster": "demo", "streamRef": stream, "destination": {"cluster": "east"}}
        times = {"startedAt": "2026-01-01T00:00:00Z", "endedAt": "2026-01-01T00:00:10Z"}
        status = {"phase": "Succeeded", "observedGeneration": 1, "streamName": stream, **times}
        metadata = {"name": name, "namespace": NS}
        body = {"apiVersion": "supercluster.dev/v1alpha1", "kind": "StreamMove", "metadata": metadata}
        self.kube.put({**body, "spec": spec, "status": status})

    async def _busy_info(self, target: BrokerTarget, name: str) -> Json | None:
        info = await self._info(target, name)
        if info is not None:
            self._seq += 1
            state: dict[str, Any] = {"messages": self._seq, "bytes": 100 * self._seq, "last_seq": self._seq}
            info["state"] |= state
        return info

    def _busy_plan(self, config: Json, goal: Mapping[str, Any], held: Sequence[str] = ()) -> Json:
        self._seq += 1
        plan = self._plan(config, goal, held)
        return {**plan, "bytesToSend": 100 * self._seq, "messages": self._seq, "estimatedS": float(self._seq)}

    @property
    def keys(self) -> list[Key]:
        return [Key(kind, NS, name) for kind, _, name in self.kube.objects if kind in RECONCILERS]

    async def settle(self) -> None:
        """Rounds of everything until only the traffic goes on.

        Raises:
            BenchError: there is always something to be done.
        """
        for _ in range(10):
            before = len(self.brokers.calls), self.num_writes
            self.kube.show(self.cache)
            for key in self.keys:
                await self.rounds.reconcile(key)
            self.start_pods()
            if self.num_writes == before[1]:
                return
        raise BenchError(f"the operator does not come to rest: {self.kube.calls[-3:]}")

    @property
    def num_writes(self) -> int:
        return sum(not call.startswith(("get", "list")) for call in self.kube.calls) + len(self.kube.events)

    async def resync(self) -> float:
        """One look at every resource; the processor time that it took (s)."""
        keys, began = self.keys, time.process_time()
        for key in keys:
            await self.rounds.reconcile(key)
        return time.process_time() - began


async def run_once(streams: int, moves_each: int, minutes: int) -> Found:
    """Figures have waited their minutes when the measured ones begin.

    Raises:
        BenchError: the operator does not come to rest.
    """
    site = Site(streams, moves_each)
    await site.settle()
    await site.clock.advance(int(FIGURES_KEPT.total_seconds() * 1000))
    await site.settle()  # The budget for evictions is opened when all was whole for a while.
    before, took = site.num_writes, []
    for _ in range(minutes * MINUTE_MS // RESYNC_MS):
        await site.clock.advance(RESYNC_MS)
        took.append(await site.resync())
    rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Found(max(took), (site.num_writes - before) / minutes, rss_mib)


def rows_of(found: list[Found], streams: int, moves_each: int) -> list[Row]:
    name = f"{streams:,d} Streams, {moves_each} StreamMoves each"
    cpu = Row(f"{name}: a resync", "s of CPU", Target(CPU_S_MAX, at_least=False), by_worst=True)
    writes = Row(f"{name}: API writes", "1/min", Target(WRITES_A_MINUTE_MAX, at_least=False), by_worst=True)
    memory = Row(f"{name}: memory, fakes included", "MiB")
    for each in found:
        cpu.ours.append(each.resync_s)
        writes.ours.append(each.writes_a_minute)
        memory.ours.append(each.rss_mib)
    return [cpu, writes, memory]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.operator",
        description="Processor time and API writes of the operator with many busy Streams.",
        epilog="Exit codes: 0 every target is reached, 1 one is not, 2 something could not be run.",
    )
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--moves", type=int, default=MOVES_EACH, help="of each Stream")
    parser.add_argument("--minutes", type=int, default=1, help="of virtual time (%(default)s)")
    parser.add_argument("--out", type=Path, help="where to write the table")
    arguments = parser.parse_args(argv)
    described, failed = machine.describe(), list[str]()
    found: list[Found] = []
    for _ in range(arguments.runs):
        try:
            found.append(asyncio.run(run_once(arguments.streams, arguments.moves, arguments.minutes)))
        except BenchError as error:
            failed.append(str(error))
    rows = rows_of(found, arguments.streams, arguments.moves)
    text = markdown(rows, described, arguments.runs, failed)
    if arguments.out is not None:
        arguments.out.write_text(text, encoding="utf-8")
    print(text)
    return exit_code(rows, failed)


if __name__ == "__main__":
    sys.exit(main())
