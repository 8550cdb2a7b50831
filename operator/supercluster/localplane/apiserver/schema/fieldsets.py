"""Sets of field paths: the fields that a value has, in the format of managedFields.

A path is a tuple of steps: `f:name` into an object, `k:{"key":value}` to an item of a list that is a map,
`v:value` to an item of a set. Lists and objects that are atomic have no steps inside. Pure functions over
JSON data and schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from supercluster.localplane.apiserver.schema.schemas import Schema, child, element, resolve
from supercluster.localplane.apiserver.storage.store import clone
from supercluster.localplane.json_data import Json

Path = tuple[str, ...]
Paths = frozenset[Path]

# The only key of a built-in list of maps that may be left out.
KEY_DEFAULTS: Json = {"protocol": "TCP"}
# What the server sets or what names the object belongs to no manager.
UNMANAGED = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "generateName",
                "generation",
                "managedFields",
                "resourceVersion",
                "selfLink",
                "uid",
            )
        ),
    }
)


def list_kind(schema: Schema) -> str:
    """map, set or atomic."""
    return str(
        schema.get("x-kubernetes-list-type") or resolve(schema).get("x-kubernetes-list-type") or "atomic"
    )


def is_atomic_map(schema: Schema) -> bool:
    return (schema.get("x-kubernetes-map-type") or resolve(schema).get("x-kubernetes-map-type")) == "atomic"


def item_key(item: Json, schema: Schema) -> str:
    """The step to an item of a list that is a map."""
    names = schema.get("x-kubernetes-list-map-keys") or []
    inner = element(schema)
    values: Json = {}
    for name in names:
        value = item.get(name)
        if value is None:
            value = child(inner, name).get("default", KEY_DEFAULTS.get(name))
        if value is not None:
            values[name] = value
    return "k:" + json.dumps(values, separators=(",", ":"), sort_keys=True)


def value_step(value: Any) -> str:
    return "v:" + json.dumps(value, separators=(",", ":"), sort_keys=True)


def field_paths(value: Any, schema: Schema, whole: bool = False) -> Paths:
    """The paths of all fields of an object, without those that nobody manages.

    With `whole` objects and lists that have something in them have paths too, as updates own them and applies do not.
    """
    found: set[Path] = set()
    _collect(value, schema, (), found, whole)
    return frozenset(path for path in found if path not in UNMANAGED and path)


def _collect(value: Any, schema: Schema, path: Path, found: set[Path], whole: bool) -> None:
    if isinstance(value, dict) and value and not is_atomic_map(schema):
        if whole:
            found.add(path)
        for key, item in value.items():
            _collect(item, child(schema, key), (*path, f"f:{key}"), found, whole)
        return
    if isinstance(value, list) and list_kind(schema) != "atomic":
        if whole:
            found.add(path)
        inner = element(schema)
        for item in value:
            if list_kind(schema) == "set":
                found.add((*path, value_step(item)))
            elif isinstance(item, dict):
                here = (*path, item_key(item, schema))
                found.add(here)
                _collect(item, inner, here, found, whole)
        return
    found.add(path)


def to_v1(paths: Iterable[Path]) -> Json:
    """As managedFields' fieldsV1."""
    root: Json = {}
    paths = sorted(paths)
    for path in paths:
        node = root
        for step in path:
            node = node.setdefault(step, {})
        node["."] = {}
    return _without_lonely_dots(root)


def _without_lonely_dots(node: Json) -> Json:
    """A member without anything inside is {}, one with something inside has a dot."""
    inner = {step: _without_lonely_dots(sub) for step, sub in node.items() if step != "."}
    if inner and "." in node:
        return {".": {}, **inner}
    return inner


def _own_spelling(step: str) -> str:
    """A step as we write it: others escape characters (Go writes > as \\u003e) or order keys in their own way.

    Raises:
        ValueError: what it names is not JSON.
    """
    kind, rest = step[:2], step[2:]
    if kind in ("k:", "v:"):
        return kind + json.dumps(json.loads(rest), separators=(",", ":"), sort_keys=True)
    return step


def from_v1(fields: Json) -> Paths:
    """The paths in managedFields' fieldsV1; steps that can't be read are left out."""
    found: set[Path] = set()

    def walk(node: Json, path: Path) -> None:
        inner = [step for step in node if step != "."]
        if path and ("." in node or not inner):
            found.add(path)
        for step in inner:
            with suppress(ValueError):
                walk(node[step], (*path, _own_spelling(step)))

    walk(fields, ())
    return frozenset(found)


_MISSING = object()


