"""How many clients each broker asks to leave: properties over all loads, and the cases that people ask about (CL-7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.reconcilers.planners.rebalance import (
    TOLERANCE_MIN,
    TOLERANCE_PERCENT,
    BrokerLoad,
    RebalancePlan,
    plan_rebalance,
)

pytestmark = pytest.mark.covers("CL-7")


def plan(**clients: int) -> RebalancePlan:
    return plan_rebalance([BrokerLoad(name, count, count) for name, count in clients.items()])


@st.composite
def loads(draw: st.DrawFn) -> list[BrokerLoad]:
    counts = draw(st.lists(st.integers(0, 300), min_size=1, max_size=9))
    return [
        BrokerLoad(f"b{number}", count, draw(st.integers(0, count))) for number, count in enumerate(counts)
    ]


def all_movable(found: list[BrokerLoad]) -> list[BrokerLoad]:
    return [BrokerLoad(load.name, load.clients, load.clients) for load in found]


@given(loads())
def test_no_client_is_lost_or_made_and_nobody_is_asked_who_does_not_understand(
    found: list[BrokerLoad],
) -> None:
    planned = plan_rebalance(found)
    assert sum(share.afterwards for share in planned.shares) == sum(load.clients for load in found)
    by_name = {load.name: load for load in found}
    for share in planned.shares:
        assert 0 <= share.asked <= by_name[share.name].movable
    assert bool(planned.reason) == (planned.asked == 0)


@given(loads())
def test_no_broker_asks_more_to_leave_than_it_has_above_an_even_share(found: list[BrokerLoad]) -> None:
    total, count = sum(load.clients for load in found), len(found)
    for share in plan_rebalance(found).shares:
        assert share.asked <= max(0, share.clients - total // count)


@given(loads())
def test_when_all_can_be_asked_the_outcome_is_even_and_the_next_plan_empty(found: list[BrokerLoad]) -> None:
    planned = plan_rebalance(all_movable(found))
    if planned.asked:
        counts = [share.afterwards for share in planned.shares]
        assert max(counts) - min(counts) <= 1
        again = plan_rebalance([BrokerLoad(s.name, s.afterwards, s.afterwards) for s in planned.shares])
        assert again.asked == 0


@given(loads())
def test_as_few_are_asked_as_can_be(found: list[BrokerLoad]) -> None:
    """What is above the even share of each has to go somewhere, the odd ones stay where most are."""
    planned = plan_rebalance(all_movable(found))
    if planned.asked:
        total, count = sum(load.clients for load in found), len(found)
        each, left = divmod(total, count)
        above = sorted((load.clients - each for load in found), reverse=True)
        least = sum(max(0, over - (rank < left)) for rank, over in enumerate(above))
        assert planned.asked == least


@given(loads())
def test_the_order_of_what_was_read_changes_nothing(found: list[BrokerLoad]) -> None:
    assert plan_rebalance(found[::-1]) == plan_rebalance(found)
    assert plan_rebalance(found[1:] + found[:1]) == plan_rebalance(found)


@given(loads())
def test_nothing_is_done_about_a_small_difference(found: list[BrokerLoad]) -> None:
    planned = plan_rebalance(all_movable(found))
    each = sum(load.clients for load in found) // len(found)
    bound = max(TOLERANCE_MIN, each * TOLERANCE_PERCENT // 100)
    if max(load.clients for load in found) - each <= bound:
        assert planned.asked == 0


def test_a_broker_that_came_back_gets_its_share_from_each_of_the_others() -> None:
    planned = plan(a=30, b=30, c=0)
    assert [(share.name, share.asked, share.afterwards) for share in planned.shares] == [
        ("a", 10, 20),
        ("b", 10, 20),
        ("c", 0, 20),
    ]


def test_why_nothing_is_done_is_said() -> None:
    assert plan(a=12, b=10, c=9).reason == "no broker has more than 2 clients above its even share of 10"
    assert "no other broker" in plan(a=50).reason
    stubborn = plan_rebalance([BrokerLoad("a", 50, 0), BrokerLoad("b", 0, 0)])
    assert "do not understand" in stubborn.reason
