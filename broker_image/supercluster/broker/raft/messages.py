"""The messages between members of a group, and their bytes.

A message is a small head, whole numbers by the table below, and for two of them a tail: the records of an append
exactly as the log holds them (RP-7: nothing is encoded again), and a snapshot's chunk. The frame around it (which
group, which link) belongs to the caller.

Layout, little endian::

    u8 kind | u8 flags | u32 lineage | u64 term | u8 size of frm | u8 size of to | frm | to | u64 … | tail
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from supercluster.broker.raft.confchange import Membership
from supercluster.broker.raft.entry import CorruptRecordError, Entry, decode_entries
from supercluster.broker.raft.errors import MessageError

_HEAD = struct.Struct("<BBIQBB")
_U32 = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of every message: from which member to which, in which term, of which lineage (SF-9)."""

    frm: str
    to: str
    term: int
    lineage: int


@dataclass(frozen=True, slots=True)
class VoteRequest(Message):
    """A candidate asks for a vote; `pre`: only whether it would get one, `term` being the term it would stand in."""

    last_index: int
    last_term: int
    pre: bool = False
    need_all: bool = False
    """The candidate wins only if every voter grants; doubtful members may grant such a request (SF-4)."""
    transfer: bool = False
    """The leader itself asked the candidate to stand: its lease does not protect it."""


@dataclass(frozen=True, slots=True)
class VoteResponse(Message):
    """A granted pre-vote repeats the request's term; everything else carries the sender's own."""

    pre: bool
    granted: bool
    need_all: bool = False
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Append(Message):
    """Entries behind (`prev_index`, `prev_term`)."""

    prev_index: int
    prev_term: int
    commit: int
    entries: tuple[Entry, ...] = ()
    by_bulk: bool = field(default=False, compare=False)
    """Which link of the pair takes it; not a part of its bytes."""


@dataclass(frozen=True, slots=True)
class AppendResponse(Message):
    """`ok`: everything up to `index` is durable and equals the leader's log. Otherwise `index` is the refused
    `prev_index`, and the hint is the last place where both logs may agree."""

    index: int
    hint_index: int
    hint_term: int
    last_index: int
    commit: int
    ok: bool = True
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat(Message):
    """The leader lives; `round` numbers the leader's heartbeats for reads and for lost appends. Rounds on the control link
    are odd, those on the bulk link even: the links overtake each other, so an answer shows only what was lost on its own."""

    round: int
    commit: int
    """Never beyond what the receiver confirmed to this leader."""
    last_index: int
    """End of the leader's log: a doubtful member has caught up when it has all of it (SF-4)."""
    process: int = 0
    """The receiver's process that the leader heard last. A heartbeat with another number may be of before a power failure."""
    answer: bool = True
    """False: only the commit index is news."""
    quiesce: bool = False
    """Fall silent, if your log and commit index are these (SF-7)."""
    by_bulk: bool = field(default=False, compare=False)
    """Which link of the pair takes it; not a part of its bytes."""


@dataclass(frozen=True, slots=True)
class HeartbeatResponse(Message):
    round: int
    matched: int
    """Up to here the sender knows its log to equal the leader's (durable or not): shows lost appends."""
    durable: int
    """The part of it that is durable: stands in for a lost answer to an append."""
    last_index: int
    commit: int
    process: int = 0
    """The number of the sender's process."""
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class TimeoutNow(Message):
    """Stand for election at once: leadership is handed to you."""


@dataclass(frozen=True, slots=True)
class InstallSnapshot(Message):
    """One chunk of the state at the leader's log base."""

    base_index: int
    base_term: int
    offset: int
    total: int
    membership: bytes = b""
    data: bytes | memoryview = b""


@dataclass(frozen=True, slots=True)
class SnapshotResponse(Message):
    """`received` bytes are held without a gap; `done`: the snapshot is installed, or was not needed."""

    base_index: int
    received: int
    done: bool = False


@dataclass(frozen=True, slots=True)
class ReadRequest(Message):
    """A follower asks the leader for a read index."""

    context: int


@dataclass(frozen=True, slots=True)
class ReadResponse(Message):
    context: int
    index: int
    ok: bool = True


class _Form:
    """How a class of messages is written: its numbers and flags in order."""

    __slots__ = ("body", "cls", "flags", "get_numbers", "kind")

    def __init__(self, kind: int, cls: type[Message], numbers: str, flags: str = "") -> None:
        self.kind, self.cls, self.flags = kind, cls, flags.split()
        names = numbers.split()
        self.body = struct.Struct(f"<{len(names)}Q")
        getters = [attrgetter(name) for name in names]
        # attrgetter returns a bare value for one name, so one and none are wrapped.
        self.get_numbers: Callable[[Any], tuple[int, ...]] = (
            attrgetter(*names)
            if len(names) > 1
            else lambda message: tuple(getter(message) for getter in getters)
        )


