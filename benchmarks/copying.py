"""How fast files go from one process to another over loopback: the limit that a move is held against."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.client import BenchError

CHUNK_BYTES = 1 << 20


def copy_rate(files: Sequence[Path], directory: Path) -> float:
    """Bytes a second: one process sends the files (sendfile), a child of it writes them to a new file.

    Raises:
        BenchError: there is nothing to copy, or the child did not get all of it.
    """
    total = sum(path.stat().st_size for path in files if path.is_file())
    if not total:
        raise BenchError("there are no files to copy")
    target = directory / "copied"
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        # Only system calls from here on, and no way back into the parent's code.
        status = 1
        try:
            with socket.create_connection(("127.0.0.1", port)) as sink, target.open("wb", buffering=0) as out:
                buffer = bytearray(CHUNK_BYTES)
                view = memoryview(buffer)
                while count := sink.recv_into(buffer):
                    out.write(view[:count])
            status = 0
        finally:
            os._exit(status)
    connection, _ = listener.accept()
    with listener, connection:
        for path in files:
            if path.is_file():
                with path.open("rb") as source:
                    connection.sendfile(source)
    _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - started
    written = target.stat().st_size
    target.unlink()
    if status or written != total:
        raise BenchError(f"copying wrote {written} of {total} bytes")
    return total / seconds
