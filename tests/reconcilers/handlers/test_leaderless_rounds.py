"""Repairs whose streams lose their majority in the middle: they keep no place from others, and count again when they are led again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reconcilers.handlers.test_repair_rounds import SC, Repairing

from supercluster.reconcilers.ports import BrokerTarget, Json

STUCK = ["flights", "s0"]
WELL = ["s1", "s2", "s3", "s4", "s5"]


class Listing(Repairing):
    """Brokers leave streams without a leader out of their list."""

    def __init__(self) -> None:
        super().__init__()
        all_of = self.brokers.stream_infos

        async def stream_infos(target: BrokerTarget) -> list[Json]:
            return [info for info in await all_of(target) if info["cluster"]["leader"]]

        self.brokers.stream_infos = stream_infos  # type: ignore[method-assign]


async def two_repairs(**moves: Any) -> Repairing:
    """Of seven streams two are repaired, and there is no place for more. flights and s0 are on east-0 to east-2, the others on
    east-3, east-1 and east-2, which is lost."""
    world = Listing()
    world.change("SuperCluster", "demo", lambda body: body["spec"].update(moves=moves))
    budget = {"concurrentMax": 2, "concurrentPerNodeMax": 2}
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(budget=budget))
    for name in ("s0", *WELL):
        world.declare("Stream", name, superCluster="demo", subjects=[name])
    await world.converge()
    for name in WELL:
        world.brokers.members[name] = ["east-3", "east-1", "east-2"]
    world.lose("east-2")
    await world.wait(66)
    return world


def lose_majority(world: Repairing) -> None:
    world.lose("east-0")
    tell_of_nobody(world)


def tell_of_nobody(world: Repairing) -> None:
    for name, move in world.brokers.moves.running.items():
        if name in STUCK:
            move["progress"] = {"trouble": f"stream {name} has had no leader for 10 s"}


def lead_again(world: Repairing) -> None:
    world.give_back("east-0")
    for move in world.brokers.moves.running.values():
        move["progress"] = {"stage": "learning", "bytes_left": 1024, "lag": 7}


def running(world: Repairing) -> list[str]:
    return sorted(world.brokers.moves.running)


@pytest.mark.covers("MR-4")
async def test_two_streams_without_a_majority_do_not_hold_up_the_repair_of_all_others() -> None:
    world = await two_repairs(concurrentMax=8, concurrentPerNodeMax=8)
    assert running(world) == STUCK
    lose_majority(world)
    await world.wait(50)
    assert running(world) == STUCK, "it may be a restart yet"
    await world.wait(15)
    assert running(world) == ["flights", "s0", "s1", "s2"]
    assert "2 repairs are under way, 2 more have nobody who leads" in str(world.status(SC)["repair"])
    for _ in WELL:
        for name in set(running(world)) - set(STUCK):
            world.finish(name)
        await world.wait(5)
    assert running(world) == STUCK
    assert all("east-2" not in world.brokers.members[name] for name in WELL)


@pytest.mark.covers("MR-4", "MV-13")
async def test_nor_do_they_in_the_budget_of_moves() -> None:
    """By default a broker has a part in one move at a time."""
    world = await two_repairs(concurrentMax=2, concurrentPerNodeMax=1)
    (first,) = running(world)
    assert first in STUCK
    lose_majority(world)
    await world.wait(65)
    (second,) = set(running(world)) - {first}
    world.brokers.moves.running[second]["nodes"] = ["east-0", "east-1", "east-2", "east-3", "east-4"]
    await world.wait(5)
    assert running(world) == sorted([first, second]), "one that is led is counted on its brokers"
    for _ in WELL:
        for name in set(running(world)) - set(STUCK):
            world.finish(name)
        await world.wait(5)
    assert running(world) == [first], "what could not begin either waits, and others do not wait for it"
    assert all("east-2" not in world.brokers.members[name] for name in WELL)


@pytest.mark.covers("MR-4")
async def test_who_is_led_again_goes_on_and_nobody_begins_until_there_is_a_place_again() -> None:
    world = await two_repairs(concurrentMax=8, concurrentPerNodeMax=8)
    lose_majority(world)
    await world.wait(65)
    assert running(world) == ["flights", "s0", "s1", "s2"]
    lead_again(world)
    await world.wait(5)
    for name in ("s1", "flights"):
        world.finish(name)
        await world.wait(5)
    assert running(world) == ["s0", "s2"], "there were two too many"
    world.finish("s0")
    await world.wait(5)
    assert running(world) == ["s2", "s3"]


@pytest.mark.covers("MR-4")
async def test_an_election_frees_no_place_however_long_a_broker_says_that_nobody_leads() -> None:
    world = await two_repairs(concurrentMax=8, concurrentPerNodeMax=8)
    tell_of_nobody(world)
    for _ in range(3):
        await world.wait(60)
    assert running(world) == STUCK
