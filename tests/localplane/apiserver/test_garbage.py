"""Dependents, orphans, namespaces and definitions follow their owners."""

from __future__ import annotations

from typing import Any

import pytest
from tests.localplane.apiserver.apilab import Lab, a_definition, a_map, a_pod

from supercluster.localplane.apiserver.errors import ApiError
from supercluster.localplane.apiserver.objects.garbage_collector import GarbageCollector

Json = dict[str, Any]


@pytest.fixture
def lab() -> Lab:
    return Lab()


def owned(lab: Lab, name: str, *owners: Json, block: bool = False) -> Json:
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **({"blockOwnerDeletion": True} if block else {}),
        }
        for owner in owners
    ]
    return lab.create("configmaps", {"metadata": {"name": name, "ownerReferences": references}})


def test_dependents_go_in_the_background_down_to_the_last_one(lab: Lab) -> None:
    owner = lab.create("configmaps", a_map("owner"))
    child = owned(lab, "child", owner)
    owned(lab, "grandchild", child)
    lab.delete("configmaps", "owner", propagation="Background")
    assert not lab.exists("configmaps", "owner")
    assert lab.exists("configmaps", "child")
    lab.settle()
    assert not lab.exists("configmaps", "child")
    assert not lab.exists("configmaps", "grandchild")


def test_one_living_owner_keeps_a_dependent(lab: Lab) -> None:
    first, second = lab.create("configmaps", a_map("first")), lab.create("configmaps", a_map("second"))
    owned(lab, "child", first, second)
    lab.delete("configmaps", "first")
    lab.settle()
    references = lab.get("configmaps", "child")["metadata"]["ownerReferences"]
    assert [item["name"] for item in references] == ["second"]
    lab.delete("configmaps", "second")
    lab.settle()
    assert not lab.exists("configmaps", "child")


def test_in_the_foreground_the_owner_waits_for_those_that_block_it(lab: Lab) -> None:
    owner = lab.create("configmaps", a_map("owner"))
    owned(lab, "child", owner, block=True)
    lab.patch("configmaps", "child", {"metadata": {"finalizers": ["example.com/hold"]}})
    lab.delete("configmaps", "owner", propagation="Foreground")
    lab.settle()
    assert lab.get("configmaps", "owner")["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert lab.get("configmaps", "child")["metadata"]["deletionTimestamp"]
    lab.patch("configmaps", "child", {"metadata": {"finalizers": None}})
    lab.settle()
    assert not lab.exists("configmaps", "child")
    assert not lab.exists("configmaps", "owner")


def test_orphans_stay_without_their_owner(lab: Lab) -> None:
    owner = lab.create("configmaps", a_map("owner"))
    owned(lab, "child", owner)
    lab.delete("configmaps", "owner", propagation="Orphan")
    lab.settle()
    assert not lab.exists("configmaps", "owner")
    assert not lab.get("configmaps", "child")["metadata"].get("ownerReferences")


def test_an_owner_that_never_was_takes_its_dependent_along(lab: Lab) -> None:
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "gone"}}
    owned(lab, "child", ghost)
    lab.settle()
    assert not lab.exists("configmaps", "child")


def test_a_namespace_goes_with_the_last_object_in_it(lab: Lab) -> None:
    lab.create("namespaces", {"metadata": {"name": "team"}}, namespace="")
    lab.create("configmaps", a_map(), namespace="team")
    lab.create("pods", a_pod("p", nodeName="n1"), namespace="team")
    lab.delete("namespaces", "team", "")
    lab.settle()
    namespace = lab.get("namespaces", "team", "")
    assert namespace["status"]["phase"] == "Terminating"
    assert not lab.exists("configmaps", "a", "team")
    assert lab.get("pods", "p", "team")["metadata"]["deletionTimestamp"]
    with pytest.raises(ApiError) as refusal:
        lab.create("configmaps", a_map("late"), namespace="team")
    assert refusal.value.code == 403
    lab.delete("pods", "p", "team", grace_seconds=0)
    lab.settle()
    assert not lab.exists("namespaces", "team", "")


def test_a_definition_goes_after_its_objects(lab: Lab) -> None:
    lab.create("customresourcedefinitions", a_definition(), namespace="")
    lab.create("widgets", {"metadata": {"name": "w", "finalizers": ["example.com/hold"]}})
    widgets = lab.kind("widgets")
    lab.delete("customresourcedefinitions", "widgets.example.com", "")
    lab.settle()
    assert lab.get("widgets", "w")["metadata"]["deletionTimestamp"]
    lab.patch("widgets", "w", {"metadata": {"finalizers": None}})
    lab.settle()
    assert not lab.exists("customresourcedefinitions", "widgets.example.com", "")
    assert lab.registry.find("example.com", "v1", "widgets") is None
    assert lab.store.all_of(widgets.storage) == []


def test_what_a_restart_interrupted_is_taken_up_again(lab: Lab) -> None:
    owner = lab.create("configmaps", a_map("owner"))
    owned(lab, "child", owner)
    lab.delete("configmaps", "owner")
    assert lab.exists("configmaps", "child")
    # A new collector knows nothing of what the old one had still to do.
    again = GarbageCollector(lab.objects, lambda: None)
    again.start()
    while again.step():
        pass
    assert not lab.exists("configmaps", "child")
