"""Fields that the server itself sets on new objects: addresses of Services, first statuses, the account of a
pod.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from supercluster.localplane.apiserver import errors
from supercluster.localplane.apiserver.storage.registry import NAMESPACES
from supercluster.localplane.apiserver.storage.store import Store
from supercluster.localplane.json_data import Json

SERVICES = ("", "services")
STORAGE_CLASSES = ("storage.k8s.io", "storageclasses")
NODE_PORTS = range(30_000, 32_768)
# Addresses of Services are names for what resolves to pods; 10.96/16 is where kubeadm puts them.
ADDRESS_PREFIX = "10.96."
ADDRESSES = 65_000


def _address(store: Store, obj: Json) -> str:
    """A free address, the same one for the same name when it is free."""
    taken = {(item.get("spec") or {}).get("clusterIP") for item in store.all_of(SERVICES)}
    metadata = obj["metadata"]
    digest = hashlib.sha256(f"{metadata.get('namespace')}/{metadata['name']}".encode()).digest()
    start = int.from_bytes(digest[:4], "big") % ADDRESSES
    for step in range(ADDRESSES):
        number = (start + step) % ADDRESSES + 10
        address = f"{ADDRESS_PREFIX}{number // 256}.{number % 256}"
        if address not in taken:
            return address
    raise AssertionError("more Services than addresses")


def _node_port(store: Store) -> int:
    taken = {
        port.get("nodePort")
        for item in store.all_of(SERVICES)
        for port in (item.get("spec") or {}).get("ports") or []
    }
    return next(port for port in NODE_PORTS if port not in taken)


def service(store: Store, new: Json, old: Json | None) -> None:
    spec = new.get("spec") or {}
    new.setdefault("status", {"loadBalancer": {}})
    if spec.get("type") == "ExternalName":
        return
    if not spec.get("clusterIP") and old is not None:
        spec["clusterIP"] = (old.get("spec") or {}).get("clusterIP")
    if not spec.get("clusterIP"):
        spec["clusterIP"] = _address(store, new)
    spec["clusterIPs"] = [spec["clusterIP"]]
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        before = {
            (port.get("port"), port.get("protocol")): port.get("nodePort")
            for port in ((old or {}).get("spec") or {}).get("ports") or []
        }
        for port in spec.get("ports") or []:
            if not port.get("nodePort"):
                port["nodePort"] = before.get((port.get("port"), port.get("protocol"))) or _node_port(store)


def _pod(store: Store, new: Json, old: Json | None) -> None:
    if old is not None:
        return
    spec = new["spec"]
    spec.setdefault("serviceAccountName", "default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    new["status"] = {"phase": "Pending", "qosClass": _quality(spec)}


def _quality(spec: Json) -> str:
    """BestEffort, Burstable or Guaranteed, by the containers' requests and limits."""
    containers = spec.get("containers") or []
    resources = [container.get("resources") or {} for container in containers]
    if not any(item.get("requests") or item.get("limits") for item in resources):
        return "BestEffort"
    for item in resources:
        limits, requests = item.get("limits") or {}, item.get("requests") or {}
        if {"cpu", "memory"} - set(limits) or any(
            requests.get(key, limits[key]) != limits[key] for key in limits
        ):
            return "Burstable"
    return "Guaranteed"


def _claim(store: Store, new: Json, old: Json | None) -> None:
    if old is None:
        new["status"] = {"phase": "Pending"}
        return
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    name = spec.get("storageClassName")
    found = store.get(STORAGE_CLASSES, "", name) if name else None
    # Volumes without a class are the plane's own, and may grow.
    may_grow = not name or (found is not None and found.get("allowVolumeExpansion") is True)
    if not may_grow and spec.get("resources") != before.get("resources"):
        why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
        raise errors.forbidden("", "persistentvolumeclaims", new["metadata"]["name"], why)


def _volume(store: Store, new: Json, old: Json | None) -> None:
    if old is None:
        new.setdefault("status", {"phase": "Available"})


def _namespace(store: Store, new: Json, old: Json | None) -> None:
    new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"]["name"]
    if old is None:
        new["spec"] = {"finalizers": ["kubernetes"]}
        new["status"] = {"phase": "Active"}
    elif "spec" not in new and "spec" in old:
        new["spec"] = old["spec"]


def _empty_status(store: Store, new: Json, old: Json | None) -> None:
    if old is None:
        new["status"] = {}


def _replicated_status(store: Store, new: Json, old: Json | None) -> None:
    if old is None:
        new["status"] = {"replicas": 0}


def _budget(store: Store, new: Json, old: Json | None) -> None:
    if old is None:
        counts = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
        new["status"] = dict.fromkeys(counts, 0)


def _keys(store: Store, new: Json, old: Json | None) -> None:
    """Go leaves out maps that are empty."""
    for name in ("data", "binaryData"):
        if not new.get(name, True):
            del new[name]


_BY_KIND: dict[tuple[str, str], Callable[[Store, Json, Json | None], None]] = {
    SERVICES: service,
    NAMESPACES: _namespace,
    ("", "configmaps"): _keys,
    ("", "secrets"): _keys,
    ("", "pods"): _pod,
    ("", "persistentvolumeclaims"): _claim,
    ("", "persistentvolumes"): _volume,
    ("apps", "deployments"): _empty_status,
    ("apps", "statefulsets"): _replicated_status,
    ("apps", "replicasets"): _replicated_status,
    ("batch", "jobs"): _empty_status,
    ("batch", "cronjobs"): _empty_status,
    ("policy", "poddisruptionbudgets"): _budget,
}


def apply(store: Store, storage: tuple[str, str], new: Json, old: Json | None) -> None:
    """Set what the server decides for a built-in kind, in place."""
    prepare = _BY_KIND.get(storage)
    if prepare is not None:
        prepare(store, new, old)
