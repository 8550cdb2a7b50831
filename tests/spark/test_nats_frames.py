"""Columns of deliveries are the same as the messages that the parser has, whatever stands between and in them."""

from __future__ import annotations

import random
from functools import partial

import pyarrow as pa
import pytest
from tests.support.tiers import examples

from supercluster.spark.columns import COLUMNS, STREAM, batch_of, map_of_headers
from supercluster.spark.nats.frames import Frames, take_frames
from supercluster.spark.nats.progress import RangeProgress
from supercluster.spark.nats.reader import _judge
from supercluster.spark.wire import Message, ProtocolError, WireParser, none_of, parse_headers

NAMES = (STREAM, *COLUMNS)
SID = b"2"
REPLY = b"$JS.ACK.S.spark-0a.1."
PREFIX = b" %b %b" % (SID, REPLY)
HEADERS = (
    b"",
    b"",
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n",
    b"NATS/1.0\r\nA: b\r\nC:d: e\r\nA:  f \r\nno colon\r\n\r\n",
    b"NATS/1.0\r\n\xff: \xc3\xa9\r\n\r\n",
    b"NATS/1.0\r\nA: \t x \r\n B :\r\n:\r\n\r\n",
    b"NATS/1.0 a: b\r\nA: b\r\n\r\n",
    b"NATS/1.0\r\nA: \xc3\xa9:\r\nB: \r\nno end",
)
REGULAR = (*HEADERS[:4], HEADERS[6], HEADERS[8])
SUBJECTS = (b"a.b", b"x", b"a.\xc3\xa9", b"bad.\xff", b"MSG", b"HMSG")


def delivery(
    sequence: int,
    count: int,
    *,
    subject: bytes = b"a.b",
    header: bytes = b"",
    payload: bytes = b"p",
    prefix: bytes = PREFIX,
    pending: int = 5,
) -> bytes:
    place = b"%d.%d.%d.%d" % (sequence, count, 1_700_000_000_000_000_000 + sequence * 1_001, pending)
    if header:
        line = b"HMSG %b%b%b %d %d" % (subject, prefix, place, len(header), len(header) + len(payload))
    else:
        line = b"MSG %b%b%b %d" % (subject, prefix, place, len(payload))
    return b"%b\r\n%b%b\r\n" % (line, header, payload)


def status(text: bytes) -> bytes:
    head = b"NATS/1.0 %b\r\n\r\n" % text
    return b"HMSG _INBOX.x.1 %b %d %d\r\n%b\r\n" % (SID, len(head), len(head), head)


