"""Logs of containers: files that a container's processes append to. This module reads, rotates and follows
them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web

CHUNK_BYTES = 64 * 1024
# A follower asks this often whether the file grew; there is no portable way to be told.
POLL_S = 0.1
# The most lines that `tail` keeps in memory.
MAX_TAIL_LINES = 100_000


def pod_directory(state_dir: Path, namespace: str, uid: str) -> Path:
    return state_dir / "pods" / namespace / uid


def path_of(pod_dir: Path, container: str, *, previous: bool = False) -> Path:
    """The log of a container, or of the run before the present one."""
    return pod_dir / (f"{container}.previous.log" if previous else f"{container}.log")


def _tail_offset(path: Path, lines: int) -> int:
    """Where the last lines of a file begin."""
    if lines <= 0:
        return path.stat().st_size
    starts: deque[int] = deque(maxlen=min(lines, MAX_TAIL_LINES))
    offset = 0
    with path.open("rb") as handle:
        for line in handle:
            starts.append(offset)
            offset += len(line)
    return starts[0] if starts else 0


async def answer(request: web.Request, chunks: AsyncIterator[bytes], content_type: str) -> web.StreamResponse:
    """Send what `read` gives, for as long as the reader stays."""
    response = web.StreamResponse(headers={"Content-Type": content_type})
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        async for chunk in chunks:
            await response.write(chunk)
        await response.write_eof()
    return response


async def read(
    path: Path, *, follow: bool, tail: int | None, limit_bytes: int | None, ended: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The bytes of a log; with `follow` also those to come, until the container has ended."""
    left = limit_bytes
    with path.open("rb") as handle:
        if tail is not None:
            handle.seek(_tail_offset(path, tail))
        while True:
            # Asked before reading: what was written before the end is then read before we stop.
            last_look = ended()
            while chunk := handle.read(CHUNK_BYTES):
                if left is not None:
                    chunk = chunk[:left]
                    left -= len(chunk)
                yield chunk
                if left == 0:
                    return
            if not follow or last_look:
                return
            await asyncio.sleep(POLL_S)
