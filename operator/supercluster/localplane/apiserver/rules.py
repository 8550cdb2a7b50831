"""What each kind adds to the common handling: the one place where built-in kinds and custom resources part ways."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from supercluster.localplane.apiserver import definitions
from supercluster.localplane.apiserver.errors import Cause
from supercluster.localplane.apiserver.objects import Write
from supercluster.localplane.apiserver.resources import CRDS, NAMESPACES, Registry, Resource

Json = dict[str, Any]


class KindRules:
    """The rules of all kinds, chosen by resource."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def unknown_fields(self, resource: Resource, obj: Json) -> list[str]:
        return []

    def default(self, resource: Resource, obj: Json) -> None:
        if resource.storage == CRDS:
            definitions.default(obj)

    def prepare(self, resource: Resource, new: Json, old: Json | None, subresource: str) -> None:
        if resource.storage == CRDS:
            definitions.set_status(new)
        elif resource.storage == NAMESPACES and old is None:
            new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"]["name"]
            new["spec"] = {"finalizers": ["kubernetes"]}
            new["status"] = {"phase": "Active"}

    def validate(self, resource: Resource, new: Json, old: Json | None, subresource: str) -> Iterable[Cause]:
        if resource.storage == CRDS:
            yield from definitions.problems(new)

    def track(self, resource: Resource, new: Json, old: Json | None, write: Write, subresource: str) -> None:
        return

    def changed(self, resource: Resource, new: Json | None, old: Json | None) -> None:
        if resource.storage == CRDS:
            if new is not None:
                self._registry.define(new)
            elif old is not None:
                self._registry.forget(old["metadata"]["name"])
