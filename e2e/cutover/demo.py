"""`python -m e2e.cutover.demo`: a live super-cluster goes to another one, by one manifest, with applications at work.

Blue and green run on the embedded control plane. Ten clients (nats-py, unmodified) publish to and read from six streams on blue all the
time. A Migration is applied, and everything goes to green: the streams, the consumers where they stand, then the clients. In the end
each message is looked up on green.
"""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from e2e.cutover import report
from e2e.cutover.course import Running, check_end, under_load
from e2e.cutover.direct import DirectPair
from e2e.cutover.matrix import DIRECT, PLANE, SIZES, WAYS
from e2e.cutover.pair import Pair
from e2e.cutover.plane import PlanePair
from e2e.cutover.rows import Row
from e2e.demo.course import (
    EXIT_CODES,
    EXIT_DIFFERENT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Speaker,
    add_logs_argument,
    make_directory,
)
from e2e.moves.__main__ import interrupt, stop_children

RATE = 500.0
RATE_MIN = 20
NO_RETURN = "the point of no return: until now blue kept its copies; from here on they are deleted"


def _run(pair: Pair, row: Row, say: Speaker, rate: float) -> Running:
    """The story; what is wrong is in the row."""
    say("making six streams on blue; ten clients begin to publish and to read")
    with under_load(pair, row, say, rate) as running:
        say("starting the migration")
        running.start_migration()
        running.wait_for_open()
        say("green serves all streams; clients of blue go on, and are asked to go to green")
        running.wait_for_redirects()
        say("every client is on green")
        running.flow()
        differs = pair.proof()
        if differs:
            row.wrongs.append(differs)
        say(NO_RETURN)
        running.finalize()
        running.wait_for_end()
        say("blue is cleaned up; reading green message by message")
        row.ended = "cleaned"
        check_end(running)
    return running


def _show(running: Running, row: Row) -> bool:
    print("\nWhat each client saw:")
    print("\n".join(report.clients(running)))
    print("\nBoth sides, by their own words:")
    print("\n".join(report.sides(running)))
    print()
    print("\n".join(report.summary(row)))
    for text in (*row.wrongs, *(row.verdict.examples if row.verdict else ())):
        print(f"WRONG: {text}")
    return row.is_right


def _pair(way: str, directory: Path, stack: ExitStack, say: Speaker) -> Pair:
    if way == DIRECT:
        say("starting blue and green without Kubernetes")
        return stack.enter_context(DirectPair(directory, SIZES))
    say("starting the embedded control plane (for laptops and tests), blue and green")
    plane = PlanePair(directory, stack, say)
    plane.start()
    return plane


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.cutover.demo",
        description="A live super-cluster goes to another one with applications at work.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--way", choices=WAYS, default=PLANE, help="where brokers come from (%(default)s)")
    parser.add_argument(
        "--rate", type=float, default=RATE, help="messages a second, all publishers (%(default)s)"
    )
    add_logs_argument(parser)
    arguments = parser.parse_args()
    if arguments.rate < RATE_MIN:
        parser.error(f"--rate has to be at least {RATE_MIN}")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, interrupt)  # Stopped either way, nothing is left behind.
    directory = make_directory(arguments.logs.absolute())
    say = Speaker()
    row = Row(arguments.way, "demo")
    with ExitStack() as stack:
        stack.callback(print, f"logs: {directory}")
        stack.callback(stop_children)
        try:
            running = _run(_pair(arguments.way, directory, stack, say), row, say, arguments.rate)
            is_right = _show(running, row)
        except KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
            print("\ninterrupted; stopping what was started", file=sys.stderr)
            return EXIT_INTERRUPTED
        except Exception as error:
            print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
            return EXIT_FAILED
        print(
            "\nOK: nothing lost, nothing repeated, nothing out of order"
            if is_right
            else "\nDIFFERENT: see above"
        )
        return 0 if is_right else EXIT_DIFFERENT


if __name__ == "__main__":
    sys.exit(main())
