"""A client of its own process that pings a broker all the time, and says at the end how long the longest answer took.

It is measured in processor time of the broker, which other processes of the machine do not lengthen, and by the clock. The smaller
one counts: a broker that waits for a disk takes no processor time, and one that waits for a processor is not to blame.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from pathlib import Path

PAUSE_S = 0.002


def worked_ms(pid: int) -> float:
    """Processor time that the broker's threads have had."""
    return (
        sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6
    )


class Longest:
    """The longest answer so far, in milliseconds."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.pings = 0

    def ping(self, connection: socket.socket, pid: int) -> None:
        began_s, began_ms = time.monotonic(), worked_ms(pid)
        connection.sendall(b"PING\r\n")
        heard = b""
        while not heard.endswith(b"PONG\r\n"):
            data = connection.recv(1 << 16)
            if not data:
                raise SystemExit("the broker has closed the connection")
            heard += data
        self.pings += 1
        self.ms = max(self.ms, min((time.monotonic() - began_s) * 1000, worked_ms(pid) - began_ms))


class Pings:
    """The process, seen from a test."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def begin(cls, host: str, pid: int, login: str = "{}") -> Pings:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, host, "4222", str(pid), login),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        return cls(process)

    async def end(self) -> float:
        """The longest answer in milliseconds; 0 where the broker has closed the connection."""
        told, _ = await self._process.communicate(b"\n")
        return float(told.split()[0]) if told else 0.0


def main(host: str, port: int, pid: int, login: str) -> None:
    longest = Longest()
    ended = threading.Event()

    def await_end() -> None:
        sys.stdin.readline()
        ended.set()

    threading.Thread(target=await_end, daemon=True).start()
    with socket.create_connection((host, port)) as connection:
        connection.recv(1 << 16)
        connection.sendall(b"CONNECT %s\r\n" % login.encode())
        longest.ping(connection, pid)
        longest.ms = 0.0
        print("ready", flush=True)
        while not ended.is_set():
            try:
                longest.ping(connection, pid)
            except OSError as error:
                raise SystemExit(f"the broker is gone: {error}") from None
            ended.wait(PAUSE_S)
    print(f"{longest.ms:.1f} {longest.pings}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
