"""CustomResourceDefinitions: their defaults, what can be wrong with them, and the status that says they are served."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from supercluster.localplane.apiserver.cel import RULES, compile_error
from supercluster.localplane.apiserver.errors import Cause
from supercluster.localplane.apiserver.schemas import INT_OR_STRING, PRESERVE, walk
from supercluster.localplane.apiserver.schemas import default as default_value
from supercluster.localplane.apiserver.store import clone
from supercluster.localplane.apiserver.validation import problems as value_problems
from supercluster.localplane.apiserver.validation import shown

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
        else:
            path = f"spec.versions[{index}].schema.openAPIV3Schema"
            yield from _schema_problems(version["schema"]["openAPIV3Schema"], path)


def _schema_problems(schema: Json, path: str) -> Iterator[Cause]:
    """Types that are missing, patterns and rules that can't be compiled, and defaults that don't fit."""
    found: list[Cause] = []

    def visit(node: Json, inner: str) -> None:
        where = f"{path}.{inner}" if inner else path
        if not node.get("type") and not (node.get(PRESERVE) or node.get(INT_OR_STRING)):
            found.append(Cause(f"{where}.type", "Required value: must not be empty", "FieldValueRequired"))
        pattern = node.get("pattern")
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                told = (
                    f"Invalid value: {shown(pattern)}: must be a valid regular expression, but isn't: {error}"
                )
                found.append(Cause(f"{where}.pattern", told))
        for index, rule in enumerate(node.get(RULES) or ()):
            error_text = compile_error(rule.get("rule", ""))
            if error_text:
                told = f"Invalid value: {shown(rule.get('rule'))}: {error_text}"
                found.append(Cause(f"{where}.{RULES}[{index}].rule", told))
        if "default" in node:
            filled = clone(node["default"])
            default_value(filled, node)
            found.extend(
                Cause(
                    f"{where}.default",
                    f"Invalid value: {shown(node['default'])}: {wrong.field} {wrong.message}",
                )
                for wrong in value_problems(filled, node)
            )

    walk(schema, visit)
    yield from found


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
