"""`python -m benchmarks.run`: every scenario, one table.

Exit codes: 0 every target is reached, 1 one is not, 2 a scenario could not be run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.course import Course
from benchmarks.servers import FLEETS
from benchmarks.table import Row, exit_code, markdown

from benchmarks import (
    backups,
    costs,
    failover,
    footprint,
    idle_streams,
    machine,
    platform,
    throughput,
    wide_streams,
)

RUNS = 5
RESULTS = Path(__file__).parent / "results"
SCENARIOS: dict[str, Callable[[Course], list[Row]]] = {
    "publish-r3": throughput.publish_r3,
    "publish-r1": throughput.publish_r1,
    "pull": throughput.pull_r1,
    "failover": failover.failover,
    "idle": footprint.idle,
    "costs": costs.costs,
    "idle-streams": idle_streams.idle_streams,
    "ready": footprint.ready,
    "ready-1m": footprint.ready_full,
    "many-subjects": wide_streams.many_subjects,
    "many-consumers": wide_streams.many_consumers,
    "backups": backups.backups,
    "localplane": platform.localplane,
    "stream-ready": platform.stream_ready,
    "simulator": platform.simulator,
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description="Measure our brokers beside nats-server 2.15.1, and print a table with the machine's description.",
        epilog="Exit codes: 0 every target is reached, 1 one is not, 2 a scenario could not be run.",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=SCENARIOS,
        metavar="NAME",
        help=f"one of {', '.join(SCENARIOS)}; may be given several times",
    )
    parser.add_argument(
        "--runs", type=int, default=RUNS, help=f"runs of each; medians are shown (default {RUNS})"
    )
    parser.add_argument(
        "--out", type=Path, help="file for the table (default: a new one in benchmarks/results)"
    )
    parser.add_argument(
        "--servers", action="append", choices=FLEETS, help="only these, to look at a scenario itself"
    )
    arguments = parser.parse_args(argv)
    fleets = {kind: FLEETS[kind] for kind in arguments.servers or FLEETS}
    if arguments.runs < 1:
        parser.error(f"--runs {arguments.runs}: at least 1")
    described = machine.describe()
    rows: list[Row] = []
    failed: list[str] = []
    for name in arguments.only or SCENARIOS:
        started = time.monotonic()
        print(f"{name} …", file=sys.stderr, flush=True)
        try:
            with tempfile.TemporaryDirectory(prefix=f"supercluster-bench-{name}-") as directory:
                rows += SCENARIOS[name](Course(Path(directory), arguments.runs, fleets))
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")
            print(f"{name} could not be run: {error}", file=sys.stderr, flush=True)
        print(f"{name} took {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    text = markdown(rows, described, arguments.runs, failed)
    out = arguments.out or RESULTS / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    print(text)
    print(f"written to {out}", file=sys.stderr)
    return exit_code(rows, failed)


if __name__ == "__main__":
    sys.exit(main())
