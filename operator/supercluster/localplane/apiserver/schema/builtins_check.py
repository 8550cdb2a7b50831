"""Checks of built-in kinds beyond their schemas: immutable fields, and fields that must agree with each
other.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from typing import Any

from supercluster.localplane.apiserver.errors import Cause
from supercluster.localplane.apiserver.schema.validation import shown
from supercluster.localplane.apiserver.storage.selectors import label_selector_matches
from supercluster.localplane.json_data import Json
from supercluster.localplane.quantities import quantity

Check = Callable[[Json, Json | None], Iterator[Cause]]

STATEFUL_SET_MUTABLE = frozenset(
    {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
)
POD_MUTABLE = frozenset(
    {"activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates"}
)
MAX_PORT = 65_535


def _fixed(path: str, new: Any, old: Any) -> Iterator[Cause]:
    if new != old:
        yield Cause(path, f"Invalid value: {shown(new)}: field is immutable")


def _required(owner: Json, path: str, *names: str) -> Iterator[Cause]:
    for name in names:
        if owner.get(name) in (None, "", []):
            yield Cause(f"{path}.{name}", "Required value", "FieldValueRequired")


def _not_negative(owner: Json, path: str, *names: str) -> Iterator[Cause]:
    for name in names:
        value = owner.get(name)
        if isinstance(value, int) and value < 0:
            yield Cause(f"{path}.{name}", f"Invalid value: {value}: must be greater than or equal to 0")


def _workload(new: Json, old: Json | None) -> Iterator[Cause]:
    """Replicas, a selector that never changes, and a template that it selects."""
    spec = new["spec"]
    yield from _not_negative(spec, "spec", "replicas", "minReadySeconds")
    selector = spec.get("selector")
    if not selector or not (selector.get("matchLabels") or selector.get("matchExpressions")):
        yield Cause("spec.selector", f"Invalid value: {shown(selector)}: empty selector is invalid")
        return
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if not label_selector_matches(selector, labels):
        told = f"Invalid value: {shown(labels)}: `selector` does not match template `labels`"
        yield Cause("spec.template.metadata.labels", told)
    if old is not None and new["kind"] != "StatefulSet":
        yield from _fixed("spec.selector", selector, old["spec"].get("selector"))
    yield from _pod_spec(spec["template"].get("spec") or {}, "spec.template.spec")


def _stateful_set(new: Json, old: Json | None) -> Iterator[Cause]:
    yield from _workload(new, old)
    if old is None:
        return
    changed = [
        key
        for key in sorted(set(new["spec"]) | set(old["spec"]))
        if key not in STATEFUL_SET_MUTABLE
        and (new["spec"].get(key) or None) != (old["spec"].get(key) or None)
    ]
    if changed:
        fields = ", ".join(f"'{key}'" for key in sorted(STATEFUL_SET_MUTABLE))
        told = f"Forbidden: updates to statefulset spec for fields other than {fields} are forbidden ({changed[0]})"
        yield Cause("spec", told, "FieldValueForbidden")


def _pod_spec(spec: Json, path: str) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield Cause(f"{path}.containers", "Required value", "FieldValueRequired")
    seen: set[str] = set()
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or []):
            where = f"{path}.{group}[{index}]"
            yield from _required(container, where, "name", "image")
            name = container.get("name") or ""
            if name in seen:
                yield Cause(f"{where}.name", f"Duplicate value: {shown(name)}", "FieldValueDuplicate")
            seen.add(name)
            yield from _container(container, where, volumes)


def _container(container: Json, where: str, volumes: set[str]) -> Iterator[Cause]:
    for index, port in enumerate(container.get("ports") or []):
        yield from _port(port.get("containerPort"), f"{where}.ports[{index}].containerPort")
    for index, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name") not in volumes:
            told = f"Not found: {shown(mount.get('name'))}"
            yield Cause(f"{where}.volumeMounts[{index}].name", told, "FieldValueNotFound")


def _port(value: Any, path: str) -> Iterator[Cause]:
    if isinstance(value, int) and not 1 <= value <= MAX_PORT:
        yield Cause(path, f"Invalid value: {value}: must be between 1 and {MAX_PORT}, inclusive")


def _stateful_claims(new: Json, old: Json | None) -> Iterator[Cause]:
    """A set's pods may mount the claims of its templates, which are no volumes of the pod template."""
    names = {
        (item.get("metadata") or {}).get("name") for item in new["spec"].get("volumeClaimTemplates") or []
    }
    for cause in _stateful_set(new, old):
        if cause.reason == "FieldValueNotFound" and any(f'"{name}"' in cause.message for name in names):
            continue
        yield cause


def _pod(new: Json, old: Json | None) -> Iterator[Cause]:
    yield from _pod_spec(new["spec"], "spec")
    if old is None:
        return
    before, after = old["spec"], new["spec"]
    for key in sorted(set(before) | set(after)):
        if key in POD_MUTABLE or before.get(key) == after.get(key):
            continue
        # The scheduler gives a pod its node once.
        if key == "nodeName" and not before.get(key):
            continue
        if key in ("containers", "initContainers") and _but_images(before.get(key)) == _but_images(
            after.get(key)
        ):
            continue
        if key == "ephemeralContainers":
            continue
        told = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to"
            f" existing tolerations),`spec.terminationGracePeriodSeconds` ({key})"
        )
        yield Cause("spec", told, "FieldValueForbidden")
        return


def _but_images(containers: list[Json] | None) -> list[Json]:
    return [{**container, "image": ""} for container in containers or []]


