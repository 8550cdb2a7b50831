"""The reader's parser gives the same messages however the bytes are cut, and refuses what is not NATS."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.spark.wire import ProtocolError, WireParser, delivery, parse_headers, status_of

STREAM = (
    b'INFO {"connect_urls":["a:1"]}\r\n'
    b"MSG a.b 2 $JS.ACK.S.c.1.7.1.1000.3 5\r\nhello\r\n"
    b"PING\r\n"
    b"HMSG a.b 2 $JS.ACK.S.c.1.8.2.1000.2 22 26\r\nNATS/1.0\r\nKey: a b\r\n\r\nMSG \r\n"
    b"MSG x 1 0\r\n\r\n"
    b"HMSG in 3 16 16\r\nNATS/1.0 408 T\r\n\r\n\r\n"
    b"-ERR 'Slow Consumer'\r\n+OK\r\nPONG\r\n"
)
MESSAGES = [
    (b"2", b"a.b", b"$JS.ACK.S.c.1.7.1.1000.3", b"", b"hello"),
    (b"2", b"a.b", b"$JS.ACK.S.c.1.8.2.1000.2", b"NATS/1.0\r\nKey: a b\r\n\r\n", b"MSG "),
    (b"1", b"x", b"", b"", b""),
]


def stream_and_messages() -> tuple[bytes, list[tuple[bytes, ...]]]:
    head = b"NATS/1.0 408 T\r\n\r\n"
    data = STREAM.replace(b"HMSG in 3 16 16", b"HMSG in 3 %d %d" % (len(head), len(head)))
    return data, [*MESSAGES, (b"3", b"in", b"", head, b"")]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_messages_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    data, wanted = stream_and_messages()
    parser = WireParser()
    found, position, turn = [], 0, 0
    while position < len(data):
        size = cuts[turn % len(cuts)]
        found += parser.feed(data[position : position + size])
        position, turn = position + size, turn + 1
    assert found == wanted
    assert (parser.pings, parser.pongs, parser.errors) == (1, 1, ["Slow Consumer"])
    assert parser.info == {"connect_urls": ["a:1"]}


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\n",
        b"MSG a\r\n",
        b"MSG a 1 x\r\n",
        b"HMSG a 1 9 3\r\n",
        b"MSG a 1 -1\r\n",
        b"MSG a 1 99999999999\r\n",
        b"INFO {\r\n",
        b"x" * 70_000,
    ],
)
def test_what_is_not_the_protocol_is_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        WireParser().feed(data)


@given(st.binary(max_size=200))
def test_garbage_is_an_error_or_nothing_but_never_another_failure(data: bytes) -> None:
    try:
        WireParser().feed(data)
    except ProtocolError:
        return


def test_positions_are_read_from_both_forms_of_reply_subjects() -> None:
    assert delivery(b"$JS.ACK.S.c.1.70.7.5000.3") == (70, 7, 5000, 3)
    assert delivery(b"$JS.ACK.hub.hash.S.c.1.70.7.5000.3.tok") == (70, 7, 5000, 3)
    with pytest.raises(ProtocolError):
        delivery(b"$JS.ACK.S.c")


def test_statuses_and_headers_are_told_apart() -> None:
    assert status_of(b"NATS/1.0 404 No Messages\r\n\r\n") == (404, "No Messages")
    assert status_of(b"NATS/1.0\r\nA: b\r\n\r\n") == (0, "")
    assert parse_headers(b"NATS/1.0\r\nA: b\r\nA:c: d \r\nB:\r\n\r\n") == {"A": ["b", "c: d"], "B": [""]}
