"""Frames of the bulk port give the rows that went in, or an error."""

from __future__ import annotations

import io
from collections.abc import Iterable
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.bulk_port import HEAD, LINEAGE, Copy, column_body, frame

from supercluster.spark.bulk.frames import (
    Block,
    BrokenAnswerError,
    End,
    OtherVersionError,
    merged,
    read_frames,
    sum_of,
)
from supercluster.spark.columns import COLUMNS, batch_of

NAMES = ["sequence", "payload"]
COPY = Copy([5, 30, 31, 60], deleted={5, 6, 20, 30, 59})


def read(data: bytes, columns: list[str] = NAMES) -> list[Block | End]:
    return list(read_frames(io.BytesIO(data).readinto, columns))


def blocks(data: bytes, columns: list[str] = NAMES) -> list[Block]:
    """Those before the error."""
    found: list[Block] = []

    def gather() -> None:
        for each in read_frames(io.BytesIO(data).readinto, columns):
            assert isinstance(each, Block)
            found.append(each)

    with pytest.raises(BrokenAnswerError):
        gather()
    return found


def test_blocks_have_all_columns_and_the_end_says_what_is_missing() -> None:
    names = list(COLUMNS)
    *found, end = read(b"".join(COPY.frames(1, 99, names)), names)
    assert end == End(5, 59, 50, [(5, 6), (20, 20), (30, 30), (59, 59)], LINEAGE, end.sums)  # type: ignore[union-attr]
    assert [block.first for block in found] == [5, 30, 31]
    for block, bounds in zip(found, [(5, 29), (30, 30), (31, 59)], strict=True):
        assert isinstance(block, Block)
        wanted = batch_of(COPY.there(*bounds), names)
        assert pa.table(block.columns, schema=wanted.schema) == pa.Table.from_batches([wanted])
    block = found[0]
    assert isinstance(block, Block)
    assert block.gaps(5) == [(5, 6), (20, 20)]
    assert block.between(1, 99) == (0, 22)
    assert block.between(8, 20) == (1, 13)


def test_an_answer_that_is_cut_gives_the_whole_blocks_before() -> None:
    frames = COPY.frames(1, 99, NAMES)
    data = b"".join(frames)
    ends = [sum(map(len, frames[: 2 * count])) for count in range(1, 4)]
    for size in range(0, len(data), 37):
        assert len(blocks(data[:size])) == sum(end <= size for end in ends)


@pytest.mark.parametrize("place", [0, 1, 2, 3, 5, 6])
def test_a_wrong_sum_is_noticed_in_each_frame(place: int) -> None:
    frames = COPY.frames(1, 99, NAMES)
    at = len(frames[place]) - 9
    frames[place] = frames[place][:at] + bytes([frames[place][at] ^ 1]) + frames[place][at + 1 :]
    assert len(blocks(b"".join(frames))) == place // 2


def test_another_version_is_not_read() -> None:
    frames = COPY.frames(1, 99, NAMES)
    other = frame(1, 0, 5, 31, column_body(COPY.there(31, 35), "sequence"), version=2)
    with pytest.raises(OtherVersionError, match="version 2"):
        read(b"".join([*frames[:4], other]))


@pytest.mark.parametrize(
    ("order", "good"),
    [
        ((1, 0), 0),
        ((0, 3), 0),
        ((2, 3, 0, 1), 1),
        ((0, 1, 0, 1), 1),
        ((0, 6), 0),
        ((0, 1, 2, 6), 1),
        ((0, 0), 0),
    ],
)
def test_frames_out_of_order_are_refused(order: tuple[int, ...], good: int) -> None:
    frames = COPY.frames(1, 99, NAMES)
    assert len(blocks(b"".join(frames[place] for place in order))) == good


def test_columns_that_are_others_are_refused() -> None:
    some = COPY.there(31, 40)
    fewer = frame(1, 1, 9, 31, column_body(some[:9], "payload"))
    sequences = frame(1, 0, 10, 31, column_body(some, "sequence"))
    for bad in (
        sequences + fewer,
        frame(1, 0, 11, 31, column_body(some, "sequence")),
        frame(1, 0, 10, 31, column_body(some, "time")),
        frame(1, 0, 10, 31, column_body(some[::-1], "sequence")),
        frame(1, 0, 10, 33, column_body(some, "sequence")),
        frame(1, 0, 10, 31, b"12345678"),
        frame(3, 0, 0, 31, b""),
        HEAD.pack(1, 0, 1, 1, 31, 1 << 50, 0),
        HEAD.pack(1, 0, 1, 1, 31, 7, 0) + b"1234567",
    ):
        last = frame(1, 1, 10, 31, column_body(some, "payload"))
        assert blocks(bad + last) == []


@pytest.mark.parametrize("text", [b"{}      ", b'{"first"', b"[1, 2]  "])
def test_an_end_that_cannot_be_read_is_no_end(text: bytes) -> None:
    assert blocks(frame(2, 0, 0, 1, text)) == []


def test_an_end_with_other_sums_is_no_end() -> None:
    frames = COPY.frames(1, 99, NAMES)
    assert len(blocks(b"".join([*frames[:4], frames[6]]))) == 2


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=40))
def test_sums_are_of_words_and_wrap(words: list[int]) -> None:
    body = b"".join(word.to_bytes(8, "little") for word in words)
    assert sum_of(pa.py_buffer(body)) == sum(words) % (1 << 64)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12))
def test_merged_ranges_have_the_same_sequences(ranges: list[tuple[int, int]]) -> None:
    def sequences(given: Iterable[tuple[int, int]]) -> set[int]:
        return {each for low, high in given for each in range(low, high + 1)}

    found = merged(ranges)
    assert sequences(found) == sequences(ranges)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(found))
