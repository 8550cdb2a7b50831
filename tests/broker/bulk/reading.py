"""A reader of the bulk port, as `docs/adr/bulk-reads.md` has the wire: it imports nothing of the broker's layout."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import struct
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pyarrow as pa

HEAD = struct.Struct("<BBHIQQQ")
COLUMNS = ["sequence", "time", "subject", "headers", "payload"]
Row = dict[str, Any]


@dataclass
class Answer:
    status: int
    refusal: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] | None = None
    """None: there was no end frame."""
    blocks: list[tuple[int, list[Row]]] = field(default_factory=list)
    """Whole ones: the first sequence, and the messages."""
    body: bytes = b""

    @property
    def rows(self) -> list[Row]:
        return [row for _, rows in self.blocks for row in rows]

    @property
    def covered(self) -> tuple[int, int]:
        assert self.end is not None, "the answer was cut"
        return self.end["first"], self.end["last"]

    def is_complete(self) -> bool:
        """Rows and deleted sequences are what is covered, and blocks join."""
        assert self.end is not None, "the answer was cut"
        first, last = self.covered
        gone = [seq for begin, end in self.end["deleted"] for seq in range(begin, end + 1)]
        there = sorted([*gone, *(row["sequence"] for row in self.rows)])
        return there == list(range(first, last + 1)) and self.end["rows"] == len(self.rows)


def frames(body: bytes) -> list[tuple[tuple[int, ...], bytes]]:
    """Whole ones."""
    found, at = [], 0
    while at + HEAD.size <= len(body):
        head = HEAD.unpack_from(body, at)
        data = body[at + HEAD.size : at + HEAD.size + head[5]]
        if len(data) < head[5]:
            break
        assert head[2] == 1
        assert head[6] == sum(struct.unpack(f"<{len(data) // 8}Q", data)) % (1 << 64)
        found.append((head, data))
        at += HEAD.size + head[5]
    return found


def parsed(body: bytes, columns: list[str]) -> Answer:
    answer, total = Answer(200, body=body), 0
    block: dict[str, list[Any]] = {}
    for (kind, column, _, count, first, _, added), data in frames(body):
        if kind == 2:
            answer.end = json.loads(data)
            assert answer.end is not None
            assert answer.end["sums"] == total
            break
        total = (total + added) % (1 << 64)
        table = pa.ipc.open_stream(data).read_all()
        assert table.column_names == [columns[column]]
        assert table.num_rows == count
        block[columns[column]] = table.column(0).to_pylist()
        if len(block) == len(columns):
            rows = [dict(zip(block, values, strict=True)) for values in zip(*block.values(), strict=True)]
            answer.blocks.append((first, rows))
            block = {}
    return answer


async def read(
    port: int,
    stream: str,
    columns: list[str] = COLUMNS,
    login: str = "",
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
    **query: Any,
) -> Answer:
    """All of an answer."""
    url = f"{'https' if tls is not None else 'http'}://{host}:{port}/bulk/streams/{stream}"
    shown = {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()} if login else {}
    async with aiohttp.ClientSession(headers=shown) as session:
        async with session.get(
            url, params={"columns": ",".join(columns), **query}, ssl=tls or True
        ) as response:
            if response.status != 200:
                return Answer(response.status, await response.json())
            body = bytearray()
            try:
                async for piece in response.content.iter_any():
                    body += piece
            except aiohttp.ClientPayloadError:
                pass
            return parsed(bytes(body), columns)


class SlowReader:
    """A connection that takes an answer only when it is told to."""

    def __init__(self, port: int, path: str, login: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        self._socket.setblocking(False)
        shown = base64.b64encode(login.encode()).decode()
        # By HTTP/1.0 the body comes as it is.
        request = f"GET {path} HTTP/1.0\r\nHost: broker\r\nAuthorization: Basic {shown}\r\n\r\n"
        self._socket.sendall(request.encode())

    async def some(self) -> bytes:
        """What is there; nothing at the end."""
        try:
            return await asyncio.get_running_loop().sock_recv(self._socket, 65_536)
        except ConnectionError:
            return b""

    async def rest(self, begin: bytes = b"") -> bytes:
        """The body, up to where the connection ends."""
        body = bytearray(begin)
        while piece := await self.some():
            body += piece
        self._socket.close()
        return bytes(body).partition(b"\r\n\r\n")[2]
