"""`python -m benchmarks.repairs`: what lost brokers and restarts of a whole cluster cost, and how soon replicas are there again.

`leader`, `follower`: a broker of five is lost for good under 3,500 messages a second of 128 B, a third of them plain, a third
acknowledged without a retry, a third repeated under a Nats-Msg-Id; nats-server beside it. `rolling`: the operator restarts a
cluster of three under the same load. `many`: 200 streams lose a broker at once. `plan`: the planner alone, for 10,000 streams.
Streams are read back message by message. What is ours runs on the embedded control plane, with the real operator.

Exit codes: 0 every target is reached, 1 one is not, 2 something could not be run.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from benchmarks.servers import FLEETS
from benchmarks.table import Row, exit_code, markdown

from benchmarks import losing, losing_many, machine, planning, rolling

RESULTS = Path(__file__).parent / "results"
SCENARIOS = ("leader", "follower", "rolling", "many", "plan")
WAIT_SECONDS = 60.0
Found = TypeVar("Found")


class Runner:
    """Runs what is asked for so many times, each in a folder of its own; what fails is noted, and the next one is run."""

    def __init__(self, directory: Path, runs: int, keep: Path | None) -> None:
        self.directory, self.runs, self.keep = directory, runs, keep
        self.failed: list[str] = []

    def each(self, name: str, run: Callable[[Path], Found]) -> list[Found]:
        """What the runs that succeeded found."""
        return [found for number in range(self.runs) for found in self.once(name, number, run)]

    def once(self, name: str, number: int, run: Callable[[Path], Found]) -> list[Found]:
        """One run, or none if it failed."""
        _say(f"{name}, run {number + 1} of {self.runs} …")
        try:
            with tempfile.TemporaryDirectory(prefix="run-", dir=self.directory) as own:
                if self.keep is None:
                    return [run(Path(own))]
                kept = self.keep / f"{name.replace(' ', '-')}-{number + 1}"
                kept.mkdir(parents=True)
                return [run(kept)]
        except Exception as error:
            self.failed.append(f"{name}, run {number + 1}: {type(error).__name__}: {error}")
            _say(self.failed[-1])
            return []


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def lose(runner: Runner, who: str, kinds: list[str], wait_seconds: float) -> list[Row]:
    found: dict[str, list[losing.Lost]] = {kind: [] for kind in kinds}
    for number in range(runner.runs):
        for kind in kinds:

            def run(directory: Path, kind: str = kind) -> losing.Lost:
                return losing.run_once(kind, who, directory, wait_seconds)

            for lost in runner.once(f"{who} lost, {kind}", number, run):
                found[kind].append(lost)
                _say(f"  {lost.explained}")
    return losing.rows_of(who, found)


def roll(runner: Runner) -> list[Row]:
    found = runner.each("rolling restart", rolling.run_once)
    for rolled in found:
        _say(f"  {rolled.course}; {rolled.explained}")
    return rolling.rows_of(found)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.repairs",
        description="Lost brokers, restarts of a cluster and the planner of repairs.",
        epilog="Exit codes: 0 every target is reached, 1 one is not, 2 something could not be run.",
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of each; medians and extremes are shown")
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="may be given several times")
    parser.add_argument("--servers", action="append", choices=FLEETS, help="only these, to look at one")
    parser.add_argument(
        "--wait",
        type=float,
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help="how long nats-server is given to replace a lost replica (%(default)s)",
    )
    parser.add_argument(
        "--streams",
        type=int,
        default=losing_many.STREAMS,
        metavar="N",
        help="how many lose a broker at once in `many` (%(default)s)",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave volumes and logs of all runs there")
    parser.add_argument("--out", type=Path, help="where to write the table")
    arguments = parser.parse_args(argv)
    wanted, kinds = arguments.only or list(SCENARIOS), arguments.servers or list(FLEETS)
    if arguments.runs < 1:
        parser.error(f"--runs {arguments.runs}: at least 1")
    described = machine.describe()
    rows: list[Row] = []
    # Stopped either way, nothing is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="supercluster-bench-repairs-") as name:
        runner = Runner(Path(name), arguments.runs, arguments.keep)
        for who in losing.WHO:
            if who in wanted:
                rows += lose(runner, who, kinds, arguments.wait)
        if "supercluster" in kinds and "rolling" in wanted:
            rows += roll(runner)
        if "supercluster" in kinds and "many" in wanted:
            count: int = arguments.streams
            found = runner.each("many streams", lambda own: losing_many.run_once(own, count))
            rows += losing_many.rows_of(found, count)
        if "plan" in wanted:
            rows += planning.run(arguments.runs)
        failed = runner.failed
    text = markdown(rows, described, arguments.runs, failed)
    out = arguments.out or RESULTS / f"repairs-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    print(text)
    _say(f"written to {out}")
    return exit_code(rows, failed)


if __name__ == "__main__":
    sys.exit(main())
