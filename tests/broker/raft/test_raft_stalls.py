"""Members whose processes stand still now and then, and say so: the others wait longer for them, within a bound (SF-29)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.broker.raft.harness import World

pytestmark = pytest.mark.covers("SF-29")


def led_by_a(patience_ms: Callable[[str], int]) -> World:
    world = World(config={"patience_ms": patience_ms})
    world.group("a b c")
    world.elect("a")
    world.run(300)
    return world


def test_a_leader_that_is_known_to_stand_still_is_waited_for_longer() -> None:
    world = led_by_a(lambda node: 3000 if node == "a" else 0)
    world.isolate("a")
    world.run(2900)
    assert world.nodes["b"].leader == world.nodes["c"].leader == "a"
    world.run(2000)
    assert world.nodes["b"].leader == world.nodes["c"].leader != "a", "in the end it is replaced"


def test_a_leader_stays_while_a_majority_is_known_to_stand_still() -> None:
    world = led_by_a(lambda node: 0 if node == "a" else 3000)
    world.isolate("a")
    world.run(2900)
    assert world.nodes["a"].is_leader
    world.run(1000)
    assert not world.nodes["a"].is_leader


def test_others_are_replaced_as_soon_as_ever() -> None:
    world = led_by_a(lambda node: 0)
    world.isolate("a")
    world.run(1200)
    assert world.nodes["b"].leader == world.nodes["c"].leader != "a"
