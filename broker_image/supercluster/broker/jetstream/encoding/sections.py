"""The content of a BATCH entry: sections, each one kind of change to a stream (or to the meta group).

All changes to a group in one turn form one entry: messages of several sessions, consumer positions and
commands, one section each. A block of messages is encoded once, by the broker that received them. Its bytes
are the same in the frame to the leader, in the log, and in every replica (RP-7).

Block layout, little endian: `u32 count`, then per message three `u32` lengths (subject, header, payload),
then the bytes of all of them in sequence.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import chain
from struct import iter_unpack

from isal import igzip_lib, isal_zlib

from supercluster.broker.bounds import RECORD_BYTES_MAX
from supercluster.broker.jetstream.encoding.codec import Reader, WireError, blob, text, u64

SECTION = struct.Struct("<BI")
_U32 = struct.Struct("<I")
# Less than this is not worth the work.
PACKED_BYTES_MIN = 256


class Section(IntEnum):
    """Kinds of sections."""

    MESSAGES = 1
    SESSION_OPEN = 2
    CONSUMER_OPS = 3
    CONSUMER_PUT = 4
    CONSUMER_DELETE = 5
    PURGE = 6
    DELETE_MESSAGE = 7
    EXPIRE = 8
    CONFIG_PUT = 9
    MOVE_NOTE = 11
    OWN_MESSAGES = 12
    """A block of messages that the leader writes by itself, or makes of others: nobody has a number for them."""
    EXPIRE_MESSAGES = 13
    """A stretch (first, last) that is too old, but for those that never expire, and single sequences."""
    SCHEDULES_DUE = 14
    """When schedules are due whose time zones only the leader may know; it goes with what is sent on, too."""
    PACKED = 15
    """Sections, deflated: their size, and the stream of bytes (`packed`). Who reads sections sees what is inside."""
    ORIGIN_TAKEN = 20
    """Up to where an origin's messages are taken (`state/source_positions.py`): in the entry that has them."""
    MIRRORED = 21
    """Messages of a mirror's origin, under its sequences and with its times; a subject is empty where it has none."""
    ORIGIN_READER = 22
    """Up to where another stream has taken this one's messages (`state/source_readers.py`), which begins with the first one."""
    ORIGIN_READER_END = 23
    RESTORED = 24
    """A restored stream is whole: it ends at that sequence, whatever was there before it."""
    CONSUMER_RESTORED = 25
    """A consumer of a restored stream, with where it stands (`ConsumerState.snapshot`)."""
    CARRIED = 26
    """Old messages once more, as they are (`state/carried.py`): the log before them is not needed for them any more."""
    FENCED = 27
    """What follows moves a stream to another super-cluster (`state/cut.py`). From here on it takes nothing in."""
    UNFENCED = 28
    HANDED = 29
    OPENED = 30
    REFUSED = 31
    META = 32
    SINK_STAGE = 33
    """A block of a writer's attempt, without sequences and unseen (`sink/sink.py`)."""
    SINK_COMMIT = 34
    """Stages become a writer's batch, which is released as messages from here on."""
    SINK_RELEASED = 35
    """Up to which row a batch is released: in the entry that has the messages."""
    SINK_ABORT = 36
    SINK_FORGET = 37


class Verdict(IntEnum):
    """What became of a number that was not simply stored."""

    REFUSED = 1
    """`code` is NATS's err_code, `seq` its detail (the actual last sequence, where the text names one)."""
    DUPLICATE = 2
    """A message with the same Nats-Msg-Id is stored at `seq`."""
    REROUTE = 3
    """The stream does not have this subject any more: the taker routes it again, in order (SF-14)."""
    VOID = 4
    """The taker gave the message up before it was judged; the number stays used (SF-15)."""
    WORDED = 5
    """The leader made another message of it, or several of a batch, the last at `seq`; `text` is what the acknowledgement
    says besides, as a piece of JSON."""
    STAGED = 6
    """A part of a batch that is not committed: the leader holds it, and an empty message says so."""


@dataclass(frozen=True, slots=True)
class Exceptional:
    """The verdict on one number that was not simply stored. `offset` counts from the run's first number."""

    offset: int
    verdict: int
    code: int = 0
    seq: int = 0
    text: bytes = b""
    """What the number alone does not say."""


@dataclass(frozen=True, slots=True)
class VerdictRun:
    """Verdicts on `count` consecutive numbers: all stored, from `first_seq` on, except for `exceptions`."""

    first_number: int
    count: int
    first_seq: int
    exceptions: tuple[Exceptional, ...] = ()

    @property
    def last_number(self) -> int:
        return self.first_number + self.count - 1

    @property
    def stored(self) -> int:
        """How many of the numbers were stored under a sequence of their own."""
        return self.count - len(self.exceptions)

    def tail(self, number: int) -> VerdictRun:
        """The same run from `number` on."""
        skip = number - self.first_number
        if skip <= 0:
            return self
        before = sum(1 for item in self.exceptions if item.offset < skip)
        kept = tuple(
            replace(item, offset=item.offset - skip) for item in self.exceptions if item.offset >= skip
        )
        return VerdictRun(number, self.count - skip, self.first_seq + skip - before, kept)


