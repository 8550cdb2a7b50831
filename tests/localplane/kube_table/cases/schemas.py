"""Defaults, pruning, list types, formats and the other words of a structural schema, told by custom resources."""

from __future__ import annotations

from typing import Any

from tests.localplane.kube_table.definitions import INTEGER, STRING, definition, obj
from tests.localplane.kube_table.table import (
    CRDS,
    THINGS,
    Case,
    Json,
    case,
    delete,
    get,
    json_patch,
    merge,
    post,
    thing,
)

TA = f"{THINGS}/a"


def made(name: str, *specs: Json, differs: str = "") -> Case:
    """A resource with each of these specs, one after the other."""
    steps = [post(THINGS, thing(spec, name=f"a{number}")) for number, spec in enumerate(specs)]
    return case(name, *steps, differs=differs)


def _note(schema: Json) -> Json:
    found = definition("Note", obj(spec=schema), group="{group}")
    found["spec"]["names"]["shortNames"] = ["nt"]
    return found


NOTES = "/apis/{group}/v1/namespaces/{ns}/notes"
NOTE: Json = {"apiVersion": "{group}/v1", "kind": "Note", "metadata": {"name": "a"}}
NOTE_CRD = f"{CRDS}/notes.{{group}}"
LOOSE = obj(n=INTEGER, s=STRING, list={"type": "array", "items": INTEGER})
TIGHT = obj(
    n={"type": "integer", "maximum": 5},
    s=STRING,
    list={"type": "array", "items": {"type": "integer", "maximum": 5}},
)


def _json_patched(schema: Json) -> list[Any]:
    return [
        {"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec", "value": schema}
    ]


CASES: tuple[Case, ...] = (
    made("defaults-nested", {}, {"nested": {}}, {"nested": {"deeper": {}}}, {"absent": {}}),
    made("defaults-null", {"filled": None}, {"maybe": None}, {"nested": None}, {"nested": {"deep": None}}),
    made("defaults-in-lists", {"items": [{}, {"size": 5}, {"size": None}]}, {"items": []}, {"keyed": [{"name": "a"}]}),
    made("defaults-in-maps", {"mapped": {"a": {}, "b": {"size": 5}}}),
    made("null-without-default", {"s": None}, {"nullable": None}, {"closed": None}, {"atoms": [None]}, {"labels": {"a": None}}),
    case("defaults-at-update", post(THINGS, thing({"filled": "e"})), merge(TA, {"spec": {"filled": None}}), merge(TA, {"spec": None})),
    case("defaults-of-status", post(THINGS, thing()), merge(f"{TA}/status", {"status": {}}), merge(f"{TA}/status", {"status": {"phase": "x"}})),
    case("no-spec", post(THINGS, {"apiVersion": "{group}/v1", "kind": "Thing", "metadata": {"name": "a"}})),
    made("pruning", {"odd": 1, "closed": {"a": "x", "odd": {"b": 1}}, "items": [{"odd": 1}], "mapped": {"k": {"odd": 1}}}),
    made("pruning-preserved", {"free": {"odd": {"x": [1]}, "known": {"n": 1, "odd": 2}}, "any": {"x": {"y": None}}}, {"any": [1, "a", None]}),
    made("embedded-resource", {"resource": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "odd": 1}, "x": 1}}, {"resource": {"x": 1}}, {"resource": {"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": "b c"}}}}),
    made("list-map-duplicate", {"keyed": [{"name": "a"}, {"name": "a"}]}, {"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]}, {"ports": [{"port": 1}, {"port": 1, "protocol": "UDP"}]}),
    made("list-map-without-key", {"keyed": [{"value": 1}]}),
    made("list-set-duplicate", {"uniq": ["a", "b", "a", "a"]}),
    made("list-atomic-duplicate", {"atoms": ["a", "a"]}),
    made("type-string", {"s": 1}, {"s": True}, {"s": {}}, {"s": []}),
    made("type-integer", {"n": "1"}, {"n": 1.5}, {"replicas": 1.5}, {"n": 1.0}, {"n": True}),
    made("type-object", {"closed": "x"}, {"closed": []}, {"atoms": {}}, {"b": "true"}),
    made("several-wrong", {"s": 1, "n": 101, "choice": "z", "atoms": [1, "a", 2]}),
    made("required", {"needs": {}}, {"needs": {"a": None}}, {"needs": {"a": ""}}),
    made("numbers", {"n": 101}, {"n": -1}, {"num": 0.3}, {"i32": 2**40}, {"i32": 2**31 - 1}),
    made("strings", {"short": "a"}, {"short": "abcd"}, {"short": "äöü"}, {"pattern": "A"}, {"choice": "c"}),
    made("sizes", {"few": []}, {"few": ["a", "b", "c"]}, {"small": {"a": "1", "b": "2"}}),
    made("one-of", {"one": 4}, {"one": 7}, {"one": 6}, {"one": 3}),
    made("int-or-string", {"ios": 1}, {"ios": "1"}, {"ios": 1.5}, {"ios": {}}, {"ios": True}, {"ios": None}),
    made("format-date-time", {"when": "2026-01-01T00:00:00Z"}, {"when": "2026-01-01T00:00:00.5+01:00"}, {"when": "today"}, {"when": "2026-01-01"}, {"when": "2026-01-01T00:00:00"}),
    made("format-date", {"day": "2026-01-31"}, {"day": "2026-02-30"}, {"day": "x"}),
    made("format-duration", {"time": "1h30m"}, {"time": "1.5s"}, {"time": "5"}, {"time": "1 s"}, {"time": "x"}, {"time": "3 days"}),
    made("format-byte", {"bytes": "YWJj"}, {"bytes": "???"}, {"bytes": "YWJ"}),
    made("format-ipv4", {"ip": "10.0.0.1"}, {"ip": "10.0.0.256"}, {"ip": "::1"}),
    made("format-uuid", {"uuid": "123e4567-e89b-12d3-a456-426614174000"}, {"uuid": "x"}),
    made("format-unknown", {"unknown": "anything"}),
    case("root-wrong-type", post(THINGS, thing("x")), post(THINGS, {**thing(), "metadata": "x"}), post(THINGS, thing([]))),
    case("ratcheting", post(CRDS, _note(LOOSE), shows=()), post(NOTES, {**NOTE, "spec": {"n": 9, "list": [9]}}, until=201), json_patch(NOTE_CRD, _json_patched(TIGHT), shows=()), post(NOTES, {**NOTE, "metadata": {"name": "b"}, "spec": {"n": 9}}, until=422), merge(f"{NOTES}/a", {"metadata": {"labels": {"x": "y"}}}), merge(f"{NOTES}/a", {"spec": {"s": "x"}}), merge(f"{NOTES}/a", {"spec": {"n": 8}}), merge(f"{NOTES}/a", {"spec": {"list": [9, 1]}}), merge(f"{NOTES}/a", {"spec": {"n": 5}}), delete(NOTE_CRD, shows=()), get(NOTE_CRD, until=404, shows=())),
)  # fmt: skip
