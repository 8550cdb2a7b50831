"""Processes that outlive the command that started them: started detached, identified and ended by pid and
start time.

A pid alone may belong to another process by now. With the time at which the kernel started it, it is unique.
Linux only, as the embedded control plane is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Process:
    """One process that we started."""

    pid: int
    started_ticks: int
    """Field 22 of /proc/<pid>/stat: clock ticks since boot."""
    log: str

    def to_json(self) -> dict[str, Any]:
        return {"pid": self.pid, "startedTicks": self.started_ticks, "log": self.log}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Process:
        return cls(int(content["pid"]), int(content["startedTicks"]), str(content["log"]))


def started_ticks(pid: int) -> int | None:
    """When a process was started; None when there is none, or when it has ended and only waits to be collected."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    # The name in parentheses may hold anything, spaces and parentheses included.
    state, *fields = text[text.rindex(")") + 1 :].split()
    return None if state in ("Z", "X") else int(fields[18])


def is_alive(process: Process) -> bool:
    return started_ticks(process.pid) == process.started_ticks


def start(argv: Sequence[str], log: Path, environ: Mapping[str, str]) -> Process:
    """Start a process in a session of its own, with its output in a file.

    Raises:
        OSError: it could not be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=dict(environ),
        )
    ticks = started_ticks(child.pid)
    # It is meant to outlive us: nobody is to warn that it still runs when this object goes.
    child.returncode = 0
    return Process(child.pid, ticks if ticks is not None else -1, str(log))


def end(process: Process, grace_s: float) -> bool:
    """End the process: SIGTERM, and SIGKILL after the grace time. False when it was not running any more."""
    if not is_alive(process):
        return False
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return True
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            _collect(process.pid)
            if not is_alive(process):
                return True
            time.sleep(POLL_S)
    return True


def _collect(pid: int) -> None:
    """Take the exit status if the process is our own child, so that it does not stay as a zombie."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def tail(path: str, lines: int = 15) -> str:
    """The end of a log, for an error message."""
    try:
        return "\n".join(Path(path).read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"({path}: {error.strerror})"
