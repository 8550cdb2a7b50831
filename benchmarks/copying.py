"""How fast files go from one process to others over loopback: the limits that a move is held against."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.client import BenchError
from isal.isal_zlib import crc32
from xxhash import xxh3_128

CHUNK_BYTES = 1 << 20


def copy_rate(files: Sequence[Path], directory: Path) -> float:
    """Bytes a second: one process sends the files (sendfile), a child of it writes them to a new file.

    Raises:
        BenchError: there is nothing to copy, or the child did not get all of it.
    """
    return _copy(files, [directory / "copied"], checked=False)


def checked_rate(files: Sequence[Path], directory: Path, copies: int) -> float:
    """Bytes a second of all copies together, where as many children write one each, check what they get (CRC-32), and read
    it back to check and hash it (XXH3), as the sender does with its own: what a move with a comparison cannot do
    without, and nothing else. No log, no index, no protocol, no fsync.

    Raises:
        BenchError: there is nothing to copy, or a child did not get all of it.
    """
    return _copy(files, [directory / f"copied-{number}" for number in range(copies)], checked=True)


def _copy(files: Sequence[Path], targets: Sequence[Path], *, checked: bool) -> float:
    # As long as they are now: a server may go on writing.
    sizes = [(path, path.stat().st_size) for path in files if path.is_file()]
    total = sum(size for _, size in sizes)
    if not total:
        raise BenchError("there are no files to copy")
    listener = socket.create_server(("127.0.0.1", 0))
    started = time.monotonic()
    port = listener.getsockname()[1]
    children = [_child(partial(_receive, port, target, checked=checked)) for target in targets]
    connections = [listener.accept()[0] for _ in targets]
    with listener:
        for path, size in sizes:
            with path.open("rb") as source:
                for offset in range(0, size, CHUNK_BYTES):
                    for connection in connections:
                        connection.sendfile(source, offset, min(CHUNK_BYTES, size - offset))
        for connection in connections:
            connection.close()
    if checked:
        for path, size in sizes:
            _hash(path, size)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    seconds = time.monotonic() - started
    written = [target.stat().st_size for target in targets]
    for target in targets:
        target.unlink()
    if any(statuses) or written != [total] * len(targets):
        raise BenchError(f"copying wrote {written} of {total} bytes")
    return total * len(targets) / seconds


def _child(work: Callable[[], None]) -> int:
    """Run it in a child, with no way back into the parent's code; the child's process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def _receive(port: int, target: Path, *, checked: bool) -> None:
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    size = 0
    with socket.create_connection(("127.0.0.1", port)) as sink, target.open("wb", buffering=0) as out:
        while count := sink.recv_into(buffer):
            if checked:
                crc32(view[:count])
            out.write(view[:count])
            size += count
    if checked:
        _hash(target, size)


def _hash(path: Path, size: int) -> None:
    digest = xxh3_128()
    with path.open("rb", buffering=0) as source:
        while size > 0 and (chunk := source.read(min(CHUNK_BYTES, size))):
            crc32(chunk)
            digest.update(chunk)
            size -= len(chunk)
