"""Deletes pods that no other component ends: deleted before they had a node, or bound to a node whose object
is gone.
"""

from __future__ import annotations

from supercluster.localplane.client import NODES, PODS, Json, Key, key_of
from supercluster.localplane.controllers.base import Cluster, Controller, is_terminating
from supercluster.localplane.event_recorder import EventRecorder


class PodCollector(Controller):
    kind = PODS

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        super().__init__(cluster, recorder)
        self.watch(NODES, self._pods_of)

    def _pods_of(self, node: Json) -> list[Key]:
        name = node["metadata"]["name"]
        return [key_of(pod) for pod in self.cluster[PODS].all() if pod["spec"].get("nodeName") == name]

    async def reconcile(self, pod: Json) -> float | None:
        node = pod["spec"].get("nodeName")
        if self.cluster[NODES].get("", node) is None if node else is_terminating(pod):
            await self.cluster.delete(PODS, pod, grace_s=0)
        return None
