"""Columns of Arrow become the blocks that brokers keep: the same as rows that are encoded one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.tiers import examples

from supercluster.broker.jetstream.encoding.sections import decode_block
from supercluster.spark.datasource import arrow_blocks
from supercluster.spark.datasource.row_columns import RowColumns, RowError
from supercluster.spark.sink_calls import Block, RowTooLargeError
from supercluster.spark.wire import Row

HEADERS = pa.map_(pa.string(), pa.list_(pa.string()))
subjects = st.sampled_from(("out.a", "out.ö", "out.longer.than.others", ""))
headers: st.SearchStrategy[list[tuple[str, list[str]]] | None] = st.one_of(
    st.none(), st.just([]), st.just([("Row", ["1", "2"])]), st.just([("Id", [])])
)
payloads = st.one_of(st.none(), st.binary(max_size=40))
some_rows = st.lists(st.tuples(subjects, headers, payloads), max_size=12)


def batch(rows: list[tuple[object, ...]], *, is_large: bool = False) -> pa.RecordBatch:
    """The middle of a larger batch: Spark's may be slices."""
    kinds = (
        (pa.large_string(), HEADERS, pa.large_binary()) if is_large else (pa.string(), HEADERS, pa.binary())
    )
    around = [("x", [("around", ["x"])], b"x")]
    values = zip(*around, *rows, *around, strict=True)
    arrays = [pa.array(list(each), kind) for each, kind in zip(values, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, ["subject", "headers", "payload"]).slice(1, len(rows))


def read(blocks: list[Block]) -> Iterator[Row]:
    for block in blocks:
        decoded = decode_block(block.data)
        assert decoded.count == block.rows > 0
        parts = iter(decoded.parts())
        yield from zip(parts, parts, parts, strict=True)


@settings(max_examples=examples(200, 3000), deadline=None)
@given(batches=st.lists(some_rows, max_size=4), room=st.integers(120, 400), is_large=st.booleans())
def test_blocks_have_the_rows_that_are_encoded_one_by_one(
    batches: list[list[tuple[object, ...]]], room: int, is_large: bool
) -> None:
    columns = RowColumns(("subject", "headers", "payload"), "")
    found = [batch(rows, is_large=is_large) for rows in batches]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_blocks, "ROWS_PER_BLOCK", 7)
        blocks = list(columns.blocks(found, room))
    assert list(read(blocks)) == list(columns.rows(found))
    assert all(len(block.data) <= room and block.rows <= 7 for block in blocks)
    for block, following in pairwise(blocks):
        first = sum(map(len, next(read([following])))) + arrow_blocks.LENGTHS_BYTES
        assert block.rows == 7 or len(block.data) + first > room, "the next row had room"


def test_rows_with_one_subject_and_text_as_payload() -> None:
    found = pa.RecordBatch.from_arrays([pa.array(["ä", None, "b"])], ["payload"])
    columns = RowColumns(("payload",), "out.x")
    assert list(read(list(columns.blocks([found], 1000)))) == list(columns.rows([found]))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ((None, None, b""), "column subject is null in a row"),
        (("a", [("a:b", ["c"])], b""), "column headers has the name 'a:b', which it cannot"),
        (("a", [("a", ["b\nc"])], b""), "column headers has the name 'a', which it cannot, or a line break"),
    ],
)
def test_what_no_message_can_say_is_refused_by_its_column(row: tuple[object, ...], says: str) -> None:
    columns = RowColumns(("subject", "headers", "payload"), "")
    with pytest.raises(RowError, match=says):
        list(columns.blocks([batch([("a", None, b""), row])], 1000))


def test_a_row_that_fits_into_no_block_is_refused_with_its_size() -> None:
    columns = RowColumns(("subject", "headers", "payload"), "")
    found = batch([("a", None, b"x"), ("a", None, b"x" * 84), ("a", None, b"x" * 85)])
    blocks = columns.blocks([found], 101)
    assert next(blocks).rows == 1
    assert next(blocks).rows == 1
    with pytest.raises(RowTooLargeError, match="a row has 98 bytes"):
        next(blocks)
