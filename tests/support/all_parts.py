"""`make test-all`: part after part, none left out because one before it failed, and a table of them at the end.

python -m tests.support.all_parts               everything; hours on two cores
python -m tests.support.all_parts seeds mutants only these parts
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

OTHER_PYTHON = "3.13"
PART_SECONDS_MAX = 3 * 3600
"""Only ends a part that hangs."""

GRACE_SECONDS = 60.0
"""For a part that is ended to end what it started."""


@dataclass(frozen=True, slots=True)
class Part:
    """A command, and what it shows."""

    name: str
    shows: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a part."""

    part: Part
    code: int
    seconds: float

    @property
    def word(self) -> str:
        return "passed" if self.code == 0 else f"FAILED ({self.code})"


def parts(python: str, other_python: str, jobs: int) -> list[Part]:
    """All parts; the one for another Python needs one."""
    workers = ("--numprocesses", str(jobs), "--dist", "loadfile", "--no-loadscope-reorder")
    found = [
        Part("check", "format, lint, types, contracts, generated files", ("make", "check")),
        Part(
            "tests",
            "every test, all rows of tests/compat on all their servers; few that fail get a second go",
            (python, "-m", "tests.support.two_goes", "tests", *workers),
        ),
        Part("seeds", "2,000 seeds of the simulator", ("make", "sim", "SEEDS=2000", f"JOBS={jobs}")),
        *(
            Part(
                name,
                f"40 seeds of {what}",
                (python, "-m", "tests.simulator.run", "--seeds", "40", flag),
            )
            for name, what, flag in (
                ("recover", "a stream that is recovered by force", "--recover"),
                ("recover-map", "a map that is recovered by force", "--recover-map"),
                ("exchange", "copies that are exchanged", "--exchange"),
            )
        ),
        Part("mutants", "every safety rule taken out is noticed", ("make", "sim-mutants", f"JOBS={jobs}")),
        Part("restless", "all rows while leaders step down and streams move", ("make", "compat-restless")),
        Part("moves", "moves on real processes with a fault at every stage", ("make", "e2e-moves")),
        Part("cutover", "cutovers on real processes with a fault at every stage", ("make", "e2e-cutover")),
        Part(
            "operator",
            "an operator at work while people and tools do at random what they do",
            ("make", "e2e-restless", "SEED=7", "MINUTES=2"),
        ),
    ]
    if other_python:
        found.append(
            Part(
                "other-python",
                f"every test without processes on {other_python}",
                (
                    *("make", f"PYTHON={other_python}", "VENV=.venv-other", f"JOBS={jobs}"),
                    *("SELECT='not e2e and not spark'", "test"),
                ),
            )
        )
        found.append(
            Part(
                "newest-clients",
                f"whole stories of NATS's newest Python clients, on {other_python}",
                ("make", f"PYTHON={other_python}", "VENV=.venv-other", "TEST=tests/py_clients", "test-one"),
            )
        )
    return found


def find_other_python() -> str:
    """An interpreter of the other supported version; empty where there is none."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{OTHER_PYTHON}.*/bin/python"))
    for candidate in (*map(str, pyenv), shutil.which(f"python{OTHER_PYTHON}") or ""):
        if (
            candidate
            and subprocess.run([candidate, "-c", "import venv, ensurepip"], check=False).returncode == 0
        ):
            return candidate
    return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a part and all that it started: first as Ctrl-C does, so that tests end their own processes."""
    for number, seconds in ((signal.SIGINT, GRACE_SECONDS), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


def run(part: Part, seconds_max: float = PART_SECONDS_MAX) -> Ended:
    print(f"\n==== {part.name}: {part.shows}\n", flush=True)
    began = time.monotonic()
    process = subprocess.Popen(part.command, env={**os.environ, "TESTS": "all"}, start_new_session=True)
    try:
        code = process.wait(seconds_max)
    except subprocess.TimeoutExpired:
        code = -1
    finally:
        if process.returncode is None:
            _end(process)
    return Ended(part, code, time.monotonic() - began)


def table(ended: Sequence[Ended], left_out: Sequence[str]) -> str:
    """What passed, what failed, what was not run."""
    lines = [f"{one.part.name:14}{one.word:14}{one.seconds / 60:7.1f} min  {one.part.shows}" for one in ended]
    lines += [f"{name:14}not run" for name in left_out]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: all that ran passed; 1: not; 2: bad arguments."""
    parser = argparse.ArgumentParser(prog="make test-all", description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default 2)")
    parser.add_argument("only", nargs="*", metavar="PART", help="run only these parts")
    options = parser.parse_args(argv)
    other = find_other_python()
    known = parts(sys.executable, other, options.jobs)
    unknown = set(options.only) - {part.name for part in known}
    if unknown:
        parser.error(
            f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(p.name for p in known)}"
        )
    chosen = [part for part in known if not options.only or part.name in options.only]
    ended: list[Ended] = []
    for part in chosen:
        ended.append(run(part))
        print(f"\n{table(ended, ())}", flush=True)
    left_out = [part.name for part in known if part not in chosen] + (
        [] if other else ["other-python", "newest-clients"]
    )
    print(f"\n==== make test-all\n{table(ended, left_out)}")
    return 1 if any(one.code for one in ended) else 0


if __name__ == "__main__":
    sys.exit(main())
