"""Runs the transcoder's process (`transcode.py`), and its jobs within a time limit.

The process is started at the first job and ends when there was none for a while. One that dies, or is late,
fails its job, and the next job starts another one.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Any

log = logging.getLogger(__name__)

JOB_S = 60.0
IDLE_S = 60.0
ANSWER_BYTES_MAX = 64 << 20
MODULE = "supercluster.broker.bulk.transcode"


class FailedJobError(Exception):
    """The columns were not made: the log has gone on, or there is no room."""


class TranscoderDiedError(Exception):
    """The process ended, or took too long."""


def is_possible() -> bool:
    """Is there what the process needs?"""
    return importlib.util.find_spec("pyarrow") is not None


class Transcoder:
    """See the module."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._process: Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self.jobs = 0
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """Of the process that runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """What the process answers. To be called for one job at a time.

        Raises:
            FailedJobError: it says that it cannot.
            TranscoderDiedError: it says nothing.
        """
        if self._idle is not None:
            self._idle.cancel()
        self.jobs += 1
        try:
            async with asyncio.timeout(JOB_S):
                answer = await self._ask(json.dumps(job).encode() + b"\n")
        except (OSError, ValueError, TimeoutError) as error:
            self._end()
            raise TranscoderDiedError(f"the transcoder gave no answer: {error!r}") from error
        except BaseException:
            self._end()  # Its answer would be taken for the next job's.
            raise
        self._idle = self._loop.call_later(IDLE_S, self._end)
        if "error" in answer:
            raise FailedJobError(str(answer["error"]))
        return answer

    async def _ask(self, line: bytes) -> dict[str, Any]:
        process = self._process
        if process is None or process.returncode is not None:
            self.starts += 1
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", MODULE, stdin=PIPE, stdout=PIPE, limit=ANSWER_BYTES_MAX
            )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line)
        await process.stdin.drain()
        answer: dict[str, Any] = json.loads(await process.stdout.readline())
        return answer

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()

    async def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        process = self._process
        self._end()
        if process is not None:
            await process.wait()
