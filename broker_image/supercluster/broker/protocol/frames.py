"""Frames between brokers: `u32 size | u8 type | body`, big-endian; size counts type and body.

Types 0 to 31 belong to the network layer and are defined here; 32 and up are passed on unread. A frame whose
size exceeds its content or the limit raises `FrameError`: the link is closed, and no content is guessed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from enum import IntEnum
from struct import Struct
from typing import TypeAlias

from supercluster.broker.bounds import FRAME_BYTES_MAX, NAME_BYTES_MAX, TEXT_BYTES_MAX, read_json

Buffer: TypeAlias = bytes | memoryview

VERSION = 1
"""Version of the frames this broker speaks; the smaller of a pair's is spoken. A later one is for what brokers of this one cannot
read: new frames, and new operations of the map (`jetstream/meta/level.py`)."""

VERSION_LEAST = 1
"""The oldest version that a broker may speak for this one to work with it."""

CORE_TYPES_FROM = 32

QUEUES_PER_MESSAGE_MAX = 255
"""MESSAGES gives the number of a message's queue groups one byte."""

_HEAD = Struct(">IB")
_SHORT = Struct(">H")
_LONG = Struct(">I")
_PING = Struct(">IQ")
_INTEREST = Struct(">IBH")
_MESSAGE = Struct(">BBHHII")
_ITEM = Struct(">HHII")


class FrameError(Exception):
    """What came over a link is no frame of ours."""


class FrameType(IntEnum):
    """Types of the network layer."""

    HELLO = 0
    REFUSED = 1
    PING = 2
    LEAVING = 3
    INTEREST = 4
    MESSAGES = 5
    SLOW = 7
    GATEWAYS = 8
    LOAD = 9
    DELIVER_TO = 10
    UNSETTLED = 11
    USERS = 12
    PARTING = 13
    LOGIN = 14
    SWITCHED = 15


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of both sides of a link's connection."""

    version: int
    super_cluster: str
    identity: str
    """Identity of the super-cluster: brokers of another one are refused."""
    cluster: str
    node: str
    incarnation: str
    process: str
    client_url: str
    meta_state: int
    channel: int
    pair: str
    """Random name of this attempt to link up: it says which two connections belong together."""
    user: str
    password: str
    tags: tuple[str, ...] = ()
    gateway_url: str = ""
    """host:port for brokers of other clusters; empty when this one takes none in."""
    version_least: int = 1
    """The oldest version that the other side may speak."""
    introduces: bool = False
    """No link is wanted: only to be known, and to be told whom the other side knows."""
    lineage: str = ""
    """The meta group's name, once the map of streams was recovered by force (SF-9); not said before."""
    bootstrap_id: str = ""
    """Which beginning of the map of streams its map goes back to; empty while it has read none (SF-26)."""
    migration_url: str = ""
    """host:port for brokers of another super-cluster; empty when this one takes none in, and then not said."""
    client_tls: bool = False
    """Does the port for clients take clients with TLS?"""
    client_plain: bool = True
    """And clients without TLS?"""
    replaces: str = ""
    """The pair of a link that goes over to this one, as from plain to TLS; empty: this is a new link, and then it is not said."""
    process_count: int = 0
    """The number of the process on the volume: it rises at every start, unless the volume was put back (SF-27)."""

    def __repr__(self) -> str:
        return f"Hello(node={self.node!r}, process={self.process!r}, channel={self.channel})"


_NAMES = ("node", "cluster", "incarnation", "process")


def frame(frame_type: int, body: Sequence[Buffer]) -> list[Buffer]:
    """A frame as pieces to be written one after the other."""
    size = 1 + sum(map(len, body))
    if size > FRAME_BYTES_MAX:
        raise FrameError(
            f"frame of type {frame_type} has {size} bytes; at most {FRAME_BYTES_MAX} are allowed"
        )
    return [_HEAD.pack(size, frame_type), *body]


