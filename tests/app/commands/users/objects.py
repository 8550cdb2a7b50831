"""An API server with objects, as `supercluster users` sees them."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from typing import Any, cast

from supercluster.app.kube import KubeClient
from supercluster.reconcilers.ports import Json, KubeError

SUPER_CLUSTER = {
    "apiVersion": "supercluster.dev/v1alpha1",
    "kind": "SuperCluster",
    "metadata": {"name": "demo", "namespace": "ns", "uid": "w", "generation": 1},
    "spec": {"accounts": [{"name": "ORDERS"}]},
}


class Kube:
    """`wrote` is called with each User that is patched, `looked` with each that is got: they are the operator."""

    def __init__(self, *objects: Json) -> None:
        self.objects = [copy.deepcopy(each) for each in objects]
        self.patches: list[Json] = []
        self.looked: list[Callable[[Json], None]] = []
        """Each is done once, before the User is got the next time."""
        self.conflicts = 0
        self.asked: list[tuple[str, str]] = []

    @property
    def client(self) -> KubeClient:
        return cast("KubeClient", self)

    def user(self) -> Json:
        return next(each for each in self.objects if each["kind"] == "User")

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> Json | None:
        self.asked.append((kind, name))
        if kind == "User" and self.looked:
            self.looked.pop(0)(self.user())
        found = (each for each in self.objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
        return copy.deepcopy(next(found, None))

    async def list(self, api_version: str, kind: str, namespace: str, selector: str = "") -> Json:
        label, _, value = selector.partition("=")
        found = [each for each in self.objects if each["kind"] == kind]
        if selector:
            found = [each for each in found if each["metadata"].get("labels", {}).get(label) == value]
        return {"items": copy.deepcopy(found)}

    async def merge_patch(self, api_version: str, kind: str, namespace: str, name: str, patch: Json) -> Json:
        there = next(
            each for each in self.objects if (each["kind"], each["metadata"]["name"]) == (kind, name)
        )
        if self.conflicts or patch["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"]:
            self.conflicts = max(0, self.conflicts - 1)
            raise KubeError(409, "Conflict", "the object has been modified")
        self.patches.append(patch)
        _merge(there, patch)
        there["metadata"]["resourceVersion"] += "1"
        there["metadata"]["generation"] += "spec" in patch
        return copy.deepcopy(there)


def _merge(into: Json, patch: Json) -> None:
    for key, value in patch.items():
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def condition(type_: str, status: str = "True", reason: str = "AsDeclared", message: str = "") -> Json:
    return {"type": type_, "status": status, "reason": reason, "message": message}


READY = (
    condition("Ready", reason="AcceptedByBrokers", message="3 brokers accept the credential"),
    condition("Whole"),
    condition("Accepted"),
    condition("Synced"),
    condition("Progressing", "False", "Rotated"),
)


def user(name: str = "billing", spec: Json | None = None, **status: Any) -> Json:
    """One at rest, Ready."""
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "generation": 1,
        "resourceVersion": "1",
    }
    told: Json = {
        "observedGeneration": 1,
        "user": name,
        "secret": f"demo-user-{name}",
        "credential": 1,
        "since": "2026-07-01T11:00:00Z",
        "conditions": list(READY),
        **status,
    }
    return {
        "apiVersion": "supercluster.dev/v1alpha1",
        "kind": "User",
        "metadata": {**metadata, "managedFields": [{"manager": "kubectl"}]},
        "spec": {"superCluster": "demo", **(spec or {})},
        "status": told,
    }


def secret(name: str, annotations: dict[str, str] | None = None, /, **files: Any) -> Json:
    data = {
        key: base64.b64encode((value if isinstance(value, str) else json.dumps(value)).encode()).decode()
        for key, value in files.items()
    }
    metadata = {"name": name, "namespace": "ns", "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def user_secret(name: str = "billing", /, **numbers: int) -> Json:
    told = {"current": None, "next": None, "previous": None, "last": max(numbers.values()), **numbers}
    annotation = {"supercluster.dev/credentials": json.dumps(told)}
    return secret(f"demo-user-{name}", annotation, password="hush", previousPassword="hush-before")


def credentials(*entries: Json) -> Json:
    operator = {"user": "operator", "password": "p", "role": "operator"}
    return secret("demo-credentials", **{"users.json": {"users": [operator, *entries]}})
