"""Make the schemas of Kubernetes' built-in kinds from the models of the `kubernetes` client.

The embedded control plane needs them to find unknown fields, to validate, to merge and to explain. The models
themselves would cost tens of megabytes and a second; one compact file, read when it is first needed, does not. What
the models don't say (merge keys, list types) is in the tables below. The result is committed; `--check` compares.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from kubernetes import client

Json = dict[str, Any]

TARGET = (
    Path(__file__).resolve().parent.parent
    / "operator/supercluster/localplane/apiserver/schema/builtin_schemas.json"
)
DESCRIPTION_MAX_CHARACTERS = 200
PREFIX = re.compile(r"^(?:Core|Rbac|Discovery|Authentication|Events|Storage)?V1(?=[A-Z])")
# Of two models with one name, the one that the served kinds use.
CHOSEN = {"Event": "CoreV1Event", "TokenRequest": "AuthenticationV1TokenRequest"}
# Where two models would have one name, another one for one of them.
RENAMED = {"DiscoveryV1EndpointPort": "EndpointSlicePort", "RbacV1Subject": "RbacSubject"}

KINDS = [
    "Namespace",
    "Pod",
    "Service",
    "Endpoints",
    "ConfigMap",
    "Secret",
    "ServiceAccount",
    "Event",
    "Node",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ResourceQuota",
    "LimitRange",
    "PodTemplate",
    "Deployment",
    "StatefulSet",
    "ReplicaSet",
    "DaemonSet",
    "ControllerRevision",
    "Job",
    "CronJob",
    "PodDisruptionBudget",
    "Lease",
    "EndpointSlice",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "StorageClass",
    "PriorityClass",
    "Ingress",
    "NetworkPolicy",
    "IngressClass",
    "TokenReview",
    "SelfSubjectReview",
    "SelfSubjectAccessReview",
    "SubjectAccessReview",
    "TokenRequest",
    "Eviction",
    "Scale",
    "Binding",
]

# Lists that are merged by keys: (definition, field) -> (keys of server-side apply, key of a strategic merge patch).
LIST_KEYS: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("ObjectMeta", "ownerReferences"): (("uid",), "uid"),
    ("PodSpec", "containers"): (("name",), "name"),
    ("PodSpec", "initContainers"): (("name",), "name"),
    ("PodSpec", "ephemeralContainers"): (("name",), "name"),
    ("PodSpec", "volumes"): (("name",), "name"),
    ("PodSpec", "imagePullSecrets"): (("name",), "name"),
    ("PodSpec", "hostAliases"): (("ip",), "ip"),
    ("PodSpec", "topologySpreadConstraints"): (("topologyKey", "whenUnsatisfiable"), "topologyKey"),
    ("PodSpec", "schedulingGates"): (("name",), "name"),
    ("PodSpec", "resourceClaims"): (("name",), "name"),
    ("Container", "env"): (("name",), "name"),
    ("Container", "ports"): (("containerPort", "protocol"), "containerPort"),
    ("Container", "volumeMounts"): (("mountPath",), "mountPath"),
    ("Container", "volumeDevices"): (("devicePath",), "devicePath"),
    ("EphemeralContainer", "env"): (("name",), "name"),
    ("EphemeralContainer", "ports"): (("containerPort", "protocol"), "containerPort"),
    ("EphemeralContainer", "volumeMounts"): (("mountPath",), "mountPath"),
    ("EphemeralContainer", "volumeDevices"): (("devicePath",), "devicePath"),
    ("ServiceSpec", "ports"): (("port", "protocol"), "port"),
    ("ServiceAccount", "secrets"): (("name",), "name"),
    ("PodStatus", "podIPs"): (("ip",), "ip"),
    ("PodStatus", "hostIPs"): (("ip",), ""),
    ("NodeStatus", "addresses"): (("type",), "type"),
    ("NetworkPolicySpec", "ingress"): ((), ""),
    ("CustomResourceDefinitionStatus", "conditions"): (("type",), ""),
    ("ResourceRequirements", "claims"): (("name",), ""),
    ("EndpointSlice", "ports"): ((), ""),
    ("EndpointSubset", "addresses"): ((), ""),
}
# Lists of plain values where every value has its owner.
SETS = {("ObjectMeta", "finalizers"), ("NamespaceSpec", "finalizers"), ("NodeSpec", "podCIDRs")}
# Sets that a strategic merge patch replaces all the same.
NOT_PATCHED_AS_SETS = {("NamespaceSpec", "finalizers")}
# A patch of these keeps only the keys that it names.
RETAIN_KEYS = {("DeploymentSpec", "strategy"), ("PodSpec", "volumes"), ("PodSpec", "resourceClaims")}
ATOMIC = {
    "LabelSelector", "NodeSelector", "NodeSelectorTerm", "ObjectFieldSelector", "ResourceFieldSelector",
    "SecretKeySelector", "ConfigMapKeySelector", "LocalObjectReference", "ObjectReference", "SecretReference",
    "TypedLocalObjectReference", "ScopeSelector", "AggregationRule", "RoleRef",
}  # fmt: skip
QUANTITIES = {
    "limits", "requests", "capacity", "allocatable", "sizeLimit", "divisor", "hard", "used", "default",
    "defaultRequest", "max", "min", "maxLimitRequestRatio", "overhead", "allocatedResources",
}  # fmt: skip


class Generator:
    """Collects the definitions that the kinds reach."""

    def __init__(self) -> None:
        self.definitions: dict[str, Json] = {}
        self._models: dict[str, str] = {}

    def reach(self, model_name: str) -> str:
        name = RENAMED.get(model_name) or PREFIX.sub("", model_name)
        if self._models.setdefault(name, model_name) != model_name:
            raise SystemExit(f"error: both {self._models[name]} and {model_name} would be called {name}")
        if name not in self.definitions:
            self.definitions[name] = {}
            self.definitions[name] = self._definition(name, getattr(client, model_name))
        return name

    def _definition(self, name: str, model: Any) -> Json:
        properties: dict[str, Json] = {}
        required = []
        by_alias = {info.serialization_alias or key: info for key, info in model.model_fields.items()}
        for attribute, kind in sorted(model.openapi_types.items()):
            field = model.attribute_map[attribute]
            info = by_alias[field]
            schema = self._type(kind, str(info.annotation))
            _quantity(field, name, schema)
            self._mark_merge(name, field, schema)
            if info.description:
                schema["description"] = _first_sentence(info.description)
            properties[field] = schema
            if info.is_required():
                required.append(field)
        definition: Json = {"type": "object", "properties": properties}
        if required:
            definition["required"] = required
        if name in ATOMIC:
            definition["x-kubernetes-map-type"] = "atomic"
        text = (model.__doc__ or "").split("Attributes:")[0].strip()
        if text:
            definition["description"] = _first_sentence(text)
        return definition

    def _type(self, kind: str, annotation: str) -> Json:
        if match := re.fullmatch(r"List\[(.*)\]", kind):
            return {"type": "array", "items": self._type(match[1], "")}
        if match := re.fullmatch(r"Dict\[str, (.*)\]", kind):
            return {"type": "object", "additionalProperties": self._type(match[1], "")}
        plain: dict[str, Json] = {
            "str": {"type": "string"},
            "int": {"type": "integer"},
            "bool": {"type": "boolean"},
            "float": {"type": "number"},
            "bytes": {"type": "string", "format": "byte"},
            "datetime": {"type": "string", "format": "date-time"},
        }
        if kind in plain:
            return dict(plain[kind])
        if kind == "object":
            if "int" in annotation and "str" in annotation:
                return {"x-kubernetes-int-or-string": True}
            return {"x-kubernetes-preserve-unknown-fields": True}
        return {"$ref": self.reach(kind)}

    @staticmethod
    def _mark_merge(name: str, field: str, schema: Json) -> None:
        keys, patch_key = LIST_KEYS.get((name, field), ((), ""))
        if not keys and field == "conditions" and name.endswith("Status"):
            keys, patch_key = ("type",), "type"
        if keys:
            schema["x-kubernetes-list-type"] = "map"
            schema["x-kubernetes-list-map-keys"] = list(keys)
        if patch_key:
            schema["x-kubernetes-patch-merge-key"] = patch_key
            schema["x-kubernetes-patch-strategy"] = "merge"
        if (name, field) in SETS:
            schema["x-kubernetes-list-type"] = "set"
            if (name, field) not in NOT_PATCHED_AS_SETS:
                schema["x-kubernetes-patch-strategy"] = "merge"
        if (name, field) in RETAIN_KEYS:
            before = schema.get("x-kubernetes-patch-strategy")
            schema["x-kubernetes-patch-strategy"] = f"{before},retainKeys" if before else "retainKeys"


def _quantity(field: str, definition: str, schema: Json) -> None:
    """A quantity may be written as a number, which the models don't say."""
    if field not in QUANTITIES or definition == "JSONSchemaProps":
        return
    target = schema.get("additionalProperties", schema)
    if target.get("type") == "string":
        target.clear()
        target.update({"type": "string", "format": "quantity"})


def _first_sentence(text: str) -> str:
    sentence = re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0]
    if len(sentence) <= DESCRIPTION_MAX_CHARACTERS:
        return sentence
    return sentence[:DESCRIPTION_MAX_CHARACTERS].rsplit(" ", 1)[0] + " …"


def generate() -> str:
    generator = Generator()
    for kind in KINDS:
        candidates = (CHOSEN.get(kind), f"V1{kind}", f"CoreV1{kind}", f"RbacV1{kind}", f"DiscoveryV1{kind}")
        found = next((name for name in candidates if name and hasattr(client, name)), None)
        if found is None:
            raise SystemExit(f"error: the kubernetes client has no model for {kind}")
        generator.reach(found)
    lines = [
        json.dumps(name)
        + ":"
        + json.dumps(generator.definitions[name], separators=(",", ":"), sort_keys=True)
        for name in sorted(generator.definitions)
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(argv: list[str]) -> int:
    text = generate()
    if "--check" in argv:
        if TARGET.read_text() != text:
            print(
                f"error: {TARGET.name} is not what {Path(__file__).name} makes; run it again", file=sys.stderr
            )
            return 1
        return 0
    TARGET.write_text(text)
    print(f"{TARGET}: {len(text) // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
