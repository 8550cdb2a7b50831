"""The weather takes data only where the promises cover it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulator.scenario import Scenario
from tests.simulator.weather import Weather

SEED = 741166
"""Three replicas on files that are synced at an interval, on machines without a boot id."""
KINDS = ("sync_errors", "disk_errors", "full_disk")


def site(*, no_boot_id: bool = True) -> Weather:
    """A cluster whose brokers are whole, and no fault yet."""
    scenario = Scenario(SEED)
    world, weather = scenario.world, scenario.weather
    weather.rare = replace(weather.rare, no_boot_id=no_boot_id)
    for name in world.names:
        world.nodes[name].store.has_boot_id = not no_boot_id
        world.start(name)
    world.at(700, scenario._create_main)
    assert world.run_until(
        lambda: bool(scenario._group_of_main()) and all(map(weather._is_whole, world.names)), 20_000
    )
    return weather


def strike(weather: Weather, kind: str, victim: str) -> bool:
    """Is its disk one that refuses, after a fault of that kind?"""
    weather._victim = lambda: victim  # type: ignore[method-assign]
    weather._acts[kind]()
    return weather.world.nodes[victim].store.disk.will_refuse


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_whose_cure_may_lose_data_refuses_nothing_while_another_broker_is_unsure(kind: str) -> None:
    """Seed 741166: one broker lost its volume, and the next one's fsyncs failed. Without a boot id its restart was a power
    failure. Two of three were unsure, and nobody could be elected without a person."""
    weather = site()
    weather._without_volume("n2")
    assert not strike(weather, kind, "n1")
    weather = site(no_boot_id=False)
    weather._without_volume("n2")
    assert strike(weather, kind, "n1")


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("kind", KINDS)
def test_no_other_broker_loses_data_from_a_refusal_on_up_to_the_cure(kind: str) -> None:
    weather = site()
    assert strike(weather, kind, "n1")
    assert not weather.may_lose_data("n2")
    assert weather.may_lose_data("n1")
    disk = weather.world.nodes["n1"].store.disk
    disk.failing_writes, disk.failing_syncs, disk.capacity_bytes = 0, 0, 1 << 50
    assert weather.may_lose_data("n2")
