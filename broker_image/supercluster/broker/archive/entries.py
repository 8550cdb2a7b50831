"""The entries of a backup: the stream's state, its consumers, its messages in order, and an end mark.

An entry holds a name, a time, a sequence, and a payload whose header precedes its body. Numbers have a
variable length. The name of a message's entry is the message's subject.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from supercluster.broker.archive.s2 import (
    FRAME_BYTES,
    STREAM_HEAD,
    ArchiveError,
    FrameReader,
    frame,
    put_uvarint,
    uvarint,
)

MAGIC = b"NATSARC1"
STATE_NAME = b"state.json"
CONSUMER_PREFIX = b"consumers/"
# What a tar has at this place: backups of nats-server before 2.15 are tars of its files.
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
# A stream's index of subjects takes no longer ones.
NAME_BYTES_MAX = 64 * 1024 - 1
PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
# What is no message is JSON, and held and read as a whole.
STATE_BYTES_MAX = 64 * 1024
CONSUMER_BYTES_MAX = 16 * 1024 * 1024
# Five numbers of at most ten bytes.
_HEAD_BYTES_MAX = 50


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. `seq` is 0 for what is no message."""

    name: bytes
    time_ns: int
    seq: int
    header: bytes
    body: bytes

    @property
    def is_end(self) -> bool:
        """Is it the mark behind the last message?"""
        return not (self.seq or self.name or self.time_ns or self.header or self.body)

    def encode(self) -> bytes:
        return b"".join(
            (
                put_uvarint(len(self.name)),
                put_uvarint(self.time_ns << 1 if self.time_ns >= 0 else (-self.time_ns << 1) - 1),
                put_uvarint(self.seq),
                put_uvarint(len(self.header)),
                put_uvarint(len(self.body)),
                self.name,
                self.header,
                self.body,
            )
        )


END = Entry(b"", 0, 0, b"", b"")


def packed(entries: Iterable[bytes]) -> Iterator[bytes]:
    """The archive of encoded entries, in pieces of one frame: nothing but that is held."""
    yield STREAM_HEAD
    left = bytearray(MAGIC)
    for encoded in entries:
        left += encoded
        while len(left) >= FRAME_BYTES:
            yield frame(bytes(left[:FRAME_BYTES]))
            del left[:FRAME_BYTES]
    if left:
        yield frame(bytes(left))


class EntryReader:
    """Takes an archive's bytes as they come, and gives its entries."""

    def __init__(self) -> None:
        self._frames = FrameReader()
        self._left = bytearray()
        self._has_begun = False

    def slices(self, data: bytes) -> Iterator[Entry | None]:
        """The entries that are whole by now; None where some were unpacked in part only, for others wait.

        Raises:
            ArchiveError: it is damaged, or no such archive.
        """
        for block in self._frames.slices(data):
            if block is not None:
                self._left += block
                yield from self._entries()
            yield None

    def _entries(self) -> Iterator[Entry]:
        at = 0
        if not self._has_begun:
            if not self._begins():
                return
            at, self._has_begun = len(MAGIC), True
        while True:
            found = _entry_at(self._left, at)
            if found is None:
                break
            entry, at = found
            yield entry
        del self._left[:at]

    def _begins(self) -> bool:
        left = self._left
        if left[: len(MAGIC)] == MAGIC:
            return True
        if MAGIC.startswith(left):
            return False
        if len(left) < _TAR_MAGIC_AT + len(_TAR_MAGIC):
            raise ArchiveError("it does not begin as a backup of nats-server 2.15 or of these brokers")
        if left[_TAR_MAGIC_AT : _TAR_MAGIC_AT + len(_TAR_MAGIC)] == _TAR_MAGIC:
            raise ArchiveError(
                "it is a tar of nats-server's files, as servers before 2.15 made them; restore it on nats-server 2.15 and "
                "take a new backup there"
            )
        raise ArchiveError("it does not begin as a backup of nats-server 2.15 or of these brokers")

    @property
    def missing(self) -> str:
        """What lacks for the archive to end here; empty: nothing does."""
        if not self._has_begun and not self._left and self._frames.is_at_end:
            return "EOF"
        return "" if not self._left and self._frames.is_at_end else "unexpected EOF"


def _check_size(name: bytes, size: int) -> None:
    """By what is there of the name: an entry is refused before it is held."""
    most = PAYLOAD_BYTES_MAX
    if name == STATE_NAME:
        most = STATE_BYTES_MAX
    elif name.startswith(CONSUMER_PREFIX):
        most = CONSUMER_BYTES_MAX
    if size > most:
        what = name[:256].decode("utf-8", "replace")
        raise ArchiveError(f"{what} has {size} bytes, at most {most} can be restored")


def _entry_at(left: bytearray, at: int) -> tuple[Entry, int] | None:
    """The entry that begins there, and where it ends; None while it is not whole."""
    numbers: list[int] = []
    place = at
    try:
        for _ in range(5):
            number = left[place]
            place += 1
            if number > 0x7F:
                number, place = uvarint(left, place - 1)
            numbers.append(number)
    except IndexError:
        if len(left) - at >= _HEAD_BYTES_MAX:
            raise ArchiveError("an entry's head has no end") from None
        return None
    name_size, time, seq, header_size, body_size = numbers
    if name_size > NAME_BYTES_MAX or header_size + body_size > PAYLOAD_BYTES_MAX:
        raise ArchiveError(
            f"an entry's name has {name_size} bytes and its payload {header_size + body_size}; at most {NAME_BYTES_MAX} and "
            f"{PAYLOAD_BYTES_MAX} can be restored"
        )
    header_at = place + name_size
    _check_size(bytes(left[place:header_at]), header_size + body_size)
    body_at = header_at + header_size
    end = body_at + body_size
    if end > len(left):
        return None
    time_ns = time >> 1 if not time & 1 else -((time + 1) >> 1)
    entry = Entry(
        bytes(left[place:header_at]),
        time_ns,
        seq,
        bytes(left[header_at:body_at]),
        bytes(left[body_at:end]),
    )
    return entry, end
