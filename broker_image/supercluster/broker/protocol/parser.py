"""The client protocol, one pass per read: bytes in, events out.

A run of publishes between two other operations is one list of plain tuples (`Publishes`), so that the hot
path creates no object but the tuple and its parts. Guarantees: any split of a byte stream gives the same
events, except that runs of publishes are cut where the reads were. Bad input gives `Failed`, which is the
last event; after it the parser accepts no input. The buffer is bounded by the payload limit or the control
line limit, whichever applies to the next operation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

UNKNOWN_OPERATION = "Unknown Protocol Operation"
CONTROL_LINE_EXCEEDED = "maximum control line exceeded"
PAYLOAD_VIOLATION = "Maximum Payload Violation"
PARSER_ERROR = "Parser Error"

Message: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""subject, reply, header, payload; what is absent is empty."""

Publishes: TypeAlias = list[Message]


@dataclass(frozen=True, slots=True)
class Connect:
    """CONNECT, with its JSON as it came."""

    options: bytes


@dataclass(frozen=True, slots=True)
class Subscribe:
    """SUB; `queue` is empty for a plain subscription."""

    subject: bytes
    queue: bytes
    sid: bytes


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """UNSUB; `max_messages` 0 means at once, which is what anything that is no number means."""

    sid: bytes
    max_messages: int


@dataclass(frozen=True, slots=True)
class Ping:
    """PING."""


@dataclass(frozen=True, slots=True)
class Pong:
    """PONG."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The stream can't be followed any further; `text` is what -ERR says."""

    text: str


Event: TypeAlias = Publishes | Connect | Subscribe | Unsubscribe | Ping | Pong | Failed

_PING = Ping()
_PONG = Pong()

_INITIALS = frozenset(b"CcHhPpSsUu+-")
"""First bytes of the operations: anything else fails at once, however long its line is."""

KNOWN_BYTES_MAX = 512 << 10
"""Control lines without reply are remembered whole, since publishers repeat them, until they have taken so much."""

KNOWN_LINE_BYTES = 320
"""What a remembered line takes beside its own bytes and those of its subject."""

CHUNKS_FEW = 64
CHUNK_BITS = 10
"""Of an incomplete operation more reads than these few are kept apart only where they have 1 KiB each on average: each of them
takes 40 bytes more than it has."""

_DIGITS_MAX = 9
"""More digits than any size that is allowed."""


