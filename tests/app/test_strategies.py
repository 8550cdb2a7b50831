"""Placement strategies of installed packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from supercluster.app.strategies import installed_strategies
from supercluster.reconcilers.planners.strategies import BUILT_IN, ENTRY_POINT_GROUP, least_loaded

PLANNERS = "supercluster.reconcilers.planners.strategies"


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, ENTRY_POINT_GROUP)


@pytest.mark.covers("MR-5")
def test_a_package_adds_a_strategy_and_one_that_does_not_load_stops_nothing() -> None:
    found = installed_strategies(
        [
            point("mine", f"{PLANNERS}:least_loaded"),
            point("broken", "no_such_module:rank"),
            point("no-function", f"{PLANNERS}:ENTRY_POINT_GROUP"),
            point("spread-zones", f"{PLANNERS}:least_loaded"),
        ]
    )
    assert found["mine"] is least_loaded
    assert found.keys() == {*BUILT_IN, "mine"}
    assert found["spread-zones"] is BUILT_IN["spread-zones"], "a built-in name stays what it is"


def test_what_is_built_in_is_there_without_any_package() -> None:
    assert BUILT_IN.items() <= installed_strategies().items()
