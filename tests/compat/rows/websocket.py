"""NATS's protocol in WebSocket frames (RFC 6455)."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Mapping

from tests.compat.bench import Bench
from tests.compat.table import SINGLES, Group, Settings

PORT = 8080
SETTINGS = Settings(
    "websocket",
    ours={"ports": {"websocket": PORT}},
    nats={"websocket": {"listen": f"{{host}}:{PORT}", "no_tls": True}},
)
rows = Group("websocket", on=SINGLES, settings=SETTINGS)


async def request(
    b: Bench, changes: Mapping[str, str | None] | None = None, *, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    """Ask for the upgrade with some headers changed (None: left out); the first line of the answer."""
    reader, writer = await asyncio.open_connection(b.host, PORT, ssl=tls)
    headers: dict[str, str | None] = {
        "Host": f"{b.host}:{PORT}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        **(changes or {}),
    }
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    writer.write(("\r\n".join(["GET / HTTP/1.1", *lines]) + "\r\n\r\n").encode())
    async with asyncio.timeout(5):
        return reader, writer, (await reader.readline()).decode()


def frame(opcode: int, payload: bytes, *, last: bool = True) -> bytes:
    """A client's frame, masked."""
    mask = b"\x01\x02\x03\x04"
    first = (0x80 if last else 0) | opcode
    size = len(payload)
    head = bytes((first, 0x80 | size)) if size < 126 else struct.pack("!BBH", first, 0xFE, size)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """A server's frame: opcode and payload."""
    async with asyncio.timeout(5):
        first, size = await reader.readexactly(2)
        if size == 126:
            (size,) = struct.unpack("!H", await reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await reader.readexactly(8))
        return first & 0x0F, await reader.readexactly(size)


async def opened(b: Bench) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection after the upgrade and INFO."""
    reader, writer, line = await request(b)
    assert line.startswith("HTTP/1.1 101")
    while (await reader.readline()).strip():
        pass
    opcode, payload = await read_frame(reader)
    assert opcode == 2
    assert payload.startswith(b"INFO {")
    return reader, writer


async def until(reader: asyncio.StreamReader, end: bytes) -> bytes:
    """The stream of the frames' payloads, up to where it ends so."""
    found = b""
    while not found.endswith(end):
        opcode, payload = await read_frame(reader)
        if payload != b"PING\r\n":
            assert opcode == 2, (opcode, payload)
            found += payload
    return found


@rows("accept", "the upgrade is answered with the key's accept")
async def accept(b: Bench) -> None:
    reader, writer, line = await request(b)
    assert line.startswith("HTTP/1.1 101")
    headers = {}
    while row := (await reader.readline()).decode().strip():
        name, _, value = row.partition(":")
        headers[name.lower()] = value.strip()
    assert headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    writer.close()


def _refused(name: str, changes: Mapping[str, str | None]) -> None:
    @rows(f"refused.{name}", f"an upgrade is refused: {name}")
    async def refused(b: Bench) -> None:
        _, writer, line = await request(b, changes)
        assert line.split(" ")[1].startswith("4"), line
        writer.close()


_refused("no-upgrade", {"Upgrade": None})
_refused("no-connection", {"Connection": "close"})
_refused("version", {"Sec-WebSocket-Version": "12"})
_refused("no-key", {"Sec-WebSocket-Key": None})


CONNECT = b'CONNECT {"verbose":false,"headers":true}\r\n'


@rows("publish", "clients by WebSocket and by TCP hear each other")
async def publish(b: Bench) -> None:
    subject, there = b.subject(), await b.connect()
    reader, writer = await opened(b)
    writer.write(frame(2, CONNECT + f"SUB {subject}.to 1\r\nPING\r\n".encode()))
    await until(reader, b"PONG\r\n")
    theirs = await b.subscribe(f"{subject}.from", nc=there)
    writer.write(frame(2, f"HPUB {subject}.from 18 22\r\nNATS/1.0\r\nK: v\r\n\r\nhere\r\n".encode()))
    message = await theirs.next_msg(timeout=5)
    assert (message.data, message.headers) == (b"here", {"K": "v"})
    await there.publish(f"{subject}.to", b"there")
    assert await until(reader, b"there\r\n") == f"MSG {subject}.to 1 5\r\nthere\r\n".encode()
    writer.close()


@rows("large", "a message of many frames' bytes goes both ways")
async def large(b: Bench) -> None:
    subject = b.subject()
    reader, writer = await opened(b)
    payload = bytes(range(256)) * 256
    whole = CONNECT + f"SUB {subject} 1\r\nPUB {subject} {len(payload)}\r\n".encode() + payload + b"\r\n"
    for at in range(0, len(whole), 50_000):
        writer.write(frame(2, whole[at : at + 50_000]))
    found = await until(reader, payload[-5:] + b"\r\n")
    assert found == f"MSG {subject} 1 {len(payload)}\r\n".encode() + payload + b"\r\n"
    writer.close()


@rows("jetstream", "streams are there by WebSocket")
async def jetstream(b: Bench) -> None:
    stream, inbox = await b.stream(), b.subject()
    reader, writer = await opened(b)
    text = f"SUB {inbox} 1\r\nPUB {stream.name}.a {inbox} 1\r\nx\r\n"
    writer.write(frame(2, CONNECT + text.encode()))
    found = await until(reader, b"}\r\n")
    assert found.endswith(f'{{"stream":"{stream.name}","seq":1}}\r\n'.encode())
    writer.close()


@rows("fragments", "a message may come in fragments, with a ping between them")
async def fragments(b: Bench) -> None:
    reader, writer = await opened(b)
    writer.write(frame(2, b'CONNECT {"verbose":false}\r\nPI', last=False))
    writer.write(frame(9, b"still there?"))
    writer.write(frame(0, b"NG\r\n"))
    found = [await read_frame(reader) for _ in range(2)]
    assert sorted(found) == [(2, b"PONG\r\n"), (10, b"still there?")]
    writer.close()


@rows("bytes", "frames may be cut anywhere on the way")
async def cut(b: Bench) -> None:
    reader, writer = await opened(b)
    for byte in frame(2, b'CONNECT {"verbose":false}\r\nPING\r\n'):
        writer.write(bytes((byte,)))
        await writer.drain()
    assert await read_frame(reader) == (2, b"PONG\r\n")
    writer.close()


@rows("close", "a close is answered with a close, and the connection ends")
async def close(b: Bench) -> None:
    reader, writer = await opened(b)
    writer.write(frame(8, struct.pack("!H", 1000)))
    opcode, _ = await read_frame(reader)
    assert opcode == 8
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()


@rows("unmasked", "a client's frame has to be masked")
async def unmasked(b: Bench) -> None:
    reader, writer = await opened(b)
    writer.write(b"\x82\x06PING\r\n")
    async with asyncio.timeout(5):
        rest = await reader.read()
    assert b"PONG" not in rest
    writer.close()