def lookup(value: Any, schema: Schema, path: Path) -> Any:
    """The value at a path, or a marker that equals nothing else when there is none."""
    return _lookup(value, schema, path)[0]


def _lookup(value: Any, schema: Schema, path: Path) -> tuple[Any, Schema]:
    """The value at a path and its schema."""
    for step in path:
        kind, rest = step[:2], step[2:]
        if kind == "f:":
            if not isinstance(value, dict) or rest not in value:
                return _MISSING, schema
            value, schema = value[rest], child(schema, rest)
        elif kind == "k:":
            if not isinstance(value, list):
                return _MISSING, schema
            item = next(
                (one for one in value if isinstance(one, dict) and item_key(one, schema) == step), _MISSING
            )
            if item is _MISSING:
                return _MISSING, schema
            value, schema = item, element(schema)
        else:
            wanted = json.loads(rest)
            if not isinstance(value, list) or wanted not in value:
                return _MISSING, schema
            value, schema = wanted, element(schema)
    return value, schema


def same_at(one: Any, other: Any, schema: Schema, path: Path) -> bool:
    """Whether two objects have the same at a path; what has paths inside is the same when both have it."""
    (first, kind), (second, _) = _lookup(one, schema, path), _lookup(other, schema, path)
    if first is _MISSING or second is _MISSING:
        return first is second
    if isinstance(first, dict) and isinstance(second, dict) and not is_atomic_map(kind):
        return True
    if isinstance(first, list) and isinstance(second, list) and list_kind(kind) != "atomic":
        return True
    return bool(first == second)


def present(value: Any, schema: Schema, path: Path) -> bool:
    return lookup(value, schema, path) is not _MISSING


def remove(value: Any, schema: Schema, path: Path, kept: Paths = frozenset(), at: Path = ()) -> bool:
    """Take what is at a path out of a value, in place; whether the value is empty after that.

    What becomes empty by it goes as well, unless it is in `kept`, for somebody wants it to be there.
    """
    step, rest = path[0], path[1:]
    kind, name = step[:2], step[2:]
    here = (*at, step)
    if kind == "f:":
        if isinstance(value, dict) and name in value:
            emptied = not rest or remove(value[name], child(schema, name), rest, kept, here)
            if emptied and here not in kept:
                del value[name]
            return not value
        return False
    if not isinstance(value, list):
        return False
    if kind == "v:":
        wanted = json.loads(name)
        if wanted in value:
            value.remove(wanted)
            return not value
        return False
    for index, item in enumerate(value):
        if isinstance(item, dict) and item_key(item, schema) == step:
            if not rest:
                del value[index]
                return not value
            # An item that stays keeps its keys, so it never becomes empty by losing a field.
            keys = schema.get("x-kubernetes-list-map-keys") or []
            if not (len(rest) == 1 and rest[0].removeprefix("f:") in keys):
                remove(item, element(schema), rest, kept, here)
            return False
    return False


def merge(live: Any, applied: Any, schema: Schema) -> Any:
    """The live value with the applied one laid over it."""
    if isinstance(live, dict) and isinstance(applied, dict) and not is_atomic_map(schema):
        result = dict(live)
        for key, value in applied.items():
            result[key] = merge(live.get(key), value, child(schema, key))
        return result
    if isinstance(live, list) and isinstance(applied, list):
        kind = list_kind(schema)
        if kind in ("map", "set"):
            return _merge_list(live, applied, schema, kind)
    return clone(applied)


def _merge_list(live: list[Any], applied: list[Any], schema: Schema, kind: str) -> list[Any]:
    """Shared items in the order of the applied ones; those of one side only where they stand there, live ones first."""

    def key(item: Any) -> str:
        return item_key(item, schema) if kind == "map" else value_step(item)

    inner = element(schema)
    had = {key(item): item for item in live}
    wanted = {key(item) for item in applied}
    rest = list(live)
    result = []
    for item in applied:
        while rest and (key(rest[0]) not in wanted or key(rest[0]) not in had):
            first = rest.pop(0)
            if key(first) not in wanted:
                result.append(first)
        result.append(merge(had.pop(key(item)), item, inner) if key(item) in had else clone(item))
    return result + [item for item in rest if key(item) not in wanted]


def shown(path: Path) -> str:
    """A path as messages show it: .spec.template.spec.containers[name="a"].image."""
    text = ""
    for step in path:
        kind, rest = step[:2], step[2:]
        if kind == "f:":
            text += f".{rest}"
        elif kind == "k:":
            keys = ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(rest).items())
            text += f"[{keys}]"
        else:
            text += f"[={rest}]"
    return text