@dataclass(slots=True, eq=False)
class ClientParser:
    """Parses one connection's stream."""

    _max_control_line: int
    _max_payload: int
    message_bytes: int = 0
    """Headers and payloads of all publishes."""
    held_bytes: int = 0
    """Of an incomplete operation."""
    _known: dict[bytes, tuple[bytes, bytes, int, int]] = field(default_factory=dict)
    _known_room: int = KNOWN_BYTES_MAX
    _chunks: list[bytes] = field(default_factory=list)
    _need: int = 1
    _failed: bool = False

    def limit_payload(self, max_payload: int) -> None:
        """Take payloads of this size at most from now on."""
        self._max_payload = max_payload

    def feed(self, data: bytes) -> list[Event]:
        """Take the bytes of one read and return what is complete."""
        if self._failed:
            return []
        if self._chunks:
            self._chunks.append(data)
            self.held_bytes += len(data)
            if self.held_bytes < self._need:
                if len(self._chunks) > max(CHUNKS_FEW, self.held_bytes >> CHUNK_BITS):
                    self._chunks = [b"".join(self._chunks)]
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        events: list[Event] = []
        rest = self._parse(data, events)
        if self._failed:
            self.held_bytes = 0
        elif rest < len(data):
            self._chunks.append(data[rest:])
            self.held_bytes = len(data) - rest
        else:
            self.held_bytes = 0
        return events

    def _parse(self, data: bytes, events: list[Event]) -> int:
        """Append the events of `data`; return where the incomplete operation starts."""
        pos = 0
        end = len(data)
        find = data.find
        known = self._known
        max_control_line = self._max_control_line
        max_payload = self._max_payload
        run: Publishes = []
        add = run.append
        self._need = 1
        while pos < end:
            eol = find(b"\n", pos)
            if (eol < 0 or eol - pos > max_control_line) and not self._line_stands(data, pos, eol, events):
                return pos
            line = data[pos:eol]
            publish = known.get(line)
            if publish is None:
                parts = line.split()
                count = len(parts)
                if count == 4 and parts[0] == b"PUB" and parts[3].isdigit() and len(parts[3]) <= _DIGITS_MAX:
                    subject, reply, header_size, size = parts[1], parts[2], 0, int(parts[3])
                elif count == 5 and parts[0] == b"HPUB" and _are_sizes(parts[3], parts[4]):
                    subject, reply, header_size, size = parts[1], parts[2], int(parts[3]), int(parts[4])
                else:
                    publish = self._operation(line, parts, events)
                    if publish is None:
                        if self._failed:
                            return pos
                        pos = eol + 1
                        run = []
                        add = run.append
                        continue
                    subject, reply, header_size, size = publish
                    if not reply and self._known_room > 0:
                        known[line] = publish
                        self._known_room -= len(line) + len(subject) + KNOWN_LINE_BYTES
            else:
                subject, reply, header_size, size = publish
            if size > max_payload:
                self._fail(PAYLOAD_VIOLATION, events)
                return pos
            start = eol + 1
            stop = start + size
            if stop + 2 > end:
                self._need = stop + 2 - pos
                return pos
            if data[stop] != 13 or data[stop + 1] != 10:
                self._fail(PARSER_ERROR, events)
                return pos
            if not run:
                events.append(run)
            if header_size:
                body = start + header_size
                add((subject, reply, data[start:body], data[body:stop]))
            else:
                add((subject, reply, b"", data[start:stop]))
            self.message_bytes += size
            pos = stop + 2
        return pos

    def _line_stands(self, data: bytes, pos: int, eol: int, events: list[Event]) -> bool:
        """Judge a line that is incomplete or near the limit; True when it can be taken as it is."""
        if data[pos] not in _INITIALS:
            self._fail(UNKNOWN_OPERATION, events)
            return False
        size = (eol if eol >= 0 else len(data)) - pos
        carriage_return = 1 if eol < 0 or data[eol - 1] == 13 else 0
        if size > self._max_control_line + carriage_return:
            self._fail(CONTROL_LINE_EXCEEDED, events)
            return False
        return eol >= 0

    def _operation(
        self, line: bytes, parts: list[bytes], events: list[Event]
    ) -> tuple[bytes, bytes, int, int] | None:
        """Take any line but the commonest publish: a publish's subject, reply, header size and size, or None after
        appending another event."""
        name = parts[0].upper() if parts else b""
        count = len(parts)
        match name:
            case b"PUB" if count in (3, 4):
                return self._sizes(parts[1], parts[2] if count == 4 else b"", b"0", parts[-1], events)
            case b"HPUB" if count in (4, 5):
                return self._sizes(parts[1], parts[2] if count == 5 else b"", parts[-2], parts[-1], events)
            case b"PING":
                events.append(_PING)
            case b"PONG":
                events.append(_PONG)
            case b"SUB" if count in (3, 4):
                events.append(Subscribe(parts[1], parts[2] if count == 4 else b"", parts[-1]))
            case b"UNSUB" if count == 2:
                events.append(Unsubscribe(parts[1], 0))
            case b"UNSUB" if count == 3:
                is_size = parts[2].isdigit() and len(parts[2]) <= _DIGITS_MAX
                events.append(Unsubscribe(parts[1], int(parts[2]) if is_size else 0))
            case b"CONNECT" if count > 1:
                events.append(Connect(line.strip()[len(name) :].strip()))
            case b"+OK" | b"-ERR":
                pass
            case b"PUB" | b"HPUB" | b"SUB" | b"UNSUB" | b"CONNECT":
                self._fail(PARSER_ERROR, events)
            case _:
                self._fail(UNKNOWN_OPERATION, events)
        return None

    def _sizes(
        self, subject: bytes, reply: bytes, header: bytes, total: bytes, events: list[Event]
    ) -> tuple[bytes, bytes, int, int] | None:
        if not _are_sizes(header, total):
            self._fail(PARSER_ERROR, events)
            return None
        return subject, reply, int(header), int(total)

    def _fail(self, text: str, events: list[Event]) -> None:
        self._failed = True
        events.append(Failed(text))


def _are_sizes(header: bytes, total: bytes) -> bool:
    """Are these digits that a publish may end with: header's size, size of both?"""
    if not (header.isdigit() and total.isdigit()):
        return False
    return len(header) <= _DIGITS_MAX and len(total) <= _DIGITS_MAX and int(header) <= int(total)
