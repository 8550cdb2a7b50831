"""Checks that the schema of a definition is structural, and the other requirements of kube-apiserver.

Every value has one type. `properties` lists all fields, and the keywords around them only narrow it. Defaults
must be valid as they are, unfilled. Pure functions over the schema; paths and reasons are those of
kube-apiserver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from supercluster.localplane.apiserver.errors import Cause
from supercluster.localplane.apiserver.schema import cel
from supercluster.localplane.apiserver.schema.schemas import EMBEDDED, INT_OR_STRING, PRESERVE, prune, walk
from supercluster.localplane.apiserver.schema.validation import problems as value_problems
from supercluster.localplane.apiserver.schema.validation import shown
from supercluster.localplane.apiserver.storage.store import clone
from supercluster.localplane.json_data import Json

TYPES = ("array", "boolean", "integer", "number", "object", "string")
LIST_TYPE, LIST_KEYS, MAP_TYPE = (
    f"x-kubernetes-{name}" for name in ("list-type", "list-map-keys", "map-type")
)
FORBIDDEN = ("$ref", "patternProperties", "definitions", "dependencies", "id", "additionalItems")
# What may only be said outside of allOf, anyOf, oneOf and not.
ONLY_OUTSIDE = (
    "additionalProperties",
    "default",
    "description",
    "nullable",
    "title",
    "type",
    *(EMBEDDED, INT_OR_STRING, PRESERVE),
)
# Go's regular expressions look neither ahead nor behind, and have no references back.
_NOT_IN_GO = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?:[=!]|<[=!]|>)|\\[1-9])")


def invalid(path: str, value: Any, why: str) -> Cause:
    return Cause(path, f"Invalid value: {shown(value)}: {why}")


def required(path: str, why: str = "must be specified") -> Cause:
    return Cause(path, f"Required value: {why}", "FieldValueRequired")


def forbidden(path: str, why: str) -> Cause:
    return Cause(path, f"Forbidden: {why}", "FieldValueForbidden")


def unsupported(path: str, value: Any, *supported: str) -> Cause:
    told = (
        f"Unsupported value: {shown(value)}: supported values: {', '.join(shown(one) for one in supported)}"
    )
    return Cause(path, told, "FieldValueNotSupported")


def problems(schema: Json, path: str) -> Iterator[Cause]:
    """What is wrong with the schema of a version."""
    found: list[Cause] = []

    def visit(node: Json, inner: str) -> None:
        where = f"{path}.{inner}" if inner else path
        found.extend(_node(node, where))
        if not any(cause.field.startswith(where) for cause in found):
            found.extend(_default(node, where))

    walk(schema, visit)
    yield from found
    yield from _metadata(schema, path)


def _node(node: Json, path: str) -> Iterator[Cause]:
    kind = node.get("type")
    if not kind and not (node.get(PRESERVE) or node.get(INT_OR_STRING)):
        yield required(f"{path}.type", "must not be empty for specified object fields")
    elif kind and kind not in TYPES:
        if kind == "null":
            yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
        yield unsupported(f"{path}.type", kind, *TYPES)
    for word in FORBIDDEN:
        if node.get(word):
            yield forbidden(f"{path}.{word}", f"{word} is not supported")
    if node.get("uniqueItems"):
        yield forbidden(
            f"{path}.uniqueItems",
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        )
    if node.get("properties") and node.get("additionalProperties"):
        yield forbidden(
            f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive"
        )
    if node.get(PRESERVE) is False:
        yield invalid(f"{path}.{PRESERVE}", False, "must be true or undefined")
    if node.get(EMBEDDED) and not node.get(PRESERVE) and not node.get("properties"):
        yield required(f"{path}.properties", "must not be empty if x-kubernetes-embedded-resource is true")
    if node.get("pattern") is not None:
        yield from _pattern(node["pattern"], path)
    yield from _lists(node, path)
    if node.get(MAP_TYPE) not in (None, "atomic", "granular"):
        yield unsupported(f"{path}.{MAP_TYPE}", node[MAP_TYPE], "atomic", "granular")
    elif node.get(MAP_TYPE) and kind != "object":
        yield invalid(f"{path}.type", kind, f"must be object if {MAP_TYPE} is specified")
    if not kind and not node.get(INT_OR_STRING):
        return
    for name in ("allOf", "anyOf", "oneOf"):
        exempt = name == "anyOf" and node.get(INT_OR_STRING)
        for index, part in enumerate(() if exempt else node.get(name) or ()):
            yield from _junctor(part, f"{path}.{name}[{index}]")
    if isinstance(node.get("not"), dict):
        yield from _junctor(node["not"], f"{path}.not")


def _pattern(pattern: str, path: str) -> Iterator[Cause]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}")
    else:
        if _NOT_IN_GO.search(pattern):
            yield invalid(f"{path}.pattern", pattern, "must be a valid regular expression of Go")


def _junctor(node: Json, path: str) -> Iterator[Cause]:
    """Inside of allOf, anyOf, oneOf and not nothing declares; it only narrows."""
    for word in ONLY_OUTSIDE:
        if node.get(word):
            yield forbidden(f"{path}.{word}", "must be undefined to be structural")
    for key, sub in (node.get("properties") or {}).items():
        yield from _junctor(sub, f"{path}.properties[{key}]")
    if isinstance(node.get("items"), dict):
        yield from _junctor(node["items"], f"{path}.items")
    for name in ("allOf", "anyOf", "oneOf"):
        for index, part in enumerate(node.get(name) or ()):
            yield from _junctor(part, f"{path}.{name}[{index}]")


def _lists(node: Json, path: str) -> Iterator[Cause]:
    kind, items, keys = node.get(LIST_TYPE), node.get("items"), node.get(LIST_KEYS) or []
    if node.get("type") == "array" and items is None:
        yield required(f"{path}.items", "must be specified")
    if isinstance(items, list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if kind not in (None, "atomic", "map", "set"):
        yield unsupported(f"{path}.{LIST_TYPE}", kind, "atomic", "map", "set")
        return
    if kind and node.get("type") != "array":
        yield invalid(f"{path}.type", node.get("type"), f"must be array if {LIST_TYPE} is specified")
        return
    if keys and kind != "map":
        yield required(f"{path}.{LIST_TYPE}", f"must be map if {LIST_KEYS} is non-empty")
    if not isinstance(items, dict):
        return
    if kind in ("map", "set") and items.get("nullable"):
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when {LIST_TYPE} is {kind}")
    if kind == "set":
        if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
            yield invalid(
                f"{path}.items.{MAP_TYPE}",
                items.get(MAP_TYPE),
                f"must be atomic as item of a {LIST_TYPE}=set list",
            )
        if items.get("type") == "array" and items.get(LIST_TYPE, "atomic") != "atomic":
            yield invalid(
                f"{path}.items.{LIST_TYPE}",
                items.get(LIST_TYPE),
                f"must be atomic as item of a {LIST_TYPE}=set list",
            )
    if kind == "map":
        yield from _map_keys(items, keys, path)


def _map_keys(items: Json, keys: list[str], path: str) -> Iterator[Cause]:
    if not keys:
        yield required(f"{path}.{LIST_KEYS}", f"must not be empty if {LIST_TYPE} is map")
    if items.get("type") != "object":
        yield invalid(
            f"{path}.items.type", items.get("type"), f"must be object if parent array's {LIST_TYPE} is map"
        )
        return
    if len(set(keys)) != len(keys):
        yield invalid(f"{path}.{LIST_KEYS}", keys, "must not contain duplicate entries")
    properties = items.get("properties") or {}
    for key in dict.fromkeys(keys):
        if key not in properties:
            yield invalid(f"{path}.{LIST_KEYS}", keys, f"{key} must be declared in the items' properties")
            continue
        where = f"{path}.items.properties[{key}]"
        if properties[key].get("type") in ("array", "object"):
            yield invalid(f"{where}.type", properties[key]["type"], "must be a scalar type")
        elif key not in (items.get("required") or ()) and "default" not in properties[key]:
            yield required(
                f"{where}.default",
                f"this property is in {LIST_KEYS}, so it must have a default or be required",
            )


def _default(node: Json, path: str) -> Iterator[Cause]:
    """A default is judged as it stands: what is inside it gets no defaults first."""
    if node.get("default") is None:
        return
    default, where = clone(node["default"]), f"{path}.default"
    if prune(default, node):
        yield invalid(where, node["default"], "must not have unknown fields")
        return
    wrong = list(value_problems(default, node, where))
    yield from wrong or (
        Cause(where, cause.message, cause.reason) for cause in cel.problems(default, None, node, where)
    )


def _metadata(schema: Json, path: str) -> Iterator[Cause]:
    metadata = (schema.get("properties") or {}).get("metadata") or {}
    where = f"{path}.properties[metadata]"
    if "default" in metadata:
        yield forbidden(f"{where}.default", "must not be set in top-level metadata")
    if set(metadata.get("properties") or ()) - {"name", "generateName"}:
        yield forbidden(where, "must not specify anything other than name and generateName")
