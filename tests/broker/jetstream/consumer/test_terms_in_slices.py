"""A term of leadership begins and ends in slices, however many consumers a stream has: nobody is served before all of them are
begun, and each waiting pull goes to the next leader once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks.one_broker import CallMeter, OneBroker

from supercluster.broker.jetstream.consumer import leaders
from supercluster.broker.jetstream.consumer.leader import ConsumerLeader
from supercluster.broker.jetstream.consumer.pull import Delivery
from supercluster.broker.jetstream.stream.replica import StreamReplica

pytestmark = pytest.mark.covers("SF-29")
CONSUMERS = 30


class Story:
    def __init__(self, directory: Path) -> None:
        self.broker = OneBroker(directory, CallMeter())
        self.broker.core.copies.slices.units_per_turn = 1
        for name in ("S", "other"):
            self.broker.create(name)
        for name in self.names:
            config = {"durable_name": name, "ack_policy": "explicit", "filter_subject": f"S.{name}"}
            self.broker.call(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
        self.broker.pull_all("S", self.names, 2)

    @property
    def names(self) -> list[str]:
        return [f"c{number}" for number in range(CONSUMERS)]

    @property
    def group(self) -> StreamReplica:
        return self.broker.stream("S")

    def deposed(self) -> None:
        self.group.leave_office()
        self.broker.core.copies.touch(self.group.id)

    def begun(self) -> int:
        return sum(self.group.consumers.get(name) is not None for name in self.names)

    def delivered(self) -> int:
        """How many messages all of them get for one each that is published."""
        before = self.broker.network.delivered
        self.broker.publish([f"S.{name}".encode() for name in self.names])
        return self.broker.network.delivered - before


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    monkeypatch.setattr(leaders, "SLICE_UNITS", 2 * leaders.CONSUMER_UNITS)
    return Story(tmp_path)


@pytest.mark.covers("SF-12")
def test_nobody_is_served_before_all_consumers_are_begun(story: Story) -> None:
    story.broker.step(story.deposed)
    begun = []
    while not story.group.serves:
        begun.append(story.begun())
        story.broker.step()
    steps = [after - before for before, after in pairwise(begun)]
    assert len(begun) > CONSUMERS // 3
    assert max(steps) <= 2, "consumers begun in a turn"
    assert story.begun() == CONSUMERS
    story.broker.settle()
    assert story.delivered() == CONSUMERS, "every waiting pull came over, once"
    assert story.delivered() == CONSUMERS
    assert story.delivered() == 0, "they asked for two"


def test_a_leader_that_is_deposed_before_it_serves_leaves_nothing(story: Story) -> None:
    story.broker.step(story.deposed)
    story.broker.step()
    assert 0 < story.begun() < CONSUMERS
    story.group.leave_office()
    assert story.begun() == 0
    story.broker.step(story.deposed)
    story.broker.until(lambda: story.group.serves)
    story.broker.settle()
    assert story.delivered() == CONSUMERS


def test_other_streams_are_served_while_it_begins(story: Story) -> None:
    story.broker.step(story.deposed)
    story.broker.publish([b"other.x"])
    assert story.broker.stream("other").state.messages == 1


def test_pulls_of_a_group_that_goes_are_given_back_at_once(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[str] = []

    def gives_back(leader: ConsumerLeader, *arguments: object) -> list[Delivery]:
        given_back.append(leader.state.name)
        return []

    monkeypatch.setattr(ConsumerLeader, "give_back", gives_back)
    story.group.leave_office()
    assert 0 < len(given_back) < CONSUMERS
    story.broker.core.copies.slices.end(story.group)
    assert sorted(given_back) == sorted(story.names)
