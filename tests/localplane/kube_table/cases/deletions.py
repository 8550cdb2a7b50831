"""Deletion: preconditions, finalizers, propagation, owners, collections, namespaces and definitions."""

from __future__ import annotations

from typing import Any

from tests.localplane.kube_table.definitions import FREE, definition, obj
from tests.localplane.kube_table.table import (
    CRDS,
    MAPS,
    SECRETS,
    THINGS,
    Case,
    Json,
    Step,
    a_map,
    a_secret,
    case,
    delete,
    get,
    merge,
    post,
    put,
    thing,
)

A, B, TA = f"{MAPS}/a", f"{MAPS}/b", f"{THINGS}/a"
SA = f"{SECRETS}/a"
SAVED = {"uid": "metadata.uid", "rv": "metadata.resourceVersion"}
NO_UID = "00000000-0000-0000-0000-000000000000"
FINALIZED: Json = {"finalizers": ["x/y"]}


def owned(name: str, block: bool | None = None, **metadata: Any) -> Json:
    """A Secret that the ConfigMap `a` owns."""
    owner: Json = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "{uid}"}
    if block is not None:
        owner["blockOwnerDeletion"] = block
    return a_secret(name, metadata={"ownerReferences": [owner], **metadata})


def options(**given: Any) -> Json:
    return {"apiVersion": "v1", "kind": "DeleteOptions", **given}


def released(path: str) -> Step:
    return merge(path, {"metadata": {"finalizers": None}})


def _end(kind: str) -> Json:
    return definition(kind, obj(spec=FREE))


SHORT: Json = {"apiVersion": "{group}/v1", "kind": "Short", "metadata": {"name": "a"}}
SHORTS, SHORT_CRD = "/apis/{group}/v1/namespaces/{ns}/shorts", f"{CRDS}/shorts.{{group}}"
NAMESPACE: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}-x"}}
OTHER = "/api/v1/namespaces/{ns}-x"

