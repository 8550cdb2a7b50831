"""WebSocket (RFC 6455) as bytes in, bytes out: the upgrade of an HTTP request, and frames that carry NATS's
protocol.

Only what NATS's clients use: no extensions, no subprotocol. The boundaries of WebSocket messages have no
meaning: their bytes are part of one stream. The buffer is bounded by the size of one request or one control
frame; payloads are passed on as they arrive.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from supercluster.broker.protocol.web_origins import ANY_ORIGIN, WebOrigins

HEAD_BYTES_MAX = 8192
"""Of the HTTP request that asks for the upgrade."""
CONTROL_BYTES_MAX = 125
MESSAGE_BYTES_MAX = 64 << 20
"""Of one frame: more than the largest payload with its control line, many times over."""

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
GOING_AWAY, PROTOCOL_ERROR, TOO_BIG = 1001, 1002, 1009

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class UpgradeError(Exception):
    """The request is no upgrade to WebSocket, or of somebody who may not come; the text says what is missing."""

    def __init__(self, text: str, status: str = "400 Bad Request") -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class WebRules:
    """What is looked at in a request for the upgrade."""

    origins: WebOrigins = ANY_ORIGIN
    cookies: Mapping[str, str] = field(default_factory=dict)
    """Field of CONNECT → the cookie that says it where CONNECT does not."""


NO_RULES = WebRules()


class FrameError(Exception):
    """What came is no frame of a client; `code` is what the close frame says."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def upgrade(head: bytes, rules: WebRules = NO_RULES, *, is_secure: bool = False) -> bytes:
    """The answer to a request (up to and with its empty line).

    Raises:
        UpgradeError: it does not ask for WebSocket as it has to, or comes from a page that may not.
    """
    words = head.decode("latin-1").split("\r\n")[0].split(" ")
    if len(words) != 3 or words[0] != "GET" or words[2] != "HTTP/1.1":
        raise UpgradeError("this is no GET of HTTP/1.1")
    headers = _headers(head)
    if "websocket" not in _tokens(headers.get("upgrade", "")):
        raise UpgradeError("Upgrade is not websocket")
    if "upgrade" not in _tokens(headers.get("connection", "")):
        raise UpgradeError("Connection is not Upgrade")
    if headers.get("sec-websocket-version") != "13":
        raise UpgradeError("Sec-WebSocket-Version is not 13")
    key = headers.get("sec-websocket-key", "")
    try:
        size = len(base64.b64decode(key, validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if size != 16:
        raise UpgradeError("Sec-WebSocket-Key is not 16 bytes in base64")
    origin = headers.get("origin") or headers.get("sec-websocket-origin", "")
    if why := rules.origins.refusal(origin, headers.get("host", ""), is_secure=is_secure):
        raise UpgradeError(why, "403 Forbidden")
    accept = base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n"
    ).encode()


def login_of(head: bytes, rules: WebRules) -> dict[str, str]:
    """Fields of CONNECT that the request's cookies say."""
    if not rules.cookies:
        return {}
    found: dict[str, str] = {}
    for part in _headers(head).get("cookie", "").split(";"):
        name, equals, value = part.strip().partition("=")
        if equals:
            found.setdefault(name, value.strip('"'))
    return {field: found[name] for field, name in rules.cookies.items() if found.get(name)}


def _headers(head: bytes) -> dict[str, str]:
    """By names in small letters."""
    headers: dict[str, str] = {}
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return headers


def refusal(error: UpgradeError) -> bytes:
    """The answer to a request that can't be taken."""
    body = f"{error}\n".encode()
    return (
        f"HTTP/1.1 {error.status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + body


def _tokens(value: str) -> list[str]:
    return [token.strip().lower() for token in value.split(",")]


def frame_head(opcode: int, size: int) -> bytes:
    """What goes before a server's frame of that size: whole, not masked."""
    first = 0x80 | opcode
    if size <= CONTROL_BYTES_MAX:
        return bytes((first, size))
    if size < 1 << 16:
        return struct.pack("!BBH", first, 126, size)
    return struct.pack("!BBQ", first, 127, size)


def close_frame(code: int) -> bytes:
    """A close frame with a reason."""
    return frame_head(CLOSE, 2) + struct.pack("!H", code)


class FrameReader:
    """A client's frames: payload bytes as they come, and whole control frames."""

    __slots__ = ("_control", "_in_message", "_left", "_mask", "_opcode", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._left = 0
        self._opcode = BINARY
        self._mask = b""
        self._in_message = False
        self._control = b""

    def feed(self, data: bytes) -> tuple[bytes, list[tuple[int, bytes]]]:
        """The bytes of one read: what of it is the client's stream, and the control frames (opcode, payload) in it.

        Raises:
            FrameError: the client does not keep to the protocol.
        """
        data = self._rest + data
        self._rest = b""
        stream: list[bytes] = []
        controls: list[tuple[int, bytes]] = []
        at = 0
        while at < len(data) or (self._left == 0 and self._mask):
            if not self._mask:
                head = self._head(data, at)
                if head == 0:
                    self._rest = data[at:]
                    break
                at += head
            part = data[at : at + self._left]
            at += len(part)
            self._left -= len(part)
            plain = _unmasked(part, self._mask)
            self._mask = self._mask[len(part) % 4 :] + self._mask[: len(part) % 4]
            if self._opcode in (CLOSE, PING, PONG):
                self._control += plain
            else:
                stream.append(plain)
            if self._left:
                break
            if self._opcode in (CLOSE, PING, PONG):
                controls.append((self._opcode, self._control))
                self._control = b""
            self._mask = b""
        return b"".join(stream), controls

    def _head(self, data: bytes, at: int) -> int:
        """Read a frame's head; returns its size, 0 when it is not whole yet."""
        if len(data) - at < 2:
            return 0
        first, second = data[at], data[at + 1]
        opcode, size = first & 0x0F, second & 0x7F
        if first & 0x70:
            raise FrameError(PROTOCOL_ERROR, "reserved bits are set")
        if not second & 0x80:
            raise FrameError(PROTOCOL_ERROR, "a client's frame is not masked")
        self._check(opcode, size, is_last=bool(first & 0x80))
        more = {126: 2, 127: 8}.get(size, 0)
        whole = 2 + more + 4
        if len(data) - at < whole:
            return 0
        if more:
            size = int.from_bytes(data[at + 2 : at + 2 + more], "big")
        if size > MESSAGE_BYTES_MAX:
            raise FrameError(TOO_BIG, f"a frame of {size} bytes")
        if opcode in (CONTINUATION, TEXT, BINARY):
            self._in_message = not first & 0x80
        self._opcode, self._left = opcode, size
        self._mask = data[at + whole - 4 : at + whole]
        return whole

    def _check(self, opcode: int, size: int, *, is_last: bool) -> None:
        if opcode in (CLOSE, PING, PONG):
            if not is_last or size > CONTROL_BYTES_MAX:
                raise FrameError(PROTOCOL_ERROR, "a control frame is cut or too long")
        elif opcode == CONTINUATION:
            if not self._in_message:
                raise FrameError(PROTOCOL_ERROR, "nothing is to be continued")
        elif opcode not in (TEXT, BINARY) or self._in_message:
            raise FrameError(PROTOCOL_ERROR, f"a frame of kind {opcode} where none is allowed")


def _unmasked(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    if not size:
        return b""
    key = mask * (size // 4 + 1)
    return (int.from_bytes(data, "big") ^ int.from_bytes(key[:size], "big")).to_bytes(size, "big")
