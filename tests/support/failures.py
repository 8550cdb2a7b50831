"""A pytest plugin: the last lines of a run that fails name the failed tests and the command that runs one of them.

They are in .cache/failed-tests as well, where `.ci/run` finds them.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from tests.support import tiers

FILE = Path(".cache/failed-tests")
NAMED_MAX = 30


def command(test: str) -> str:
    """What runs one test as it ran here, on the same Python."""
    tests = "TESTS=all " if tiers.ALL else ""
    folder = Path(sys.prefix)
    name = folder.name if folder.parent == Path.cwd() else str(folder)
    venv = "" if name == ".venv" else f"VENV={shlex.quote(name)} "
    return f"{tests}make {venv}test-one TEST={shlex.quote(test)}"


def said(failed: list[str]) -> str:
    """What is said of failed tests."""
    named = [f"  {test}" for test in failed[:NAMED_MAX]]
    if len(failed) > NAMED_MAX:
        named.append(f"  and {len(failed) - NAMED_MAX} more")
    return "\n".join([f"{len(failed)} failed:", *named, "To run one:", f"  {command(failed[0])}"])


class Failures:
    """Notes what fails; with pytest-xdist in the process that the workers report to."""

    def __init__(self, root: Path) -> None:
        self._file = root / FILE
        self._failed: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = None

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        self._file.unlink(missing_ok=True)
        if self._failed:
            text = said(list(self._failed))
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(f"{text}\n")
            print(f"\n{text}")


def register(config: pytest.Config) -> None:
    """Not in workers, which report to another process."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config.rootpath))