CASES: tuple[Case, ...] = (
    case("delete", post(MAPS, a_map()), delete(A), get(A), delete(A)),
    case("delete-custom", post(THINGS, thing()), delete(TA), get(TA)),
    case("delete-preconditions", post(MAPS, a_map(), save=SAVED), delete(A, options(preconditions={"uid": NO_UID})), delete(A, options(preconditions={"resourceVersion": "1"})), delete(A, options(preconditions={"uid": "{uid}", "resourceVersion": "1"})), delete(A, options(preconditions={"uid": "{uid}", "resourceVersion": "{rv}"}))),
    case("delete-preconditions-of-custom", post(THINGS, thing(), save=SAVED), delete(TA, options(preconditions={"uid": NO_UID})), merge(TA, {"metadata": {"labels": {"a": "b"}}}), delete(TA, options(preconditions={"resourceVersion": "{rv}"})), delete(TA, options(preconditions={"uid": "{uid}"}))),
    case("delete-with-finalizer", post(THINGS, thing({"n": 1}, metadata=FINALIZED)), delete(TA), merge(TA, {"spec": {"n": 2}}), merge(TA, {"metadata": {"finalizers": ["x/y", "x/z"]}}), delete(TA), merge(TA, {"metadata": {"finalizers": []}}), get(TA)),
    case("delete-with-finalizer-and-preconditions", post(THINGS, thing({"n": 1}, metadata=FINALIZED), save=SAVED), delete(TA, options(preconditions={"uid": "{uid}"})), delete(TA, options(preconditions={"uid": NO_UID})), released(TA)),
    case("undelete", post(MAPS, a_map(metadata=FINALIZED)), delete(A), merge(A, {"metadata": {"deletionTimestamp": None}}), released(A)),
    case("finalizer-by-put", post(THINGS, thing(metadata=FINALIZED), save=SAVED), put(TA, thing(metadata={"resourceVersion": "{rv}"})), delete(TA)),
    case("status-of-deleted", post(THINGS, thing(metadata=FINALIZED)), delete(TA), merge(f"{TA}/status", {"status": {"phase": "x"}}), released(TA)),
    case("delete-wrong-options", post(MAPS, a_map()), delete(A, options(propagationPolicy="Sideways")), delete(A, options(orphanDependents=True, propagationPolicy="Orphan")), delete(A, options(gracePeriodSeconds=-1)), delete(A, options(odd=1)), get(A)),
    case("delete-with-body-of-other-kind", post(MAPS, a_map()), delete(A, a_map()), post(MAPS, a_map("b")), delete(B, "[]")),
    case("background", post(MAPS, a_map(), save=SAVED), post(SECRETS, owned("a")), delete(A, options(propagationPolicy="Background")), get(A), get(SA, until=404)),
    case("background-by-query", post(MAPS, a_map(), save=SAVED), post(SECRETS, owned("a")), delete(A, None, "propagationPolicy=Background"), get(SA, until=404)),
    case("background-with-finalizer-below", post(MAPS, a_map(), save=SAVED), post(SECRETS, owned("a", finalizers=["x/y"])), delete(A), get(SA, when=lambda found: "deletionTimestamp" in found["metadata"]), get(A), released(SA), get(SA)),
    case("orphan", post(MAPS, a_map(), save=SAVED), post(SECRETS, owned("a")), delete(A, options(propagationPolicy="Orphan")), get(A, until=404), get(SA)),
    case("orphan-with-finalizer", post(MAPS, a_map(metadata=FINALIZED), save=SAVED), post(SECRETS, owned("a")), delete(A, options(propagationPolicy="Orphan"), shows=("metadata.finalizers",)), get(A, when=lambda found: found["metadata"]["finalizers"] == ["x/y"]), get(SA), released(A)),
    case("foreground", post(MAPS, a_map(), save=SAVED), post(SECRETS, owned("a", True, finalizers=["x/y"])), delete(A, options(propagationPolicy="Foreground")), get(SA, when=lambda found: "deletionTimestamp" in found["metadata"]), get(A), released(SA), get(A, until=404)),
    case("foreground-without-dependents", post(MAPS, a_map()), delete(A, options(propagationPolicy="Foreground")), get(A, until=404)),
    case("foreground-not-blocked", post(MAPS, a_map(), save=SAVED), post(SECRETS, owned("a", False, finalizers=["x/y"])), delete(A, options(propagationPolicy="Foreground")), get(A, until=404), get(SA, when=lambda found: "deletionTimestamp" in found["metadata"]), released(SA)),
    case("foreground-of-two-owners", post(MAPS, a_map(), save=SAVED), post(MAPS, a_map("b"), save={"second": "metadata.uid"}), post(SECRETS, a_secret(metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "{uid}", "blockOwnerDeletion": True}, {"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "{second}"}]})), delete(A, options(propagationPolicy="Foreground")), get(A, until=404), get(SA, when=lambda found: len(found["metadata"]["ownerReferences"]) == 1)),
    case("background-of-two-owners", post(MAPS, a_map(), save=SAVED), post(MAPS, a_map("b"), save={"second": "metadata.uid"}), post(SECRETS, a_secret(metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "{uid}"}, {"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "{second}"}]})), delete(A), get(SA, when=lambda found: len(found["metadata"]["ownerReferences"]) == 1), delete(B), get(SA, until=404)),
    case("owner-of-other-uid", post(MAPS, a_map()), post(SECRETS, a_secret(metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": NO_UID}]})), get(SA, until=404)),
    case("owner-that-is-not-there", post(SECRETS, a_secret(metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": NO_UID}]})), get(SA, until=404)),
    case("delete-collection", *(post(SECRETS, a_secret(name, {"labels": {"a": name}}), shows=()) for name in "abc"), delete(SECRETS, None, "labelSelector=a+in+(a,b)"), get(SECRETS), delete(SECRETS, None, "dryRun=All"), delete(SECRETS, None, "fieldSelector=metadata.name%3Dc"), get(SECRETS)),
    case("delete-collection-with-finalizers", post(THINGS, thing(metadata=FINALIZED)), post(THINGS, thing(name="b")), delete(THINGS), get(THINGS), released(TA), get(THINGS)),
    case("namespace-ends", post("/api/v1/namespaces", NAMESPACE), post(f"{OTHER}/configmaps", a_map(metadata=FINALIZED), shows=()), delete(OTHER, shows=("status.phase",)), get(f"{OTHER}/configmaps/a", when=lambda found: "deletionTimestamp" in found["metadata"], shows=()), post(f"{OTHER}/configmaps", a_map("b")), get(OTHER, shows=("status.phase", "spec.finalizers")), merge(f"{OTHER}/configmaps/a", {"metadata": {"finalizers": None}}, shows=()), get(OTHER, until=404)),
    case("definition-ends", post(CRDS, _end("Short"), shows=()), post(SHORTS, {**SHORT, "metadata": {"name": "a", **FINALIZED}}, until=201), delete(SHORT_CRD, shows=("metadata.finalizers",)), get(f"{SHORTS}/a", when=lambda found: "deletionTimestamp" in found["metadata"]), post(SHORTS, {**SHORT, "metadata": {"name": "b"}}), released(f"{SHORTS}/a"), get(SHORT_CRD, until=404)),
)  # fmt: skip
