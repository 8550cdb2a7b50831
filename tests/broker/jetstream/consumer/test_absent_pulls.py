"""Pulls of clients that are between two connections: they wait for their clients, and are given nothing meanwhile."""

from __future__ import annotations

import json

import pytest
from tests.broker.jetstream.consumer.consumer_story import MS, SECOND, Source, Story

from supercluster.broker.jetstream.consumer.absent_pulls import GRACE_NS, LOOK_NS

pytestmark = pytest.mark.covers("MV-10", "BG-5")


def waiting(**config: object) -> Story:
    """One pull of three messages waits for sixty seconds."""
    story = Story(Source(), ack_policy="explicit", **config)
    assert story.ask(batch=3, expires=60 * SECOND) == []
    return story


def test_a_pull_waits_for_a_client_that_reconnects_and_is_served_once() -> None:
    story = waiting()
    story.gone.add(b"in")
    story.source.store("s.a")
    assert story.at(SECOND).pump() == []
    assert story.committed.delivered_cseq == 0, "nothing is given to nobody"
    assert story.leader.num_waiting == 0
    story.gone.clear()
    assert story.at(2 * SECOND).pump() == ["in<s.a 1.1.1.0"]
    story.source.store("s.b")
    story.source.store("s.c")
    assert story.pump() == ["in<s.b 1.2.2.1", "in<s.c 1.3.3.0"]
    story.source.store("s.d")
    assert story.pump() == [], "it has got what it asked for"


def test_a_pull_whose_client_is_not_heard_of_yet_waits_for_it() -> None:
    """Its request may come over another link than the word of its subscription."""
    story = Story(Source(), ack_policy="explicit")
    story.source.store("s.a")
    story.gone.add(b"in")
    assert story.ask(batch=1, expires=5 * SECOND) == []
    story.gone.clear()
    assert story.leader.next_deadline_ns() == LOOK_NS
    assert story.at(LOOK_NS).pump() == ["in<s.a 1.1.1.0"]


def test_nobody_is_waited_for_for_longer_than_five_seconds() -> None:
    story = waiting()
    story.gone.add(b"in")
    looked: list[int] = []
    at_ns: int | None = story.now_ns
    story.pump()
    while (at_ns := story.leader.next_deadline_ns()) is not None and at_ns <= GRACE_NS:
        looked.append(at_ns // MS)
        story.at(at_ns).pump()
    assert looked == [50, 150, 350, 750, 1550, 3150, 5000]
    story.gone.clear()
    story.source.store("s.a")
    assert story.pump() == []


def test_what_is_due_for_redelivery_does_not_wake_a_consumer_whose_clients_are_away() -> None:
    story = waiting(ack_wait=SECOND)
    story.source.store("s.a")
    assert len(story.pump()) == 1
    story.commit()
    story.gone.add(b"in")
    story.at(2 * SECOND).pump()
    assert story.leader.next_deadline_ns() == 2 * SECOND + LOOK_NS
    story.gone.clear()
    assert story.at(3 * SECOND).pump() == ["in<s.a 2.1.2.0"]


def test_one_that_asks_for_what_is_there_now_waits_for_nobody() -> None:
    story = Story(Source(), ack_policy="explicit")
    story.gone.add(b"in")
    assert story.ask(batch=1, no_wait=True) == []
    assert story.leader.next_deadline_ns() is None


def test_a_pull_without_its_client_takes_no_other_ones_place() -> None:
    story = waiting(max_waiting=1)
    story.gone.add(b"in")
    assert story.ask("other", batch=1, expires=SECOND) == []
    assert story.ask("third", batch=1, expires=SECOND) == ["third<409 Exceeded MaxWaiting"]
    assert story.leader.num_waiting == 1


def test_a_client_that_is_back_hears_that_the_time_of_its_pull_is_over() -> None:
    story = Story(Source(), ack_policy="explicit")
    assert story.ask(batch=1, expires=2 * SECOND) == []
    story.gone.add(b"in")
    assert story.at(SECOND).pump() == []
    assert story.at(3 * SECOND).pump() == []
    story.gone.clear()
    (said,) = story.pump()
    assert said.startswith("in<408 Request Timeout")


def test_a_deposed_leader_gives_back_the_pulls_of_clients_that_are_away() -> None:
    story = Story(Source(), ack_policy="explicit")
    given: list[bytes] = []
    story.leader.on_pull(b'{"batch":3,"expires":60000000000}', b"in", 0, story.has_interest, given.append)
    story.gone.add(b"in")
    story.pump()
    assert story.leader.give_back(SECOND) == []
    assert [json.loads(rest)["batch"] for rest in given] == [3]
    assert story.leader.give_back(SECOND) == []
    assert len(given) == 1
