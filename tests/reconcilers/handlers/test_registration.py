"""What kopf is told to watch (O16): of a Kubernetes cluster's own pods and Secrets nothing is asked for."""

from __future__ import annotations

import pytest
from kopf._cogs.structs.references import Resource

from supercluster.api import GROUP, VERSION
from supercluster.api.crd import KINDS
from supercluster.reconcilers.handlers.registration import CHILDREN, CHUNK_OBJECTS, build_settings
from supercluster.reconcilers.planners import naming

BUDGETS = [("policy", "v1", "poddisruptionbudgets"), ("policy", "v1beta1", "poddisruptionbudgets")]


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: budget[1])
def test_children_are_watched_by_their_label_and_lists_come_in_chunks(budget: tuple[str, str, str]) -> None:
    watching = build_settings("/".join(budget[:2])).watching
    for child in (*CHILDREN, budget):
        selectors = watching.label_selectors.collect(Resource(*child))
        assert selectors == ["supercluster.dev/super-cluster"], child
        assert set(selectors) <= naming.labels("demo", "east").keys()
    for kind in KINDS:
        assert not watching.label_selectors.collect(Resource(GROUP, VERSION, kind.plural))
    assert watching.chunk_size == CHUNK_OBJECTS
