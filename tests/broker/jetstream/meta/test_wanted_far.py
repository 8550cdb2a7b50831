"""Which other super-clusters the map wants links with (BG-1, BG-2, BG-5)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from supercluster.broker.jetstream.meta.migration import Green, Migration
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta.wanted_far import wanted_far
from supercluster.broker.migration.worlds import world_id
from supercluster.broker.ports import FarSuperCluster

pytestmark = pytest.mark.covers("BG-1", "BG-2", "BG-5")

GREEN = Green("green", "g", ("a:1", "b:1"), "green.example")
WORLD = world_id("green")
ALL = Migration("m1", GREEN, WORLD)
ONE = Migration("m2", replace(GREEN, addresses=("b:1", "c:1")), WORLD, account="A")


def state(*migrations: Migration, streams: tuple[str, ...] = ()) -> MetaState:
    """With streams that went to these worlds."""
    found = MetaState()
    found.migrations = {one.id: one for one in migrations}
    for number, world in enumerate(streams):
        key = ("A", f"S{number}")
        stream: Any = SimpleNamespace(migration=SimpleNamespace(world=world))
        found.streams[key] = stream
        found.migrating.add(key)
    return found


def test_a_map_without_migrations_wants_nobody() -> None:
    assert wanted_far(state()) == {}


def test_a_migration_that_runs_wants_its_green_and_its_account() -> None:
    assert wanted_far(state(ALL)) == {
        "green": FarSuperCluster("green", ("a:1", "b:1"), "green.example", None, has_streams=True)
    }
    assert wanted_far(state(ONE))["green"].accounts == frozenset({"A"})


def test_two_migrations_to_one_green_make_one_wish() -> None:
    other = replace(ONE, id="m3", account="B", green=GREEN)
    found = wanted_far(state(ONE, other))["green"]
    assert found.addresses == ("b:1", "c:1", "a:1")
    assert found.accounts == frozenset({"A", "B"})
    assert wanted_far(state(ONE, ALL))["green"].accounts is None
    assert wanted_far(state(ALL, ONE))["green"].accounts is None


def test_a_migration_that_is_over_wants_its_green_while_streams_are_there() -> None:
    over = replace(ONE, ended_ns=1)
    assert wanted_far(state(over)) == {}
    assert wanted_far(state(over, streams=("00000000",))) == {}
    assert set(wanted_far(state(over, streams=(WORLD,)))) == {"green"}


def test_a_green_that_is_only_to_hear_of_an_abort_keeps_no_other_one_away() -> None:
    """It may be gone for good, and then it never hears of it."""
    aborted = replace(ALL, cancelled=True, dropped=(("G", 1),))
    assert wanted_far(state(ALL))["green"].has_streams
    assert not wanted_far(state(aborted))["green"].has_streams, "it is told alone"
    assert wanted_far(state(aborted, streams=(WORLD,)))["green"].has_streams, (
        "a stream goes back, or is there"
    )
    assert wanted_far(state(replace(ALL, ended_ns=1), streams=(WORLD,)))["green"].has_streams
    assert wanted_far(state(ALL, replace(aborted, id="m0")))["green"].has_streams
