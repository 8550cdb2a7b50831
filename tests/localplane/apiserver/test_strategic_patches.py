"""Strategic merge patches of built-in kinds."""

from __future__ import annotations

from typing import Any

import pytest

from supercluster.localplane.apiserver.errors import ApiError
from supercluster.localplane.apiserver.schema.schemas import built_in
from supercluster.localplane.apiserver.schema.strategic import strategic_patch

Json = dict[str, Any]

POD: Json = {
    "metadata": {"finalizers": ["a", "b"], "labels": {"x": "1"}},
    "spec": {
        "containers": [
            {"name": "one", "image": "i:1", "args": ["a", "b"], "env": [{"name": "E", "value": "1"}]},
            {"name": "two", "image": "i:2"},
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "k"}],
    },
}


def patched(patch: Json) -> Json:
    return strategic_patch(POD, patch, built_in()["Pod"])


def test_lists_with_a_merge_key_are_merged_item_by_item() -> None:
    result = patched(
        {"spec": {"containers": [{"name": "two", "image": "new"}, {"name": "three", "image": "i:3"}]}}
    )
    assert [(item["name"], item["image"]) for item in result["spec"]["containers"]] == [
        ("one", "i:1"),
        ("two", "new"),
        ("three", "i:3"),
    ]
    assert POD["spec"]["containers"][1]["image"] == "i:2"


def test_lists_inside_items_are_merged_too() -> None:
    result = patched({"spec": {"containers": [{"name": "one", "env": [{"name": "F", "value": "2"}]}]}})
    assert [item["name"] for item in result["spec"]["containers"][0]["env"]] == ["F", "E"]


def test_lists_without_a_merge_key_are_replaced() -> None:
    result = patched(
        {"spec": {"containers": [{"name": "one", "args": ["c"]}], "tolerations": [{"key": "z"}]}}
    )
    assert result["spec"]["containers"][0]["args"] == ["c"]
    assert result["spec"]["tolerations"] == [{"key": "z"}]


def test_an_item_is_deleted_by_a_directive() -> None:
    result = patched({"spec": {"containers": [{"name": "one", "$patch": "delete"}]}})
    assert [item["name"] for item in result["spec"]["containers"]] == ["two"]


def test_a_list_is_replaced_by_a_directive() -> None:
    result = patched({"spec": {"containers": [{"$patch": "replace"}, {"name": "only", "image": "i"}]}})
    assert result["spec"]["containers"] == [{"name": "only", "image": "i"}]


def test_an_object_is_replaced_by_a_directive() -> None:
    assert patched({"metadata": {"labels": {"$patch": "replace", "y": "2"}}})["metadata"]["labels"] == {
        "y": "2"
    }


def test_null_removes_and_values_of_sets_are_added_and_deleted() -> None:
    result = patched(
        {"metadata": {"labels": None, "finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}}
    )
    assert "labels" not in result["metadata"]
    assert result["metadata"]["finalizers"] == ["c", "b"]


def test_the_order_of_a_list_is_set() -> None:
    order = [{"name": "two"}, {"name": "one"}]
    result = patched(
        {"spec": {"$setElementOrder/containers": order, "containers": [{"name": "two", "image": "new"}]}}
    )
    assert [item["name"] for item in result["spec"]["containers"]] == ["two", "one"]


def test_only_retained_keys_stay() -> None:
    change = {"name": "v", "configMap": {"name": "m"}, "$retainKeys": ["name", "configMap"]}
    result = patched({"spec": {"volumes": [change]}})
    assert result["spec"]["volumes"] == [{"name": "v", "configMap": {"name": "m"}}]


@pytest.mark.parametrize(
    "patch", [[], {"spec": {"containers": [{"image": "x"}]}}, {"spec": {"$patch": "jump"}}]
)
def test_a_patch_that_cannot_be_read_is_a_bad_request(patch: Any) -> None:
    with pytest.raises(ApiError) as refusal:
        patched(patch)
    assert refusal.value.code == 400
