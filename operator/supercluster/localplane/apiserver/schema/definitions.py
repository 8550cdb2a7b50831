"""CustomResourceDefinitions: their defaults, their possible errors, and the status that reports that they are
served.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from supercluster.localplane.apiserver.errors import Cause
from supercluster.localplane.apiserver.schema import rules_check, structural
from supercluster.localplane.apiserver.schema.structural import invalid, required, unsupported
from supercluster.localplane.json_data import Json

PER_VERSION = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
COLUMN_TYPES = ("integer", "number", "string", "boolean", "date")
_LABEL = re.compile(r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")


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
    spec = crd.get("spec") or {}
    yield from _names(crd, spec)
    scope = spec.get("scope")
    if not scope:
        yield required("spec.scope")
    elif scope not in ("Namespaced", "Cluster"):
        yield unsupported("spec.scope", scope, "Cluster", "Namespaced")
    if spec.get("preserveUnknownFields"):
        yield invalid("spec.preserveUnknownFields", True, "must be false")
    yield from _conversion(spec.get("conversion") or {})
    versions = spec.get("versions") or []
    names = [version.get("name") for version in versions]
    if sum(1 for version in versions if version.get("storage")) != 1 or len(set(names)) != len(names):
        yield invalid(
            "spec.versions", names, "must have exactly one version marked as storage version, and each once"
        )
        yield invalid("status.storedVersions", names, "must have exactly one stored version")
    bodies = [{key: version.get(key) for key in PER_VERSION} for version in versions]
    for index, version in enumerate(versions):
        where = f"spec.versions[{index}]"
        if not _LABEL.match(str(version.get("name", ""))):
            if index == 0:
                yield invalid("spec.version", version.get("name"), "must be a DNS label")
            yield invalid(f"{where}.name", version.get("name"), "must be a DNS label")
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not schema:
            yield required(f"{where}.schema.openAPIV3Schema", "schemas are required")
            continue
        # What all versions share Kubernetes looks at, and tells of, once.
        shared = all(body == bodies[0] for body in bodies)
        if shared and index:
            continue
        path = "spec.validation.openAPIV3Schema" if shared else f"{where}.schema.openAPIV3Schema"
        yield from structural.problems(schema, path)
        yield from rules_check.problems(schema, path)
        yield from _parts(version, schema, "spec" if shared else where)


def _names(crd: Json, spec: Json) -> Iterator[Cause]:
    names, group = spec.get("names") or {}, spec.get("group")
    if not group:
        yield required("spec.group")
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    for key in ("plural", "singular", "kind", "listKind"):
        name = names.get(key)
        if not name:
            yield required(f"spec.names.{key}")
        elif not _LABEL.match(name if key == "plural" else name.lower()):
            yield invalid(f"spec.names.{key}", name, "must be a DNS label, kinds but for their capitals")
    expected = f"{names.get('plural')}.{group}"
    if crd["metadata"]["name"] != expected:
        yield invalid("metadata.name", crd["metadata"]["name"], f"must be {expected}")


def _conversion(conversion: Json) -> Iterator[Cause]:
    strategy = conversion.get("strategy", "None")
    if strategy not in ("None", "Webhook"):
        yield unsupported("spec.conversion.strategy", strategy, "None", "Webhook")
    webhook = conversion.get("webhook") or {}
    if strategy == "Webhook":
        if not webhook.get("conversionReviewVersions"):
            yield required("spec.conversion.conversionReviewVersions")
        if not webhook.get("clientConfig"):
            yield required("spec.conversion.webhookClientConfig")


def _parts(version: Json, schema: Json, path: str) -> Iterator[Cause]:
    """A version's subresources, columns and fields to select by."""
    scale = (version.get("subresources") or {}).get("scale")
    for key, start in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        if scale is not None and not scale.get(key):
            yield required(f"{path}.subresources.scale.{key}")
        elif scale is not None and not scale[key].startswith(start):
            yield invalid(
                f"{path}.subresources.scale.{key}", scale[key], f"should be a json path under {start}"
            )
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        where = f"{path}.additionalPrinterColumns[{index}]"
        if column.get("type") not in COLUMN_TYPES:
            yield invalid(f"{where}.type", column.get("type"), f"must be one of {', '.join(COLUMN_TYPES)}")
        if not column.get("jsonPath"):
            yield required(f"{where}.JSONPath")
    for index, field in enumerate(version.get("selectableFields") or ()):
        node: Json = schema
        for name in str(field.get("jsonPath", "")).strip(".").split("."):
            node = (node.get("properties") or {}).get(name) or {}
        if node.get("type") not in ("string", "boolean", "integer"):
            told = "must be the path of a field that is a string, a boolean or an integer"
            yield invalid(f"{path}.selectableFields[{index}].jsonPath", field.get("jsonPath"), told)


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