RUN = struct.Struct("<QIQI")
_EXCEPTIONAL = struct.Struct("<IBHQ")
# In a verdict's byte: a text follows. Most have none, and brokers of before know none.
_HAS_TEXT = 0x80


def encode_run(run: VerdictRun) -> bytes:
    parts = [RUN.pack(run.first_number, run.count, run.first_seq, len(run.exceptions))]
    for item in run.exceptions:
        verdict = item.verdict | _HAS_TEXT if item.text else item.verdict
        parts.append(_EXCEPTIONAL.pack(item.offset, verdict, item.code, item.seq))
        if item.text:
            parts.append(blob(item.text))
    return b"".join(parts)


def decode_run(reader: Reader) -> VerdictRun:
    first_number, count, first_seq, exceptions = reader.fields(RUN)
    if exceptions > count:
        raise WireError(f"{exceptions} exceptions in a run of {count}")
    return VerdictRun(
        first_number,
        count,
        first_seq,
        tuple(_decode_exceptional(reader) for _ in range(exceptions)),
    )


def _decode_exceptional(reader: Reader) -> Exceptional:
    offset, verdict, code, seq = reader.fields(_EXCEPTIONAL)
    if verdict & _HAS_TEXT:
        return Exceptional(offset, verdict & ~_HAS_TEXT, code, seq, bytes(reader.blob()))
    return Exceptional(offset, verdict, code, seq)


