"""What every way of running the demo shares: publish, compare in two ways, audit, report, and exit codes that mean something."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

from e2e.demo import flights, ledger, pipelines, run
from e2e.demo.brokers import Brokers
from tools.find_java import NoJavaError, find_java_home

RUNS_KEPT = 3
EXIT_DIFFERENT, EXIT_FAILED, EXIT_INTERRUPTED = 1, 2, 130
EXIT_CODES = "Exit codes: 0 all figures are equal, 1 something differs or an audit has findings, 2 it could not be run, 130 interrupted."


class Speaker:
    """Progress on standard output, with the seconds since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"[{time.monotonic() - self._started:6.1f} s] {text}", flush=True)


def add_logs_argument(parser: argparse.ArgumentParser) -> None:
    """Where `make_directory` is to make the run's folder."""
    parser.add_argument(
        "--logs",
        type=Path,
        default=Path(".demo"),
        metavar="DIR",
        help="a folder per run is made in it (%(default)s)",
    )


def make_directory(parent: Path) -> Path:
    """A new folder for this run; the oldest of earlier runs are removed, but for those that still run or are kept alive."""
    parent.mkdir(parents=True, exist_ok=True)
    earlier = sorted(path for path in parent.iterdir() if path.is_dir())
    for path in earlier[: max(0, len(earlier) - RUNS_KEPT + 1)]:
        # The folder's name ends with the process that made it.
        still_runs = Path("/proc", path.name.rpartition("-")[2]).exists()
        if not still_runs and not (path / "plane" / "ready.json").exists():
            shutil.rmtree(path, ignore_errors=True)
    directory = parent / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    directory.mkdir()
    return directory


async def compare(
    start: Callable[[], Awaitable[Brokers]], directory: Path, say: Speaker, *, keep: bool, every: int = 1
) -> bool:
    """Start brokers, publish every Nth flight (`every`) while the leader is killed, and compare; True when nothing differs."""
    os.environ["JAVA_HOME"] = str(find_java_home())  # for the processes of Spark, whatever starts them
    rows = flights.read_rows(flights.data_file())[::every]
    brokers = await start()
    published = await run.publish(brokers, rows, say, f"demo-{secrets.token_hex(4)}")
    say(f"published in {published.seconds:.1f} s; reading the stream message by message")
    found = await asyncio.to_thread(run.read_ledger, brokers, len(rows), published.plain.connection_starts)
    ended = await brokers.run_pipelines(directory, say)
    say(f"archive and audit have ended, {ended.seconds:.1f} s after they were declared")
    figures = await asyncio.to_thread(pipelines.archived_figures, ended.folder)
    expected = flights.expected_figures(rows)
    differences = ledger.compare(expected, figures)
    report(expected, figures, found, published, len(rows))
    print("\n".join(ended.lines))
    if keep:
        print("\nEverything goes on running:")
        print("\n".join(f"  {line}" for line in brokers.reach()))
    return not differences and found.is_clean and not ended.has_findings


def conduct(
    start: Callable[[Path, ExitStack, Speaker], Awaitable[Brokers]], logs: Path, *, keep: bool, every: int = 1
) -> int:
    """The whole course as a program: its exit code. What `start` puts on the stack is stopped at the end, unless the
    figures were made and everything is to be kept."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stopped either way, nothing is left behind
    directory = make_directory(logs.absolute())
    say = Speaker()
    code = EXIT_FAILED
    with ExitStack() as stack:
        stack.callback(print, f"logs: {directory}")
        try:
            course = compare(lambda: start(directory, stack, say), directory, say, keep=keep, every=every)
            is_equal = asyncio.run(course)
            code = 0 if is_equal else EXIT_DIFFERENT
            print(
                "\nOK: nothing lost, nothing repeated, all figures equal"
                if is_equal
                else "\nDIFFERENT: see above"
            )
            if keep:
                stack.pop_all()
                print(f"logs: {directory}")
        except KeyboardInterrupt:
            print("\ninterrupted; stopping what was started", file=sys.stderr)
            code = EXIT_INTERRUPTED
        except NoJavaError as error:
            print(f"error: {error}", file=sys.stderr)
        except Exception as error:
            for cause in causes(error):
                print(f"error: {type(cause).__name__}: {cause}", file=sys.stderr)
    return code


def causes(error: Exception) -> list[Exception]:
    """What went wrong, of tasks within tasks."""
    if not isinstance(error, ExceptionGroup):
        return [error]
    return [cause for inner in error.exceptions for cause in causes(inner)]


def report(
    expected: dict[flights.Group, flights.Figures],
    figures: dict[flights.Group, flights.Figures],
    found: ledger.Ledger,
    published: run.PublishReport,
    total: int,
) -> None:
    differences = ledger.compare(expected, figures)
    print("\nThe data set, and beside it what the archive of the stream has:")
    print("\n".join(ledger.table(expected, figures)))
    sums = [sum(value.flights for value in side.values()) for side in (expected, figures)]
    print(f"\nflights: {sums[0]:,d} in the data set, {sums[1]:,d} archived by Spark")
    print(f"groups that differ: {len(differences)} of {len(expected)}")
    print(f"messages lost: {found.lost}   repeated: {found.repeated}   out of order: {found.disordered}")
    if found.lost:
        print(f"  first lost lines of the data set: {found.examples_lost()}")
    if found.foreign:
        print(f"  messages that are none of the demo's: {found.foreign}")
    acknowledged = published.acknowledged
    print(
        f"longest publish stall: {published.stall_seconds:.2f} s (acknowledged {acknowledged.stall_seconds:.2f} s, plain"
        f" {published.plain.stall_seconds:.2f} s); {published.killed} was killed while it led"
    )
    if published.rotation is not None:
        print(published.rotation.line)
    if published.move is not None:
        print(published.move.line)
    print(published.loss.line)
    print(
        f"published: {published.plain.sent:,d} plain, {acknowledged.sent:,d} acknowledged with {acknowledged.repeats:,d}"
        f" repeats, of which {acknowledged.duplicates:,d} were known already; {total / published.seconds:,.0f} messages/s"
    )
