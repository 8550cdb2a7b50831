"""Frames of WebSocket, cut anywhere on their way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.protocol import websocket

MASK = b"\x11\x22\x33\x44"


def frame(opcode: int, payload: bytes, *, last: bool = True, mask: bytes = MASK) -> bytes:
    """A client's frame."""
    size = len(payload)
    first = (0x80 if last else 0) | opcode
    if size < 126:
        head = bytes((first, 0x80 | size))
    elif size < 1 << 16:
        head = bytes((first, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, 0xFF)) + size.to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


@given(
    st.lists(
        st.tuples(st.booleans(), st.binary(max_size=300), st.binary(min_size=4, max_size=4)), max_size=8
    ),
    st.lists(st.integers(1, 50), max_size=40),
)
def test_any_split_of_the_bytes_gives_the_same_stream(
    frames: list[tuple[bool, bytes, bytes]], cuts: list[int]
) -> None:
    raw = b"".join(
        frame(websocket.PING, payload[:125], mask=mask)
        if is_ping
        else frame(websocket.BINARY, payload, mask=mask)
        for is_ping, payload, mask in frames
    )
    reader, stream, controls = websocket.FrameReader(), b"", []
    at = 0
    for size in [*cuts, len(raw)]:
        part, found = reader.feed(raw[at : at + size])
        at += size
        stream += part
        controls += found
    assert stream == b"".join(payload for is_ping, payload, _ in frames if not is_ping)
    assert controls == [(websocket.PING, payload[:125]) for is_ping, payload, _ in frames if is_ping]


@pytest.mark.parametrize(
    "raw",
    [
        b"\x82\x01x",
        b"\xf2\x81" + MASK + b"x",
        frame(websocket.CONTINUATION, b"x"),
        frame(websocket.BINARY, b"x", last=False) + frame(websocket.BINARY, b"x"),
        frame(websocket.PING, b"x", last=False),
        frame(websocket.CLOSE, b"x" * 126),
        frame(0x3, b"x"),
        b"\x82\xff" + (1 << 40).to_bytes(8, "big") + MASK,
    ],
)
def test_what_is_no_frame_of_a_client_is_refused(raw: bytes) -> None:
    with pytest.raises(websocket.FrameError):
        websocket.FrameReader().feed(raw)


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_servers_frame_says_its_size(size: int) -> None:
    head = websocket.frame_head(websocket.BINARY, size)
    assert head[0] == 0x82
    assert head[1] == min(size, 126 if size < 1 << 16 else 127)
    assert len(head) == {126: 4, 127: 10}.get(head[1], 2)
