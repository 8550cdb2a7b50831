"""Runs in the child, before the container's program: binds its life to the agent's, then becomes the program.

Run as a script by a bare interpreter (`-I -S`), so it imports little and nothing of this package. The death signal is
set after the fork and survives exec; the check of the parent closes the gap in which the agent may have died.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
# Ignored signals stay ignored over exec: the interpreter's SIGPIPE, and SIGINT of a plane in the background.
DEFAULTED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)


def main() -> None:
    agent, program, *words = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(agent):
        sys.exit(137)
    for number in DEFAULTED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execv(program, [program, *words])
    except OSError as error:
        print(f"exec {program}: {error.strerror}", file=sys.stderr)
        sys.exit(126)


if __name__ == "__main__":
    main()