def encode_block(parts: Sequence[bytes]) -> bytes:
    """A block from a flat list: subject, header, payload, subject, header, payload, …"""
    lengths = array("I", map(len, parts))
    return b"".join((_U32.pack(len(parts) // 3), lengths.tobytes(), *parts))


def join_blocks(blocks: Sequence[bytes]) -> bytes:
    """One block with the messages of all, in order."""
    counts = [count_of(block) for block in blocks]
    starts = [4 + 12 * count for count in counts]
    lengths = (block[4:start] for block, start in zip(blocks, starts, strict=True))
    parts = (block[start:] for block, start in zip(blocks, starts, strict=True))
    return b"".join((_U32.pack(sum(counts)), *lengths, *parts))


@dataclass(slots=True)
class Block:
    """A decoded block. `lengths` is flat: three per message."""

    count: int
    lengths: array[int]
    data: memoryview

    def parts(self) -> list[bytes]:
        """Flat list of subject, header, payload per message."""
        if self._is_uniform:
            subject, header, payload = self.lengths[:3]
            return list(chain.from_iterable(iter_unpack(f"{subject}s{header}s{payload}s", self.data)))
        data = bytes(self.data)
        out: list[bytes] = []
        append = out.append
        at = 0
        for size in self.lengths:
            end = at + size
            append(data[at:end])
            at = end
        return out

    def message(self, position: int) -> tuple[bytes, bytes, bytes]:
        """Subject, header and payload of one message, counted from 0."""
        at = sum(self.lengths[: 3 * position])
        subject, header, payload = self.lengths[3 * position : 3 * position + 3]
        found = bytes(self.data[at : at + subject + header + payload])
        return found[:subject], found[subject : subject + header], found[subject + header :]

    def subjects(self) -> list[bytes]:
        if self._is_uniform:
            subject, header, payload = self.lengths[:3]
            return list(chain.from_iterable(iter_unpack(f"{subject}s{header + payload}x", self.data)))
        data = bytes(self.data)
        out: list[bytes] = []
        append = out.append
        at = 0
        lengths = iter(self.lengths)
        for size, header, payload in zip(lengths, lengths, lengths, strict=True):
            append(data[at : at + size])
            at += size + header + payload
        return out

    def cut(self, first: int, end: int) -> Block:
        """The messages from place `first` on, before place `end`."""
        if (first, end) == (0, self.count):
            return self
        at, lengths = sum(self.lengths[: 3 * first]), self.lengths[3 * first : 3 * end]
        return Block(end - first, lengths, self.data[at : at + sum(lengths)])

    def encode(self) -> list[bytes | memoryview]:
        """The block's buffers, as `decode_block` reads them joined."""
        return [_U32.pack(self.count), self.lengths.tobytes(), self.data]

    @property
    def size_bytes(self) -> int:
        """Of all messages together."""
        return len(self.data)

    @property
    def _is_uniform(self) -> bool:
        """Are all messages laid out alike? Those of one publisher often are; they are cut without a step for each."""
        return len(self.data) > 0 and self.lengths == self.lengths[:3] * self.count

    @property
    def has_headers(self) -> bool:
        return any(self.lengths[1::3])


def count_of(block: bytes | memoryview) -> int:
    """How many messages a block says that it has.

    Raises:
        WireError: it is too short to be one.
    """
    if len(block) < 4:
        raise WireError("a block takes at least 4 bytes")
    count: int = _U32.unpack_from(block)[0]
    return count


def decode_block(data: bytes | memoryview) -> Block:
    """Decode and check a block.

    Raises:
        WireError: the lengths don't add up to the bytes there are.
    """
    view = memoryview(data)
    count = count_of(view)
    start = 4 + 12 * count
    if start > len(view):
        raise WireError(f"a block of {count} messages is cut off")
    lengths = array("I")
    lengths.frombytes(view[4:start])
    if start + sum(lengths) != len(view):
        raise WireError(
            f"a block of {count} messages has {len(view) - start} bytes, its lengths say {sum(lengths)}"
        )
    return Block(count, lengths, view[start:])


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Who numbers: a broker's node, the incarnation of its volume, and the process count kept there (SF-10)."""

    node: str
    incarnation: str
    counter: int


@dataclass(frozen=True, slots=True)
class MessagesSection:
    """Messages of one session, judged: `run` has a verdict for each number of the block."""

    session: SessionKey
    confirmed: int
    run: VerdictRun
    block: bytes | memoryview = field(repr=False)


def encode_session(key: SessionKey) -> bytes:
    return text(key.node) + text(key.incarnation) + u64(key.counter)


def decode_session(reader: Reader) -> SessionKey:
    return SessionKey(reader.text(), reader.text(), reader.u64())


def encode_messages(section: MessagesSection) -> list[bytes | memoryview]:
    return [encode_session(section.session), u64(section.confirmed), encode_run(section.run), section.block]


def decode_messages(body: memoryview) -> MessagesSection:
    reader = Reader(body)
    session = decode_session(reader)
    confirmed = reader.u64()
    run = decode_run(reader)
    return MessagesSection(session, confirmed, run, reader.rest())


def places_in_messages(data: bytes, at: int) -> tuple[int, int]:
    """Of a section MESSAGES whose body begins there: where the length of its session's second name is, and where its run begins.
    For those who read many sections and have no use for the session."""
    second = at + 2 + data[at] + (data[at + 1] << 8)
    return second, second + 2 + data[second] + (data[second + 1] << 8) + 16


def encode_mirrored(times_ns: Sequence[int], parts: Sequence[bytes]) -> list[bytes | memoryview]:
    """Body of a section MIRRORED: a time for each message of the block."""
    return [_U32.pack(len(times_ns)), array("Q", times_ns).tobytes(), encode_block(parts)]


def decode_mirrored(body: bytes | memoryview) -> tuple[array[int], Block]:
    """Times and messages.

    Raises:
        WireError: they are not as many of one as of the other.
    """
    reader = Reader(body)
    times = reader.column("Q", reader.u32())
    block = decode_block(reader.rest())
    if len(times) != block.count:
        raise WireError(f"{len(times)} times for {block.count} messages")
    return times, block


def section(kind: int, body: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """A section's buffers, to be joined into the entry's payload."""
    return [SECTION.pack(kind, sum(map(len, body))), *body]


def sections(payload: bytes | memoryview) -> Iterator[tuple[int, memoryview]]:
    """(kind, body) of each section of a BATCH payload."""
    view = memoryview(payload)
    at, end = 0, len(view)
    while at < end:
        if at + SECTION.size > end:
            raise WireError("a section's head is cut off")
        kind, size = SECTION.unpack_from(view, at)
        at += SECTION.size
        if at + size > end:
            raise WireError(f"a section of {size} bytes is cut off")
        if kind == Section.PACKED:
            yield from sections(_unpacked(view[at : at + size]))
        else:
            yield kind, view[at : at + size]
        at += size


def packed(payload: bytes) -> bytes:
    """The payload of an entry as one deflated section; as it is where that saves nothing."""
    if len(payload) < PACKED_BYTES_MIN:
        return payload
    deflated = isal_zlib.compress(payload, 1)
    size = _U32.size + len(deflated)
    if SECTION.size + size >= len(payload):
        return payload
    return b"".join((SECTION.pack(Section.PACKED, size), _U32.pack(len(payload)), deflated))


def _unpacked(body: memoryview) -> bytes:
    if len(body) < _U32.size:
        raise WireError("a packed section is cut off")
    size: int = _U32.unpack_from(body)[0]
    if size > RECORD_BYTES_MAX:
        raise WireError(f"a packed section says that it holds {size} bytes")
    try:
        found = isal_zlib.decompressobj().decompress(body[_U32.size :], size + 1)
    except igzip_lib.IsalError as error:  # type: ignore[misc]  # Its stub calls the class an instance.
        raise WireError(f"a packed section cannot be inflated: {error}") from None
    if len(found) != size:
        raise WireError(f"a packed section says that it holds {size} bytes, it has {len(found)}")
    return found
