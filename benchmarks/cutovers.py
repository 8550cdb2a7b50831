"""`make bench-cutovers`: how long publishers wait while streams are cut over, beside the quiet time before it.

Each run is the clean row of `e2e.cutover` on brokers that are started directly: six streams, three brokers on each side. Connections that
stay are held against the limit; redirects are shown apart. On a saturated machine each election and each answer waits for the processor
first, and the figure is the machine's; so the busy share is printed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from benchmarks.machine import describe
from e2e.cutover import stories
from e2e.cutover.course import under_load
from e2e.cutover.direct import DirectPair
from e2e.cutover.kinds import PLAIN
from e2e.cutover.load import Load
from e2e.cutover.matrix import SIZES
from e2e.cutover.rows import Row

LIMIT_MS = 250
"""The median from fenced to open, beyond the quiet time's median wait."""
RUNS = 3
RATE, RATE_MIN = 200.0, 20
"""Messages a second of all publishers."""
SATURATED_PERCENT = 90
QUIET_SECONDS = 3


@dataclass(slots=True)
class Figures:
    """All in milliseconds; one entry per run, or per stream and run, or per answer."""

    quiet: list[float] = field(default_factory=list)
    fenced: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    redirects: list[float] = field(default_factory=list)
    busy_percent: list[float] = field(default_factory=list)
    """Of all processors, over a run; one entry per run."""

    @property
    def beyond_quiet(self) -> float:
        return statistics.median(self.fenced) - statistics.median(self.quiet)

    @property
    def is_reached(self) -> bool:
        return self.beyond_quiet < LIMIT_MS

    def lines(self) -> list[str]:
        """For people; each list has an entry."""
        verdict = "reached" if self.is_reached else "MISSED"
        busy = statistics.median(self.busy_percent)
        saturated = ": saturated, measure at a smaller --rate" if busy > SATURATED_PERCENT else ""
        return [
            f"processors busy: {busy:.0f} %{saturated}",
            f"quiet time, between answers to a publisher: {_spread(self.quiet)}",
            f"fenced to open: {_spread(self.fenced)}",
            f"fenced to open beyond the quiet time: median {self.beyond_quiet:,.0f} ms, limit {LIMIT_MS} ms: {verdict}",
            f"longest wait of a publisher whose connection stayed, by run: {_spread(self.waits)}",
            f"longest wait over a redirect, by run: {_spread(self.redirects)}",
        ]


def _spread(values: list[float]) -> str:
    return f"median {statistics.median(values):,.0f} ms, worst {max(values):,.0f} ms"


def gaps_ms(load: Load, since: float, until: float) -> list[float]:
    """Between two answers to the same publisher, of those that ask for answers."""
    found = []
    for mode, publisher in load.publishers.items():
        times = [at for at in publisher.answer_times if since <= at <= until]
        if mode != PLAIN:
            found += [1000 * (after - before) for before, after in itertools.pairwise(times)]
    return found


def measure(directory: Path, figures: Figures, rate: float) -> Row:
    """One cutover on a pair of super-clusters of its own, at `rate` messages a second."""
    row = Row("direct", "clean")
    with DirectPair(directory, SIZES) as pair, under_load(pair, row, print, rate) as running:
        began = time.monotonic()
        psutil.cpu_percent()
        running.flow(int(rate * QUIET_SECONDS))
        started = time.monotonic()
        running.start_migration()
        stories.finish(running)
        figures.busy_percent.append(psutil.cpu_percent())
        load, fenced = running.load, running.watch.stalls_ms()
        figures.quiet += gaps_ms(load, began, started)
        figures.fenced += fenced.values()
    stalls = load.stalls(started, pair.side_of)  # Known once publishing has ended.
    figures.waits.append(stalls.connected)
    figures.redirects.append(max(stalls.redirected, stalls.reconnected))
    return row


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cutovers", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="cutovers (%(default)s)")
    parser.add_argument(
        "--rate", type=float, default=RATE, help="messages a second, all publishers (%(default)s)"
    )
    arguments = parser.parse_args()
    if arguments.runs < 1 or arguments.rate < RATE_MIN:
        parser.error(f"--runs has to be at least 1, --rate at least {RATE_MIN}")
    figures, wrong = Figures(), 0
    for _ in range(arguments.runs):
        with TemporaryDirectory() as directory:
            row = measure(Path(directory), figures, arguments.rate)
        print(row.line)
        wrong += not row.is_right
    print("\n".join([*describe(), f"load average: {os.getloadavg()[0]:.1f}", *figures.lines()]))
    return 1 if wrong or not figures.is_reached else 0


if __name__ == "__main__":
    sys.exit(main())
