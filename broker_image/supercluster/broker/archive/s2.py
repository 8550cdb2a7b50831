"""The frames of S2 compression, decoded and encoded as a stream.

S2 extends Snappy by larger blocks and one more kind of copy. Readers of Snappy can read the frames that this
module writes; it reads the frames of both. Every frame has a checksum, so damaged or missing frames are
detected.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import cramjam
from crc32c import crc32c

STREAM_HEAD = b"\xff\x06\x00\x00S2sTwO"
_HEADS = (b"S2sTwO", b"sNaPpY")
# As much goes into a frame: what readers of Snappy take.
FRAME_BYTES = 64 * 1024
# The largest block that S2 allows, and so the most that is held of a stream of frames.
BLOCK_BYTES_MAX = 4 * 1024 * 1024
# Of what is packed, as much is looked at in one go: an element has two bytes at least.
SLICE_BYTES = 32 * 1024
_COMPRESSED, _PLAIN, _HEAD = 0x00, 0x01, 0xFF
# Frames of these kinds may be passed over: an index, padding.
_SKIPPABLE = range(0x80, 0xFF)
_FRAME_HEAD_BYTES = 4
# Of one element of Snappy.
_COPY_BYTES_MAX = 64
_SUM_BYTES = 4


class ArchiveError(ValueError):
    """What came is not an archive, or not a whole one; the text says what was found."""


def frame(block: bytes) -> bytes:
    """One frame: at most `FRAME_BYTES`, deflated where that saves something."""
    packed = bytes(cramjam.snappy.compress_raw(block))
    kind, body = (_COMPRESSED, packed) if len(packed) < len(block) - len(block) // 8 else (_PLAIN, block)
    size = len(body) + _SUM_BYTES
    return b"".join((bytes((kind,)), size.to_bytes(3, "little"), _masked_sum(block), body))


def _masked_sum(block: bytes) -> bytes:
    found = crc32c(block)
    return ((((found >> 15) | (found << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


class FrameReader:
    """Takes bytes of a stream of frames as they come, and gives what is inside."""

    def __init__(self) -> None:
        self._left = bytearray()
        self._has_begun = False

    def slices(self, data: bytes) -> Iterator[bytes | None]:
        """The blocks that are whole by now; None where some thousand elements of one were looked at: a block is unpacked in
        slices, for others wait.

        Raises:
            ArchiveError: it is damaged, or no such stream.
        """
        self._left += data
        at = 0
        while len(self._left) - at >= _FRAME_HEAD_BYTES:
            size = int.from_bytes(self._left[at + 1 : at + 4], "little")
            kind = self._left[at]
            self._check(kind, size)
            end = at + _FRAME_HEAD_BYTES + size
            if len(self._left) < end:
                break
            body = bytes(self._left[at + _FRAME_HEAD_BYTES : end])
            at = end
            if kind in (_COMPRESSED, _PLAIN):
                yield (yield from _block_of(kind, body))
            elif kind == _HEAD and body not in _HEADS:
                raise ArchiveError(f"s2: corrupt input, a stream begins with {body!r}")
        del self._left[:at]

    def _check(self, kind: int, size: int) -> None:
        if not self._has_begun and kind != _HEAD:
            raise ArchiveError("s2: corrupt input, it does not begin as a stream of frames")
        self._has_begun = True
        if kind == _HEAD and size != len(_HEADS[0]):
            raise ArchiveError(f"s2: corrupt input, a stream's head of {size} bytes")
        if kind not in (_COMPRESSED, _PLAIN, _HEAD) and kind not in _SKIPPABLE:
            raise ArchiveError(f"s2: corrupt input, a frame of unknown kind {kind:#x}")
        # What cannot be packed takes a little more than it is.
        if kind not in _SKIPPABLE and size > BLOCK_BYTES_MAX + BLOCK_BYTES_MAX // 6 + 64:
            raise ArchiveError(
                f"s2: corrupt input, a frame of {size} bytes; a block has {BLOCK_BYTES_MAX} at most"
            )

    @property
    def is_at_end(self) -> bool:
        """Did the last frame end with the last byte?"""
        return not self._left


def _block_of(kind: int, body: bytes) -> Generator[None, None, bytes]:
    if len(body) < _SUM_BYTES:
        raise ArchiveError("s2: corrupt input, a frame without its check sum")
    block = (yield from _unpacked(body[_SUM_BYTES:])) if kind == _COMPRESSED else body[_SUM_BYTES:]
    if len(block) > BLOCK_BYTES_MAX:
        raise ArchiveError(f"s2: corrupt input, a block of {len(block)} bytes")
    if _masked_sum(block) != body[:_SUM_BYTES]:
        raise ArchiveError("s2: corrupt input, crc mismatch")
    return block


def _unpacked(source: bytes) -> Generator[None, None, bytes]:
    """A block of S2: a library unpacks what Snappy has of it, and S2's own copies are written as Snappy's before."""
    try:
        size, at = uvarint(source, 0)
        if size > BLOCK_BYTES_MAX:
            raise ArchiveError(f"s2: corrupt input, a block of {size} bytes")
        told = yield from _as_snappy(source, at, size)
    except IndexError:
        raise ArchiveError("s2: corrupt input, a block is cut off") from None
    try:
        return bytes(cramjam.snappy.decompress_raw(told))
    except cramjam.DecompressionError as found:
        why = str(found).removeprefix("snappy: corrupt input ").strip("()")
        raise ArchiveError(f"s2: corrupt input, a block: {why}") from None


def _as_snappy(source: bytes, at: int, size: int) -> Generator[None, None, bytes]:
    """The same block without copies from where the last one was. Each element is looked at, and no more than that: servers
    have a hundred thousand of them in a block of a mebibyte."""
    parts: list[bytes] = []
    steps, end = _STEPS, len(source)
    told, copied_at, left = 0, -1, size
    pause_at = at + SLICE_BYTES
    while at < end:
        if at >= pause_at:
            yield
            pause_at = at + SLICE_BYTES
        tag = source[at]
        step = steps[tag]
        if step:
            if tag & 3:
                copied_at = at
            at += step
        elif not tag & 3:
            at = _behind_literal(source, at)
        elif source[at + 1]:
            copied_at = at
            at += 2
        else:
            parts.append(source[told:at])
            told, length = _repeat_length(source, at + 2, tag >> 2)
            length += 4
            left -= length
            if left < 0:
                raise ArchiveError(f"s2: corrupt input, a block has more than the {size} bytes that it says")
            parts.append(_copies(_offset_of(source, copied_at), length))
            at = told
    return b"".join((*parts, source[told:])) if parts else source


def _step(tag: int) -> int:
    """How many bytes an element with that tag has; 0: that has to be looked up."""
    kind, value = tag & 3, tag >> 2
    if kind == 0:
        return value + 2 if value < 60 else 0
    if kind == 1:
        return 2 if value > 7 else 0  # A near copy, and perhaps a repeated offset.
    return 3 if kind == 2 else 5


_STEPS = tuple(map(_step, range(256)))


def _behind_literal(source: bytes, at: int) -> int:
    """Where a literal ends whose length is behind its tag."""
    wide = (source[at] >> 2) - 59
    return at + 2 + wide + int.from_bytes(source[at + 1 : at + 1 + wide], "little")


def _repeat_length(source: bytes, at: int, length: int) -> tuple[int, int]:
    """Where what tells the length ends, and the length but for 4, which each has: a short copy whose offset is 0 may be long."""
    if length < 5:
        return at, length
    wide = length - 4
    base = (4, 1 << 8, 1 << 16)[wide - 1]
    if at + wide > len(source):
        raise IndexError
    return at + wide, int.from_bytes(source[at : at + wide], "little") + base


def _offset_of(source: bytes, at: int) -> int:
    if at < 0:
        raise ArchiveError("s2: corrupt input, a copy from where the last one was, and there was none")
    tag = source[at]
    kind = tag & 3
    if kind == 1:
        return (tag & 0xE0) << 3 | source[at + 1]
    return int.from_bytes(source[at + 1 : at + 1 + 2 * (kind - 1)], "little")


def _copies(offset: int, length: int) -> bytes:
    """Snappy's elements for a copy of any length: what one of 64 bytes has written, the next one may read."""
    kind, wide = (2, 2) if offset < 1 << 16 else (3, 4)
    place = offset.to_bytes(wide, "little")
    if length <= _COPY_BYTES_MAX:
        return bytes((kind | (length - 1) << 2,)) + place
    most, rest = divmod(length, _COPY_BYTES_MAX)
    found = (bytes((kind | (_COPY_BYTES_MAX - 1) << 2,)) + place) * most
    return found + bytes((kind | (rest - 1) << 2,)) + place if rest else found


def uvarint(source: bytes | bytearray, at: int) -> tuple[int, int]:
    """A number, and where it ends.

    Raises:
        IndexError: it is cut off.
        ArchiveError: it has more than 64 bits.
    """
    value = shift = 0
    while True:
        byte = source[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise ArchiveError("a number of more than 64 bits")
    if value >> 64:
        raise ArchiveError("a number of more than 64 bits")
    return value, at


_SMALL = tuple(bytes((value,)) for value in range(0x80))


def put_uvarint(value: int) -> bytes:
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
