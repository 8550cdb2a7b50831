"""An API server's insides without HTTP, with a clock and names that tests control."""

from __future__ import annotations

import datetime as dt
import itertools
from dataclasses import dataclass, field
from typing import Any

from supercluster.localplane.apiserver.objects.garbage_collector import GarbageCollector
from supercluster.localplane.apiserver.objects.kind_rules import KindRules
from supercluster.localplane.apiserver.objects.objects import Objects
from supercluster.localplane.apiserver.objects.writes import Chance, DeleteOptions, Write
from supercluster.localplane.apiserver.storage.registry import Registry, Resource
from supercluster.localplane.apiserver.storage.store import Store

Json = dict[str, Any]

CORE = ("", "v1")
APPS = ("apps", "v1")


@dataclass
class Lab:
    """Objects over an empty store with the namespace `default`."""

    now: dt.datetime = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    store: Store = field(default_factory=lambda: Store(None))

    def __post_init__(self) -> None:
        numbers = itertools.count(1)
        letters = itertools.count(1)
        chance = Chance(
            now=lambda: self.now,
            uid=lambda: f"uid-{next(numbers)}",
            suffix=lambda: f"{next(letters):05d}",
        )
        self.registry = Registry()
        rules = KindRules(self.registry, self.store, chance.now)
        self.objects = Objects(self.store, self.registry, rules, chance)
        self.collector = GarbageCollector(self.objects, lambda: None)
        rules.followers.append(self.collector.changed)
        self.create("namespaces", {"metadata": {"name": "default"}}, namespace="")

    def kind(self, plural: str) -> Resource:
        return next(item for item in self.registry.all() if item.plural == plural)

    def create(self, plural: str, body: Json, *, namespace: str = "default", **how: Any) -> Json:
        kind = self.kind(plural)
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        return self.objects.create(kind, namespace, body, Write(**how))

    def get(self, plural: str, name: str, namespace: str = "default") -> Json:
        return self.objects.get(self.kind(plural), namespace, name)

    def exists(self, plural: str, name: str, namespace: str = "default") -> bool:
        return self.store.get(self.kind(plural).storage, namespace, name) is not None

    def update(
        self, plural: str, body: Json, *, subresource: str = "", namespace: str = "default", **how: Any
    ) -> Json:
        kind, name = self.kind(plural), body["metadata"]["name"]
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        return self.objects.update(kind, namespace, name, body, Write(**how), subresource)

    def patch(
        self,
        plural: str,
        name: str,
        change: Json,
        *,
        subresource: str = "",
        namespace: str = "default",
        **how: Any,
    ) -> Json:
        from supercluster.localplane.apiserver.schema.patches import merge_patch

        return self.objects.patch(
            self.kind(plural),
            namespace,
            name,
            lambda old: merge_patch(old, change),
            Write(**how),
            subresource,
        )

    def apply(
        self, plural: str, body: Json, manager: str, *, force: bool = False, subresource: str = ""
    ) -> Json:
        kind = self.kind(plural)
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        obj, _ = self.objects.apply(
            kind,
            "default" if kind.namespaced else "",
            body["metadata"]["name"],
            body,
            Write(manager=manager, operation="Apply"),
            subresource=subresource,
            force=force,
        )
        return obj

    def delete(self, plural: str, name: str, namespace: str = "default", **options: Any) -> None:
        self.objects.delete(self.kind(plural), namespace, name, DeleteOptions(**options), Write())

    def settle(self) -> None:
        """Work off all consequences of deletions."""
        while self.collector.step():
            pass


def a_map(name: str = "a", **data: str) -> Json:
    return {"metadata": {"name": name}, "data": data or {"k": "v"}}


def a_pod(name: str = "p", **spec: Any) -> Json:
    return {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "img:1"}], **spec},
    }


def a_template() -> Json:
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "img:1"}]},
    }


def a_set(name: str = "web", **spec: Any) -> Json:
    return {
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "selector": {"matchLabels": {"app": "web"}},
            "template": a_template(),
            **spec,
        },
    }


def a_definition(spec_schema: Json | None = None, **version: Any) -> Json:
    """The definition of Widget, whose spec has this schema."""
    schema = {
        "type": "object",
        "properties": {
            "spec": spec_schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    return {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    **version,
                }
            ],
        },
    }
