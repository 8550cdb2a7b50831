"""Replicas beyond a stream's count as whole rounds: added and taken away by people, and by a policy that says so (MR-3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_repair_rounds import FIVE, SC, SELECTOR, Repairing
from tests.reconcilers.handlers.test_rounds import NS, STREAM

from supercluster.reconcilers.ports import Key

FOUR = FIVE[:4]


class Extra(Repairing):
    """The same, and what people do by name."""

    def ask(self, verb: str, *brokers: str, name: str = "by-hand") -> None:
        self.declare(
            "StreamMove", name, superCluster="demo", streamRef="flights", members={verb: list(brokers)}
        )

    def move(self, name: str = "by-hand") -> Mapping[str, Any]:
        return self.status(Key("StreamMove", NS, name))

    def trims(self) -> dict[str, Mapping[str, Any]]:
        return {
            name: body
            for (kind, _, name), body in self.kube.objects.items()
            if kind == "StreamMove" and "-trim-" in name
        }

    @property
    def held(self) -> list[str]:
        return sorted(self.brokers.held("flights"))


@pytest.fixture
async def world() -> Extra:
    world = Extra()
    await world.converge()
    return world


async def add(world: Extra, broker: str = "east-3") -> None:
    world.ask("add", broker)
    await world.converge()
    world.finish()
    await world.converge()
    assert world.move()["phase"] == "Succeeded"


@pytest.mark.covers("MR-3", "MR-1")
async def test_a_replica_that_a_person_adds_by_name_stays_and_the_count_is_what_it_was(world: Extra) -> None:
    world.ask("add", "east-3")
    await world.converge()
    assert (world.move()["phase"], world.move()["destination"]) == ("Running", "a replica more on east-3")
    synced = condition(world.status(STREAM), "Synced")
    assert (synced["reason"], "brings the stream to a replica more" in synced["message"]) == ("Scaling", True)
    world.finish()
    await world.converge()
    for _ in range(3):
        await world.wait(60)
    assert world.held == FOUR
    assert world.brokers.streams["flights"]["num_replicas"] == 3
    assert (world.replication["usable"], world.replication["extra"]) == (4, 1)
    assert condition(world.status(STREAM), "Whole")["message"].endswith("4 of 4 replicas current")
    assert len(world.brokers.moves.started) == 1, "it is left alone"
    assert condition(world.status(STREAM), "Synced")["status"] == "True"


@pytest.mark.covers("MR-6", "MR-3")
@pytest.mark.parametrize("first", ["the repair", "the person"])
async def test_two_a_person_adds_one_by_name_at_the_same_time_and_both_stay(world: Extra, first: str) -> None:
    world.lose("east-2")
    if first == "the person":
        await world.wait(50)
        world.ask("add", "east-3")
        await world.converge()
        await world.wait(20)
        assert world.repairs() == {}, "one at a time"
        world.finish()
        await world.wait(10)
    else:
        await world.wait(65)
        world.ask("add", "east-4")
        await world.converge()
        assert condition(world.move(), "Progressing")["reason"] == "OtherMoveRunning"
        world.finish()
        await world.wait(5)
    world.finish()
    await world.wait(10)
    assert world.held == ["east-0", "east-1", "east-3", "east-4"]
    await world.wait(120)
    assert len(world.brokers.moves.started) == 2, "future checks discover that no action is necessary"
    assert world.replication["usable"] == 4


@pytest.mark.covers("MR-3")
async def test_a_persons_removal_by_name_is_left_alone_above_the_minimum_and_refused_below(
    world: Extra,
) -> None:
    await add(world)
    world.ask("remove", "east-1", name="one")
    await world.converge()
    world.finish()
    await world.converge()
    assert (world.move("one")["phase"], world.held) == ("Succeeded", ["east-0", "east-2", "east-3"])
    world.ask("remove", "east-2", name="two")
    await world.converge()
    told = condition(world.move("two"), "Accepted")
    assert (world.move("two")["phase"], told["reason"]) == ("Refused", "BelowMinimum")
    assert "would leave 2 replicas, and ReplicaPolicy keep keeps at least 3" in told["message"]
    world.change("Stream", "flights", lambda body: body["spec"].update(minReplicas=1))
    world.ask("remove", "east-2", name="three")
    await world.converge()
    told = condition(world.move("three"), "Accepted")
    assert "the stream's count is 3: only those beyond the count go by name" in told["message"]
    assert len(world.brokers.moves.started) == 2


@pytest.mark.covers("MR-3")
async def test_a_policy_may_have_those_beyond_the_target_taken_away(world: Extra) -> None:
    await add(world)
    await world.wait(60)
    assert world.trims() == {}
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(autoRemove="BeyondTarget"))
    await world.wait(10)
    (trim,) = world.trims().values()
    assert trim["spec"]["members"]["remove"] == ["east-3"]
    assert "4 replicas, and the count is 3 (autoRemove BeyondTarget)" in trim["spec"]["members"]["reason"]
    assert "ExtraReplicas" in world.told()
    world.finish()
    await world.wait(10)
    assert world.held == FIVE[:3]
    await world.wait(120)
    assert [body["status"]["phase"] for body in world.trims().values()] == ["Succeeded"]
    assert "repair" not in world.status(SC)


@pytest.mark.covers("MR-3", "MR-7")
async def test_what_waits_to_be_taken_away_stays_when_another_replica_may_be_lost(world: Extra) -> None:
    await add(world)
    world.brokers.moves.running["other"] = {"id": "x", "nodes": ["east-0"], "startedNs": 1}
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(autoRemove="BeyondTarget"))
    await world.wait(10)
    assert [body["status"]["phase"] for body in world.trims().values()] == ["Queued"]
    world.lose("east-1")
    await world.wait(5)
    assert world.trims() == {}
    del world.brokers.moves.running["other"]
    await world.wait(70)
    (trim,) = world.trims().values()
    assert trim["spec"]["members"]["remove"] == ["east-1"], "the lost one goes, and nobody comes in its place"
    assert world.repairs() == {}


@pytest.mark.covers("MR-3")
async def test_what_waits_to_be_taken_away_stays_when_nobody_asks_for_it_any_more(world: Extra) -> None:
    await add(world)
    world.brokers.moves.running["other"] = {"id": "x", "nodes": ["east-0"], "startedNs": 1}
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(autoRemove="BeyondTarget"))
    await world.wait(10)
    assert len(world.trims()) == 1
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(autoRemove="Never"))
    await world.wait(10)
    assert world.trims() == {}
    assert world.held == FOUR


@pytest.mark.covers("MR-3")
async def test_undeclared_streams_lose_theirs_by_a_pattern_only(world: Extra) -> None:
    world.brokers.streams["U"] = {"name": "U", "num_replicas": 3, "placement": {"cluster": "east"}}
    world.brokers.members["U"] = FOUR
    labels = {**SELECTOR, "selector": {"matchLabels": {"a": "b"}}, "autoRemove": "BeyondTarget"}
    world.declare("ReplicaPolicy", "labels", superCluster="demo", weight=9, **labels)
    await world.wait(30)
    assert world.trims() == {}
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(autoRemove="BeyondTarget"))
    await world.wait(10)
    assert [body["spec"].get("stream") for body in world.trims().values()] == ["U"]
