"""The client protocol's bytes, as a reader needs them: one parse pass per read, no sockets.

`WireParser` turns bytes into messages. `delivery` reads the position that a JetStream delivery carries in its
reply subject. `parse_headers` reads a header block. Nothing here keeps a reference to the caller's buffers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

CONTROL_LINE_BYTES_MAX = 65_536
"""A server's control line (INFO is the longest) beyond this is not NATS."""
PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
"""NATS's own upper bound of max_payload: a larger size in a control line is garbage, not a reason to wait for it."""
ACK_PREFIX = b"$JS.ACK."
HEADER_LINE = b"NATS/1.0"

Message = tuple[bytes, bytes, bytes, bytes, bytes]
"""(subscription id, subject, reply, header block or b"", payload); a plain tuple, because there is one per message."""

Record = tuple[int, int, bytes, bytes, bytes]
"""Of a message of a stream: (sequence, time in nanoseconds, subject, header block, payload)."""

Row = tuple[bytes, bytes, bytes]
"""Of a message to publish: subject, header block or b"", payload."""


class ProtocolError(Exception):
    """The server sent what is not the NATS client protocol."""

    def __init__(self, what: str, seen: bytes) -> None:
        super().__init__(f"server sent {what}: {seen[:80]!r}")
        self.seen = seen


class Delivery(NamedTuple):
    """A delivered message's position, from its reply subject."""

    sequence: int
    consumer_sequence: int
    """1 for a consumer's first delivery; without redelivery it grows by one, so that a lost message shows."""
    time_ns: int
    pending: int
    """How many messages the consumer still has to deliver after this one."""


def delivery(reply: bytes) -> Delivery:
    """Read `$JS.ACK.<stream>.<consumer>.<n>.<seq>.<cseq>.<time>.<pending>`, or the longer form with domain and account.

    Raises:
        ProtocolError: it is neither form.
    """
    tokens = reply.split(b".")
    shift = 0 if len(tokens) == 9 else 2
    try:
        return Delivery(
            int(tokens[5 + shift]), int(tokens[6 + shift]), int(tokens[7 + shift]), int(tokens[8 + shift])
        )
    except (IndexError, ValueError):
        raise ProtocolError("a delivery without a position in its reply subject", reply) from None


def status_of(header: bytes) -> tuple[int, str]:
    """(code, description) of a header block that is a status ("NATS/1.0 404 No Messages"); (0, "") when it is none."""
    line, _, _ = header.partition(b"\r\n")
    rest = line[len(HEADER_LINE) :].strip()
    if not line.startswith(HEADER_LINE) or not rest:
        return 0, ""
    code, _, text = rest.partition(b" ")
    return (int(code), text.strip().decode("utf-8", "replace")) if code.isdigit() else (0, "")


def parse_headers(header: bytes) -> dict[str, list[str]]:
    """Names and values of a header block; a repeated name keeps all its values, in order."""
    values: dict[str, list[str]] = {}
    for line in header.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            values.setdefault(name.decode("utf-8", "replace"), []).append(
                value.strip().decode("utf-8", "replace")
            )
    return values


def header_block(pairs: Iterable[tuple[str, str]]) -> bytes:
    """A header block; empty for no pairs.

    Raises:
        ValueError: a name or a value would break the block.
    """
    lines = []
    for name, value in pairs:
        if not name or ":" in name or {"\r", "\n"} & {*name, *value}:
            raise ValueError(f"has the name {name!r}, which it cannot, or a line break in its value")
        lines.append(f"{name}: {value}\r\n")
    return HEADER_LINE + f"\r\n{''.join(lines)}\r\n".encode() if lines else b""


def none_of(buffer: bytes) -> tuple[None, int]:
    """For `WireParser.feed_first`: takes nothing."""
    return None, 0


class WireParser:
    """Bytes in, messages out. What is not a message is left in the attributes for the caller to look at."""

    __slots__ = ("_have", "_need", "_parts", "errors", "info", "pings", "pongs")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._have = 0
        self._need = 0
        self.info: dict[str, Any] | None = None
        """The last INFO."""
        self.errors: list[str] = []
        self.pings = 0
        self.pongs = 0

    def feed(self, data: bytes) -> list[Message]:
        """Every message that is complete with `data`.

        Raises:
            ProtocolError: the stream of bytes is not NATS; the parser is of no use afterwards.
        """
        return self.feed_first(data, none_of)[1]

    def feed_first(
        self, data: bytes, first: Callable[[bytes], tuple[T | None, int]]
    ) -> tuple[T | None, list[Message]]:
        """As `feed`, but `first` may take whole messages from the beginning of what is there. It returns what it makes of them, and where
        they end."""
        self._parts.append(data)
        self._have += len(data)
        if self._have < self._need:
            return None, []
        buffer = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        taken, position = first(buffer)
        messages: list[Message] = []
        position = self._parse(buffer, messages, position)
        rest = buffer[position:]
        self._parts = [rest] if rest else []
        self._have = len(rest)
        return taken, messages

    def _parse(self, buffer: bytes, messages: list[Message], position: int) -> int:
        """Append whole messages from `position` on; returns where the first incomplete thing begins and sets how much it needs."""
        size = len(buffer)
        find = buffer.find
        append = messages.append
        while True:
            end = find(b"\r\n", position)
            if end < 0:
                if size - position > CONTROL_LINE_BYTES_MAX:
                    raise ProtocolError("an endless control line", buffer[position : position + 80])
                self._need = 0
                return position
            if buffer.startswith((b"MSG ", b"HMSG "), position):
                fields = buffer[position:end].split()
                body = end + 2
                try:
                    total = int(fields[-1])
                    if fields[0] == b"MSG":
                        head, reply = 0, (fields[3] if len(fields) == 5 else b"")
                    else:
                        head, reply = int(fields[-2]), (fields[3] if len(fields) == 6 else b"")
                    sid = fields[2]
                except (IndexError, ValueError):
                    raise ProtocolError("a malformed message line", buffer[position:end]) from None
                if not 0 <= head <= total <= PAYLOAD_BYTES_MAX:
                    raise ProtocolError("a message line with impossible sizes", buffer[position:end])
                stop = body + total
                if stop + 2 > size:
                    self._need = stop + 2 - position
                    return position
                append((sid, fields[1], reply, buffer[body : body + head], buffer[body + head : stop]))
                position = stop + 2
            else:
                self._control(buffer[position:end])
                position = end + 2

    def _control(self, line: bytes) -> None:
        verb, _, rest = line.partition(b" ")
        verb = verb.upper()
        if verb == b"PING":
            self.pings += 1
        elif verb == b"PONG":
            self.pongs += 1
        elif verb == b"-ERR":
            self.errors.append(rest.strip().strip(b"'").decode("utf-8", "replace"))
        elif verb == b"INFO":
            try:
                self.info = json.loads(rest)
            except ValueError:
                raise ProtocolError("INFO that is not JSON", line) from None
        elif verb != b"+OK":
            raise ProtocolError("an unknown operation", line)
