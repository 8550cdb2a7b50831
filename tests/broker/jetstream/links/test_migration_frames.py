"""Frames of a cutover: they come back as they were sent, and nothing else is taken for one (BG-4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.codec import WireError, text, u64
from supercluster.broker.jetstream.links.migration_frames import (
    CutAsk,
    CutTold,
    Drop,
    Prepare,
    Prepared,
    Told,
    Wants,
    decode_subjects,
    encode_subjects,
)
from supercluster.broker.jetstream.meta.migration import next_group

CONFIG = StreamConfig(name="ORDERS", subjects=("orders.>",), num_replicas=3)
GREENS = next_group("S.A.ORDERS.1", "m1", 2)
PREPARE = Prepare("m1", 2, "A", "ORDERS", "S.A.ORDERS.1", GREENS, CONFIG, 6, 77, "1b3fa9c2")
FRAMES = [
    PREPARE,
    replace(PREPARE, cluster="east"),
    Prepared("S.A.ORDERS.1", 2, 6, members=("green-0%9c21b3fa@a.1",)),
    Prepared("S.A.ORDERS.1", 2, 6, refusal="a stream ORDERS is there already"),
    CutAsk("S.A.ORDERS.1~1-ab", 2, Wants.REFUSE),
    CutTold("S.A.ORDERS.1", "S.A.ORDERS.1~1-ab", "m1", 2, Told.OPEN, b"d" * 16, 10),
    Drop("S.A.ORDERS.1", 2, "m1"),
]
DECODERS: list[Callable[[bytes], object]] = [
    Prepare.decode,
    Prepared.decode,
    CutAsk.decode,
    CutTold.decode,
    Drop.decode,
    decode_subjects,
]


def encoded(frame: Prepare | Prepared | CutAsk | CutTold | Drop) -> bytes:
    return b"".join(frame.encode())


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_comes_back_as_it_was_sent(frame: Prepare | Prepared | CutAsk | CutTold | Drop) -> None:
    assert type(frame).decode(encoded(frame)) == frame


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_that_is_cut_off_or_too_long_is_none(
    frame: Prepare | Prepared | CutAsk | CutTold | Drop,
) -> None:
    whole = encoded(frame)
    for wrong in (*(whole[:size] for size in range(len(whole))), whole + b"x"):
        with pytest.raises(WireError):
            type(frame).decode(wrong)


def test_subjects_of_many_streams_come_back() -> None:
    told = [("S.A.ORDERS.1~1-ab", 7, ("orders.>", "\u00fc")), ("S.A.EMPTY.1~1-cd", 2**40, ())]
    assert decode_subjects(b"".join(encode_subjects(9, told))) == (9, told)
    with pytest.raises(WireError):
        decode_subjects(b"".join(encode_subjects(9, [("g" * 3000, 1, ())])))


@given(st.binary(max_size=200), st.sampled_from(DECODERS))
def test_other_bytes_are_refused_in_one_way(data: bytes, decode: Callable[[bytes], object]) -> None:
    try:
        decode(data)
    except WireError:
        pass


@pytest.mark.parametrize(
    ("decode", "wrong"),
    [
        (CutAsk.decode, text("g") + u64(1) + b"\x07"),
        (CutAsk.decode, text("g" * 3000) + u64(1) + b"\x00"),
        (Prepared.decode, text("g") + u64(1) + u64(1) + text("") + bytes(4)),
        (CutTold.decode, text("g") + text("h") + text("m") + u64(1) + b"\x03" + bytes(4) + u64(1)),
    ],
    ids=["unknown-wish", "long-name", "neither-members-nor-refusal", "unknown-word"],
)
def test_what_no_broker_sends_is_refused(decode: Callable[[bytes], object], wrong: bytes) -> None:
    with pytest.raises(WireError):
        decode(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"next_group": "meta"},
        {"next_group": "S.A.OTHER.1"},
        {"group": "meta", "next_group": next_group("meta", "m1", 2)},
        {"group": "S.A.OTHER.1", "next_group": next_group("S.A.OTHER.1", "m1", 2)},
        {"config": replace(CONFIG, name="OTHER")},
    ],
)
def test_a_stream_comes_under_no_group_of_another_one(wrong: dict[str, Any]) -> None:
    """Green's brokers would feed another group, even that of their map, with blue's entries."""
    with pytest.raises(WireError, match="'ORDERS'"):
        Prepare.decode(encoded(replace(PREPARE, **wrong)))
