"""Leaders that step down because a client asks, with whole brokers in virtual time: what other clients see of it is a delay."""

from __future__ import annotations

import json
from functools import partial
from itertools import count
from typing import Any

import pytest
from tests.simulator.publishers import SimPublisher
from tests.simulator.world import World

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.ports import ClientInfo

OPERATOR = ClientInfo("$G", "operator", is_operator=True)
CLIENT = ClientInfo("$G", "client", is_operator=False)


COUNT = 40


class Story:
    """Three brokers and a stream S on all of them."""

    def __init__(self, seed: int = 3) -> None:
        self.world = World(seed)
        self._numbers = count(1)
        for name in self.world.names:
            self.world.start(name)
        assert self.world.run_until(lambda: all(core.accepts_clients for core in self.cores), 5000)
        self.ok("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 3})

    @property
    def cores(self) -> list[BrokerCore]:
        return [node.core for node in self.world.nodes.values() if node.core is not None]

    def leader(self, group: str) -> BrokerCore:
        def find() -> list[BrokerCore]:
            return [core for core in self.cores for g in core.groups.values() if g.id == group and g.serves]

        assert self.world.run_until(lambda: bool(find()), 10_000), f"nobody leads {group}"
        return find()[0]

    @property
    def group(self) -> str:
        meta = self.cores[0].meta
        assert meta is not None
        return meta.state.streams["$G", "S"].group

    def publish(self, payload: bytes) -> None:
        core, publisher = self.cores[0], SimPublisher("p", "plain", "S", self.cores[0].node, 1, 1.0)
        window = core.capture("$G", b"s")
        assert window is not None
        assert window.take(publisher, b"s", b"", b"", payload)
        self.world.want_turn(core.node)

    def send(
        self, subject: str, payload: bytes, *, at: int = 0, info: ClientInfo = OPERATOR
    ) -> list[tuple[bytes, bytes]]:
        """What comes as an answer: header and payload."""
        reply, answers = f"_R.{next(self._numbers)}".encode(), list[tuple[bytes, bytes]]()
        self.world.on_reply(reply, lambda header, payload: answers.append((header, payload)))
        core = self.cores[at]
        core.on_api(info, subject.encode(), reply, b"", payload)
        self.world.want_turn(core.node)
        return answers

    def ask(self, call: str, body: Any = None, *, at: int = 0, info: ClientInfo = OPERATOR) -> dict[str, Any]:
        payload = json.dumps(body).encode() if body is not None else b""
        answers = self.send(f"$JS.API.{call}", payload, at=at, info=info)
        assert self.world.run_until(partial(bool, answers), 10_000), f"{call} was not answered"
        found: dict[str, Any] = json.loads(answers[0][1])
        return found

    def ok(self, call: str, body: Any = None, *, at: int = 0) -> dict[str, Any]:
        found = self.ask(call, body, at=at)
        assert "error" not in found, found
        return found


@pytest.mark.covers("MV-5")
def test_the_leader_of_the_map_steps_down_for_the_operator_alone() -> None:
    story = Story()
    before = story.leader(META_GROUP).node
    refused = story.ask("META.LEADER.STEPDOWN", info=CLIENT)
    assert refused["error"]["err_code"] == 19002
    assert story.leader(META_GROUP).node == before
    other = next(name for name in story.world.names if name != before)
    story.ok("META.LEADER.STEPDOWN", {"placement": {"preferred": other}})
    assert story.world.run_until(lambda: story.leader(META_GROUP).node == other, 5000)
    unknown = story.ask("META.LEADER.STEPDOWN", {"placement": {"preferred": "nobody"}})
    assert unknown["error"]["err_code"] == 10005


@pytest.mark.covers("MV-5")
def test_a_stream_is_led_next_by_whoever_has_the_tags_that_are_asked_for() -> None:
    story = Story()
    before = story.leader(story.group).node
    chosen = next(core for core in story.cores if core.node != before)
    chosen.neighbours.change_tags(("ssd", "zone:a"))
    story.world.run_until(lambda: False, 200)
    for placement, told in (
        ({"tags": ["tape"]}, "a broker with tape is no other voter"),
        ({"tags": ["ssd"], "cluster": "nowhere"}, "a broker of nowhere with ssd is no other voter"),
        ({"tags": ["ssd"], "preferred": before}, f"{before} with ssd is no other voter"),
    ):
        refused = story.ask("STREAM.LEADER.STEPDOWN.S", {"placement": placement})["error"]
        assert refused["err_code"] == 10005
        assert told in refused["description"]
    assert story.leader(story.group).node == before
    story.ok("STREAM.LEADER.STEPDOWN.S", {"placement": {"tags": ["ssd"]}})
    assert story.world.run_until(lambda: story.leader(story.group).node == chosen.node, 5000)


@pytest.mark.covers("MV-5", "SF-14")
@pytest.mark.parametrize("call", ["STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.NONE"])
def test_what_depends_on_the_map_is_answered_by_the_next_leader_of_it(call: str) -> None:
    """Nobody's map is fresh between two leaders: clients were told at once that JetStream is not available."""
    story = Story()
    for at in range(3):
        answers = story.send("$JS.API.META.LEADER.STEPDOWN", b"")
        assert story.world.run_until(partial(bool, answers), 5000)
        story.world.run_until(lambda at=at: not story.cores[at].map.is_fresh, 1000)  # type: ignore[misc]
        found = story.ask(call, at=at)
        if call == "STREAM.INFO.NONE":
            assert found["error"]["err_code"] == 10059
        else:
            assert found["total"] == 1, found


@pytest.mark.covers("MV-5", "MV-10", "SF-2")
def test_every_acknowledgement_is_confirmed_while_leaders_step_down() -> None:
    """They were lost with a leader, or where none was known, and clients send them once."""
    story = Story()
    story.ok(
        "CONSUMER.DURABLE.CREATE.S.c",
        {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}},
    )
    for number in range(COUNT):
        story.publish(b"p/0:%d" % number)
    asked = b'{"batch": 1, "expires": 5000000000}'
    replies: list[bytes] = []
    story.world.on_inbox(b"_I.c", lambda items: replies.extend(reply for _, reply, _, _ in items))
    for number in range(COUNT):
        replies.clear()
        core = story.cores[number % 3]
        core.on_api(CLIENT, b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"_I.c", b"", asked)
        story.world.want_turn(core.node)
        assert story.world.run_until(partial(bool, replies), 5000), f"number {number} is not delivered"
        story.send("$JS.API.STREAM.LEADER.STEPDOWN.S", b"", at=(number + 1) % 3)
        story.world.run_until(lambda: False, number % 5)
        answers = story.send(replies[0].decode(), b"+ACK", at=number % 3, info=CLIENT)
        assert story.world.run_until(partial(bool, answers), 8000), f"number {number} is not confirmed"
        assert answers == [(b"", b"")], "it is confirmed, not refused"
        assert story.ok("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"] == number + 1
