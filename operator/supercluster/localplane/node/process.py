"""One process tree: started in a session of its own, watched without polling, ended as a whole.

A child's end is seen through a pidfd, so there is neither a thread per child nor a signal handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from supercluster.localplane.node import leftovers

LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended, in a container runtime's terms: 128 + n for a death by signal n."""

    code: int
    signal: int = 0


class Process:
    """A running tree. Make it with `start`; `ended` is done when the first process has ended and the rest was killed."""

    def __init__(self, popen: subprocess.Popen[bytes], run_dir: Path, container: str) -> None:
        self.pid = popen.pid
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._popen = popen
        self._run_dir = run_dir
        self._container = container
        self._pidfd = os.pidfd_open(popen.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        output: IO[bytes],
        run_dir: Path,
        *,
        container: str = "",
    ) -> Process:
        """Start `argv`, whose first word is a path. `container` marks what belongs to it; without (a probe), its end
        takes its process group with it and costs no look at all processes.

        Raises:
            OSError: no process could be made.
        """
        shim = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), *argv]
        popen = subprocess.Popen(
            shim,
            env={**env, leftovers.CONTAINER_MARK: container} if container else dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        leftovers.record(run_dir, popen.pid)
        return cls(popen, run_dir, container)

    def _reap(self) -> None:
        code = self._popen.poll()
        if code is None:
            return
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        # As with a PID namespace, nothing of a container lives on when its first process has ended.
        self._kill_rest()
        leftovers.forget(self._run_dir, self.pid)
        if not self.ended.done():
            self.ended.set_result(Exit(128 - code, -code) if code < 0 else Exit(code))

    def _kill_rest(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if not self._container:
            return
        for pid in leftovers.of_container(self.pid, self._container):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Signal the first process, as a container runtime does."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """SIGKILL for the first process; the rest follows when it has ended."""
        self.signal(signal.SIGKILL)

    async def stop(self, grace_s: float) -> Exit:
        """SIGTERM, then SIGKILL after `grace_s`."""
        self.signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(asyncio.shield(self.ended), grace_s)
        except TimeoutError:
            self.kill()
            return await asyncio.shield(self.ended)
