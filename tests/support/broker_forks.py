"""Broker processes that begin with everything imported.

A broker's interpreter needs a second of processor time before it does anything, and the end-to-end tests start hundreds. So a
server of forks imports the broker once per test process; each broker is a fork of it, and otherwise a process like any other:
it has its own arguments, environment and log, it is killed and stopped by signals, and it has an exit code. The command line
itself is shown by tests/broker/runtime/test_command_line.py, tests/broker/dropin/test_drop_in_server.py and the tests on the
embedded control plane.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path

BROKER = "supercluster.broker.main"


@functools.cache
def _forks() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([BROKER])
    return context


def _run(arguments: list[str], log: str, environment: dict[str, str], constants: dict[str, int]) -> None:
    """In the fork: what `python -m supercluster.broker.main` does."""
    for path, value in constants.items():
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name), path
        setattr(importlib.import_module(module), name, value)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, sys.stdout.fileno())
    os.dup2(file, sys.stderr.fileno())
    os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = ["supercluster-broker", *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from supercluster.broker.main import main

    sys.exit(main(arguments))


class BrokerFork:
    """One running broker, with what `subprocess.Popen` has of it."""

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        constants: Mapping[str, int] | None = None,
    ) -> None:
        """`constants` of the broker's modules have other values in this one, by their paths."""
        log.touch()  # For those who read it at once.
        self._process = _forks().Process(
            target=_run,
            args=(list(arguments), str(log), dict(environment), dict(constants or {})),
            daemon=True,
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code; the signal's number, negative, when one killed it; None while it runs."""
        if self.returncode is None:
            self._process.join(0)
            self._note()
        return self.returncode

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code, once it has ended.

        Raises:
            TimeoutError: it runs on.
        """
        if self.returncode is None:
            self._process.join(timeout_s)
            self._note()
        if self.returncode is None:
            raise TimeoutError(f"process {self.pid} has not ended after {timeout_s} s")
        return self.returncode

    def _note(self) -> None:
        self.returncode = self._process.exitcode
        if self.returncode is not None:
            self._process.close()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)


class AsyncBrokerFork:
    """The same, with what `asyncio.subprocess.Process` has of it."""

    def __init__(
        self, arguments: Sequence[str], log: Path, constants: Mapping[str, int] | None = None
    ) -> None:
        self._fork = BrokerFork(arguments, log, os.environ, constants)

    @property
    def pid(self) -> int:
        return self._fork.pid

    @property
    def returncode(self) -> int | None:
        return self._fork.poll()

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        while self._fork.poll() is None:
            await asyncio.sleep(0.01)
        return self._fork.wait()

    def send_signal(self, number: int) -> None:
        self._fork.send_signal(number)

    def kill(self) -> None:
        self._fork.kill()
