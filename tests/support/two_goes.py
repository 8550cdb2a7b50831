"""Tests with real processes, and a second go for the few that failed: `python -m tests.support.two_goes tests -m e2e`.

Thousands of tests wait for processes on a machine that others use too, so one in some ten thousand meets a moment in which a
process gets no turn for seconds. What failed runs once more, one after the other, if it is little; what fails twice fails. What passes
only then is listed at the end: each such line is a test, or a piece of the product, that somebody is to look at.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(".cache/two-goes")
# More than so many have a reason of their own, and stand as they are.
SECOND_GO_MAX = 5
IN_TURN = ("--numprocesses", "0")
TESTS_FAILED = 1
"""pytest's exit code for that, and a time limit's: behind the latter nothing is noted as failed, and nothing runs again."""


def _pytest(*args: str) -> int:
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={CACHE}", *args]
    return subprocess.run(command, check=False).returncode


def _failed() -> list[str]:
    """What the last go noted as failed."""
    noted = CACHE / "v/cache/lastfailed"
    return sorted(json.loads(noted.read_text())) if noted.exists() else []


def main(args: Sequence[str]) -> int:
    """Returns pytest's exit code: of the first go, or of the second where there was one."""
    code = _pytest("--cache-clear", *args)
    failed = _failed()
    if code != TESTS_FAILED or not 0 < len(failed) <= SECOND_GO_MAX:
        return code
    print(f"\n{len(failed)} failed: once more, one after the other\n", flush=True)
    code = _pytest("--last-failed", "--last-failed-no-failures=none", *args, *IN_TURN)
    again = _failed()
    print("\nfailed in the first go:")
    for test in failed:
        print(f"  {'failed again' if test in again else 'UNSTABLE, passed in the second'}: {test}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
