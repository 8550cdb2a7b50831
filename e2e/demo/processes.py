"""Processes that the demo starts: each in a session of its own with a log file, none left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_SECONDS = 20.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class ProcessEndedError(Exception):
    """A process that has to stay ended."""

    def __init__(self, name: str, code: int, log: Path) -> None:
        super().__init__(f"{name} ended with exit code {code}; its last lines in {log}:\n{tail(log)}")


def tail(path: Path, lines: int = 12) -> str:
    """The last lines of a log, indented; empty when there is none."""
    with contextlib.suppress(OSError):
        return "\n".join(f"    {line}" for line in path.read_text(errors="replace").splitlines()[-lines:])
    return ""


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """One process with its session."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str],
        keep: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
                preexec_fn=None if keep else _die_with_parent,  # noqa: PLW1509 - one prctl, prepared before the fork
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises ProcessEndedError when it is not running."""
        code = self._process.poll()
        if code is not None:
            raise ProcessEndedError(self.name, code, self.log)

    def wait(self, deadline: float) -> int:
        """Its exit code.

        Raises:
            TimeoutError: it runs longer than that.
        """
        try:
            return self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} is not done in time; see {self.log}") from None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def stop(self) -> None:
        """SIGTERM, wait, SIGKILL to what is left of its session."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
