"""A pytest plugin: a run that hangs says in which test, and ends.

pytest-timeout cancels its timer when a test raises, for the sake of debuggers. The teardown of a failed test is what hangs most, so the timer
goes on here. With pytest-xdist, a line every few minutes names the tests that run, and a run that has a limit ends with such a line.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator

import pytest

LINE_EVERY_S = 300.0
LIMIT = "SUPERCLUSTER_TESTS_SECONDS_MAX"
"""In the environment: how long the whole run may take."""
NAMED_MAX = 8


class Timers:
    """Keeps a test's timer when the test raises; the end of the test's protocol cancels it."""

    def __init__(self) -> None:
        self._raised = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_exception_interact(self) -> Generator[None, object, object]:
        self._raised = True
        try:
            return (yield)
        finally:
            self._raised = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_cancel_timer(self) -> bool | None:
        """pytest-timeout asks for the first answer. None leaves it to pytest-timeout."""
        return True if self._raised else None


class Running:
    """Notes which tests run; with pytest-xdist in the process that the workers report to."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began_s = time.monotonic()
        self._running: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print_lines, name="lines of running tests", daemon=True)

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)

    def pytest_unconfigure(self) -> None:
        self._ended.set()

    def line(self, now_s: float) -> str:
        """What runs at that time, of the monotonic clock."""
        running = [f"{test} ({now_s - began_s:.0f} s)" for test, began_s in self._running.copy().items()]
        return f"after {now_s - self._began_s:.0f} s: {', '.join(running[:NAMED_MAX]) or 'no test'}"

    def _print_lines(self) -> None:
        ends_s = self._began_s + float(os.environ.get(LIMIT, "inf"))
        while not self._ended.wait(max(0.0, min(LINE_EVERY_S, ends_s - time.monotonic()))):
            self._config.get_terminal_writer().write(f"\n{self.line(time.monotonic())}\n", flush=True)
            if time.monotonic() >= ends_s:
                # As Ctrl-C: pytest says what failed up to now.
                os.kill(os.getpid(), signal.SIGINT)
                return


def register(config: pytest.Config) -> None:
    """Each process watches its own timers; the lines come from the one that the workers report to."""
    if config.pluginmanager.hasplugin("timeout") and not config.getoption("usepdb"):
        config.pluginmanager.register(Timers())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Running(config))
