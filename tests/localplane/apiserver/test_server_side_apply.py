"""Server-side apply: who owns a field, conflicts, force, and what goes when a configuration no longer names it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from tests.localplane.apiserver.apilab import Lab, a_definition, a_set

from supercluster.localplane.apiserver.errors import ApiError
from supercluster.localplane.apiserver.schema import fieldsets
from supercluster.localplane.apiserver.schema.schemas import built_in

Json = dict[str, Any]


@pytest.fixture
def lab() -> Lab:
    return Lab()


def owners(obj: Json) -> dict[tuple[str, str], Json]:
    return {
        (entry["manager"], entry["operation"]): entry["fieldsV1"]
        for entry in obj["metadata"]["managedFields"]
    }


def a_map(**data: str) -> Json:
    return {"metadata": {"name": "a"}, "data": data}


def test_an_apply_makes_the_object_and_owns_what_it_names(lab: Lab) -> None:
    made = lab.apply("configmaps", a_map(x="1"), "tool")
    assert made["data"] == {"x": "1"}
    assert owners(made) == {("tool", "Apply"): {"f:data": {"f:x": {}}}}


def test_two_tools_own_different_fields_of_one_object(lab: Lab) -> None:
    lab.apply("configmaps", a_map(x="1"), "one")
    both = lab.apply("configmaps", a_map(y="2"), "two")
    assert both["data"] == {"x": "1", "y": "2"}
    assert owners(both) == {
        ("one", "Apply"): {"f:data": {"f:x": {}}},
        ("two", "Apply"): {"f:data": {"f:y": {}}},
    }


def test_another_value_for_somebody_elses_field_is_a_conflict_unless_forced(lab: Lab) -> None:
    lab.apply("configmaps", a_map(x="1"), "one")
    with pytest.raises(ApiError) as refusal:
        lab.apply("configmaps", a_map(x="2"), "two")
    assert (refusal.value.code, refusal.value.reason) == (409, "Conflict")
    assert refusal.value.message == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    assert [(cause.reason, cause.field) for cause in refusal.value.causes] == [
        ("FieldManagerConflict", ".data.x")
    ]
    forced = lab.apply("configmaps", a_map(x="2"), "two", force=True)
    assert forced["data"] == {"x": "2"}
    assert owners(forced) == {("two", "Apply"): {"f:data": {"f:x": {}}}}


def test_the_same_value_is_owned_together_and_stays_until_the_last_owner_drops_it(lab: Lab) -> None:
    lab.apply("configmaps", a_map(x="1"), "one")
    lab.apply("configmaps", a_map(x="1"), "two")
    kept = lab.apply("configmaps", {"metadata": {"name": "a"}}, "one")
    assert kept["data"] == {"x": "1"}
    gone = lab.apply("configmaps", {"metadata": {"name": "a"}}, "two")
    assert "x" not in gone.get("data", {})


def test_what_a_configuration_no_longer_names_goes_away(lab: Lab) -> None:
    lab.apply("configmaps", a_map(x="1", y="2"), "tool")
    assert lab.apply("configmaps", a_map(x="1"), "tool")["data"] == {"x": "1"}


def test_the_same_configuration_again_changes_nothing(lab: Lab) -> None:
    lab.apply("statefulsets", a_set(), "tool")
    before = lab.store.revision
    lab.now += dt.timedelta(hours=1)
    lab.apply("statefulsets", a_set(), "tool")
    assert lab.store.revision == before


def test_items_of_lists_have_owners_of_their_own(lab: Lab) -> None:
    def containers(obj: Json) -> list[tuple[str, str]]:
        return [(item["name"], item["image"]) for item in obj["spec"]["template"]["spec"]["containers"]]

    lab.apply("statefulsets", a_set(), "tool")
    side = {"spec": {"containers": [{"name": "side", "image": "s:1"}]}}
    both = lab.apply("statefulsets", {"metadata": {"name": "web"}, "spec": {"template": side}}, "injector")
    assert containers(both) == [("c", "img:1"), ("side", "s:1")]
    changed = a_set()
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "img:2"
    assert containers(lab.apply("statefulsets", changed, "tool")) == [("c", "img:2"), ("side", "s:1")]
    alone = lab.apply("statefulsets", {"metadata": {"name": "web"}}, "injector")
    assert containers(alone) == [("c", "img:2")]


def test_an_update_takes_the_fields_that_it_changes(lab: Lab) -> None:
    lab.apply("configmaps", a_map(x="1", y="1"), "tool")
    lab.patch("configmaps", "a", {"data": {"x": "2"}}, manager="person")
    changed = lab.get("configmaps", "a")
    assert owners(changed) == {
        ("tool", "Apply"): {"f:data": {"f:y": {}}},
        ("person", "Update"): {"f:data": {"f:x": {}}},
    }
    with pytest.raises(ApiError) as refusal:
        lab.apply("configmaps", a_map(x="1", y="1"), "tool")
    assert 'conflict with "person"' in refusal.value.message


def test_status_is_applied_apart(lab: Lab) -> None:
    lab.create("customresourcedefinitions", a_definition(), namespace="")
    lab.apply("widgets", {"metadata": {"name": "w"}, "spec": {"n": 1}, "status": {"x": 1}}, "tool")
    assert "status" not in lab.get("widgets", "w")
    lab.apply("widgets", {"metadata": {"name": "w"}, "status": {"x": 2}}, "controller", subresource="status")
    stored = lab.get("widgets", "w")
    assert (stored["spec"], stored["status"]) == ({"n": 1}, {"x": 2})
    entry = next(item for item in stored["metadata"]["managedFields"] if item["manager"] == "controller")
    assert entry["subresource"] == "status"
    # The spec's owner applies again and does not touch the status.
    lab.apply("widgets", {"metadata": {"name": "w"}, "spec": {"n": 2}}, "tool")
    assert lab.get("widgets", "w")["status"] == {"x": 2}


def test_a_default_belongs_to_nobody_so_that_a_scaler_may_take_it(lab: Lab) -> None:
    lab.apply("statefulsets", a_set(), "tool")
    lab.patch("statefulsets", "web", {"spec": {"replicas": 4}}, manager="scaler", subresource="scale")
    assert lab.apply("statefulsets", a_set(), "tool")["spec"]["replicas"] == 4


def test_field_sets_are_written_and_read_without_loss() -> None:
    obj = {
        "metadata": {"name": "p", "labels": {"a": "1"}, "finalizers": ["f"]},
        "spec": {
            "containers": [{"name": "c", "ports": [{"containerPort": 80}], "args": ["x"]}],
            "nodeSelector": {},
        },
    }
    paths = fieldsets.field_paths(obj, built_in()["Pod"])
    written = fieldsets.to_v1(paths)
    assert fieldsets.from_v1(written) == paths
    container = written["f:spec"]["f:containers"]['k:{"name":"c"}']
    assert container == {
        ".": {},
        "f:name": {},
        "f:args": {},
        "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
    }
    assert written["f:metadata"] == {"f:labels": {"f:a": {}}, "f:finalizers": {'v:"f"': {}}}
    assert written["f:spec"]["f:nodeSelector"] == {}


def test_members_are_known_however_others_spell_them() -> None:
    """kubectl writes managedFields itself when it moves an object to server-side apply, with Go's escapes."""
    theirs: Json = {
        "f:spec": {"f:subjects": {'v:"a.\\u003e"': {}}, "f:ports": {'k:{"protocol":"TCP", "port":1}': {}}}
    }
    ours = {("f:spec", "f:subjects", 'v:"a.>"'), ("f:spec", "f:ports", 'k:{"port":1,"protocol":"TCP"}')}
    assert fieldsets.from_v1(theirs) == ours
    assert fieldsets.from_v1({"f:spec": {"v:{": {}, "f:a": {}}}) == {("f:spec", "f:a")}


def test_an_item_in_which_somebody_else_owns_a_field_stays_with_its_key(lab: Lab) -> None:
    lab.apply("statefulsets", a_set(), "tool")
    side = {"spec": {"containers": [{"name": "side", "image": "s:1"}]}}
    lab.apply("statefulsets", {"metadata": {"name": "web"}, "spec": {"template": side}}, "injector")
    extra = {"spec": {"containers": [{"name": "side", "image": "s:1", "workingDir": "/w"}]}}
    lab.apply("statefulsets", {"metadata": {"name": "web"}, "spec": {"template": extra}}, "other")
    left = lab.apply("statefulsets", {"metadata": {"name": "web"}}, "injector")
    container = left["spec"]["template"]["spec"]["containers"][1]
    assert (container["name"], container["image"], container["workingDir"]) == ("side", "s:1", "/w")