_FORMS = (
    _Form(1, VoteRequest, "last_index last_term", "pre need_all transfer"),
    _Form(2, VoteResponse, "", "pre granted need_all doubtful"),
    _Form(3, Append, "prev_index prev_term commit"),
    _Form(4, AppendResponse, "index hint_index hint_term last_index commit", "ok doubtful"),
    _Form(5, Heartbeat, "round commit last_index process", "answer quiesce"),
    _Form(6, HeartbeatResponse, "round matched durable last_index commit process", "doubtful"),
    _Form(7, TimeoutNow, ""),
    _Form(8, InstallSnapshot, "base_index base_term offset total"),
    _Form(9, SnapshotResponse, "base_index received", "done"),
    _Form(10, ReadRequest, "context"),
    _Form(11, ReadResponse, "context index", "ok"),
)
_BY_CLASS = {form.cls: form for form in _FORMS}
_BY_KIND = {form.kind: form for form in _FORMS}


def encode(message: Message) -> list[bytes | memoryview]:
    """The message's bytes as buffers to be written one behind the other; records are not copied."""
    form = _BY_CLASS[type(message)]
    flags = 0
    for bit, name in enumerate(form.flags):
        if getattr(message, name):
            flags |= 1 << bit
    frm, to = message.frm.encode(), message.to.encode()
    head = _HEAD.pack(form.kind, flags, message.lineage, message.term, len(frm), len(to))
    first = b"".join((head, frm, to, form.body.pack(*form.get_numbers(message))))
    if isinstance(message, Append):
        return [first, *(entry.record for entry in message.entries)]
    if isinstance(message, InstallSnapshot):
        return [first + _U32.pack(len(message.membership)) + message.membership, message.data]
    return [first]


def decode(buffer: bytes | memoryview) -> Message:
    """Read one message that fills the buffer.

    Raises:
        MessageError: the bytes are no message.
    """
    try:
        kind, flag_bits, lineage, term, frm_size, to_size = _HEAD.unpack_from(buffer)
        form = _BY_KIND.get(kind)
        if form is None:
            raise MessageError(f"message kind {kind} is unknown")
        names_at = _HEAD.size
        to_at = names_at + frm_size
        body_at = to_at + to_size
        frm = str(buffer[names_at:to_at], "utf-8")
        to = str(buffer[to_at:body_at], "utf-8")
        numbers = form.body.unpack_from(buffer, body_at)
    except (struct.error, UnicodeDecodeError) as error:
        raise MessageError(f"message of {len(buffer)} bytes cannot be read: {error}") from error
    if flag_bits >> len(form.flags):
        raise MessageError(f"{form.cls.__name__} has unknown flags {flag_bits:#x}")
    tail_at = body_at + form.body.size
    # Every class above declares the common fields first, then its numbers in this order, then its tail or its flags.
    if form.cls is Append:
        prev_index, prev_term, commit = numbers
        entries = _decode_tail(buffer, tail_at, prev_index)
        return Append(frm, to, term, lineage, prev_index, prev_term, commit, entries)
    if form.cls is InstallSnapshot:
        membership, data = _decode_chunk(buffer, tail_at)
        base_index, base_term, offset, total = numbers
        return InstallSnapshot(frm, to, term, lineage, base_index, base_term, offset, total, membership, data)
    if tail_at != len(buffer):
        raise MessageError(f"{form.cls.__name__} has {len(buffer) - tail_at} bytes too many")
    flags = [bool(flag_bits >> bit & 1) for bit in range(len(form.flags))]
    return form.cls(frm, to, term, lineage, *numbers, *flags)


def _decode_tail(buffer: bytes | memoryview, offset: int, prev_index: int) -> tuple[Entry, ...]:
    if offset == len(buffer):
        return ()
    try:
        entries = tuple(decode_entries(memoryview(buffer)[offset:]))
    except CorruptRecordError as error:
        raise MessageError(f"append: {error}") from error
    for index, entry in enumerate(entries, prev_index + 1):
        if entry.index != index:
            raise MessageError(f"append: entry {entry.index} stands where {index} belongs")
    return entries


def _decode_chunk(buffer: bytes | memoryview, offset: int) -> tuple[bytes, bytes]:
    if len(buffer) - offset < _U32.size:
        raise MessageError("snapshot chunk ends before its membership")
    (size,) = _U32.unpack_from(buffer, offset)
    start = offset + _U32.size
    if start + size > len(buffer):
        raise MessageError(f"snapshot chunk ends within its membership of {size} bytes")
    membership = bytes(buffer[start : start + size])
    if membership:
        # The receiver may rely on it.
        Membership.decode(membership)
    return membership, bytes(buffer[start + size :])
