"""A map of streams without its majority, as a condition of all resources that it concerns (OP-6)."""

from __future__ import annotations

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_parting_rounds import WEST, TwoClusters
from tests.reconcilers.handlers.test_rounds import CLUSTER, SC, STREAM

from supercluster.reconcilers.ports import Key


@pytest.fixture
async def world() -> TwoClusters:
    world = TwoClusters()
    await world.converge()
    return world


@pytest.mark.covers("OP-6")
async def test_a_map_without_majority_is_told_by_everything_that_it_concerns(world: TwoClusters) -> None:
    def ready(key: Key) -> tuple[str, str, str]:
        found = condition(world.status(key), "Ready")
        return found["status"], found["reason"], found["message"]

    async def look() -> None:
        for key in (SC, CLUSTER, WEST, STREAM):
            await world.round(key)

    world.brokers.is_fresh = False
    world.brokers.unread_ms = 2_000
    outcome = await world.round(SC)
    assert ready(SC)[0] == "True", "an election takes a moment"
    assert outcome.recheck_after_ms is not None
    assert outcome.recheck_after_ms <= 1_000
    world.brokers.unread_ms = 4_000
    world.brokers.known["east-1"]["inContact"] = world.brokers.known["east-2"]["inContact"] = False
    await look()
    for key in (SC, CLUSTER, WEST, STREAM):
        status, reason, message = ready(key)
        assert (status, reason) == ("False", "MapWithoutMajority"), key
        assert "out of contact: east-1, east-2" in message
        assert "supercluster recover meta" in message
    world.brokers.is_fresh = True
    world.brokers.known["east-1"]["inContact"] = world.brokers.known["east-2"]["inContact"] = True
    await look()
    assert {ready(key)[0] for key in (SC, CLUSTER, WEST, STREAM)} == {"True"}


@pytest.mark.covers("OP-6")
async def test_a_resource_that_is_not_ready_of_itself_says_both(world: TwoClusters) -> None:
    world.brokers.is_fresh, world.brokers.unread_ms = False, 4_000
    world.brokers.known |= {f"east-{n}": {"node": f"east-{n}", "awaySinceNs": 1} for n in range(3)}
    await world.round(SC)
    await world.round(STREAM)
    told = condition(world.status(STREAM), "Ready")
    assert told["reason"] == "NoLeader"
    assert "no majority" in told["message"]
    assert "have no leader" in told["message"]


@pytest.mark.covers("OP-6")
async def test_a_map_that_was_never_confirmed_has_lost_no_majority() -> None:
    world = TwoClusters()
    world.brokers.is_fresh, world.brokers.unread_ms = False, 60_000
    await world.converge()
    assert condition(world.status(SC), "Ready")["reason"] != "MapWithoutMajority"
