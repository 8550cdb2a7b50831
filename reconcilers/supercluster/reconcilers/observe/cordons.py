"""Observes cordons: those in the brokers' map, and those of the Kubernetes nodes that brokers run on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supercluster.api import Cluster
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.repairs import Hosts
from supercluster.reconcilers.observe.targets import pods_of
from supercluster.reconcilers.planners.super_cluster.cordons import CordonTold, CordonView
from supercluster.reconcilers.ports import mapping


async def look_at_cordons(
    cache: ObjectCache, hosts: Hosts, namespace: str, name: str, told: Mapping[str, Any] | None
) -> CordonView | None:
    """`told`: the brokers' answer about themselves. None: nobody says, or by a map that may be old."""
    if told is None or not told.get("mapIsFresh", False):
        return None
    entries = [mapping(entry) for entry in told.get("brokers") or ()]
    known = {str(e["node"]): _told(e["cordoned"]) for e in entries if e.get("node") and "cordoned" in e}
    if not known:
        return None
    found: dict[str, tuple[str, bool]] = {}
    for cluster in cache.of_super_cluster(Cluster, namespace, name):
        for pod in pods_of(cache, namespace, cluster.metadata.name):
            host = await hosts.of(pod.node, going=pod.uid if pod.terminating else "")
            if pod.name in known and host.is_known:
                found[pod.name] = (pod.node, host.is_cordoned)
    return CordonView(known, found)


def _told(entry: Any) -> CordonTold | None:
    if entry is None:
        return None
    return CordonTold(str(mapping(entry).get("reason", "")), str(mapping(entry).get("declaredBy", "")))
