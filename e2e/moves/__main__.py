"""`python -m e2e.moves`: the long matrix of moves under load on real processes, every stage with every victim.

What is checked in each row: every message that was published is in the stream, once, in its publisher's order; the move ended
as it has to; exactly the brokers that STREAM.INFO and the map name hold the stream, and their replicas are level.
No time is checked: the longest stall and the rate that was reached say what this machine could do.
"""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack, suppress

import psutil
from e2e.demo.course import (
    EXIT_DIFFERENT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Speaker,
    add_logs_argument,
    make_directory,
)
from e2e.moves.course import RATE
from e2e.moves.matrix import TOPOLOGIES, Matrix
from e2e.moves.rows import HEADS, never_hit
from e2e.table import table

INTERRUPT_AGAIN_SECONDS = 1.0
STOP_SECONDS = 30.0
EXIT_CODES = "Exit codes: 0 every row is right, 1 one is wrong, 2 something could not be run or a stage was never hit, 130 interrupted."


def interrupt(number: int, frame: object) -> None:
    """Raise, and once more after a while: where the interpreter just runs a callback (of a fork, of a collected object), it
    drops what is raised."""
    signal.setitimer(signal.ITIMER_REAL, INTERRUPT_AGAIN_SECONDS)
    raise KeyboardInterrupt


def stop_children() -> None:
    """End whatever this process started and that still runs.

    An interrupt may come between the fork of a broker and the moment somebody knows of it, and a second one in the middle
    of the stopping that the first one brought about.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)
    children = psutil.Process().children(recursive=True)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, STOP_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.moves",
        description="Moves under load on real broker processes, with every kind of trouble at every stage.",
        epilog=EXIT_CODES,
    )
    parser.add_argument(
        "--topology", choices=TOPOLOGIES, action="append", help="may be given twice; both by default"
    )
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="only rows with this text, such as 'leader at joint'"
    )
    parser.add_argument(
        "--rate", type=float, default=RATE, help="messages a second, all publishers (%(default)s)"
    )
    parser.add_argument("--tries", type=int, default=4, help="how often a short stage is tried (%(default)s)")
    parser.add_argument("--list", action="store_true", help="only show the rows that there would be")
    add_logs_argument(parser)
    arguments = parser.parse_args()
    if arguments.rate < 3 or arguments.tries < 1:
        parser.error("--rate has to be at least 3, --tries at least 1")
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGALRM,
    ):  # Stopped either way, nothing is left behind.
        signal.signal(number, interrupt)
    say = Speaker()
    with ExitStack() as stack:
        stack.callback(stop_children)
        matrix = Matrix(say, arguments.rate, arguments.tries)
        cases = matrix.cases(arguments.topology or list(TOPOLOGIES), arguments.only)
        if arguments.list or not cases:
            print("\n".join(case.name for case in cases) or f"no row has {arguments.only!r} in its name")
            return 0 if cases else EXIT_FAILED
        directory = make_directory(arguments.logs.absolute())
        stack.callback(print, f"logs: {directory}")
        try:
            matrix.run(cases, directory, stack)
        except KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
            print("\ninterrupted; stopping what was started", file=sys.stderr)
            return EXIT_INTERRUPTED
        finally:
            print(f"\n{table(HEADS, matrix.rows)}")
        missed = never_hit(matrix.rows)
        if missed:
            print("never hit:\n" + "\n".join(f"  {line}" for line in missed))
        wrong = sum(not row.is_right for row in matrix.rows)
        print(f"{len(matrix.rows)} rows, {wrong} wrong")
        return EXIT_DIFFERENT if wrong else EXIT_FAILED if missed else 0


if __name__ == "__main__":
    sys.exit(main())
