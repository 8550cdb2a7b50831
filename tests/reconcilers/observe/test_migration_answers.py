"""What brokers answer of a migration has the names that the custom resource has."""

from __future__ import annotations

import pytest

from supercluster.api.migration import StageCounts
from supercluster.broker.migration.plan import Stage
from supercluster.reconcilers.planners.migration.views import ON_GREEN


@pytest.mark.covers("BG-9")
def test_the_stages_of_the_resource_are_those_of_the_brokers_in_their_order() -> None:
    assert list(StageCounts.model_fields) == [str(stage) for stage in Stage]


@pytest.mark.covers("BG-9")
def test_streams_on_green_are_those_in_the_stages_behind_handed() -> None:
    stages = list(Stage)
    behind = stages[stages.index(Stage.HANDED) + 1 :]
    assert {str(stage) for stage in behind} == ON_GREEN
    counts = StageCounts(**{str(stage): 1 for stage in Stage})
    assert counts.on_green == len(behind)
    assert counts.total == len(stages)
