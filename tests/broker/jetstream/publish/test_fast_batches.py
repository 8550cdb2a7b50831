"""Batches whose publisher is acknowledged every so many messages. Answers were compared with nats-server 2.15.1."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supercluster.broker.jetstream.encoding.sections import Exceptional, Verdict
from supercluster.broker.jetstream.publish import fast_batches, refusals
from supercluster.broker.jetstream.publish.fast_batches import FastBatches, Fate, Operation, read
from supercluster.broker.jetstream.publish.settlement import Outcome

START, APPEND, COMMIT, END, PING = Operation
WRONG = Exceptional(0, Verdict.REFUSED, 10071, 9)


class Client:
    def __init__(self) -> None:
        self.paused = 0

    def pause(self, stream: str) -> None:
        self.paused += 1

    def resume(self, stream: str) -> None:
        self.paused -= 1

    def error(self, text: str) -> None:
        raise AssertionError(text)


class Story:
    """One client's batches, and what it hears."""

    def __init__(self, *, may_refuse: bool = False) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.fast = FastBatches("S", self._hear)
        self.fast.allowed, self.fast.may_refuse = True, may_refuse
        self.client = Client()
        self.now_ms = 1000
        self.seq = 0

    def _hear(self, reply: bytes, payload: bytes) -> None:
        self.heard.append((reply.decode().partition(".b")[2], json.loads(payload)))

    def told(self) -> list[Any]:
        found, self.heard = [payload for _, payload in self.heard], []
        return found

    @staticmethod
    def reply(number: int, kind: Operation, mode: str = "ok", flow: str = "2", name: str = "b") -> bytes:
        return f"_INBOX.{name}.{flow}.{mode}.{number}.{int(kind)}.$FI".encode()

    def send(
        self, number: int, kind: Operation, mode: str = "ok", flow: str = "2", *, header: bool = False
    ) -> Fate:
        reply = self.reply(number, kind, mode, flow)
        fate = self.fast.judge(self.client, reply, now_ms=self.now_ms)
        if fate is Fate.TAKE:
            self.fast.taken(reply, has_header=header)
        return fate

    def settle(
        self, *numbers: int, kind: Operation = APPEND, mode: str = "ok", refused: tuple[int, ...] = ()
    ) -> None:
        outcome = Outcome()
        for number in numbers:
            operation = START if number == 1 and kind is APPEND else kind
            reply = self.reply(number, operation, mode)
            if number in refused:
                outcome.refused.append((reply, self.client, WRONG))
            else:
                self.seq += 1
                outcome.acks.append((reply, self.seq))
        self.fast.settle(outcome, refusals.of_publish)
        assert outcome == Outcome()


@pytest.mark.parametrize(
    "reply",
    [
        *(
            "x.$FI",
            "z.2.ok.1.0.$FI",
            "_INBOX.b.2.maybe.1.0.$FI",
            "_INBOX.b.2.ok.x.0.$FI",
            "_INBOX.b.2.ok.0.0.$FI",
        ),
        *("_INBOX.b.2.ok.1.5.$FI", "_INBOX.b.2.ok.1.x.$FI", "_INBOX.b.2.ok.2.0.$FI", "_INBOX.b.2.ok.1.1.$FI"),
        *("_INBOX.b.2.ok.1.3.$FI", "_INBOX.b.2.ok.%s.1.$FI" % ("9" * 20)),
    ],
)
def test_what_is_no_reply_subject_of_a_batch(reply: str) -> None:
    assert read(reply.encode()) is None


def test_how_often_a_client_is_acknowledged_is_bounded() -> None:
    for flow, found in (("7", 7), ("0", 10), ("x", 10), ("-1", 10), ("1000", 500), ("9" * 50, 10)):
        said = read(Story.reply(1, START, flow=flow))
        assert said is not None
        assert said.flow == found


def test_a_batch_is_acknowledged_every_so_many_messages_and_at_its_end() -> None:
    story = Story()
    assert story.send(1, START) is Fate.TAKE
    assert story.told() == [{"type": "ack", "seq": 0, "msgs": 2}]
    for number in (2, 3, 4):
        assert story.send(number, APPEND) is Fate.TAKE
    story.settle(1, 2, 3, 4)
    assert [reply for reply, _ in story.heard] == [".2.ok.2.1.$FI", ".2.ok.4.1.$FI"]
    assert [payload["seq"] for payload in story.told()] == [2, 4]
    assert story.send(5, COMMIT) is Fate.TAKE
    story.settle(5, kind=COMMIT)
    assert story.told() == [{"stream": "S", "seq": 5, "batch": "b", "count": 5}]
    assert not story.fast.is_busy
    assert story.send(6, APPEND) is Fate.DROP
    assert story.told()[0]["error"]["err_code"] == fast_batches.UNKNOWN_ID


