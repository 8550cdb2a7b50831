"""`python -m e2e.restless`: an operator at work for minutes while people and tools do at random what they do.

Real brokers run on the embedded control plane, and publishers write to four streams all the time. In the end no acknowledged
message is lost, nothing is deleted that nobody asked to delete, and everything is Ready. The seed replays the acts.
"""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack

from e2e.demo.course import (
    EXIT_DIFFERENT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Speaker,
    add_logs_argument,
    make_directory,
)
from e2e.moves.__main__ import interrupt, stop_children
from e2e.restless.course import Run
from e2e.restless.plan import draw

EXIT_CODES = "Exit codes: 0 all is right, 1 something is wrong, 2 it could not be run, 130 interrupted."


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.restless", description=__doc__.partition("\n")[2].strip(), epilog=EXIT_CODES
    )
    parser.add_argument("--seed", type=int, default=7, help="of the acts (%(default)s)")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long acts are begun (%(default)s)")
    parser.add_argument("--list", action="store_true", help="only show the acts that there would be")
    add_logs_argument(parser)
    given = parser.parse_args()
    if given.list:
        print("\n".join(map(str, draw(given.seed, given.minutes))))
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, interrupt)
    say = Speaker()
    with ExitStack() as stack:
        stack.callback(stop_children)
        directory = make_directory(given.logs.absolute())
        stack.callback(print, f"logs: {directory}")
        run = Run(given.seed, given.minutes, directory, say)
        try:
            is_right = run.run(stack)
        except KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
            print("\ninterrupted; stopping what was started", file=sys.stderr)
            return EXIT_INTERRUPTED
        except Exception as error:
            print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
            _tell(run)
            return EXIT_FAILED
        if not is_right:
            _tell(run)
        print(run.summary())
        return 0 if is_right else EXIT_DIFFERENT


def _tell(run: Run) -> None:
    """What is needed to look into a failure."""
    print(f"\nreplay: make e2e-restless SEED={run.seed} MINUTES={run.minutes:g}")
    if run.hands is not None:
        print("acts so far:\n" + "\n".join(f"  {text}" for text in run.hands.done))
    print("wrong:\n" + "\n".join(f"  {text}" for text in run.wrongs))


if __name__ == "__main__":
    sys.exit(main())
