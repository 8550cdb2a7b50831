"""Streams that were handed to another super-cluster are left alone by blue's operator (rule 18 of a cutover, BG-8)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_repair_rounds import Repairing
from tests.reconcilers.handlers.test_rounds import NS, STREAM
from tests.reconcilers.kinds.test_migration_rounds import Cutover, started

from supercluster.reconcilers.ports import Key

MOVE = Key("StreamMove", NS, "away")


@pytest.fixture
async def world() -> Cutover:
    """Stream flights was handed over."""
    world = Cutover()
    world.declare("Cluster", "west", superCluster="demo")
    await world.converge()
    await started(world)
    await world.to("open")
    world.brokers.calls.clear()
    return world


def writes(world: Cutover) -> list[str]:
    """What was done to streams since the hand-over."""
    writing = ("create", "update", "delete", "recover", "move start")
    return [call for call in world.brokers.calls if call in writing]


def says(world: Cutover, type_: str, key: Key = STREAM) -> tuple[str, str]:
    found = condition(world.status(key), type_)
    return found["status"], found["reason"]


@pytest.mark.covers("BG-8")
async def test_it_is_said_and_it_is_no_trouble(world: Cutover) -> None:
    await world.round(STREAM)
    assert says(world, "Handed") == ("True", "StreamHanded")
    assert says(world, "Ready")[0] == says(world, "Synced")[0] == says(world, "Whole")[0] == "True"
    assert (says(world, "Reconciling")[0], says(world, "Stalled")[0]) == ("False", "False")
    assert "super-cluster green serves the stream" in condition(world.status(STREAM), "Handed")["message"]


@pytest.mark.covers("BG-8")
@pytest.mark.parametrize("stage", ["handed", "open", "redirected", "cleaned"])
async def test_it_is_not_made_again_though_blue_has_it_no_more(world: Cutover, stage: str) -> None:
    world.brokers.migrations.all_to(stage)
    world.brokers.streams.clear()
    await world.round(STREAM)
    assert writes(world) == []
    assert "MessagesLost" not in {each["type"] for each in world.status(STREAM)["conditions"]}


@pytest.mark.parametrize(
    "change", [{"limits": {"maxBytes": "1Mi"}}, {"placement": {"cluster": "west"}}, {"replicas": 1}]
)
async def test_a_changed_spec_changes_nothing_of_green_s_stream(
    world: Cutover, change: dict[str, Any]
) -> None:
    world.change("Stream", "flights", lambda body: body["spec"].update(change))
    await world.converge()
    assert writes(world) == []
    assert not [name for kind, _, name in world.kube.objects if kind == "StreamMove"]


async def test_a_deleted_resource_takes_nothing_along(world: Cutover) -> None:
    world.change("Stream", "flights", lambda body: body["spec"].update(deletionPolicy="Delete"))
    world.delete(STREAM)
    await world.round(STREAM)
    assert ("Stream", NS, "flights") not in world.kube.objects
    assert writes(world) == []
    assert any("was not touched" in note.message for note in world.kube.events)


async def test_a_forced_recovery_is_not_carried_out(world: Cutover) -> None:
    def ask(body: Any) -> None:
        body["metadata"]["annotations"] = {"supercluster.dev/force-recover": "east-0:4"}

    world.change("Stream", "flights", ask)
    await world.round(STREAM)
    assert writes(world) == []


async def test_a_move_of_it_is_refused(world: Cutover) -> None:
    world.declare(
        "StreamMove", "away", superCluster="demo", stream="flights", destination={"cluster": "west"}
    )
    await world.round(MOVE)
    assert writes(world) == []
    accepted = condition(world.status(MOVE), "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "StreamHanded")


async def test_a_step_that_was_planned_before_the_hand_over_is_not_carried_out(world: Cutover) -> None:
    """A look may be a second old; each step asks the brokers once more."""
    world.brokers.migrations.all_to("learning")
    world.clock.ms += 20_000
    await world.round(STREAM)
    assert says(world, "Ready") == ("True", "Serving")
    world.change("Stream", "flights", lambda body: body["spec"].update(limits={"maxBytes": "1Mi"}))
    world.brokers.migrations.all_to("open")
    world.brokers.calls.clear()
    await world.round(STREAM)
    assert writes(world) == []
    assert says(world, "Handed") == ("True", "StreamHanded"), "and the next look is a fresh one"


async def test_a_stream_that_comes_back_is_looked_after_again(world: Cutover) -> None:
    await world.round(STREAM)
    world.brokers.migrations.all_to("pending")
    world.clock.ms += 20_000
    await world.round(STREAM)
    assert says(world, "Handed") == ("False", "NoIssues")
    assert says(world, "Ready") == ("True", "Serving")


@pytest.mark.covers("BG-8")
@pytest.mark.parametrize("is_handed", [True, False])
async def test_no_repair_is_made_for_it(is_handed: bool) -> None:
    world = Repairing()
    await world.converge()
    if is_handed:
        world.brokers.migrations.records["m"] = {}
        world.brokers.migrations.all_to("open")
    world.lose("east-2")
    await world.wait(65)
    assert bool(world.repairs()) == (not is_handed)
