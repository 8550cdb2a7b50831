"""Compares the API server's definitions of the operator's kinds with those of this version (O19).

An API server silently drops fields that its definition lacks, so a recorded status would be gone at the next
round. Therefore an operator that is newer than the definitions does not start. Fields that this version does
not know are no obstacle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from supercluster.api import API_VERSION
from supercluster.api.crd import KINDS, definition
from supercluster.reconcilers.ports import mapping

OPENAPI_PATH = f"/openapi/v3/apis/{API_VERSION}"
_GVK = "x-kubernetes-group-version-kind"
_ANY = "x-kubernetes-preserve-unknown-fields"
# Of a kind; one is enough to know that its definition is old.
NAMED_MAX = 5


def lacking(document: Mapping[str, Any]) -> list[str]:
    """What the definitions lack, a text for each kind; `document` is the OpenAPI v3 document of our group."""
    schemas = mapping(mapping(document.get("components")).get("schemas"))
    there = {
        str(mapping(of).get("kind")): mapping(schema)
        for schema in schemas.values()
        for of in mapping(schema).get(_GVK) or ()
    }
    found = []
    for kind in KINDS:
        wanted = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        if kind.name not in there:
            found.append(f"{kind.name} (its definition is not published)")
            continue
        has = mapping(there[kind.name].get("properties"))
        fields = [
            field
            for part in ("spec", "status")
            for field in _lacks(wanted[part], mapping(has.get(part)), part)
        ]
        if fields:
            more = f" and {len(fields) - NAMED_MAX} more" if len(fields) > NAMED_MAX else ""
            found.append(f"{kind.name} (its definition lacks {', '.join(fields[:NAMED_MAX])}{more})")
    return found


def _lacks(wanted: Mapping[str, Any], there: Mapping[str, Any], path: str) -> Iterator[str]:
    if there.get(_ANY):
        return
    if not there:
        yield path
        return
    properties = mapping(there.get("properties"))
    for name, schema in mapping(wanted.get("properties")).items():
        yield from _lacks(schema, mapping(properties.get(name)), f"{path}.{name}")
    for inner, mark in (("items", "[]"), ("additionalProperties", ".*")):
        schema = wanted.get(inner)
        if isinstance(schema, Mapping):
            yield from _lacks(schema, mapping(there.get(inner)), f"{path}{mark}")
