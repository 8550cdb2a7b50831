"""A publisher repeats what was not acknowledged, with its id, and says what a stream does not take."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from benchmarks.servers import Fleet
from nats.js import JetStreamContext

from supercluster.spark.client import Address, ConnectionFailedError, Credentials, Servers
from supercluster.spark.jetstream import ApiRefusedError, JetStreamSession, UnansweredError
from supercluster.spark.publisher import (
    BYTES_PER_PUBLISH,
    ROWS_PER_PUBLISH,
    OtherStreamError,
    Outgoing,
    Publisher,
    SubjectError,
    bounded,
)
from supercluster.spark.wire import Message, header_block, parse_headers

pytestmark = pytest.mark.covers("SP-1")


def message(number: int, subject: bytes = b"a.b", payload: bytes = b"p", header: bytes = b"") -> Outgoing:
    return f"id-{number}", (subject, header, payload)


class Broker:
    """A session and its connections: each connection answers the messages it is told to, and then is silent or fails."""

    def __init__(self, *answers: dict[bytes, dict[str, Any]] | None) -> None:
        self.answers = list(answers)
        self.frames: list[list[bytes]] = []

    def connection(self, deadline: float) -> Broker:
        return self

    def drop(self) -> None: ...

    def subscribe(self, subject: str) -> bytes:
        return b"7"

    def unsubscribe(self, sid: bytes) -> None: ...

    def write(self, data: bytes) -> None:
        self.frames.append([frame.split(b"\r\n", 1)[0] for frame in data.split(b"HPUB ")[1:]])

    def read(self, deadline: float) -> list[Message]:
        found = self.answers.pop(0)
        if found is None:
            raise ConnectionFailedError("gone")
        replies = {words.split()[1] for words in self.frames[-1]}
        return [
            (b"7", reply, b"", b"", json.dumps(answer).encode())
            for reply in sorted(replies)
            for at, answer in found.items()
            if reply.endswith(b"." + at)
        ]


def publisher(broker: Broker, patience_seconds: float = 60.0) -> Publisher:
    return Publisher(broker, "S", patience_seconds=patience_seconds, wait=lambda seconds: None)  # type: ignore[arg-type]


def test_only_what_was_not_acknowledged_is_sent_again() -> None:
    unavailable = {"error": {"code": 503, "description": "no leader"}}
    broker = Broker(
        {b"0": {"seq": 1}, b"1": unavailable},
        {},  # the third had no answer in time
        {b"2": {"seq": 3, "duplicate": True}},
        None,
        {b"1": {"seq": 2}},
    )
    assert publisher(broker).publish([message(number) for number in range(3)]) == [3]
    assert [len(frames) for frames in broker.frames] == [3, 2, 1]


def test_nobody_who_acknowledges_is_an_error_that_names_the_subject() -> None:
    with pytest.raises(
        UnansweredError, match=r"no acknowledgement for -1 s; .* captures subject 'a\.b'.*gone"
    ):
        publisher(Broker(None), -1).publish([message(1)])


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (
            {"code": 400, "err_code": 10060},
            OtherStreamError,
            r"'a\.b' is captured by another stream than 'S'; write to",
        ),
        ({"code": 400, "err_code": 10054, "description": "too big"}, ApiRefusedError, "too big"),
    ],
)
def test_what_a_stream_refuses_for_good_is_not_repeated(
    error: dict[str, Any], kind: type[Exception], says: str
) -> None:
    broker = Broker({b"0": {"error": error}})
    with pytest.raises(kind, match=says) as told:
        publisher(broker).publish([message(1)])
    assert (len(broker.frames), "\n" in str(told.value)) == (1, False)


@pytest.mark.parametrize("subject", [b"", b"a b", b"a\r\nPUB x 0\r\n"])
def test_a_subject_that_would_break_the_protocol_is_refused_before_anything_is_sent(subject: bytes) -> None:
    broker = Broker()
    with pytest.raises(SubjectError, match="publish under another one"):
        publisher(broker).publish([message(1), message(2, subject)])
    assert broker.frames == []


def test_messages_are_gathered_by_number_and_size() -> None:
    large = message(0, payload=bytes(BYTES_PER_PUBLISH))
    assert [len(batch) for batch in bounded([large, message(1), large])] == [1, 2]
    many = [message(number) for number in range(ROWS_PER_PUBLISH + 1)]
    assert [len(batch) for batch in bounded(many)] == [ROWS_PER_PUBLISH, 1]
    assert list(bounded([])) == []


async def test_a_broker_takes_messages_once_and_only_for_the_stream_that_is_meant(
    fleet: Fleet, js: JetStreamContext
) -> None:
    await js.add_stream(name="S", subjects=["a.>"])
    await js.add_stream(name="T", subjects=["t"])
    session = JetStreamSession(Servers([Address.parse(fleet.urls[0])], Credentials()), patience_seconds=20)
    found = Publisher(session, "S", patience_seconds=20)
    header = header_block([("Kind", "k"), ("Kind", "l")])
    batch = [message(number, header=header if number else b"") for number in range(3)]
    try:
        assert await asyncio.to_thread(found.publish, batch) == []
        assert await asyncio.to_thread(found.publish, batch[1:]) == [2, 3]
        with pytest.raises(OtherStreamError, match="'t' is captured by another stream than 'S'"):
            await asyncio.to_thread(found.publish, [message(9, b"t")])
    finally:
        session.drop()
    assert (await js.stream_info("S")).state.messages == 3
    assert (await js.stream_info("T")).state.messages == 0
    stored = await js.get_msg("S", 2)
    assert (stored.data, stored.headers["Nats-Msg-Id"]) == (b"p", "id-1")  # type: ignore[index]


def test_a_header_block_says_what_it_was_made_of_or_is_refused() -> None:
    pairs = [("A", "1"), ("B", "x"), ("A", "2")]
    assert parse_headers(header_block(pairs)) == {"A": ["1", "2"], "B": ["x"]}
    assert header_block([]) == b""
    for bad in (("", "x"), ("a:b", "x"), ("a", "x\r\ny"), ("a\n", "x")):
        with pytest.raises(ValueError, match="which it cannot, or a line break"):
            header_block([bad])
