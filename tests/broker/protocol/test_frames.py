"""Frames between brokers: what is written is read, and nothing else is believed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.bounds import FRAME_BYTES_MAX
from supercluster.broker.protocol import frames
from supercluster.broker.protocol.frames import FrameError, FrameReader, GatewayAddress, Hello

HELLO = Hello(
    1, "demo", "id", "east", "east-0", "inc", "proc", "127.0.0.1:4222", 0, 1, "pair", "route", "secret"
)

messages = st.tuples(
    st.booleans(),
    st.lists(st.binary(min_size=1, max_size=5), max_size=3),
    st.binary(max_size=8),
    st.binary(max_size=8),
    st.binary(max_size=8),
    st.binary(max_size=40),
)


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=50)), max_size=8), st.integers(1, 17))
def test_frames_come_out_however_the_stream_is_cut(sent: list[tuple[int, bytes]], size: int) -> None:
    stream = b"".join(b"".join(frames.frame(kind, [body])) for kind, body in sent)
    reader = FrameReader()
    found = [
        (kind, bytes(body))
        for start in range(0, len(stream), size)
        for kind, body in reader.feed(stream[start : start + size])
    ]
    assert found == sent


@given(st.lists(messages, max_size=5))
def test_messages_survive(sent: list[frames.RemoteMessage]) -> None:
    pieces = [frames.message_head("$G")]
    for plain, queues, subject, reply, header, payload in sent:
        pieces += [
            bytes(piece) for piece in frames.message_pieces(plain, queues, subject, reply, header, payload)
        ]
    account, found = frames.decode_messages(b"".join(pieces))
    assert account == "$G"
    assert list(found) == sent


def test_interest_and_deliveries_survive() -> None:
    entries = [(b"a.*", b"", 1), (b"b", b"crew", 70_000)]
    assert frames.decode_interest(frames.encode_interest("acc", entries)) == ("acc", entries)
    items: list[frames.Item] = [(b"s", b"r", b"h", b"p" * 100), (b"", b"", b"", b"")]
    for plain, queues in (
        (True, []),
        (False, [b"crew", b"q" * 255]),
        (True, [b"%d" % n for n in range(300)]),
    ):
        body = b"".join(frames.encode_deliver_to("acc", b"to", plain, queues, items))
        assert frames.decode_deliver_to(memoryview(body)) == ("acc", b"to", plain, queues, items)


def test_hello_survives_and_later_versions_may_add_to_it() -> None:
    body = frames.encode_hello(HELLO)
    assert frames.decode_hello(body) == HELLO
    assert frames.decode_hello(body[:-1] + b', "later": 1}') == HELLO


@pytest.mark.parametrize("name", ["a\nWARNING forged", "a\x1b[2J", "a\r"])
def test_a_hello_with_control_characters_is_refused(name: str) -> None:
    """It would begin a line of its own in a log."""
    with pytest.raises(FrameError, match="HELLO can't be read"):
        frames.decode_hello(frames.encode_hello(replace(HELLO, node=name)))


@pytest.mark.parametrize("field", ["node", "cluster", "incarnation", "process"])
def test_a_hello_with_a_name_that_no_group_has_room_for_is_refused(field: str) -> None:
    """Members are named by node and incarnation, in every membership of a log."""
    told = json.loads(frames.encode_hello(HELLO)) | {field: "x" * 256}
    with pytest.raises(FrameError, match="HELLO can't be read"):
        frames.decode_hello(json.dumps(told).encode())


@pytest.mark.parametrize("deep", [b"[" * 200_000, b'{"node":' * 100_000])
def test_documents_that_nest_too_deeply_are_refused(deep: bytes) -> None:
    with pytest.raises(FrameError):
        frames.decode_hello(deep)
    with pytest.raises(FrameError):
        frames.decode_gateways(deep)


def test_hello_of_the_first_version_is_read() -> None:
    told = json.loads(frames.encode_hello(HELLO))
    for added in ("tags", "gateway_url", "introduces"):
        del told[added]
    found = frames.decode_hello(json.dumps({**told, "version": 1}).encode())
    assert (found.tags, found.gateway_url, found.introduces) == ((), "", False)


def test_a_hello_says_nothing_of_lineages_before_the_map_was_recovered() -> None:
    assert "lineage" not in json.loads(frames.encode_hello(HELLO))
    found = frames.decode_hello(frames.encode_hello(replace(HELLO, lineage="meta~1f")))
    assert found.lineage == "meta~1f"
    assert frames.decode_hello(frames.encode_hello(HELLO)).lineage == ""


def test_tags_and_the_gateway_survive() -> None:
    hello = replace(HELLO, tags=("ssd", "zone:ä"), gateway_url="127.0.0.1:7222", introduces=True)
    assert frames.decode_hello(frames.encode_hello(hello)) == hello


@pytest.mark.parametrize(
    "change",
    [
        {"tags": 7},
        {"tags": [7]},
        {"tags": [[]]},
        {"gateway_url": None},
        {"introduces": 1},
        {"node": "\ud800"},
    ],
)
def test_a_hello_with_a_field_of_the_wrong_type_is_refused(change: dict[str, Any]) -> None:
    told = json.loads(frames.encode_hello(HELLO))
    with pytest.raises(FrameError):
        frames.decode_hello(json.dumps({**told, **change}).encode())


def test_gossip_and_load_survive() -> None:
    told = [GatewayAddress("west-0", "west", "10.0.0.1:7222"), GatewayAddress("n", "north", "host:1")]
    assert frames.decode_gateways(frames.encode_gateways(told)) == told
    assert frames.decode_load(memoryview(frames.encode_load(65536))) == 65536


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'[["a", "b"]]', b'[["a", "b", 3]]', b"\xff"])
def test_broken_gossip_is_a_frame_error(body: bytes) -> None:
    with pytest.raises(FrameError):
        frames.decode_gateways(body)


def test_a_login_survives() -> None:
    assert frames.decode_login(memoryview(frames.encode_login("route-2", "s\u00fc\u00df"))) == (
        "route-2",
        "s\u00fc\u00df",
    )


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'["a"]', b'["a", 1]', b'["hush", "a", "b"]', b"\xff", b'["\\ud800", ""]']
)
def test_a_broken_login_is_a_frame_error_that_shows_nothing(body: bytes) -> None:
    with pytest.raises(FrameError) as refused:
        frames.decode_login(body)
    assert "hush" not in str(refused.value)


def test_hello_shows_no_secret() -> None:
    assert "secret" not in repr(HELLO)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"\xff", frames.encode_hello(HELLO).replace(b'"east-0"', b"7")]
)
def test_a_broken_hello_is_a_frame_error(body: bytes) -> None:
    with pytest.raises(FrameError):
        frames.decode_hello(body)


@given(st.binary(max_size=60))
def test_garbage_is_never_anything_but_a_frame_error(body: bytes) -> None:
    for decode in (
        frames.decode_hello,
        frames.decode_interest,
        frames.decode_deliver_to,
        frames.decode_gateways,
        frames.decode_load,
        lambda found: list(frames.decode_messages(found)[1]),
    ):
        try:
            decode(body)
        except FrameError:
            continue


@pytest.mark.parametrize("stream", [b"\x00\x00\x00\x00\x01", b"\xff\xff\xff\xff\x01", b"GET / HTTP/1.1\r\n"])
def test_impossible_sizes_are_refused(stream: bytes) -> None:
    with pytest.raises(FrameError):
        FrameReader().feed(stream)


def test_a_reader_keeps_no_more_than_its_limit() -> None:
    reader = FrameReader(frame_bytes_max=100)
    with pytest.raises(FrameError):
        reader.feed(b"".join(frames.frame(1, [bytes(100)])))


def test_the_first_frame_of_a_read_may_raise_the_limit_for_the_next() -> None:
    reader = FrameReader(frame_bytes_max=100)
    both = b"".join(frames.frame(1, [b"hello"]) + frames.frame(2, [bytes(1000)]) + frames.frame(3, [b"x"]))
    assert [(kind, bytes(body)) for kind, body in reader.feed(both[:-2])] == [(1, b"hello")]
    reader.frame_bytes_max = 2000
    assert [kind for kind, _ in reader.feed(b"")] == [2]
    assert [(kind, bytes(body)) for kind, body in reader.feed(both[-2:])] == [(3, b"x")]


def test_a_frame_above_the_limit_is_refused_behind_others_too() -> None:
    reader = FrameReader(frame_bytes_max=100)
    assert len(reader.feed(b"".join(frames.frame(1, [b"hello"]) + frames.frame(2, [bytes(1000)])))) == 1
    with pytest.raises(FrameError):
        reader.feed(b"more")


def test_too_large_a_frame_is_not_written() -> None:
    with pytest.raises(FrameError):
        frames.frame(40, [bytes(FRAME_BYTES_MAX)])
