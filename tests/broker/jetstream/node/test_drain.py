"""Before a restart: leaderships go to others and stay there for the time being, told with whole brokers in virtual time."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from tests.simulator.world import World

from supercluster.broker.jetstream.admin.restart import MAP_OF_STREAMS
from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.ports import ClientInfo

STREAMS = 6


class Story:
    """Three brokers with some streams on all of them; `preferred` has a preferred leader."""

    def __init__(self, streams: int = STREAMS, preferred: str = "") -> None:
        self.world = World(3)
        for name in self.world.names:
            self.world.start(name)
        assert self.world.run_until(lambda: all(core.accepts_clients for core in self.cores), 5000)
        metadata = {"supercluster.dev/preferred-leader": preferred} if preferred else {}
        for number in range(streams):
            name = f"S{number}"
            config = {"name": name, "subjects": [name], "num_replicas": 3, "metadata": metadata}
            self._create(config)
        assert self.world.run_until(self.is_whole, 10_000)

    def _create(self, config: dict[str, Any]) -> None:
        reply, answers = f"_R.{config['name']}".encode(), list[bytes]()
        self.world.on_reply(reply, lambda header, payload: answers.append(payload))
        info = ClientInfo("$G", "operator", is_operator=True)
        subject = f"$JS.API.STREAM.CREATE.{config['name']}".encode()
        self.cores[0].on_api(info, subject, reply, b"", json.dumps(config).encode())
        self.world.want_turn(self.cores[0].node)
        assert self.world.run_until(partial(bool, answers), 10_000)

    @property
    def cores(self) -> list[BrokerCore]:
        return [node.core for node in self.world.nodes.values() if node.core is not None]

    def core(self, name: str) -> BrokerCore:
        return next(core for core in self.cores if core.node == name)

    def ask(self, name: str, method: str = "GET", body: object = None) -> tuple[int, Any]:
        answers: list[tuple[int, Any]] = []
        self.core(name).calls.restart(method, body, lambda *told: answers.append(told))
        self.world.want_turn(name)
        return answers[0]

    def told(self, name: str) -> Any:
        return self.ask(name)[1]

    def led(self) -> dict[str, int]:
        return {core.node: self.told(core.node)["leads"] for core in self.cores}

    def is_whole(self) -> bool:
        """Every group has a leader, and everybody has what is committed."""
        told = [self.told(core.node) for core in self.cores]
        groups = {group for core in self.cores for group in core.groups}
        return sum(t["leads"] for t in told) == len(groups) and not any(
            t["behind"] or t["leaderless"] for t in told
        )

    def run(self, ms: int) -> None:
        self.world.run_until(lambda: False, ms)  # Nothing ends it but the time.


@pytest.mark.covers("OP-3", "MV-5")
def test_a_broker_that_steps_aside_leads_nothing_and_gets_nothing_back() -> None:
    story = Story()
    first = next(core.node for core in story.cores if core.groups[META_GROUP].serves)
    others = [core.node for core in story.cores if core.node != first]
    status, told = story.ask(first, "POST")
    assert (status, told["stepsAside"]) == (202, True)
    assert story.world.run_until(lambda: story.led()[first] == 0 and story.is_whole(), 5000)
    assert story.told(first)["movable"] == 0
    assert not story.core(first).groups[META_GROUP].serves, "the map of streams is led by another broker too"
    for other in others:
        assert story.ask(other, "POST")[0] == 202
        assert story.ask(other, "DELETE")[1]["stepsAside"] is False
        story.run(1000)
        assert story.led()[first] == 0


@pytest.mark.covers("OP-3")
def test_leaderships_go_to_brokers_that_need_no_restart_and_not_all_to_one() -> None:
    story = Story(streams=9)
    one, two, three = (core.node for core in story.cores)
    story.ask(two, "POST")
    assert story.world.run_until(lambda: story.led()[two] == 0 and story.is_whole(), 5000)
    story.ask(two, "DELETE")
    story.run(500)
    left = story.led()[three]
    story.ask(one, "POST", {"avoid": [three]})
    assert story.world.run_until(lambda: story.led()[one] == 0 and story.is_whole(), 5000)
    assert story.led()[three] == left, "a broker that is to be restarted itself gets none"
    story.ask(one, "DELETE")
    story.run(500)
    story.ask(three, "POST", {"avoid": [one, two]})
    assert story.world.run_until(lambda: story.led()[three] == 0 and story.is_whole(), 5000)
    led = story.led()
    assert sum(led.values()) == 10
    assert led[one] >= left // 2, "they are shared out among all where nobody else is left"


@pytest.mark.covers("OP-3")
def test_a_preferred_leader_that_is_about_to_be_restarted_is_not_preferred() -> None:
    story = Story(streams=3, preferred="n1")
    assert story.world.run_until(lambda: story.led()["n1"] >= 3 and story.is_whole(), 10_000)
    story.ask("n1", "POST", {"holdMs": 8000})
    assert story.world.run_until(lambda: story.led()["n1"] == 0 and story.is_whole(), 5000)
    terms = {gid: group.raft.term for gid, group in story.core("n1").groups.items()}
    story.run(5000)
    assert {gid: group.raft.term for gid, group in story.core("n1").groups.items()} == terms
    story.run(4000)
    assert story.world.run_until(lambda: story.led()["n1"] >= 3, 10_000), "whoever asked was killed"


@pytest.mark.covers("OP-3")
def test_what_cannot_be_led_elsewhere_is_told_and_is_not_waited_for() -> None:
    story = Story(streams=2)
    story.world.stop("n1", power=False)
    story.world.stop("n2", power=False)
    story.run(1000)
    told = story.told("n0")
    assert told["movable"] == 0
    held = {entry["name"] for entry in (*told["behind"], *told["leaderless"])}
    assert {"S0", "S1", MAP_OF_STREAMS} <= held
    assert all(set(entry["members"]) == {"n0", "n1", "n2"} for entry in told["behind"])


@pytest.mark.covers("OP-3")
def test_a_voter_of_the_map_that_is_behind_is_told() -> None:
    story = Story(streams=1)
    leader = next(core.node for core in story.cores if core.groups[META_GROUP].serves)
    away = next(core.node for core in story.cores if core.node != leader)
    story.world.stop(away, power=False)
    assert story.world.run_until(
        lambda: any(entry["name"] == MAP_OF_STREAMS for entry in story.told(leader)["behind"]), 5000
    )
    (entry,) = (e for e in story.told(leader)["behind"] if e["name"] == MAP_OF_STREAMS)
    assert entry["brokers"] == [away]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"holdMs": 0}, "holdMs"),
        ({"holdMs": True}, "holdMs"),
        ({"avoid": "n1"}, "avoid"),
        ({"avoid": [1]}, "avoid"),
        ({"other": 1}, "holdMs and avoid"),
        ([], "an object"),
    ],
)
def test_a_wrong_body_is_refused_with_the_field(body: object, field: str) -> None:
    story = Story(streams=0)
    status, told = story.ask("n0", "POST", body)
    assert status == 400
    assert field in told["error"]
    assert story.told("n0")["stepsAside"] is False


@pytest.mark.covers("MV-10")
def test_pulls_end_with_a_broker_that_stops_only_where_no_other_one_takes_them_over() -> None:
    story = Story(streams=1)
    info = ClientInfo("$G", "u", is_operator=False)

    def call(subject: bytes, body: dict[str, Any], reply: bytes) -> None:
        story.cores[0].on_api(info, subject, reply, b"", json.dumps(body).encode())
        story.world.want_turn("n0")

    config = {"durable_name": "c", "ack_policy": "explicit"}
    call(b"$JS.API.CONSUMER.DURABLE.CREATE.S0.c", {"stream_name": "S0", "config": config}, b"_R.c")
    story.run(500)
    said: list[bytes] = []
    story.world.on_inbox(b"_I", lambda items: said.extend(item[2] for item in items))
    call(b"$JS.API.CONSUMER.MSG.NEXT.S0.c", {"batch": 1, "expires": 60 * 10**9}, b"_I")
    story.run(500)
    (leader,) = (core for core in story.cores for copy in core.copies.streams.values() if copy.replica.serves)
    leader.drain.end_pulls()
    assert said == [], "another broker will lead, and the pull goes on there"
    for node in list(leader.peers.linked):
        leader.on_link_down(node)
    leader.drain.end_pulls()
    story.run(500)
    assert [header.split(b"\r\n")[0] for header in said] == [b"NATS/1.0 409 Server Shutdown"]
