"""Logs of containers: the node agent appends them to files, this module reads, shortens and follows them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from supercluster.localplane.apiserver.errors import ApiError, bad_request

Json = dict[str, Any]

CHUNK_BYTES = 64 * 1024
# A follower asks this often whether the file grew; there is no portable way to be told.
POLL_S = 0.1
# The most lines that `tail` keeps in memory.
MAX_TAIL_LINES = 100_000


def path_of(state_dir: Path, pod: Json, container: str) -> Path:
    metadata = pod["metadata"]
    return state_dir / "pods" / str(metadata["namespace"]) / str(metadata["uid"]) / f"{container}.log"


def choose_container(pod: Json, wanted: str) -> str:
    """The container that a request means; the only one if it names none."""
    spec = pod.get("spec") or {}
    usual = [item["name"] for item in spec.get("containers") or []]
    initial = [item["name"] for item in spec.get("initContainers") or []]
    name = pod["metadata"]["name"]
    if wanted:
        if wanted not in usual + initial:
            raise bad_request(f"container {wanted} is not valid for pod {name}; it has {usual + initial}")
        return wanted
    chosen = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if chosen in usual:
        return str(chosen)
    if len(usual) > 1:
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: {usual}")
    return str(usual[0])


def check_started(pod: Json, container: str, path: Path) -> None:
    """Say why there is no log yet."""
    if path.exists():
        return
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    waiting = next(
        (item.get("state", {}).get("waiting") for item in statuses if item.get("name") == container), None
    )
    reason = (waiting or {}).get("reason", "ContainerCreating")
    name = pod["metadata"]["name"]
    message = f'container "{container}" in pod "{name}" is waiting to start: {reason}'
    raise ApiError(400, "BadRequest", message)


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
