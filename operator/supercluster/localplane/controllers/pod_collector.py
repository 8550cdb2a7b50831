"""Pods nobody else ends: deleted before they had a node, or bound to a node whose object is gone."""

from __future__ import annotations

from supercluster.localplane import client as api
from supercluster.localplane.client import Json, Key
from supercluster.localplane.controllers.base import Cluster, Controller, is_terminating
from supercluster.localplane.event_recorder import EventRecorder


class PodCollector(Controller):
    kind = api.PODS

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        super().__init__(cluster, recorder)
        self.watch(api.NODES, self._pods_of)

    def _pods_of(self, node: Json) -> list[Key]:
        name = node["metadata"]["name"]
        return [
            api.key_of(pod) for pod in self.cluster[api.PODS].all() if pod["spec"].get("nodeName") == name
        ]

    async def reconcile(self, pod: Json) -> float | None:
        node = pod["spec"].get("nodeName")
        if self.cluster[api.NODES].get("", node) is None if node else is_terminating(pod):
            await self.cluster.delete(api.PODS, pod, grace_s=0)
        return None
