"""JSON and merge patches."""

from __future__ import annotations

from typing import Any

import pytest

from supercluster.localplane.apiserver.errors import ApiError
from supercluster.localplane.apiserver.schema.patches import json_patch, merge_patch


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"a": None}, {}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
        ({"a": "text"}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ],
)
def test_merge_patch(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


def test_json_patch_leaves_its_input_alone() -> None:
    target = {"a": [1, 2]}
    assert json_patch(target, [{"op": "add", "path": "/a/-", "value": 3}]) == {"a": [1, 2, 3]}
    assert target == {"a": [1, 2]}


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "test", "path": "/a", "value": 2}],
        [{"op": "remove", "path": "/b"}],
        [{"op": "jump", "path": "/a"}],
    ],
)
def test_a_json_patch_that_does_not_fit_the_object_is_422(operations: list[dict[str, Any]]) -> None:
    with pytest.raises(ApiError) as refusal:
        json_patch({"a": 1}, operations)
    assert refusal.value.code == 422


@pytest.mark.parametrize("operations", [{}, ["x"]])
def test_what_is_not_a_json_patch_is_400(operations: Any) -> None:
    with pytest.raises(ApiError) as refusal:
        json_patch({"a": 1}, operations)
    assert refusal.value.code == 400
