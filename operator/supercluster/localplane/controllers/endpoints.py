"""Endpoints and EndpointSlices of Services: the pods behind a service, ready or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from supercluster.localplane.client import ENDPOINTS, PODS, SERVICES, SLICES, Json, Key, key_of
from supercluster.localplane.controllers.base import (
    Cluster,
    Controller,
    is_ready,
    is_terminating,
    owner_reference,
    phase_of,
)
from supercluster.localplane.event_recorder import EventRecorder

ENDPOINTS_MAX = 1000


def selected_pods(service: Json, pods: Iterable[Json]) -> list[Json]:
    """The service's pods that have an address and are not over, by name."""
    selector = service["spec"].get("selector")
    if not selector:
        return []
    found = [
        pod
        for pod in pods
        if (pod.get("status") or {}).get("podIP")
        and phase_of(pod) not in ("Succeeded", "Failed")
        and all((pod["metadata"].get("labels") or {}).get(name) == value for name, value in selector.items())
    ]
    return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))[:ENDPOINTS_MAX]


def counts_as_ready(service: Json, pod: Json) -> bool:
    if service["spec"].get("publishNotReadyAddresses"):
        return True
    return is_ready(pod) and not is_terminating(pod)


def port_of(target: int | str, pod: Json) -> int | None:
    """A target port as a number: given so, or by the name of a container's port."""
    if isinstance(target, int):
        return target
    if target.isdecimal():
        return int(target)
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            if port.get("name") == target:
                return int(port["containerPort"])
    return None


def _ports(service: Json, pod: Json) -> list[Json]:
    ports = []
    for port in service["spec"].get("ports") or ():
        number = port_of(port.get("targetPort") or port["port"], pod)
        if number is not None:
            entry: Json = {"port": number, "protocol": port.get("protocol", "TCP")}
            if port.get("name"):
                entry["name"] = port["name"]
            ports.append(entry)
    return ports


def _reference(pod: Json) -> Json:
    meta = pod["metadata"]
    return {"kind": "Pod", "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}


def _hostname(service: Json, pod: Json) -> Json:
    spec = pod["spec"]
    if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
        return {"hostname": spec["hostname"]}
    return {}


def subsets(service: Json, pods: Sequence[Json]) -> list[Json]:
    """`subsets` of the Endpoints object: pods with the same ports together."""
    groups: dict[str, Json] = {}
    for pod in pods:
        if is_terminating(pod) and not service["spec"].get("publishNotReadyAddresses"):
            continue
        ports = _ports(service, pod)
        group = groups.setdefault(repr(ports), {"addresses": [], "notReadyAddresses": [], "ports": ports})
        side = "addresses" if counts_as_ready(service, pod) else "notReadyAddresses"
        address = {"ip": pod["status"]["podIP"], **_hostname(service, pod), "targetRef": _reference(pod)}
        if pod["spec"].get("nodeName"):
            address["nodeName"] = pod["spec"]["nodeName"]
        group[side].append(address)
    return [{name: value for name, value in group.items() if value} for group in groups.values()]


def endpoints(service: Json, pods: Sequence[Json]) -> tuple[list[Json], list[Json]]:
    """`endpoints` and `ports` of the service's slice."""
    found = []
    for pod in pods:
        entry: Json = {
            "addresses": [pod["status"]["podIP"]],
            "conditions": {
                "ready": counts_as_ready(service, pod),
                "serving": is_ready(pod) or bool(service["spec"].get("publishNotReadyAddresses")),
                "terminating": is_terminating(pod),
            },
            **_hostname(service, pod),
            "targetRef": _reference(pod),
        }
        if pod["spec"].get("nodeName"):
            entry["nodeName"] = pod["spec"]["nodeName"]
        found.append(entry)
    ports = [{"name": "", **port} for port in _ports(service, pods[0])] if pods else []
    return found, ports


class EndpointsController(Controller):
    kind = SERVICES

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        super().__init__(cluster, recorder)
        self.watch(PODS, self._services_of)

    def _services_of(self, pod: Json) -> list[Key]:
        labels = pod["metadata"].get("labels") or {}
        return [
            key_of(service)
            for service in self.cluster[SERVICES].in_namespace(pod["metadata"]["namespace"])
            if (selector := service["spec"].get("selector"))
            and all(labels.get(name) == value for name, value in selector.items())
        ]

    async def sync(self, key: Key) -> float | None:
        service = self.cluster[self.kind].get(*key)
        if service is None:
            # Endpoints share the service's name and have no owner; the slice goes with its owner.
            orphan = self.cluster[ENDPOINTS].get(*key)
            if orphan is not None and not is_terminating(orphan):
                await self.cluster.delete(ENDPOINTS, orphan)
            return None
        if not service["spec"].get("selector") or is_terminating(service):
            return None
        pods = selected_pods(service, self.cluster[PODS].in_namespace(key[0]))
        await self._write_endpoints(service, subsets(service, pods))
        await self._write_slice(service, *endpoints(service, pods))
        return None

    async def _write_endpoints(self, service: Json, wanted: list[Json]) -> None:
        namespace, name = key = key_of(service)
        held = self.cluster[ENDPOINTS].get(*key)
        labels = dict(service["metadata"].get("labels") or {})
        if service["spec"].get("clusterIP") == "None":
            labels["service.kubernetes.io/headless"] = ""
        if held is None:
            meta = {"name": name, "namespace": namespace, "labels": labels}
            await self.cluster.create(ENDPOINTS, {"metadata": meta, "subsets": wanted})
        elif (held.get("subsets") or []) != wanted:
            await self.cluster.patch(ENDPOINTS, key, {"subsets": wanted})

    async def _write_slice(self, service: Json, wanted: list[Json], ports: list[Json]) -> None:
        namespace, name = key_of(service)
        # One slice per service holds all that one laptop runs; its name ends as generated ones do.
        key = (namespace, f"{name}-local")
        held = self.cluster[SLICES].get(*key)
        if held is None:
            meta = {
                "name": key[1],
                "namespace": namespace,
                "labels": {
                    **(service["metadata"].get("labels") or {}),
                    "kubernetes.io/service-name": name,
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                },
                "ownerReferences": [owner_reference(SERVICES, service)],
            }
            body = {"metadata": meta, "addressType": "IPv4", "endpoints": wanted, "ports": ports}
            await self.cluster.create(SLICES, body)
        elif (held.get("endpoints") or []) != wanted or (held.get("ports") or []) != ports:
            await self.cluster.patch(SLICES, key, {"endpoints": wanted, "ports": ports})
