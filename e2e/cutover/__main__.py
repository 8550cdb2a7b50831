"""`python -m e2e.cutover`: cutovers under load on real processes, every stage with every victim.

What is checked in each row: every message that was confirmed on blue or green is on green once, where its confirmation named it and in
its publisher's order; consumers go on where they stood; green's own answer equals what blue handed; blue has nothing left. No time is
checked: the stalls and the rate that was reached say what this machine could do.
"""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack

from e2e.cutover.course import RATE
from e2e.cutover.matrix import WAYS, Matrix
from e2e.cutover.rows import HEADS, never_hit
from e2e.demo.course import (
    EXIT_DIFFERENT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Speaker,
    add_logs_argument,
    make_directory,
)
from e2e.moves.__main__ import EXIT_CODES, interrupt, stop_children
from e2e.table import table

RATE_MIN = 20


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.cutover",
        description="Cutovers under load on real broker processes, with every kind of trouble at every stage.",
        epilog=EXIT_CODES,
    )
    parser.add_argument(
        "--way",
        choices=WAYS,
        action="append",
        default=[],
        help="all rows of that way, may be given twice; without it each event once, by manifests where that can be",
    )
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="only rows with this text, such as 'blue at fenced'"
    )
    parser.add_argument(
        "--rate", type=float, default=RATE, help="messages a second, all publishers (%(default)s)"
    )
    parser.add_argument("--tries", type=int, default=3, help="how often a short stage is tried (%(default)s)")
    parser.add_argument("--list", action="store_true", help="only show the rows that there would be")
    add_logs_argument(parser)
    arguments = parser.parse_args()
    if arguments.rate < RATE_MIN or arguments.tries < 1:
        parser.error(f"--rate has to be at least {RATE_MIN}, --tries at least 1")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, interrupt)  # Stopped either way, nothing is left behind.
    say = Speaker()
    with ExitStack() as stack:
        stack.callback(stop_children)
        matrix = Matrix(say, arguments.rate, arguments.tries)
        cases = matrix.cases(arguments.way, arguments.only)
        if arguments.list or not cases:
            print("\n".join(case.name for case in cases) or f"no row has {arguments.only!r} in its name")
            return 0 if cases else EXIT_FAILED
        directory = make_directory(arguments.logs.absolute())
        stack.callback(print, f"logs: {directory}")
        try:
            matrix.run(cases, directory)
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
