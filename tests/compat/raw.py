"""A client that hides nothing: the bytes of the NATS client protocol, one operation at a time."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass
from typing import Any

WAIT_S = 30.0
"""Only ends what hangs."""


@dataclass(frozen=True)
class RawMessage:
    """MSG or HMSG as it came; `header` is empty for MSG."""

    subject: str
    sid: str
    reply: str
    header: bytes
    payload: bytes


class RawClient:
    """One TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.info: dict[str, Any] = {}

    @classmethod
    async def open(
        cls, host: str, port: int = 4222, *, tls: ssl.SSLContext | None = None, first: bool = False
    ) -> RawClient:
        """Connect and read INFO, then begin TLS if a context is given (`first`: before INFO); nothing is sent."""
        outer: dict[str, Any] = {"ssl": tls, "server_hostname": host} if tls is not None and first else {}
        reader, writer = await asyncio.open_connection(host, port, limit=8 << 20, **outer)
        client = cls(reader, writer)
        try:
            client.info = await client.read_info()
            if tls is not None and not first:
                await writer.start_tls(tls, server_hostname=host)
        except BaseException:
            await client.close()
            raise
        return client

    async def read_info(self) -> dict[str, Any]:
        """The next line, which has to be INFO."""
        line = await self.line()
        assert line.startswith("INFO "), line
        found: dict[str, Any] = json.loads(line[5:])
        return found

    def send(self, text: str | bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(text.encode() if isinstance(text, str) else text)

    async def connect(self, **options: Any) -> None:
        """CONNECT with these options (no verbose unless asked for) and PING; returns with the PONG."""
        self.send_connect(**options)
        self.send("PING\r\n")
        if options.get("verbose"):
            assert await self.line() == "+OK"
        assert await self.line() == "PONG"

    def send_connect(self, **options: Any) -> None:
        self.send(f"CONNECT {json.dumps({'verbose': False, 'headers': True, **options})}\r\n")

    async def line(self) -> str:
        """The next line without its end; empty when the server has closed the connection. A PING is answered and passed
        over: when it comes is the server's affair."""
        async with asyncio.timeout(WAIT_S):
            while (found := await self.reader.readline()) == b"PING\r\n":
                self.send("PONG\r\n")
        return found.decode().rstrip("\r\n")

    async def expect(self, *lines: str) -> None:
        """These lines come next."""
        for wanted in lines:
            found = await self.line()
            assert found == wanted, f"{found!r} came where {wanted!r} was expected"

    async def message(self) -> RawMessage:
        """The next message."""
        words = (await self.line()).split(" ")
        has_header = words[0] == "HMSG"
        assert words[0] in ("MSG", "HMSG"), words
        sizes = [int(word) for word in words[-2 if has_header else -1 :]]
        rest = words[1 : -2 if has_header else -1]
        async with asyncio.timeout(WAIT_S):
            body = await self.reader.readexactly(sizes[-1] + 2)
        header_size = sizes[0] if has_header else 0
        reply = rest[2] if len(rest) == 3 else ""
        return RawMessage(rest[0], rest[1], reply, body[:header_size], body[header_size:-2])

    async def ping(self) -> None:
        """A PING's PONG is the very next line: nothing else was on its way."""
        self.send("PING\r\n")
        await self.expect("PONG")

    async def closed(self) -> list[str]:
        """Read to the end of the connection; returns the lines before it."""
        lines: list[str] = []
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    line = await self.reader.readline()
                except ConnectionResetError:
                    return lines
                if not line:
                    return lines
                if line == b"PING\r\n":
                    continue
                lines.append(line.decode().rstrip("\r\n"))

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (OSError, ssl.SSLError):
            pass
