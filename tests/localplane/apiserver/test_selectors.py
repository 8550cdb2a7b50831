"""Label and field selectors."""

from __future__ import annotations

from typing import Any

import pytest

from supercluster.localplane.apiserver.errors import ApiError
from supercluster.localplane.apiserver.storage.selectors import (
    label_selector_matches,
    parse_fields,
    parse_labels,
    predicate,
)

LABELS = {"app": "web", "tier": "front", "example.com/zone": "a"}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app = web", True),
        ("app=db", False),
        ("app!=db", True),
        ("app!=web", False),
        ("missing!=x", True),
        ("app in (web, db)", True),
        ("app in (db)", False),
        ("app notin (db,cache)", True),
        ("app notin (web)", False),
        ("missing notin (x)", True),
        ("app", True),
        ("missing", False),
        ("!missing", True),
        ("!app", False),
        ("app in (web,db),tier=front,example.com/zone", True),
        ("app in (web,db),tier=back", False),
        ("missing=", False),
    ],
)
def test_label_selectors(text: str, selected: bool) -> None:
    assert parse_labels(text)(LABELS) is selected


@pytest.mark.parametrize("text", ["a b", "a in x", "=x", "a=(b)"])
def test_a_label_selector_that_cannot_be_read_is_a_bad_request(text: str) -> None:
    with pytest.raises(ApiError) as refusal:
        parse_labels(text)
    assert refusal.value.code == 400


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("metadata.name=a", True),
        ("metadata.name!=a", False),
        ("status.phase=Running,spec.nodeName=", True),
        ("spec.unschedulable=true", True),
        ("spec.replicas=3", True),
        ("spec.replicas=4", False),
        ("spec.nowhere.deep!=x", True),
    ],
)
def test_field_selectors(text: str, selected: bool) -> None:
    obj: dict[str, Any] = {
        "metadata": {"name": "a"},
        "spec": {"unschedulable": True, "replicas": 3},
        "status": {"phase": "Running"},
    }
    assert parse_fields(text)(obj) is selected


def test_both_selectors_must_select() -> None:
    obj = {"metadata": {"name": "a", "labels": {"app": "web"}}}
    assert predicate("app=web", "metadata.name=a")(obj)
    assert not predicate("app=web", "metadata.name=b")(obj)
    assert not predicate("app=db", "metadata.name=a")(obj)


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}, True),
    ],
)
def test_label_selector_objects(selector: dict[str, Any] | None, selected: bool) -> None:
    assert label_selector_matches(selector, LABELS) is selected
