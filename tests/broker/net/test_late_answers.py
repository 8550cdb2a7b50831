"""Answers wait for clients that go to another super-cluster, within bounds of time, number and bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from supercluster.broker.net.routing import late_answers
from supercluster.broker.net.routing.late_answers import EXPECT_MS, KEEP_MS, LateAnswers

pytestmark = pytest.mark.covers("BG-4", "BG-5")


@dataclass
class World:
    """A clock, who listens, and what was sent."""

    now_ms: int = 1000
    listening: set[bytes] = field(default_factory=set)
    sent: list[tuple[str, bytes, bytes, bytes, bytes]] = field(default_factory=list)
    late: LateAnswers = field(init=False)

    def __post_init__(self) -> None:
        self.late = LateAnswers(lambda: self.now_ms)

    def step(self) -> list[bytes]:
        """The payloads that were sent."""
        self.sent.clear()
        self.late.step(
            lambda account, subject: account == "A" and subject in self.listening,
            lambda *message: self.sent.append(message),
        )
        return [message[-1] for message in self.sent]


@pytest.fixture
def world() -> World:
    found = World()
    found.late.expect("A")
    return found


def test_an_answer_is_sent_once_somebody_listens_and_the_order_is_kept(world: World) -> None:
    for number in range(3):
        world.late.keep("A", b"_INBOX.x.1", b"", b"%d" % number)
    assert world.step() == []
    world.listening.add(b"_INBOX.x.1")
    world.now_ms += KEEP_MS - 1
    assert world.step() == [b"0", b"1", b"2"]
    assert world.step() == []
    assert (len(world.late), world.late.delivered, world.late.dropped) == (0, 3, 0)


def test_answers_of_one_subject_stay_in_order_however_many_subjects_are_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_answers, "LOOKS_MAX", 2)
    for number in range(3):
        for inbox in (b"_INBOX.x.1", b"_INBOX.y.1", b"_INBOX.z.1"):
            world.late.keep("A", inbox, b"", b"%d" % number)
    assert world.step() == []
    world.listening.add(b"_INBOX.y.1")
    assert world.step() + world.step() == [b"0", b"1", b"2"]
    assert len(world.late) == 6


def test_an_answer_that_nobody_wants_is_dropped_in_time(world: World) -> None:
    world.late.keep("A", b"_INBOX.x.1", b"", b"0")
    world.now_ms += KEEP_MS
    assert world.step() == []
    assert (len(world.late), world.late.dropped) == (0, 1)
    world.listening.add(b"_INBOX.x.1")
    assert world.step() == []


def test_nothing_is_kept_where_no_client_was_sent_away_or_long_after(world: World) -> None:
    world.late.keep("B", b"_INBOX.x.1", b"", b"0")
    world.late.keep("A", b"$JS.EVENT.ADVISORY.x", b"", b"0")
    assert len(world.late) == 0
    world.now_ms += EXPECT_MS
    world.late.keep("A", b"_INBOX.x.1", b"", b"0")
    assert len(world.late) == 0
    world.late.expect("A")
    world.late.keep("A", b"_INBOX.x.1", b"", b"0")
    assert len(world.late) == 1


def test_what_is_kept_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_answers, "ANSWERS_MAX", 2)
    for number in range(3):
        world.late.keep("A", b"_INBOX.x.1", b"", b"%d" % number)
    assert (len(world.late), world.late.dropped) == (2, 1)
    monkeypatch.setattr(late_answers, "BYTES_MAX", 24)
    world.listening.add(b"_INBOX.x.1")
    assert world.step() == [b"0", b"1"]
    world.late.keep("A", b"_INBOX.x.1", b"", b"x" * 14)
    world.late.keep("A", b"_INBOX.x.1", b"", b"y")
    assert (len(world.late), world.late.dropped) == (1, 2)


async def test_the_router_sends_what_is_kept_before_what_comes(brokers: Any) -> None:
    """The client subscribes between two steps: its next answer finds it, and older ones stand before that."""
    (broker,) = await brokers.start()
    router = broker.router
    router.late_answers.expect("$G")
    client = await brokers.client(broker)
    for inbox in ("_INBOX.x.1", "_INBOX.y.1"):
        router.publish("$G", inbox.encode(), b"", b"", b"0")
        router.publish_many("$G", [(inbox.encode(), b"1")])
    assert len(router.late_answers) == 4
    one, many = await client.subscribe("_INBOX.x.1"), await client.subscribe("_INBOX.y.1")
    await client.flush()
    router.publish("$G", b"_INBOX.x.1", b"", b"", b"2")
    router.publish_many("$G", [(b"_INBOX.y.1", b"2")])
    for subscription in (one, many):
        assert [(await subscription.next_msg(timeout=30)).data for _ in range(3)] == [b"0", b"1", b"2"]
    assert len(router.late_answers) == 0
