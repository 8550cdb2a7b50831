"""The client protocol's parser: the same events however the stream is split, and one error for any garbage."""

from __future__ import annotations

import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.protocol.parser import (
    CONTROL_LINE_EXCEEDED,
    PARSER_ERROR,
    PAYLOAD_VIOLATION,
    UNKNOWN_OPERATION,
    ClientParser,
    Connect,
    Event,
    Failed,
    Message,
    Ping,
    Pong,
    Subscribe,
    Unsubscribe,
)

MAX_LINE = 64
MAX_PAYLOAD = 40


def flat(events: list[Event]) -> list[object]:
    """Events with runs of publishes taken apart: runs are cut where reads were."""
    found: list[object] = []
    for event in events:
        if isinstance(event, list):
            found += event
        else:
            found.append(event)
    return found


def parse(*reads: bytes) -> list[object]:
    parser = ClientParser(MAX_LINE, MAX_PAYLOAD)
    found: list[object] = []
    for read in reads:
        found += flat(parser.feed(read))
    return found


tokens = st.text(alphabet="abcXYZ019_-$", min_size=1, max_size=5)
subjects = st.lists(tokens, min_size=1, max_size=3).map(lambda found: ".".join(found).encode())
payloads = st.binary(max_size=20)


@st.composite
def publishes(draw: st.DrawFn) -> tuple[bytes, Message]:
    """A publish as bytes, and what has to come out."""
    subject, payload = draw(subjects), draw(payloads)
    reply = draw(st.one_of(st.just(b""), subjects))
    gap = b" " + reply if reply else b""
    if draw(st.booleans()):
        header = b"NATS/1.0\r\n\r\n"
        total = len(header) + len(payload)
        line = b"HPUB %b%b %d %d\r\n" % (subject, gap, len(header), total)
        return line + header + payload + b"\r\n", (subject, reply, header, payload)
    name = draw(st.sampled_from([b"PUB", b"pub", b"Pub"]))
    return b"%b %b%b %d\r\n%b\r\n" % (name, subject, gap, len(payload), payload), (
        subject,
        reply,
        b"",
        payload,
    )


others = st.sampled_from(
    [
        (b"PING\r\n", Ping()),
        (b"pong\n", Pong()),
        (b"SUB a.* 1\r\n", Subscribe(b"a.*", b"", b"1")),
        (b"SUB  a.>\tcrew 2\r\n", Subscribe(b"a.>", b"crew", b"2")),
        (b"UNSUB 1\r\n", Unsubscribe(b"1", 0)),
        (b"UNSUB 1 5\r\n", Unsubscribe(b"1", 5)),
        (b"UNSUB 1 x\r\n", Unsubscribe(b"1", 0)),
        (b"UNSUB 1 -1\r\n", Unsubscribe(b"1", 0)),
        (b'CONNECT {"user": "a b"}\r\n', Connect(b'{"user": "a b"}')),
    ]
)


@given(st.lists(st.one_of(publishes(), others), max_size=8), st.lists(st.integers(0, 400), max_size=6))
def test_any_split_of_the_stream_gives_the_same_events(
    operations: list[tuple[bytes, object]], cuts: list[int]
) -> None:
    stream = b"".join(raw for raw, _ in operations)
    wanted = [event for _, event in operations]
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reads = [stream[start:stop] for start, stop in itertools.pairwise(edges)]
    assert parse(stream) == wanted
    assert parse(*reads) == wanted
    assert parse(*(stream[at : at + 1] for at in range(len(stream)))) == wanted


fragments = st.one_of(
    st.binary(max_size=80),
    st.sampled_from(
        [
            b"PUB ",
            b"HPUB a 5 3\r\n",
            b"PUB a 3\r\nabc\r\n",
            b"PUB a 99\r\n",
            b"PING\r\n",
            b"\r\n",
            b"SUB a\r\n",
            b"a" * 70,
        ]
    ),
)