class FrameReader:
    """Cuts a byte stream into frames; bodies are views of what was read."""

    __slots__ = ("_chunks", "_held", "_need", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._chunks: list[bytes] = []
        self._held = 0
        self._need = 0
        self.frame_bytes_max = frame_bytes_max
        """Smaller until the peer has said who it is."""

    def feed(self, data: bytes) -> list[tuple[int, memoryview]]:
        """Take the bytes of one read; return (type, body) of what is complete.

        A frame above the limit ends the list when others stand before it: they may raise the limit, so whoever raises
        it asks again with `feed(b"")`.

        Raises:
            FrameError: the stream can't be followed any further.
        """
        if self._chunks:
            self._chunks.append(data)
            self._held += len(data)
            if self._held < self._need:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        frames: list[tuple[int, memoryview]] = []
        view = memoryview(data)
        pos = 0
        end = len(data)
        self._need = 5
        while end - pos >= 5:
            size, frame_type = _HEAD.unpack_from(data, pos)
            if not 1 <= size <= self.frame_bytes_max:
                if frames:
                    break
                raise FrameError(f"frame size is {size}; 1 to {self.frame_bytes_max} are allowed")
            stop = pos + 4 + size
            if stop > end:
                self._need = stop - pos
                break
            frames.append((frame_type, view[pos + 5 : stop]))
            pos = stop
        if pos < end:
            self._chunks.append(data[pos:])
        self._held = end - pos
        return frames


def encode_hello(hello: Hello) -> bytes:
    """HELLO's body: JSON, so that later versions may add to it."""
    told = asdict(hello)
    for name in ("lineage", "migration_url", "replaces"):
        if not told[name]:
            del told[name]
    return json.dumps(told).encode()


def decode_hello(body: Buffer) -> Hello:
    """Read HELLO; fields that this version doesn't know are passed over.

    Raises:
        FrameError: it isn't one, or a field is missing or of the wrong type.
    """
    try:
        told = read_json(body)
        values = {
            item.name: told[item.name] if item.default is MISSING else told.get(item.name, item.default)
            for item in fields(Hello)
        }
        tags = values["tags"] = tuple(values["tags"])
        for text in (*values.values(), *tags):
            if isinstance(text, str) and not text.isprintable():
                raise ValueError  # Names stand in logs, where a control character could begin a line of its own.
        if any(len(str(values[name]).encode()) > NAME_BYTES_MAX for name in _NAMES):
            raise ValueError  # They are parts of members' names, in every group and its log.
        hello = Hello(**values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FrameError(f"HELLO can't be read: {type(error).__name__}") from None
    for name, kind in Hello.__annotations__.items():
        if type(values[name]).__name__ != kind.partition("[")[0]:
            raise FrameError(f"HELLO's {name} is no {kind}")
    if not all(isinstance(tag, str) for tag in tags):
        raise FrameError("HELLO's tags are no texts")
    return hello


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Where a broker of another cluster takes links in."""

    node: str
    cluster: str
    url: str


def encode_gateways(addresses: Sequence[GatewayAddress]) -> bytes:
    """GATEWAYS: the brokers that the sender is linked with now; replaces what it said before."""
    return json.dumps([[found.node, found.cluster, found.url] for found in addresses]).encode()


def decode_gateways(body: Buffer) -> list[GatewayAddress]:
    """Read GATEWAYS.

    Raises:
        FrameError: it isn't a list of three texts each.
    """
    try:
        rows = read_json(body)
    except ValueError:
        raise FrameError("GATEWAYS is no JSON") from None
    if not isinstance(rows, list):
        raise FrameError("GATEWAYS is no list")
    for row in rows:
        if not isinstance(row, list) or len(row) != 3 or not all(isinstance(text, str) for text in row):
            raise FrameError("GATEWAYS has an entry that is not broker, cluster and address")
    return [GatewayAddress(*row) for row in rows]


def encode_ping(stall_ms: int, clock_ns: int) -> bytes:
    """PING: how long the sender stood still at most, lately (SF-29), and the Unix time of its clock (SF-28)."""
    return _PING.pack(min(stall_ms, 0xFFFFFFFF), clock_ns)


def decode_ping(body: Buffer) -> tuple[int, int]:
    if len(body) != _PING.size:
        raise FrameError(f"PING has {len(body)} bytes, not {_PING.size}")
    stall_ms, clock_ns = _PING.unpack(body)
    return stall_ms, clock_ns


def encode_load(clients: int) -> bytes:
    """LOAD: how many clients the sender has, for the order in which others name it to theirs (CL-7)."""
    return _LONG.pack(clients)


def decode_load(body: Buffer) -> int:
    reader = _Reader(body)
    clients = reader.long()
    reader.finish()
    return clients


def encode_login(user: str, password: str) -> bytes:
    """LOGIN: by what the sender says who it is from now on, in place of what HELLO said (CL-5)."""
    return json.dumps([user, password]).encode()


def decode_login(body: Buffer) -> tuple[str, str]:
    """Raises FrameError, which never shows the body."""
    try:
        told = read_json(bytes(body))
    except ValueError:
        told = None
    if not isinstance(told, list) or len(told) != 2:
        raise FrameError("LOGIN has to be user and password")
    user, password = told
    if not isinstance(user, str) or not isinstance(password, str):
        raise FrameError("LOGIN has to be two texts")
    try:
        size_bytes = max(len(user.encode()), len(password.encode()))
    except UnicodeEncodeError:
        raise FrameError("LOGIN has to be two texts") from None
    if size_bytes > TEXT_BYTES_MAX:
        raise FrameError(f"LOGIN has a text of {size_bytes} bytes; at most {TEXT_BYTES_MAX} are allowed")
    return user, password


Interest: TypeAlias = tuple[bytes, bytes, int]
"""subject, queue (empty: plain), members; 0 members end it."""


def encode_interest(account: str, entries: Sequence[Interest]) -> bytes:
    """INTEREST: account, count, entries. Entries replace what was said of the same (subject, queue) before."""
    name = account.encode()
    pieces = [_SHORT.pack(len(name)), name, _LONG.pack(len(entries))]
    for subject, queue, members in entries:
        pieces += (_INTEREST.pack(members, len(queue), len(subject)), queue, subject)
    return b"".join(pieces)


def decode_interest(body: Buffer) -> tuple[str, list[Interest]]:
    reader = _Reader(body)
    account = reader.text(reader.short())
    entries: list[Interest] = []
    for _ in range(reader.long()):
        members, queue_size, subject_size = reader.unpack(_INTEREST)
        queue = reader.take(queue_size)
        entries.append((reader.take(subject_size), queue, members))
    reader.finish()
    return account, entries


def message_head(account: str) -> bytes:
    """MESSAGES starts with its account; messages follow until its end."""
    name = account.encode()
    return _SHORT.pack(len(name)) + name


def message_pieces(
    plain: bool, queues: Sequence[bytes], subject: bytes, reply: bytes, header: bytes, payload: Buffer
) -> list[Buffer]:
    """One message: for the plain subscribers there (or not), and for one member of each of these queue groups."""
    pieces: list[Buffer] = [
        _MESSAGE.pack(plain, len(queues), len(subject), len(reply), len(header), len(payload)),
    ]
    for queue in queues:
        pieces += (bytes((len(queue),)), queue)
    pieces += (subject, reply, header, payload)
    return pieces


RemoteMessage: TypeAlias = tuple[bool, list[bytes], bytes, bytes, bytes, bytes]
"""plain, queues, subject, reply, header, payload."""


def decode_messages(body: Buffer) -> tuple[str, Iterator[RemoteMessage]]:
    """Read MESSAGES: the account, and the messages one by one.

    Raises:
        FrameError: also while the messages are read.
    """
    reader = _Reader(body)
    account = reader.text(reader.short())
    return account, _messages(reader)


def _messages(reader: _Reader) -> Iterator[RemoteMessage]:
    while reader.left():
        plain, queue_count, subject, reply, header, payload = reader.unpack(_MESSAGE)
        queues = [reader.take(reader.take(1)[0]) for _ in range(queue_count)]
        yield (
            bool(plain),
            queues,
            reader.take(subject),
            reader.take(reply),
            reader.take(header),
            reader.take(payload),
        )


Item: TypeAlias = tuple[bytes, bytes, bytes, Buffer]
"""shown subject, reply, header, payload."""


def encode_deliver_to(
    account: str, inbox: bytes, plain: bool, queues: Sequence[bytes], items: Sequence[Item]
) -> list[Buffer]:
    """DELIVER_TO: messages for the plain subscriptions on `inbox` at the receiving broker (or not), and for one member of each of
    these queue groups."""
    name = account.encode()
    pieces: list[Buffer] = [_SHORT.pack(len(name)), name, _SHORT.pack(len(inbox)), inbox]
    pieces += (bytes((plain,)), _LONG.pack(len(queues)))
    for queue in queues:
        pieces += (bytes((len(queue),)), queue)
    return pieces + _item_pieces(items)


def _item_pieces(items: Sequence[Item]) -> list[Buffer]:
    pieces: list[Buffer] = []
    for subject, reply, header, payload in items:
        pieces += (
            _ITEM.pack(len(subject), len(reply), len(header), len(payload)),
            subject,
            reply,
            header,
            payload,
        )
    return pieces


def decode_deliver_to(body: Buffer) -> tuple[str, bytes, bool, list[bytes], list[Item]]:
    """Read DELIVER_TO: account, inbox, plain, queues, items."""
    reader = _Reader(body)
    account = reader.text(reader.short())
    inbox = reader.take(reader.short())
    plain = bool(reader.take(1)[0])
    queues = [reader.take(reader.take(1)[0]) for _ in range(reader.long())]
    return account, inbox, plain, queues, _items(reader)


def _items(reader: _Reader) -> list[Item]:
    items: list[Item] = []
    while reader.left():
        subject, reply, header, payload = reader.unpack(_ITEM)
        items.append((reader.take(subject), reader.take(reply), reader.take(header), reader.take(payload)))
    return items


def encode_slow(account: str, inbox: bytes, slow: bool) -> bytes:
    """SLOW: the subscription on `inbox` takes less than it is sent, or takes all again."""
    name = account.encode()
    return b"".join((_SHORT.pack(len(name)), name, _SHORT.pack(len(inbox)), inbox, bytes((slow,))))


def decode_slow(body: Buffer) -> tuple[str, bytes, bool]:
    """Read SLOW: account, inbox, slow or not."""
    reader = _Reader(body)
    account = reader.text(reader.short())
    inbox = reader.take(reader.short())
    slow = bool(reader.take(1)[0])
    reader.finish()
    return account, inbox, slow


class _Reader:
    """Takes fields off a body, never beyond its end."""

    __slots__ = ("_body", "_end", "_pos")

    def __init__(self, body: Buffer) -> None:
        self._body = bytes(body)
        self._pos = 0
        self._end = len(self._body)

    def left(self) -> int:
        return self._end - self._pos

    def take(self, size: int) -> bytes:
        start = self._pos
        stop = start + size
        if stop > self._end:
            raise FrameError(f"field of {size} bytes ends {stop - self._end} bytes behind its frame")
        self._pos = stop
        return self._body[start:stop]

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        start = self._pos
        self._pos = start + layout.size
        if self._pos > self._end:
            raise FrameError("frame ends inside of a field")
        return layout.unpack_from(self._body, start)

    def short(self) -> int:
        return self.unpack(_SHORT)[0]

    def long(self) -> int:
        return self.unpack(_LONG)[0]

    def text(self, size: int) -> str:
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise FrameError("a name in a frame is no UTF-8") from None

    def finish(self) -> None:
        if self._pos != self._end:
            raise FrameError(f"{self._end - self._pos} bytes are left over in a frame")
