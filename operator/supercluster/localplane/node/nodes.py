"""The simulated nodes as Node objects: registered once, marked when they are lost and when they return."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

from supercluster.localplane.client import NODES, PODS, Json
from supercluster.localplane.controllers.base import Cluster, condition, is_true, phase_of
from supercluster.localplane.times import now_utc, stamp

PODS_MAX = 110
CPUS = 64
"""More than a machine has: requests are not enforced, and must not leave pods without a node."""
UNREACHABLE = "node.kubernetes.io/unreachable"
ZONES = ("zone-a", "zone-b", "zone-c")
REGION = "laptop"
RUNTIME = "localplane://1"


class ForeignNode(Exception):  # noqa: N818 - named as what it is
    def __init__(self, name: str) -> None:
        super().__init__(
            f"the cluster has a node {name} that this agent did not create; choose other names with --names"
        )


@dataclass(slots=True)
class SimulatedNode:
    name: str
    address: str
    zone: str
    is_lost: bool = False


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def conditions(held: Json | None, *, is_lost: bool) -> list[Json]:
    """The conditions of a node that is there, or of one that is not heard of any more."""
    moment = stamp(now_utc())
    wanted = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "the node agent has sufficient memory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "the node agent has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "the node agent has sufficient PIDs"),
        ("Ready", "True", "KubeletReady", "the node agent is posting ready status"),
    ]
    result = []
    for kind, status, reason, message in wanted:
        if is_lost:
            status, reason, message = (
                "Unknown",
                "NodeStatusUnknown",
                "the node agent stopped posting node status.",
            )
        before = condition(held, kind) if held else None
        is_same = before is not None and before["status"] == status
        since = before["lastTransitionTime"] if before and is_same else moment
        result.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": moment,
                "lastTransitionTime": since,
            }
        )
    return result


def is_of(held: Json, owner: str) -> bool:
    """Whether a Node object was made by the agent `owner`. Those of agents that did not tell count as its own."""
    provider = held["spec"].get("providerID")
    if provider:
        return str(provider).startswith(f"localplane://{owner}/")
    told = ((held.get("status") or {}).get("nodeInfo") or {}).get("containerRuntimeVersion")
    return bool(told == RUNTIME)


def node_object(node: SimulatedNode, owner: str) -> Json:
    return {
        "metadata": {
            "name": node.name,
            "labels": {
                "kubernetes.io/hostname": node.name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(
                    platform.machine(), platform.machine()
                ),
                "topology.kubernetes.io/zone": node.zone,
                "topology.kubernetes.io/region": REGION,
            },
        },
        "spec": {"providerID": f"localplane://{owner}/{node.name}"},
    }


def node_status(node: SimulatedNode, held: Json | None, port: int) -> Json:
    room = {
        "cpu": str(CPUS),
        "memory": f"{_memory_bytes() // 1024}Ki",
        "pods": str(PODS_MAX),
        "ephemeral-storage": "100Gi",
    }
    return {
        "capacity": room,
        "allocatable": room,
        "conditions": conditions(held, is_lost=node.is_lost),
        # No Hostname: API servers take it first to reach a node, and no DNS knows it.
        "addresses": [{"type": "InternalIP", "address": node.address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "machineID": node.name,
            "systemUUID": node.name,
            "bootID": node.name,
            "kernelVersion": platform.release(),
            "osImage": "local processes",
            "containerRuntimeVersion": RUNTIME,
            "kubeletVersion": "v1.34.0-localplane",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": platform.machine(),
        },
    }


async def register(cluster: Cluster, node: SimulatedNode, port: int, owner: str) -> None:
    """Make the Node object if there is none, and say that it is ready.

    Raises:
        ForeignNode: there is one of that name that `owner` did not make.
    """
    held = cluster[NODES].get("", node.name)
    if held is None:
        await cluster.create(NODES, node_object(node, owner))
    elif not is_of(held, owner):
        raise ForeignNode(node.name)
    await announce(cluster, node, port)


async def announce(cluster: Cluster, node: SimulatedNode, port: int) -> None:
    """Write conditions and taints as the node's state is now. A deleted Node object stays deleted."""
    held = cluster[NODES].get("", node.name)
    if held is None:
        return
    taints = [taint for taint in held["spec"].get("taints") or () if taint["key"] != UNREACHABLE]
    if node.is_lost:
        moment = stamp(now_utc())
        taints += [
            {"key": UNREACHABLE, "effect": effect, "timeAdded": moment}
            for effect in ("NoSchedule", "NoExecute")
        ]
    held_taints = held["spec"].get("taints") or []
    if [(taint["key"], taint["effect"]) for taint in taints] != [
        (taint["key"], taint["effect"]) for taint in held_taints
    ]:
        held = await cluster.patch(NODES, ("", node.name), {"spec": {"taints": taints or None}})
    await cluster.patch_status(NODES, held, node_status(node, held, port))


async def mark_pods(cluster: Cluster, name: str) -> None:
    """Say of the pods of a node that is not heard of that they are not ready: nobody on the node can say it."""
    moment = stamp(now_utc())
    for pod in cluster[PODS].all():
        is_here = pod["spec"].get("nodeName") == name and phase_of(pod) not in ("Succeeded", "Failed")
        if not is_here or not (is_true(pod, "Ready") or is_true(pod, "ContainersReady")):
            continue
        conditions = [
            {
                **held,
                "status": "False",
                "reason": "NodeNotReady",
                "message": f"node {name} is not ready",
                "lastTransitionTime": moment,
            }
            if held["type"] in ("Ready", "ContainersReady") and held["status"] == "True"
            else held
            for held in pod["status"]["conditions"]
        ]
        await cluster.patch_status(PODS, pod, {"conditions": conditions})
