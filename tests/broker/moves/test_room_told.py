"""What the operator is told of room and sizes, so that it can judge as placement does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.broker.moves.world import ACCOUNT, STREAM, MoveWorld
from tests.simulator.consumers import INFO

from supercluster.broker.jetstream.core.broker import BrokerCore


def brokers(world: MoveWorld) -> tuple[BrokerCore, dict[str, dict[str, Any]]]:
    """The map's leader, and what it says of all brokers."""
    leader = world.meta_leader()
    assert leader is not None
    answers: list[tuple[int, Any]] = []
    leader.calls.broker("GET", "", lambda status, told: answers.append((status, told)))
    ((status, told),) = answers
    assert (status, told["knowsRoom"]) == (200, True)
    return leader, {entry["node"]: entry for entry in told["brokers"]}


@pytest.mark.covers("MR-5")
def test_room_is_told_less_what_copies_on_their_way_will_take_for_each_kind_of_storage() -> None:
    world = MoveWorld(1, east=3, west=3, meta=1)
    world.begin()
    world.create("east")
    load = world.load("east-0", gap_ms=0.5)
    world.run_ms(300)
    load.runs = False
    world.run_ms(2_000)
    leader, before = brokers(world)
    room = leader.neighbours.room_of("west-0")
    assert room is not None
    assert (before["west-0"]["roomBytes"], before["west-0"]["memoryRoomBytes"]) == (
        room.file_bytes,
        room.memory_bytes,
    )
    body = {"placement": {"cluster": "west"}, "bytesPerS": 1_000, "id": "m1"}
    status, told = world.call(lambda core, then: core.calls.move("POST", ACCOUNT, STREAM, body, then))
    assert status < 300, told
    world.run_ms(500)
    leader, after = brokers(world)
    assert leader.meta is not None
    reserved = leader.meta.candidates.facts("file")["west-0"].reserved_bytes
    room = leader.neighbours.room_of("west-0")
    assert room is not None
    assert reserved > 0
    assert after["west-0"]["roomBytes"] == room.file_bytes - reserved
    assert after["west-0"]["memoryRoomBytes"] == room.memory_bytes


@pytest.mark.covers("MR-5")
def test_the_size_of_a_copy_is_told_to_an_operator_who_asks_for_details_only() -> None:
    world = MoveWorld(1, east=3, meta=1)
    world.begin()
    world.create("east")
    load = world.load("east-0")
    world.run_ms(2_000)
    load.runs = False
    world.run_ms(2_000)
    operator, details = replace(INFO, is_operator=True), {"supercluster_details": True}
    for info, question in ((INFO, None), (INFO, details), (operator, None)):
        plain = world.api("east-0", f"$JS.API.STREAM.INFO.{STREAM}", question, info)
        assert plain["state"]["messages"] > 0
        assert "copy_bytes" not in plain
    told = world.api("east-0", f"$JS.API.STREAM.INFO.{STREAM}", details, operator)
    assert told["copy_bytes"] > told["state"]["bytes"]
    listed = world.api("east-1", "$JS.API.STREAM.LIST", details, operator)
    assert listed["streams"][0]["copy_bytes"] == told["copy_bytes"]