def _service(new: Json, old: Json | None) -> Iterator[Cause]:
    spec = new["spec"]
    ports = spec.get("ports") or []
    headless = spec.get("clusterIP") == "None"
    if not ports and not headless and spec["type"] != "ExternalName":
        yield Cause("spec.ports", "Required value", "FieldValueRequired")
    for index, port in enumerate(ports):
        yield from _port(port.get("port"), f"spec.ports[{index}].port")
        if len(ports) > 1:
            yield from _required(port, f"spec.ports[{index}]", "name")
    names = [port.get("name") for port in ports if port.get("name")]
    if len(set(names)) != len(names):
        yield Cause("spec.ports", f"Duplicate value: {shown(names)}", "FieldValueDuplicate")
    address = spec.get("clusterIP")
    if address and address != "None":
        try:
            ipaddress.ip_address(address)
        except ValueError:
            yield Cause("spec.clusterIPs[0]", f"Invalid value: {shown(address)}: must be a valid IP address")
    if old is not None and spec["type"] == old["spec"].get("type") != "ExternalName":
        yield from _fixed("spec.clusterIP", address, old["spec"].get("clusterIP"))


def _claim(new: Json, old: Json | None) -> Iterator[Cause]:
    spec = new["spec"]
    yield from _required(spec, "spec", "accessModes")
    wanted = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if not wanted:
        yield Cause("spec.resources[storage]", "Required value", "FieldValueRequired")
    elif str(wanted).startswith("-") or not quantity(wanted):
        yield Cause("spec.resources[storage]", f"Invalid value: {shown(wanted)}: must be greater than zero")
    if old is not None:
        for key in sorted(set(spec) | set(old["spec"])):
            settled = key in ("volumeName", "storageClassName") and not old["spec"].get(key)
            if key in ("resources", "volumeAttributesClassName") or settled:
                continue
            if spec.get(key) != old["spec"].get(key):
                told = "Forbidden: spec is immutable after creation except resources.requests and"
                yield Cause(
                    "spec",
                    f"{told} volumeAttributesClassName for bound claims ({key})",
                    "FieldValueForbidden",
                )
        yield from _no_smaller(spec, old)


def _no_smaller(spec: Json, old: Json) -> Iterator[Cause]:
    """A volume never shrinks; a claim may ask for less again only down to what it has."""
    try:
        wanted, before = (quantity(each["resources"]["requests"]["storage"]) for each in (spec, old["spec"]))
        has = quantity(((old.get("status") or {}).get("capacity") or {}).get("storage") or 0)
    except (KeyError, TypeError, ValueError):
        return  # What is wrong about it, others say.
    if wanted < min(before, has or before):
        told = "Forbidden: field can not be less than status.capacity"
        yield Cause("spec.resources.requests.storage", told, "FieldValueForbidden")


def _keeps_data(new: Json, old: Json | None) -> Iterator[Cause]:
    """ConfigMaps and Secrets that are marked immutable, and keys that can be file names."""
    for field in ("data", "binaryData"):
        for key in new.get(field) or {}:
            if (
                key in ("", ".", "..")
                or len(key) > 253
                or not all(char.isalnum() or char in "-_." for char in key)
            ):
                told = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
                yield Cause(f"{field}[{key}]", f"Invalid value: {shown(key)}: {told}")
    if old is not None and old.get("immutable"):
        for field in ("data", "binaryData", "immutable"):
            if new.get(field) != old.get(field):
                yield Cause(
                    field, "Forbidden: field is immutable when `immutable` is set", "FieldValueForbidden"
                )


def _secret(new: Json, old: Json | None) -> Iterator[Cause]:
    yield from _keeps_data(new, old)
    if old is not None:
        yield from _fixed("type", new.get("type"), old.get("type"))


def _budget(new: Json, old: Json | None) -> Iterator[Cause]:
    spec = new["spec"]
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        told = "Invalid value: minAvailable and maxUnavailable cannot be both set"
        yield Cause("spec", told)


def _job(new: Json, old: Json | None) -> Iterator[Cause]:
    spec = new["spec"]
    yield from _not_negative(spec, "spec", "parallelism", "completions", "backoffLimit")
    pod = spec["template"].get("spec") or {}
    yield from _pod_spec(pod, "spec.template.spec")
    if pod.get("restartPolicy") not in ("OnFailure", "Never"):
        told = f'Unsupported value: {shown(pod.get("restartPolicy"))}: supported values: "OnFailure", "Never"'
        yield Cause("spec.template.spec.restartPolicy", told, "FieldValueNotSupported")
    if old is not None:
        for key in ("completions", "selector", "template"):
            if key == "template" and spec.get("suspend"):
                continue
            yield from _fixed(f"spec.{key}", spec.get(key), old["spec"].get(key))


def _binding(new: Json, old: Json | None) -> Iterator[Cause]:
    if old is not None and new.get("roleRef") != old.get("roleRef"):
        yield Cause("roleRef", f"Invalid value: {shown(new.get('roleRef'))}: cannot change roleRef")


_BY_KIND: dict[tuple[str, str], Check] = {
    ("", "pods"): _pod,
    ("", "services"): _service,
    ("", "persistentvolumeclaims"): _claim,
    ("", "configmaps"): _keeps_data,
    ("", "secrets"): _secret,
    ("apps", "deployments"): _workload,
    ("apps", "replicasets"): _workload,
    ("apps", "daemonsets"): _workload,
    ("apps", "statefulsets"): _stateful_claims,
    ("batch", "jobs"): _job,
    ("policy", "poddisruptionbudgets"): _budget,
    ("rbac.authorization.k8s.io", "rolebindings"): _binding,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): _binding,
}


def problems(storage: tuple[str, str], new: Json, old: Json | None) -> Iterator[Cause]:
    """What is wrong with an object of a built-in kind that its schema lets through."""
    check = _BY_KIND.get(storage)
    if check is not None:
        yield from check(new, old)
