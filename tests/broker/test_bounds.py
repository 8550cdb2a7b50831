"""One reader of JSON and one of numbers for whatever clients, links and files say (SF-24)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.tiers import examples

from supercluster.broker.bounds import (
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    I32_MAX,
    MESSAGE_BYTES_MAX,
    RECORD_BYTES_MAX,
    U64_MAX,
    read_json,
    whole_number,
)
from supercluster.broker.jetstream.links.raft_outbox import FRAME_BYTES
from supercluster.broker.jetstream.publish.proposal import ENTRY_BYTES_MAX

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.covers("SF-24")
@settings(max_examples=examples(100, 2000))
@given(JSON)
def test_what_is_read_can_be_written_down_again(value: Any) -> None:
    raw = json.dumps(value, ensure_ascii=False).encode()
    assert read_json(raw) == read_json(memoryview(raw)) == read_json(raw.decode()) == value
    assert read_json(json.dumps(value)) == value


@pytest.mark.covers("SF-24")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"NaN",
        b'{"a": -Infinity}',
        b'{"a": 1e400}',
        b"[-1e400]",
        b"9" * 5000,
        rb'"\ud800"',
        rb'{"\udfff": 1}',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        "{}".encode("utf-16"),
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_no_json_is_refused_as_a_value(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(raw)


@settings(max_examples=examples(100, 2000))
@given(st.integers(0, 2**70))
def test_numbers_are_read_up_to_their_bound(number: int) -> None:
    assert whole_number(b"%d" % number) == (number if number <= U64_MAX else None)
    assert whole_number(b"%d" % number, I32_MAX) == (number if number <= I32_MAX else None)


@pytest.mark.parametrize(
    "text", [b"", b"-1", b"+1", b" 1", b"1_0", b"0x1", "²".encode(), b"0" * 21, b"9" * 9999]
)
def test_what_is_no_number_is_none(text: bytes) -> None:
    assert whole_number(text) is None


@pytest.mark.covers("SF-24", "SF-11")
def test_the_largest_entry_fits_into_a_log_and_with_others_of_its_turn_into_a_frame() -> None:
    entry = ENTRY_BYTES_MAX + MESSAGE_BYTES_MAX + HEADER_BYTES_MAX
    assert entry < RECORD_BYTES_MAX
    assert FRAME_BYTES + entry < FRAME_BYTES_MAX
