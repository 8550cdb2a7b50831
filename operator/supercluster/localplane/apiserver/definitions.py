"""CustomResourceDefinitions: their defaults, what can be wrong with them, and the status that says they are served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from supercluster.localplane.apiserver.errors import Cause

Json = dict[str, Any]


def default(crd: Json) -> None:
    """Fill in the names that follow from the kind, and the conversion strategy."""
    spec = crd.get("spec")
    if not isinstance(spec, dict):
        return
    names = spec.get("names")
    if isinstance(names, dict) and isinstance(names.get("kind"), str):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", names["kind"] + "List")
    spec.setdefault("conversion", {"strategy": "None"})


def problems(crd: Json) -> Iterator[Cause]:
    """What keeps a definition from being served."""
    spec = crd.get("spec")
    if not isinstance(spec, dict):
        yield Cause("spec", "Required value: a definition has a spec", "FieldValueRequired")
        return
    given = spec.get("names")
    names: Json = given if isinstance(given, dict) else {}
    for key in ("kind", "plural"):
        if not names.get(key):
            yield Cause(f"spec.names.{key}", "Required value", "FieldValueRequired")
    expected = f"{names.get('plural')}.{spec.get('group')}"
    if crd["metadata"]["name"] != expected:
        told = f'Invalid value: "{crd["metadata"]["name"]}": must be spec.names.plural+"."+spec.group, here {expected}'
        yield Cause("metadata.name", told)
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        told = f'Unsupported value: "{spec.get("scope")}": supported values: "Cluster", "Namespaced"'
        yield Cause("spec.scope", told, "FieldValueNotSupported")
    versions = spec.get("versions")
    if not isinstance(versions, list) or not versions:
        yield Cause("spec.versions", "Required value: at least one version", "FieldValueRequired")
        return
    if sum(1 for version in versions if version.get("storage")) != 1:
        yield Cause("spec.versions", "Invalid value: must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            path = f"spec.versions[{index}].schema.openAPIV3Schema"
            yield Cause(path, "Required value: schemas are required", "FieldValueRequired")


def set_status(crd: Json) -> None:
    """Say that the definition is served, which it is as soon as it is stored."""
    spec = crd.get("spec") or {}
    versions = [version for version in spec.get("versions") or [] if isinstance(version, dict)]
    made = crd["metadata"].get("creationTimestamp")
    crd["status"] = {
        "acceptedNames": spec.get("names") or {},
        "storedVersions": [version.get("name") for version in versions if version.get("storage")],
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": made,
            }
            for kind, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ],
    }
