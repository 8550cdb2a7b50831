"""Structural schemas: those of built-in kinds from a generated file, those of custom resources from their
definitions.

Both have one form, so that unknown fields, defaults, validation, merging and explaining are implemented once.
A `$ref` names a built-in definition.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from supercluster.localplane.apiserver.storage.registry import Resource
from supercluster.localplane.apiserver.storage.store import clone

Schema = dict[str, Any]

ANYTHING: Schema = {"x-kubernetes-preserve-unknown-fields": True}
PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
EMBEDDED = "x-kubernetes-embedded-resource"


@lru_cache(maxsize=1)
def built_in() -> dict[str, Schema]:
    """The definitions of the built-in kinds by name, read when they are first needed."""
    path = Path(__file__).with_name("builtin_schemas.json")
    found: dict[str, Schema] = json.loads(path.read_text())
    return found


def resolve(schema: Schema) -> Schema:
    """The schema that a reference stands for; siblings of the reference, such as merge keys, stay with the caller."""
    name = schema.get("$ref")
    return built_in()[name] if name is not None else schema


def root(resource: Resource) -> Schema:
    """The schema of a whole object."""
    if resource.crd_version is None:
        return built_in().get(resource.kind, ANYTHING)
    declared: Schema = resource.crd_version["schema"]["openAPIV3Schema"]
    return custom_root(declared)


def custom_root(declared: Schema) -> Schema:
    """A custom resource's schema with what every object has, whether declared or not."""
    properties = {
        **(declared.get("properties") or {}),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"$ref": "ObjectMeta"},
    }
    return {**declared, "type": "object", "properties": properties}


def _extra(schema: Schema) -> Any:
    """What fields outside `properties` may be: a schema, True for anything, or False for none."""
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict) and additional:
        return additional
    if additional is True or additional == {} or schema.get(PRESERVE):
        return True
    # A schema without a type says nothing about fields (as inside a validation rule).
    return "properties" not in schema and schema.get("type") != "object"


def prune(value: Any, schema: Schema, path: str = "") -> list[str]:
    """Take out of a value, in place, the fields that its schema does not know; their paths are returned."""
    schema = resolve(schema)
    if isinstance(value, list):
        items = schema.get("items")
        if not isinstance(items, dict):
            return []
        return [gone for index, item in enumerate(value) for gone in prune(item, items, f"{path}[{index}]")]
    if not isinstance(value, dict):
        return []
    properties = schema.get("properties") or {}
    extra = _extra(schema)
    gone: list[str] = []
    for key in list(value):
        here = f"{path}.{key}" if path else key
        if key in properties:
            gone += prune(value[key], properties[key], here)
        elif schema.get(EMBEDDED) and key in ("apiVersion", "kind", "metadata"):
            gone += prune(value[key], {"$ref": "ObjectMeta"}, here) if key == "metadata" else []
        elif isinstance(extra, dict):
            gone += prune(value[key], extra, here)
        elif not extra:
            del value[key]
            gone.append(here)
    return gone


def normalize(value: Any, schema: Schema) -> Any:
    """A built-in kind's value in the form that is stored, changed in place where it can be.

    Nulls in known fields mean the same as nothing, and a quantity that was written as a number becomes text.
    """
    schema = resolve(schema)
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            value[:] = [normalize(item, items) for item in value]
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and schema.get("format") == "quantity":
        return str(value)
    if not isinstance(value, dict) or schema.get(PRESERVE):
        return value
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for key in list(value):
        known = properties.get(key, additional)
        if value[key] is None:
            del value[key]
        elif isinstance(known, dict):
            value[key] = normalize(value[key], known)
    return value


def default(value: Any, schema: Schema) -> None:
    """Fill in a value, in place, with the defaults of its schema, those inside defaulted objects too."""
    schema = resolve(schema)
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for item in value:
                default(item, items)
        return
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for key in [key for key, item in value.items() if item is None]:
        # Nothing, where a null may not be.
        sub = properties.get(key, additional)
        if isinstance(sub, dict) and not sub.get("nullable"):
            del value[key]
    for key, sub in properties.items():
        if "default" in sub and key not in value:
            value[key] = clone(sub["default"])
        if key in value:
            default(value[key], sub)
    if isinstance(additional, dict):
        for key, item in value.items():
            if key not in properties:
                default(item, additional)


def child(schema: Schema, key: str) -> Schema:
    """The schema of a field, merge keys included; anything where nothing is known."""
    resolved = resolve(schema)
    found = (resolved.get("properties") or {}).get(key)
    if found is None:
        additional = resolved.get("additionalProperties")
        found = additional if isinstance(additional, dict) else ANYTHING
    return found if isinstance(found, dict) else ANYTHING


def element(schema: Schema) -> Schema:
    """The schema of a list's items."""
    items = resolve(schema).get("items")
    return items if isinstance(items, dict) else ANYTHING


def walk(schema: Schema, visit: Callable[[Schema, str], None], path: str = "") -> None:
    """Call `visit` for a custom resource's schema and everything inside it, with the path."""
    visit(schema, path)
    for key, sub in (schema.get("properties") or {}).items():
        walk(sub, visit, f"{path}.properties[{key}]" if path else f"properties[{key}]")
    for name in ("items", "additionalProperties"):
        sub = schema.get(name)
        if isinstance(sub, dict):
            walk(sub, visit, f"{path}.{name}")
