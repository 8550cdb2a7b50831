"""Definitions of an older version are told by the fields that they lack (O19)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from supercluster.api.crd import KINDS, definition
from supercluster.app.definitions import lacking


def document() -> dict[str, Any]:
    """As an API server publishes the definitions of this version."""
    schemas = {}
    for kind in KINDS:
        schema = copy.deepcopy(definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
        schema["x-kubernetes-group-version-kind"] = [
            {"group": "supercluster.dev", "version": "v1alpha1", "kind": kind.name}
        ]
        schemas[f"dev.supercluster.v1alpha1.{kind.name}"] = schema
    return {"components": {"schemas": schemas}}


def test_the_definitions_of_this_version_lack_nothing() -> None:
    assert lacking(document()) == []


@pytest.mark.parametrize(
    ("kind", "path", "words"),
    [
        ("Cluster", ["status", "properties", "drain"], "Cluster (its definition lacks status.drain)"),
        (
            "StreamMove",
            ["status", "properties", "conditions", "items", "properties", "observedGeneration"],
            "StreamMove (its definition lacks status.conditions[].observedGeneration)",
        ),
        ("Stream", ["spec"], "Stream (its definition lacks spec)"),
    ],
)
def test_a_field_that_is_not_there_is_named(kind: str, path: list[str], words: str) -> None:
    found = document()
    at = found["components"]["schemas"][f"dev.supercluster.v1alpha1.{kind}"]["properties"]
    for part in path[:-1]:
        at = at[part]
    del at[path[-1]]
    assert lacking(found) == [words]


def test_newer_definitions_are_taken_and_missing_ones_are_not() -> None:
    newer = document()
    schemas = newer["components"]["schemas"]
    schemas["dev.supercluster.v1alpha1.Stream"]["properties"]["spec"]["properties"]["later"] = {
        "type": "string"
    }
    assert lacking(newer) == []
    del schemas["dev.supercluster.v1alpha1.ReplicaPolicy"]
    assert lacking(newer) == ["ReplicaPolicy (its definition is not published)"]
