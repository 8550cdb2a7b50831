"""Requests to a Kubernetes API and what must agree in the answers: the form of the table's cases.

A case has a namespace of its own (`{ns}`). Its steps are sent in order; a step's answer can be saved in variables, which
later paths, queries and bodies name in braces. `{group}` is the API group of the shared definitions (`definitions.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

Json = dict[str, Any]

MAPS = "/api/v1/namespaces/{ns}/configmaps"
SECRETS = "/api/v1/namespaces/{ns}/secrets"
CLAIMS = "/api/v1/namespaces/{ns}/persistentvolumeclaims"
SETS = "/apis/apps/v1/namespaces/{ns}/statefulsets"
THINGS = "/apis/{group}/v1/namespaces/{ns}/things"
PLAINS = "/apis/{group}/v1/namespaces/{ns}/plains"
RULED = "/apis/{group}/v1/namespaces/{ns}/ruleds"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

TYPES = {
    "json": "application/json",
    "json-patch": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
    "yaml": "application/yaml",
}


@dataclass(frozen=True, slots=True)
class Step:
    """A request, and which parts of its answer are compared."""

    method: str
    path: str
    body: Any = None
    query: str = ""
    type: str = "json"
    # Variables to set from the answer: name -> dotted path.
    save: Json = field(default_factory=dict)
    # Whether what is at a dotted path equals a text with variables.
    same: Json = field(default_factory=dict)
    # Dotted paths of the answer's object that are compared; None: all of it.
    shows: tuple[str, ...] | None = None
    message: bool = False
    managers: bool = False
    # Repeat until the answer has this status, for what happens in the background.
    until: int = 0
    # Repeat until this is true of the answer's body.
    when: Callable[[Any], bool] | None = None

    def but(self, **changes: Any) -> Step:
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    steps: tuple[Step, ...]
    # Why the embedded server differs; the test then shows that it still does.
    differs: str = ""


def case(name: str, *steps: Step, differs: str = "") -> Case:
    return Case(name, steps, differs)


def post(path: str, body: Any, query: str = "", **how: Any) -> Step:
    return Step("POST", path, body, query, **how)


def get(path: str, query: str = "", **how: Any) -> Step:
    return Step("GET", path, None, query, **how)


def put(path: str, body: Any, query: str = "", **how: Any) -> Step:
    return Step("PUT", path, body, query, **how)


def delete(path: str, body: Any = None, query: str = "", **how: Any) -> Step:
    return Step("DELETE", path, body, query, **how)


def merge(path: str, body: Any, query: str = "", **how: Any) -> Step:
    return Step("PATCH", path, body, query, "merge", **how)


def json_patch(path: str, body: Any, query: str = "", **how: Any) -> Step:
    return Step("PATCH", path, body, query, "json-patch", **how)


def strategic(path: str, body: Any, query: str = "", **how: Any) -> Step:
    return Step("PATCH", path, body, query, "strategic", **how)


def apply(path: str, body: Any, manager: str, query: str = "", **how: Any) -> Step:
    both = f"fieldManager={manager}" + (f"&{query}" if query else "")
    return Step("PATCH", path, body, both, "apply", **how)


def watch(path: str, query: str = "", **how: Any) -> Step:
    """The events of a watch of one second."""
    return Step("WATCH", path, None, f"watch=true&timeoutSeconds=1{'&' if query else ''}{query}", **how)


def a_map(name: str = "a", metadata: Json | None = None, **data: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **(metadata or {})},
        "data": data or {"k": "v"},
    }


def a_secret(name: str = "a", metadata: Json | None = None) -> Json:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **(metadata or {})}}


def _of_group(kind: str, name: str, spec: Any, metadata: Json | None, more: Json) -> Json:
    meta = {"name": name, **(metadata or {})}
    return {"apiVersion": "{group}/v1", "kind": kind, "metadata": meta, "spec": spec, **more}


def thing(spec: Any = None, name: str = "a", metadata: Json | None = None, **more: Any) -> Json:
    return _of_group("Thing", name, spec if spec is not None else {}, metadata, more)


def plain(spec: Any = None, name: str = "a", metadata: Json | None = None, **more: Any) -> Json:
    return _of_group("Plain", name, spec if spec is not None else {}, metadata, more)


def ruled(spec: Any = None, name: str = "a", metadata: Json | None = None, **more: Any) -> Json:
    return _of_group("Ruled", name, spec if spec is not None else {}, metadata, more)