@given(st.lists(fragments, max_size=6))
def test_garbage_gives_one_last_error_wherever_it_is_split(pieces: list[bytes]) -> None:
    stream = b"".join(pieces)
    whole = parse(stream)
    assert parse(*(stream[at : at + 1] for at in range(len(stream)))) == whole
    assert parse(*pieces) == whole
    failures = [event for event in whole if isinstance(event, Failed)]
    assert len(failures) <= 1
    assert not failures or whole[-1] is failures[0]


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (b"HELO\r\n", UNKNOWN_OPERATION),
        (b"\x16\x03\x01", UNKNOWN_OPERATION),
        (b"\r\n", UNKNOWN_OPERATION),
        (b"SUB " + b"a" * 61 + b" 1\r\n", CONTROL_LINE_EXCEEDED),
        (b"S" * 66, CONTROL_LINE_EXCEEDED),
        (b"PUB a 41\r\n", PAYLOAD_VIOLATION),
        (b"PUB a b 41\r\n", PAYLOAD_VIOLATION),
        (b"HPUB a 12 41\r\n", PAYLOAD_VIOLATION),
        (b"PUB a -1\r\n", PARSER_ERROR),
        (b"PUB a 9999999999\r\n", PARSER_ERROR),
        (b"PUB a b c 1\r\n", PARSER_ERROR),
        (b"PUB\r\n", PARSER_ERROR),
        (b"HPUB a 5 3\r\n", PARSER_ERROR),
        (b"PUB a 2\r\nabc\r\n", PARSER_ERROR),
        (b"SUB a\r\n", PARSER_ERROR),
        (b"CONNECT\r\n", PARSER_ERROR),
    ],
)
def test_each_kind_of_bad_input_has_its_error(stream: bytes, text: str) -> None:
    assert parse(stream) == [Failed(text)]


def test_nothing_is_taken_after_a_failure() -> None:
    assert parse(b"PING\r\nHELO\r\nPING\r\n", b"PING\r\n") == [Ping(), Failed(UNKNOWN_OPERATION)]


def test_a_run_of_publishes_is_one_event() -> None:
    parser = ClientParser(MAX_LINE, MAX_PAYLOAD)
    (run,) = parser.feed(b"PUB a 1\r\nx\r\n" * 3)
    assert run == [(b"a", b"", b"", b"x")] * 3


def test_what_is_held_is_bounded_by_the_payload_limit() -> None:
    parser = ClientParser(MAX_LINE, MAX_PAYLOAD)
    assert parser.feed(b"PUB a 40\r\n" + b"x" * 41) == []
    assert parser.held_bytes <= MAX_LINE + MAX_PAYLOAD + 4


def kept_bytes(parser: ClientParser) -> int:
    """What the parser keeps, with what Python takes for it."""
    found = sys.getsizeof(parser._known) + sum(map(sys.getsizeof, parser._chunks))
    for line, publish in parser._known.items():
        found += sys.getsizeof(line) + sys.getsizeof(publish) + sum(map(sys.getsizeof, publish))
    return found


def test_remembered_lines_are_bounded_by_their_bytes() -> None:
    """S8: 4,096 lines of 4 KB were 34 MB, for as long as the connection lived."""
    for length in (1, 4000):
        parser = ClientParser(4096, MAX_PAYLOAD)
        for number in range(5000):
            parser.feed(b"PUB %b%d 1\r\nx\r\n" % (b"a" * length, number))
        assert kept_bytes(parser) < 1 << 20
    assert parse(b"PUB a 1\r\nx\r\n" * 3) == [(b"a", b"", b"", b"x")] * 3


def test_a_payload_that_comes_in_tiny_reads_takes_little_more_than_its_bytes() -> None:
    size = 1 << 16
    parser = ClientParser(4096, size)
    parser.feed(b"PUB a %d\r\n" % size)
    for _ in range(size):
        assert parser.feed(b"x") == []
    assert kept_bytes(parser) < 2 * size
    assert parser.feed(b"\r\n") == [[(b"a", b"", b"", b"x" * size)]]
