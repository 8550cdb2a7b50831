"""Frames of S2: what is written is read, in whatever pieces it comes, and whatever is damaged is noticed."""

from __future__ import annotations

from hashlib import shake_128

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.archive.s2 import (
    BLOCK_BYTES_MAX,
    FRAME_BYTES,
    STREAM_HEAD,
    ArchiveError,
    FrameReader,
    frame,
    put_uvarint,
    uvarint,
)


def read(data: bytes, sizes: list[int] | None = None) -> bytes:
    """What is in it, fed in pieces of these sizes, over and over."""
    reader, out, at, number = FrameReader(), b"", 0, 0
    while at < len(data):
        size = sizes[number % len(sizes)] if sizes else len(data)
        out += b"".join(filter(None, reader.slices(data[at : at + size])))
        at, number = at + size, number + 1
    assert reader.is_at_end
    return out


def compressed(body: bytes, block: bytes) -> bytes:
    """A frame whose compressed block is given as it is."""
    found = crc32c(block)
    masked = ((((found >> 15) | (found << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")
    inside = masked + put_uvarint(len(block)) + body
    return STREAM_HEAD + b"\x00" + len(inside).to_bytes(3, "little") + inside


@given(
    blocks=st.lists(
        st.one_of(st.binary(max_size=300), st.binary(min_size=1, max_size=8).map(lambda one: one * 400)),
        max_size=5,
    ),
    sizes=st.lists(st.integers(min_value=1, max_value=50), min_size=1, max_size=4),
)
def test_what_is_written_is_read_in_whatever_pieces_it_comes(blocks: list[bytes], sizes: list[int]) -> None:
    data = STREAM_HEAD + b"".join(map(frame, blocks))
    assert read(data, sizes) == b"".join(blocks)


def test_what_repeats_is_packed_and_what_does_not_is_left() -> None:
    assert len(frame(b"ab" * (FRAME_BYTES // 2))) < FRAME_BYTES // 10
    noise = shake_128(b"noise").digest(FRAME_BYTES)
    assert len(frame(noise)) == len(noise) + 8


@pytest.mark.parametrize(
    ("body", "block"),
    [
        (b"\x08abc", b"abc"),  # A literal.
        (bytes((60 << 2, 69)) + b"x" * 70, b"x" * 70),  # Its length in one more byte,
        (bytes((61 << 2, 0x2B, 0x01)) + b"y" * 300, b"y" * 300),  # in two.
        (b"\x08abc" + bytes((0b00000001 | (4 - 4) << 2, 3)), b"abcabca"),  # A copy, which overlaps itself,
        (b"\x08abc" + bytes((2 | (6 - 1) << 2, 3, 0)), b"abcabcabc"),  # with an offset of two bytes,
        (b"\x08abc" + bytes((3 | (3 - 1) << 2, 2, 0, 0, 0)), b"abcbcb"),  # of four.
        # S2's own: offset 0 is the last offset again, with a length in the tag,
        (b"\x08abc" + bytes((1, 3, 1 | 1 << 2, 0)), b"abc" + b"abca" + b"bcabc"),
        # in one more byte, which counts from 8,
        (b"\x00a" + bytes((1, 1, 1 | 5 << 2, 0, 2)), b"a" * (1 + 4 + 10)),
        # in two, from 260,
        (b"\x00a" + bytes((1, 1, 1 | 6 << 2, 0, 1, 0)), b"a" * (1 + 4 + 261)),
        # in three, from 65540.
        (b"\x00a" + bytes((1, 1, 1 | 7 << 2, 0, 0, 0, 1)), b"a" * (1 + 4 + 65536 + 65540)),
    ],
)
def test_every_element_of_a_block_is_read(body: bytes, block: bytes) -> None:
    assert read(compressed(body, block)) == block


ELEMENTS = st.lists(
    st.one_of(
        st.tuples(st.just("literal"), st.integers(1, 300), st.integers(0, 255)),
        st.tuples(st.just("near"), st.integers(4, 11), st.integers(1, 2047)),
        st.tuples(st.just("far"), st.integers(1, 64), st.integers(1, 2**16 - 1)),
        st.tuples(st.just("farther"), st.integers(1, 64), st.integers(1, 2**17)),
        st.tuples(st.just("again"), st.one_of(st.integers(4, 300), st.integers(4, 70_000)), st.just(0)),
    ),
    max_size=30,
)


@given(elements=ELEMENTS)
def test_whatever_elements_a_block_has_it_is_read(elements: list[tuple[str, int, int]]) -> None:
    body, block, last = bytearray(), bytearray(), 0
    for kind, length, number in elements:
        if kind == "literal":
            content = shake_128(bytes((number,))).digest(length)
            body += _literal(length) + content
            block += content
        elif block and (kind != "again" or last):
            last = min(number, len(block)) if kind != "again" else last
            body += _copy(kind, length, last)
            for _ in range(length):
                block.append(block[-last])
    assert read(compressed(bytes(body), bytes(block))) == block


def _literal(length: int) -> bytes:
    if length <= 60:
        return bytes(((length - 1) << 2,))
    wide = 1 if length <= 256 else 2
    return bytes(((59 + wide) << 2,)) + (length - 1).to_bytes(wide, "little")


def _copy(kind: str, length: int, offset: int) -> bytes:
    if kind == "near":
        return bytes((1 | (length - 4) << 2 | (offset >> 8) << 5, offset & 0xFF))
    if kind in ("far", "farther"):
        tag, wide = (2, 2) if kind == "far" else (3, 4)
        return bytes((tag | (length - 1) << 2,)) + offset.to_bytes(wide, "little")
    length -= 4
    if length < 5:
        return bytes((1 | length << 2, 0))
    for value, base in ((7, 1 << 16), (6, 1 << 8), (5, 4)):
        if length >= base:
            return bytes((1 | value << 2, 0)) + (length - base).to_bytes(value - 4, "little")
    raise AssertionError(length)


def test_frames_that_may_be_passed_over_are() -> None:
    index = b"\x99\x03\x00\x00abc"
    padding = b"\xfe\x02\x00\x00\x00\x00"
    data = STREAM_HEAD + index + frame(b"one") + padding + b"\xff\x06\x00\x00sNaPpY" + frame(b"two")
    assert read(data, [3]) == b"onetwo"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"this is nothing", "does not begin"),
        (frame(b"x"), "does not begin"),
        (b"\xff\x06\x00\x00S2sTwX", "begins with"),
        (b"\xff\x05\x00\x00S2sTw", "head of 5 bytes"),
        (STREAM_HEAD + b"\x02\x01\x00\x00x", "unknown kind 0x2"),
        (STREAM_HEAD + b"\x01\xff\xff\xff", "a block has"),
        (STREAM_HEAD + b"\x01\x02\x00\x00xx", "without its check sum"),
        (STREAM_HEAD + b"\x01\x05\x00\x00\x00\x00\x00\x00x", "crc mismatch"),
        (compressed(b"\x08ab", b"abc"), "a block: expected literal read of length 3"),
        (compressed(b"\x00a\x01", b"abcde"), "cut off"),
        (compressed(b"\x00a" + bytes((1, 5)), b"aaaaa"), "offset 5"),
        (compressed(b"\x00a" + bytes((2, 0, 0)), b"aa"), "offset 0"),
        (compressed(bytes((1 | 1 << 2, 0)), b"aaaaa"), "there was none"),
        (compressed(b"\x08abc", b"abcd"), "expected 4 decompressed bytes"),
        (compressed(b"\x08abcd", b"ab"), "remaining dst: 2"),
        # A few bytes of elements that would take memory without end.
        (
            compressed(b"\x00a" + bytes((1, 1)) + bytes((1 | 7 << 2, 0, 255, 255, 255)) * 9, b"a" * 9),
            "more than the 9 bytes",
        ),
    ],
)
def test_what_is_damaged_is_refused_with_what_was_found(data: bytes, what: str) -> None:
    with pytest.raises(ArchiveError, match=what):
        read(data)


def test_a_block_that_says_that_it_is_huge_is_refused_before_it_is_unpacked() -> None:
    inside = b"\x00" * 4 + put_uvarint(BLOCK_BYTES_MAX + 1) + b"\x00a"
    with pytest.raises(ArchiveError, match="a block of"):
        read(STREAM_HEAD + b"\x00" + len(inside).to_bytes(3, "little") + inside)


@given(
    block=st.binary(min_size=1, max_size=200),
    at=st.integers(min_value=0),
    flip=st.integers(min_value=1, max_value=255),
)
def test_no_changed_byte_passes_for_the_data(block: bytes, at: int, flip: int) -> None:
    data = bytearray(STREAM_HEAD + frame(block))
    data[at % len(data)] ^= flip
    reader = FrameReader()
    try:
        found = b"".join(filter(None, reader.slices(bytes(data))))
    except ArchiveError:
        return
    # A frame that is of a kind to be passed over is not there; what it had is missed by who reads entries.
    assert found in (b"", block)


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_numbers_of_varying_length(value: int) -> None:
    assert uvarint(put_uvarint(value), 0) == (value, len(put_uvarint(value)))


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    for wrong in (b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01"):
        with pytest.raises(ArchiveError, match="64 bits"):
            uvarint(wrong, 0)
