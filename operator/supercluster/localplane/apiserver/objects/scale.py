"""The scale subresource: a Scale object read from a workload, and written back to its replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from supercluster.localplane.apiserver.errors import ApiError, Cause, bad_request
from supercluster.localplane.apiserver.storage.registry import Resource
from supercluster.localplane.apiserver.storage.store import clone
from supercluster.localplane.json_data import Json


def _paths(resource: Resource) -> tuple[str, str, str]:
    """Where an object keeps the wanted number, the present one, and the selector."""
    if resource.crd_version is None:
        return ".spec.replicas", ".status.replicas", ""
    declared = (resource.crd_version.get("subresources") or {}).get("scale") or {}
    return (
        declared.get("specReplicasPath", ".spec.replicas"),
        declared.get("statusReplicasPath", ".status.replicas"),
        declared.get("labelSelectorPath", ""),
    )


def _at(obj: Json, path: str, otherwise: Any = None) -> Any:
    """What is at a path, None when nothing is; `otherwise` where something else than objects leads there."""
    value: Any = obj
    for part in path.strip(".").split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
            return otherwise
        value = value.get(part)
    return value


def problems(resource: Resource, obj: Json, subresource: str) -> Iterator[Cause]:
    """What keeps a custom resource's numbers from being a Scale's."""
    if resource.crd_version is None or "scale" not in resource.subresources:
        return
    wanted, present, _ = _paths(resource)
    path = present if subresource == "status" else wanted
    value = _at(obj, path, otherwise="")
    if value is not None and (not isinstance(value, int) or value < 0):
        yield Cause(path, f"Invalid value: {value!r}: should be a non-negative integer")


def _selector_text(selector: Json) -> str:
    """A LabelSelector as the text of a query."""
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for wanted in selector.get("matchExpressions") or []:
        key, values = wanted["key"], ",".join(sorted(wanted.get("values") or []))
        shown = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append(shown[wanted["operator"]])
    return ",".join(parts)


def read(resource: Resource, obj: Json) -> Json:
    """The Scale of an object."""
    wanted, present, selector_path = _paths(resource)
    metadata = obj["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Json = {"replicas": _at(obj, present) or 0}
    if selector_path:
        if _at(obj, selector_path):
            status["selector"] = _at(obj, selector_path)
    elif resource.crd_version is None:
        status["selector"] = _selector_text((obj.get("spec") or {}).get("selector") or {})
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in shown if key in metadata},
        # Go leaves a zero out.
        "spec": {"replicas": _at(obj, wanted)} if _at(obj, wanted) else {},
        "status": status,
    }


def check(resource: Resource, obj: Json) -> None:
    """Refuse to show the Scale of a custom resource that has no number yet, as Kubernetes does."""
    wanted = _paths(resource)[0]
    if resource.crd_version is not None and _at(obj, wanted) is None:
        told = f"Internal error occurred: the spec replicas field {wanted!r} is not set"
        raise ApiError(500, "InternalError", told)


def write(resource: Resource, obj: Json, scale: Any) -> Json:
    """The object with the number of a Scale; its resourceVersion goes along as a precondition."""
    spec = scale.get("spec") if isinstance(scale, dict) else None
    replicas = (spec or {}).get("replicas", 0) if isinstance(spec, dict) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request(f"spec.replicas of a Scale must be a whole number, not {replicas!r}")
    new: Json = clone(obj)
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version:
        new["metadata"]["resourceVersion"] = version
    parts = _paths(resource)[0].strip(".").split(".")
    target = new
    for part in parts[:-1]:
        target = target.setdefault(part, {})
    target[parts[-1]] = replicas
    return new
