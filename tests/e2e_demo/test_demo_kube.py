"""What the demo asks of the Kubernetes API's answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from e2e.demo.kube import MANIFESTS, USERS, only, ready_condition
from e2e.demo.manifests import documents

from supercluster.api.super_cluster import SuperClusterSpec


def item(status: str, observed: int, generation: int = 2) -> dict[str, Any]:
    condition = {"type": "Whole", "status": status, "reason": "MembersReady", "message": "3 of 3"}
    return {
        "metadata": {"generation": generation},
        "status": {
            "observedGeneration": observed,
            "conditions": [{"type": "Synced", "status": "True"}, condition],
        },
    }


def test_ready_counts_for_the_newest_generation_only() -> None:
    assert ready_condition(item("True", 2)) == (True, "MembersReady: 3 of 3")
    assert ready_condition(item("True", 1))[0] is False
    assert ready_condition(item("False", 2))[0] is False
    assert ready_condition({"metadata": {}}) == (False, "no condition yet")


def test_the_demo_has_one_object_of_each_kind() -> None:
    found = documents(MANIFESTS)
    for kind in ("SuperCluster", "Cluster", "Stream"):
        assert only(found, kind)["kind"] == kind
    with pytest.raises(ValueError, match="0 objects of kind Nothing"):
        only(found, "Nothing")


def test_the_demos_clients_log_in_as_a_user_that_takes_over_the_application_user() -> None:
    spec = only(documents(USERS), "User")["spec"]
    whole = only(documents(MANIFESTS), "SuperCluster")
    assert spec["superCluster"] == whole["metadata"]["name"]
    assert (spec["name"], spec["adopt"]) == (SuperClusterSpec.model_fields["application_user"].default, True)


def test_a_folder_without_manifests_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no manifests"):
        documents(tmp_path)
