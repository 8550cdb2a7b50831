"""Many streams that lose a broker at once, with the whole loop of the operator on a virtual clock: the budget holds at every moment,
and is made use of (MR-4)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.reconcilers.many import LOST, Many, Setting
from tests.support.tiers import case, examples

from supercluster.reconcilers.ports import BrokersUnreachableError, KubeError


@pytest.mark.covers("MR-4", "MR-2")
async def test_many_streams_are_repaired_four_at_once_and_little_is_idle() -> None:
    world = Many(Setting(streams=120))
    await world.settle()
    hit = world.hit()
    seen = await world.run(240_000)
    span = seen.ended_ms - seen.began_ms
    assert hit > 60
    assert seen.most_open == 4
    # While some of them wait for their moments in the check interval, fewer are open.
    assert seen.open_ms / span > 3.5
    copying_ms = sum(world.setting.copy_ms) / 2 * hit / 4
    assert span < 1.5 * copying_ms, "between two repairs there is little that is waited for"
    assert seen.lists < span / 500, "one look's list serves the next ones"


@pytest.mark.covers("MR-4", "OP-4")
@pytest.mark.parametrize("seed", [case(seed, id=str(seed), is_short=seed == 0) for seed in range(3)])
async def test_streams_that_lose_their_majority_while_they_are_repaired_hold_up_no_others(seed: int) -> None:
    """`Many.check` holds the budget against those that are led, and twice the budget against all."""
    world = Many(Setting(streams=30, repairs_max=1, per_node_max=1, copy_ms=(2_000, 6_000), seed=seed))
    await world.settle()
    world.lose()
    while not any("east-3" in world.brokers.members[name] for name in world.brokers.moves.running):
        await world.clock.advance(200)
    world.lose("east-3")
    for _ in range(300):
        await world.clock.advance(1_000)
        waiting = {name for name, held in world.brokers.members.items() if {"east-3", LOST} & set(held)}
        if all(not world.is_led(name) for name in waiting):
            break
    assert waiting
    assert not any(world.is_led(name) for name in waiting), "all that have a majority are whole again"
    await world.start_operator()
    world.give_back("east-3")
    seen = await world.run(600_000)
    assert seen.most_leaderless > 0


@pytest.mark.covers("MR-4", "OP-4")
@hypothesis_settings(max_examples=examples(4, 10), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 10_000),
    repairs_max=st.integers(1, 6),
    per_node_max=st.integers(1, 3),
    moves_max=st.integers(1, 6),
    moves_per_node_max=st.integers(1, 6),
    kills=st.lists(st.integers(200, 8_000), max_size=3),
    failing=st.floats(0, 0.15),
)
async def test_no_budget_is_passed_at_any_moment_whatever_fails_or_is_killed(
    seed: int,
    repairs_max: int,
    per_node_max: int,
    moves_max: int,
    moves_per_node_max: int,
    kills: list[int],
    failing: float,
) -> None:
    """What is checked at every write and every start stands in `Many.check`."""
    budget = (repairs_max, per_node_max, moves_max, moves_per_node_max)
    world = Many(Setting(12, 5, *budget, interval_s=2, check_s=2, seed=seed))
    await world.settle()

    def fail(call: str) -> Exception | None:
        if world.random.random() >= failing:
            return None
        return BrokersUnreachableError("nobody answers") if call in BROKER_CALLS else KubeError(503, "x", "x")

    world.kube.fail = world.brokers.fail = fail
    world.lose()
    for after_ms in kills:
        await world.clock.advance(after_ms)
        await world.start_operator()
    seen = await world.run(600_000)
    assert seen.most_open <= repairs_max


BROKER_CALLS = frozenset(
    {"info", "list", "brokers", "accounts", "restart", "moves", "move state", "move plan"}
) | {"move start"}