def test_one_message_may_be_a_batch_and_an_end_is_not_stored() -> None:
    story = Story()
    assert story.send(1, COMMIT) is Fate.TAKE
    story.settle(1, kind=COMMIT)
    assert story.told() == [{"stream": "S", "seq": 1, "batch": "b", "count": 1}]
    story.send(1, START)
    story.send(2, APPEND)
    story.told()
    assert story.send(3, END) is Fate.DROP
    assert story.told() == []  # Not before all that went before is stored.
    story.settle(1)
    story.settle(2)
    assert story.told() == [
        {"type": "ack", "seq": 2, "msgs": 2},
        {"stream": "S", "seq": 3, "batch": "b", "count": 2},
    ]


def test_a_gap_is_told_and_ends_a_batch_that_must_have_none() -> None:
    story = Story()
    story.send(1, START)
    assert story.send(4, APPEND) is Fate.TAKE
    assert story.told()[1:] == [{"type": "gap", "last_seq": 2, "seq": 4}]
    story.settle(1, 4)
    assert story.send(4, APPEND) is Fate.DROP  # What comes again ends it in any case.
    assert story.told() == [
        {"type": "ack", "seq": 4, "msgs": 2},
        {"type": "gap", "last_seq": 5, "seq": 4},
        {"stream": "S", "seq": 2, "batch": "b", "count": 4},
    ]
    story.send(1, START, "fail")
    assert story.send(3, APPEND, "fail") is Fate.DROP
    story.settle(1, mode="fail")
    assert story.told()[1:] == [
        {"type": "gap", "last_seq": 2, "seq": 3},
        {"stream": "S", "seq": 3, "batch": "b", "count": 1},
    ]


def test_what_is_refused_is_told_and_the_batch_goes_on_unless_it_must_not() -> None:
    story = Story()
    story.send(1, START)
    story.send(2, APPEND, header=True)
    assert story.send(3, COMMIT) is Fate.TAKE
    story.told()
    story.settle(1, 2, refused=(2,))
    story.settle(3, kind=COMMIT)
    assert story.told() == [
        {
            "type": "err",
            "seq": 2,
            "error": {"code": 400, "err_code": 10071, "description": "wrong last sequence: 9"},
        },
        {"stream": "S", "seq": 2, "batch": "b", "count": 3},
    ]


def test_behind_a_message_that_may_be_refused_a_batch_that_must_not_go_on_waits() -> None:
    story = Story()
    story.send(1, START, "fail")
    story.send(2, APPEND, "fail", header=True)
    story.told()
    assert story.send(3, APPEND, "fail") is Fate.WAIT
    assert story.client.paused == 1
    story.settle(1, mode="fail")
    assert story.client.paused == 1
    story.settle(2, mode="fail", refused=(2,))
    assert story.client.paused == 0
    assert story.told()[-1] == {"stream": "S", "seq": 1, "batch": "b", "count": 1}
    assert story.send(3, APPEND, "fail") is Fate.DROP
    assert story.told()[0]["error"]["err_code"] == fast_batches.UNKNOWN_ID


def test_a_stream_that_refuses_when_full_makes_every_message_one_to_wait_for() -> None:
    story = Story(may_refuse=True)
    story.send(1, START, "fail")
    assert story.send(2, APPEND, "fail") is Fate.WAIT
    story.settle(1, mode="fail")
    assert story.send(2, APPEND, "fail") is Fate.TAKE


def test_a_ping_is_answered_with_what_was_acknowledged() -> None:
    story = Story()
    assert story.send(1, PING) is Fate.DROP
    assert story.told()[0]["error"]["err_code"] == fast_batches.UNKNOWN_ID
    story.send(1, START)
    story.send(2, APPEND)
    story.settle(1, 2)
    story.told()
    assert story.send(2, PING) is Fate.DROP
    assert story.told() == [{"type": "ack", "seq": 2, "msgs": 2}]


def test_batches_have_to_be_allowed_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_batches, "BATCHES_MAX", 1)
    story = Story()
    story.send(1, START)
    other = story.reply(1, START, name="c")
    assert story.fast.judge(story.client, other, now_ms=2000) is Fate.DROP
    assert story.told()[-1]["error"] == {
        "code": 429,
        "err_code": 10211,
        "description": "batch publish too many inflight",
    }
    story.settle(1)
    assert (
        story.fast.judge(story.client, other, now_ms=20_000) is Fate.TAKE
    )  # The first one was silent for too long.
    assert story.send(2, APPEND) is Fate.DROP
    long = story.reply(1, START, name="x" * 65)
    assert story.fast.judge(story.client, long, now_ms=0) is Fate.DROP
    story.fast.allowed = False
    assert story.send(1, START) is Fate.DROP
    assert [found["error"]["err_code"] for found in story.told()[-3:]] == [10208, 10207, 10205]


def test_a_message_that_was_given_up_ends_its_batch_without_a_word() -> None:
    story = Story()
    story.send(1, START)
    story.told()
    story.fast.lost(story.reply(1, START))
    assert story.told() == []
    assert not story.fast.is_busy
