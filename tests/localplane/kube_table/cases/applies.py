"""Server-side apply: what becomes of an object, who owns its fields, conflicts, force, and fields that are let go."""

from __future__ import annotations

from typing import Any

from tests.localplane.kube_table.table import (
    MAPS,
    SETS,
    THINGS,
    Case,
    Json,
    a_map,
    apply,
    case,
    delete,
    get,
    json_patch,
    merge,
    post,
    put,
    thing,
)

A, TA = f"{MAPS}/a", f"{THINGS}/a"
RV = {"rv": "metadata.resourceVersion"}


def spec(manager: str, body: Json, query: str = "", **how: Any) -> Any:
    return apply(TA, thing(body), manager, query, managers=True, **how)


def data(manager: str, query: str = "", metadata: Json | None = None, **values: Any) -> Any:
    body = a_map(metadata=metadata)
    return apply(A, {**body, "data": values}, manager, query, managers=True)


CASES: tuple[Case, ...] = (
    case("apply-creates", data("one", k="v"), spec("one", {"n": 1, "keyed": [{"name": "a", "value": 1}], "uniq": ["a"], "atoms": ["a"], "labels": {"a": "b"}, "atom": {"a": "b"}})),
    case("apply-again", data("one", k="v"), apply(A, a_map(), "one", save=RV), apply(A, a_map(), "one", same={"metadata.resourceVersion": "{rv}"})),
    case("apply-without-manager", apply(A, a_map(), "")),
    case("apply-conflict", data("one", k="v"), apply(A, a_map(k="w"), "two", message=True), data("two", k="v"), data("two", k="w"), data("two", "force=true", k="w")),
    case("apply-several-conflicts", spec("one", {"n": 1, "s": "x"}), post(THINGS, thing(name="b")), apply(TA, thing({"n": 2, "s": "y"}), "two", message=True)),
    case("apply-removes-what-it-owned", data("one", k="v", l="w"), data("one", k="v"), data("one")),
    case("apply-keeps-what-others-own", data("one", k="v", l="w"), data("two", l="w"), data("one", k="v"), data("two")),
    case("apply-removes-nested", spec("one", {"closed": {"a": "x"}, "labels": {"a": "1"}}), spec("one", {"n": 1})),
    case("apply-to-updated", post(MAPS, a_map(), managers=True), data("one", k="v"), data("one", k="w"), data("one", "force=true", k="w"), merge(A, {"data": {"k": "x"}}, managers=True), data("one", k="w")),
    case("update-takes-fields", spec("one", {"n": 1, "s": "x"}), merge(TA, {"spec": {"n": 2}}, managers=True), merge(TA, {"spec": {"s": None}}, managers=True), spec("one", {"n": 1})),
    case("update-by-another", post(THINGS, thing({"n": 1}), "fieldManager=a", managers=True), merge(TA, {"spec": {"n": 2}}, "fieldManager=b", managers=True), merge(TA, {"spec": {"n": 2}}, "fieldManager=c", managers=True), json_patch(TA, [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}], "fieldManager=c", managers=True)),
    case("apply-map-list", spec("one", {"keyed": [{"name": "a", "value": 1}, {"name": "b", "value": 1}]}), spec("two", {"keyed": [{"name": "c", "value": 1}, {"name": "b", "value": 1}]}), spec("one", {"keyed": [{"name": "b", "value": 1}]}), spec("one", {"keyed": [{"name": "b", "value": 2}]}, message=True), spec("one", {"keyed": []})),
    case("apply-map-list-two-keys", spec("one", {"ports": [{"port": 1, "note": "x"}, {"port": 1, "protocol": "UDP", "note": "y"}]}), spec("two", {"ports": [{"port": 1, "protocol": "TCP", "note": "x"}]}), spec("one", {"ports": [{"port": 1, "protocol": "UDP", "note": "z"}]})),
    case("apply-map-list-duplicate", spec("one", {"keyed": [{"name": "a", "value": 1}, {"name": "a", "value": 2}]})),
    case("apply-map-list-without-key", spec("one", {"keyed": [{"value": 1}]})),
    case("apply-set", spec("one", {"uniq": ["a", "b"]}), spec("two", {"uniq": ["c", "b"]}), spec("one", {"uniq": ["b"]}), spec("one", {})),
    case("apply-atomic-list", spec("one", {"atoms": ["a"]}), spec("two", {"atoms": ["a", "b"]}, message=True), spec("two", {"atoms": ["a"]}), spec("one", {"atoms": ["a"]})),
    case("apply-atomic-object", spec("one", {"atom": {"a": "x"}}), spec("two", {"atom": {"b": "y"}}, message=True), spec("one", {"atom": {"b": "y"}})),
    case("apply-unknown-field", spec("one", {"odd": 1}), spec("one", {"odd": 1}, "fieldValidation=Strict"), apply(A, {**a_map(), "odd": 1}, "one"), spec("one", {"any": {"x": 1}, "free": {"y": 2}})),
    case("apply-wrong-type", spec("one", {"n": "x"}), apply(A, {**a_map(), "data": {"k": 1}}, "one"), spec("one", {"keyed": "x"})),
    case("apply-does-not-fit", spec("one", {"n": 101}), spec("one", {"short": "a"})),
    case("apply-null", spec("one", {"s": None, "n": 1}), spec("one", {"nullable": None})),
    case("apply-status", post(THINGS, thing({"n": 1}), managers=True), apply(f"{TA}/status", {**thing(), "status": {"phase": "x"}}, "one", managers=True), spec("one", {"n": 1}), apply(f"{TA}/status", {**thing(), "status": {}}, "one", managers=True)),
    case("apply-status-with-spec", spec("one", {"n": 1}, shows=()), apply(f"{TA}/status", {**thing({"n": 2}), "status": {"phase": "x"}}, "two", managers=True), apply(TA, thing({"n": 1}, status={"phase": "y"}), "three", managers=True)),
    case("apply-status-of-nothing", apply(f"{TA}/status", {**thing(), "status": {"phase": "x"}}, "one")),
    case("update-status-managers", post(THINGS, thing({"n": 1}), "fieldManager=a"), merge(f"{TA}/status", {"status": {"phase": "x"}}, "fieldManager=a", managers=True), merge(f"{TA}/status", {"status": {"phase": "y"}}, "fieldManager=b", managers=True)),
    case("apply-labels-and-finalizers", data("one", metadata={"labels": {"a": "1", "b": "2"}, "annotations": {"c": "3"}, "finalizers": ["x/y"]}), data("two", metadata={"labels": {"d": "4"}, "finalizers": ["x/z"]}), data("one", metadata={"labels": {"a": "1"}})),
    case("apply-managed-fields", apply(A, a_map(metadata={"managedFields": [{"manager": "x"}]}), "one")),
    case("managed-fields-reset", data("one", k="v"), merge(A, {"metadata": {"managedFields": [{}]}}, managers=True), data("one", k="w")),
    case("managed-fields-kept", data("one", k="v"), merge(A, {"metadata": {"managedFields": None}}, managers=True), put(A, a_map(k="v"), managers=True)),
    case("managed-fields-of-scale", spec("one", {"replicas": 1}), merge(f"{TA}/scale", {"spec": {"replicas": 2}}, "fieldManager=scaler", shows=()), get(TA, managers=True), spec("one", {"replicas": 1}), spec("one", {"n": 1})),
    case("apply-stale", data("one", k="v"), apply(A, a_map(metadata={"resourceVersion": "1"}, k="w"), "one"), apply(A, a_map(metadata={"uid": "00000000-0000-0000-0000-000000000000"}, k="w"), "one")),
    case("apply-with-uid-of-nothing", apply(A, a_map(metadata={"uid": "00000000-0000-0000-0000-000000000000"}), "one"), apply(A, a_map(metadata={"resourceVersion": "1"}), "one")),
    case("apply-other-name", apply(A, a_map("b"), "one"), apply(A, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}}, "one"), apply(A, {**a_map(), "kind": "Secret"}, "one")),
    case("apply-dry-run", apply(A, a_map(), "one", "dryRun=All", managers=True), get(A)),
    case("apply-defaults-are-nobodys", spec("one", {"filled": "d"}), spec("one", {}), spec("two", {"filled": "e"})),
    case("apply-twice-shared-then-let-go", data("one", k="v"), data("two", k="v"), data("one"), data("two")),
    case("apply-by-yaml", apply(A, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n", "one"), apply(A, "[]", "one"), apply(A, "{", "one")),
    case("apply-set-template", apply(f"{SETS}/w", {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "w"}, "spec": {"replicas": 0, "serviceName": "w", "selector": {"matchLabels": {"app": "w"}}, "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i:1", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 1}]}]}}}}, "one", managers=True, shows=("spec.template.spec.containers.0.env",)), apply(f"{SETS}/w", {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "w"}, "spec": {"template": {"spec": {"containers": [{"name": "c", "env": [{"name": "B", "value": "2"}]}]}}}}, "two", managers=True, shows=("spec.template.spec.containers.0.env",))),
    case("apply-to-deleted", data("one", metadata={"finalizers": ["x/y"]}), delete(A, shows=()), data("one", metadata={"finalizers": ["x/y", "x/z"]}), data("one")),
)  # fmt: skip
