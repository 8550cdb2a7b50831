"""Consumers are in the stream's log, so they move with it; and who is fetching goes on at the new leader."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.broker.moves.world import STREAM, MoveWorld
from tests.simulator.consumers import INFO

from supercluster.broker.jetstream.node.copy_rules import Copy, Hold

WEST = ("west-0", "west-1", "west-2")


class Client:
    """Pulls at one broker, and keeps what it gets."""

    def __init__(self, world: MoveWorld, node: str) -> None:
        self.world = world
        self.node = node
        self.payloads: list[bytes] = []
        self.replies: list[bytes] = []
        self.statuses: list[bytes] = []
        world.on_inbox(b"_I.fetch", self._deliver)

    def _deliver(self, items: Any) -> None:
        for _, reply, header, payload in items:
            if reply:
                self.payloads.append(bytes(payload))
                self.replies.append(reply)
            else:
                self.statuses.append(bytes(header))

    def pull(self, batch: int, expires_s: int) -> None:
        body = json.dumps({"batch": batch, "expires": expires_s * 1_000_000_000}).encode()
        self._send(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.worker".encode(), b"_I.fetch", body)

    def ack(self, first: int, end: int) -> None:
        for reply in self.replies[first:end]:
            self._send(reply, b"", b"+ACK")

    def _send(self, subject: bytes, reply: bytes, body: bytes) -> None:
        core = self.world.nodes[self.node].core
        assert core is not None
        core.on_api(INFO, subject, reply, b"", body)
        self.world.want_turn(self.node)


def begin(node: str) -> tuple[MoveWorld, Client]:
    world = MoveWorld(3, east=3, west=3)
    world.begin()
    world.create("east")
    config = {
        "durable_name": "worker",
        "ack_policy": "explicit",
        "ack_wait": 60_000_000_000,
        "max_deliver": 5,
    }
    subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.worker"
    answer = world.api("east-1", subject, {"stream_name": STREAM, "config": config})
    assert "error" not in answer
    return world, Client(world, node)


def publish(world: MoveWorld, count: int) -> list[bytes]:
    load = world.load("west-2", "acked", 0.5)
    assert world.run_until(lambda: load.sent >= count, 5000)
    load.runs = False
    assert world.run_until(lambda: not load.waiting, 5000)
    world.run_ms(100)
    return [load.payload(number) for number in range(load.sent)]


@pytest.mark.covers("MV-10")
@pytest.mark.parametrize("node", ["east-0", "meta-0", "west-1"])
def test_a_fetch_that_waits_gets_its_messages_from_the_new_leader(node: str) -> None:
    world, client = begin(node)
    first = publish(world, 4)
    client.pull(len(first) + 6, expires_s=60)
    world.run_ms(200)
    assert client.payloads == first, "it has a part of what it asked for, and waits for the rest"
    world.move(WEST)
    world.until("ended done")
    second = publish(world, 20)
    assert client.payloads == first + second[:6], "neither fewer nor more than it asked for"
    assert client.statuses == []


@pytest.mark.covers("MV-10")
def test_positions_pending_and_redelivery_counts_survive_a_move() -> None:
    world, client = begin("meta-0")
    payloads = publish(world, 10)
    client.pull(8, expires_s=1)
    world.run_ms(500)
    client.ack(0, 3)
    world.run_ms(500)
    world.move(WEST)
    world.until("ended done")
    world.run_ms(200)
    info = world.api("east-2", f"$JS.API.CONSUMER.INFO.{STREAM}.worker", None)
    assert info["delivered"]["stream_seq"] == 8
    assert info["ack_floor"]["stream_seq"] == 3
    assert info["num_ack_pending"] == 5
    assert info["num_pending"] == len(payloads) - 8
    client.pull(len(payloads), expires_s=90)
    world.run_ms(500)
    client.ack(8, len(client.replies))
    world.run_ms(61_000)
    again = client.payloads[8:]
    assert again[: len(payloads) - 8] == payloads[8:]
    assert sorted(again[len(payloads) - 8 :]) == sorted(payloads[3:8]), (
        "what was not acknowledged comes again"
    )
    assert all(reply.split(b".")[4] == b"2" for reply in client.replies[-5:]), "as the second delivery"


@pytest.mark.covers("MV-7", "MV-13")
def test_stream_info_shows_the_move_and_learners_as_observers() -> None:
    world = MoveWorld(1, east=3, west=3)
    world.begin()
    world.create("east")
    world.load("east-0", "acked", 5)
    world.run_ms(2000)
    world.move(WEST, bytes_per_s=200_000)
    leader = world.leader()
    assert leader is not None
    assert world.run_until(lambda: len(leader.raft.membership.learners) == 3, 5000)
    info = world.api("west-0", f"$JS.API.STREAM.INFO.{STREAM}", {"supercluster_details": True})
    assert info["move"]["stage"] in ("learning", "tail")
    assert info["move"]["bytes_left"] > 0
    assert info["move"]["lag"] > 0
    assert sorted(target.partition("@")[0] for target in info["move"]["targets"]) == list(WEST)
    observers = {replica["name"] for replica in info["cluster"]["replicas"] if replica.get("observer")}
    assert observers == set(WEST)
    assert "move" not in world.api("west-0", f"$JS.API.STREAM.INFO.{STREAM}", None)
    world.until("ended done")
    world.run_ms(200)
    info = world.api("west-0", f"$JS.API.STREAM.INFO.{STREAM}", {"supercluster_details": True})
    assert "move" not in info
    assert {info["cluster"]["leader"], *(r["name"] for r in info["cluster"]["replicas"])} == set(WEST)


@pytest.mark.covers("MV-10")
def test_a_fetch_that_waits_at_a_leader_whose_copy_is_put_away_goes_on_at_the_next_one() -> None:
    """The map can show that a move is over before the leader of before has noticed that it is none any more."""
    world, client = begin("meta-0")
    client.pull(10, expires_s=60)
    world.run_ms(100)
    leader = world.leader()
    assert leader is not None
    core = world.nodes[world.leader_node()].core
    assert core is not None
    core.copy_manager._put_away(world.assignment(), Copy(Hold.RETIRED, until_ns=1 << 62))
    assert world.run_until(lambda: world.leader() not in (None, leader), 5000)
    published = publish(world, 6)
    assert client.payloads == published[:10]
    assert client.statuses == []