class Deliveries:
    """Random ones, most of them regular."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.oddness = self.random.choice([0, 0, 0.002, 0.02, 0.2])
        self.headers = self.random.choice([HEADERS[:1], HEADERS[3:4], REGULAR, HEADERS])
        self.sequence, self.count = self.random.choice([1, 99, 10**9]), 0

    def some(self) -> bytes:
        count, roll = self.random.choice([3, 40, 400]), self.random.random
        return b"".join(self._odd() if roll() < self.oddness else self._regular() for _ in range(count))

    def _regular(self) -> bytes:
        choice = self.random.choice
        self.sequence += 1
        self.count += 1
        payload = choice([b"", b"x" * self.random.randrange(200), b"\r\nMSG a 2 3\r\n", b"1.2.3 4\r\n"])
        return delivery(
            self.sequence,
            self.count,
            subject=choice(SUBJECTS),
            header=choice(self.headers),
            payload=payload,
            pending=choice([0, 3, 10**7]),
        )

    def _odd(self) -> bytes:
        what = self.random.randrange(9)
        if what == 0:
            self.sequence += 2
        elif what == 1:
            self.count += 1
        elif what == 2:
            self.sequence -= 3
        elif what == 3:
            return b"PING\r\n"
        elif what == 4:
            return status(self.random.choice([b"100 Idle", b"408 Timeout", b"404 No Messages", b"409 Gone"]))
        elif what == 5:
            return b"MSG _INBOX.q 1 3\r\nabc\r\n"
        elif what == 6:
            return delivery(1, 1, prefix=b" 9 $JS.ACK.S.other.1.")
        elif what == 7:
            inside = delivery(self.sequence + 1, self.count + 1)
            return self._holding(inside)
        return b"+OK\r\n"

    def _holding(self, payload: bytes) -> bytes:
        """A message with a delivery in it that has the right prefix."""
        self.sequence += 1
        self.count += 1
        return delivery(self.sequence, self.count, payload=payload + b"\r\n" + payload)


def judged(
    pieces: list[bytes], progress: RangeProgress, *, columns: bool
) -> tuple[list[pa.RecordBatch], list[str]]:
    """As the reader does it until the consumer is of no more use."""
    parser, batches, notes = WireParser(), [], []
    first = partial(take_frames, PREFIX) if columns else none_of
    for data in pieces:
        frames, messages = parser.feed_first(data, first)
        if frames is not None and progress.take_all(frames):
            batches.append(frames.batch(NAMES, "S"))
        elif frames is not None:
            messages = frames.messages() + messages
        records, is_usable = _judge(messages, SID, progress)
        batches.append(batch_of(records, NAMES, stream="S"))
        if not is_usable or progress.hole:
            notes.append(f"ends: {is_usable}")
            break
    notes += [repr(progress.hole), repr(progress.passed_over), repr(progress.next_sequence)]
    notes += [repr(progress.outstanding), repr(parser.pings), repr(progress.consumer_sequence)]
    return batches, notes


def cut(data: bytes, sizes: random.Random) -> list[bytes]:
    largest = sizes.choice([50, 4_000, 10**7])
    pieces, at = [], 0
    while at < len(data):
        size = sizes.randrange(1, largest)
        pieces.append(data[at : at + size])
        at += size
    return pieces


@pytest.mark.covers("SP-1")
@pytest.mark.parametrize("seed", range(examples(300, 5_000)))
def test_columns_are_what_the_messages_are(seed: int) -> None:
    made = Deliveries(seed)
    first = made.sequence + 1
    pieces = cut(made.some(), made.random)
    last = made.sequence + made.random.choice([-5, 0, 50])

    def progress() -> RangeProgress:
        return RangeProgress(first, last, outstanding=500, watches_head=True)

    wanted, notes = judged(pieces, progress(), columns=False)
    found, found_notes = judged(pieces, progress(), columns=True)
    assert found_notes == notes
    assert (
        pa.Table.from_batches(found).combine_chunks().equals(pa.Table.from_batches(wanted).combine_chunks())
    )
    for batch in found:
        batch.validate(full=True)


def taken(data: bytes) -> tuple[Frames, list[Message]]:
    parser = WireParser()
    frames, rest = parser.feed_first(data, partial(take_frames, PREFIX))
    assert frames is not None
    return frames, rest


def run(first: int, count: int) -> bytes:
    return b"".join(delivery(number, number) for number in range(first, first + count))


def test_regular_deliveries_make_no_messages_and_the_last_one_may_be_cut() -> None:
    whole = run(1, 50)
    frames, rest = taken(whole)
    assert (frames.rows, rest) == (50, [])
    for missing in range(1, len(delivery(50, 50)) + 1):
        frames, rest = taken(whole[:-missing])
        assert (frames.rows, rest) == (49, [])


@pytest.mark.parametrize(
    "between", [b"PING\r\n", status(b"100 Idle"), b"MSG q 1 1\r\nx\r\n", b"+OK\r\n", b"-ERR 'x'\r\n"]
)
def test_where_anything_else_stands_between_the_parser_takes_all(between: bytes) -> None:
    data = run(1, 50) + between + run(51, 50)
    assert take_frames(PREFIX, data) == (None, 0)
    frames, rest = taken(run(1, 50) + between)
    assert (frames.rows, len(rest)) == (50, between.startswith((b"MSG", b"HMSG")))


def test_text_in_a_payload_that_looks_like_a_delivery_is_noticed() -> None:
    inside = run(51, 3)
    for data in (
        run(1, 50) + delivery(51, 51, payload=inside),
        delivery(1, 1, payload=inside) + run(2, 50),
        delivery(1, 1, payload=PREFIX) + run(2, 50),
    ):
        frames, end = take_frames(PREFIX, data)
        assert (frames, end) == (None, 0)


def test_text_that_looks_like_a_delivery_is_noticed_in_a_payload_that_is_cut() -> None:
    begin, holding = run(1, 50), delivery(51, 51, payload=b"x" * 40 + delivery(9, 9) + b"y" * 40)
    at = len(begin) + holding.index(PREFIX) + len(PREFIX)
    for cut_at in range(at, len(begin) + len(holding)):
        frames, end = take_frames(PREFIX, (begin + holding)[:cut_at])
        assert (frames is None and end == 0) or (
            frames is not None and frames.rows == 50 and end == len(begin)
        )


@pytest.mark.parametrize("bad", [b"x", b"-1", b"", b"99999999999", b"99999999999999999999", b"1 2 3", b"5 3"])
def test_what_is_no_delivery_is_the_parser_s_to_refuse(bad: bytes) -> None:
    line = b"MSG a%b51.51.1700000000000000000.3 %b\r\nx\r\n" % (PREFIX, bad)
    with pytest.raises(ProtocolError):
        WireParser().feed(run(1, 50) + line + run(52, 3) + b"\r\n")
    with pytest.raises(ProtocolError):
        taken(run(1, 50) + line + run(52, 3) + b"\r\n")


def test_large_payloads_are_read_one_by_one() -> None:
    large = b"".join(delivery(number, number, payload=b"x" * 9_000) for number in range(1, 60))
    assert take_frames(PREFIX, large) == (None, 0)


def test_only_wanted_columns_are_built() -> None:
    frames, _ = taken(run(1, 50))
    batch = frames.batch(("payload",), "S")
    assert batch.schema.names == ["payload"]
    assert batch.num_rows == 50


@pytest.mark.parametrize("blocks", [HEADERS, REGULAR, HEADERS[:3], HEADERS[3:5], HEADERS[5:], HEADERS[-1:]])
def test_headers_are_those_that_the_parser_has(blocks: tuple[bytes, ...]) -> None:
    found = map_of_headers(pa.array(blocks, pa.binary()))
    found.validate(full=True)
    assert found.to_pylist() == [list(parse_headers(each).items()) if each else None for each in blocks]
