"""PersistentVolumeClaims: bound at once to a directory on the laptop, kept while a pod uses them.

A claim is Bound as soon as it is made; which node it lives on is decided with its first pod (`scheduling`). A deleted
claim stays until no pod uses it, as on a real cluster; then its volume and the directory go too.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from supercluster.localplane.client import CLAIMS, PODS, VOLUMES, Json, Key
from supercluster.localplane.controllers.base import Cluster, Controller, is_terminating, phase_of
from supercluster.localplane.controllers.scheduler import claim_names
from supercluster.localplane.event_recorder import EventRecorder
from supercluster.localplane.node.provisioner import size, volume_directory, volume_name, volume_object

PROTECTION = "kubernetes.io/pvc-protection"


class ClaimController(Controller):
    kind = CLAIMS

    def __init__(self, cluster: Cluster, recorder: EventRecorder, state_dir: Path) -> None:
        super().__init__(cluster, recorder)
        self.state_dir = state_dir
        self.watch(PODS, lambda pod: [(pod["metadata"]["namespace"], name) for name in claim_names(pod)])

    async def sync(self, key: Key) -> float | None:
        claim = self.cluster[self.kind].get(*key)
        await self._reclaim(key, claim)
        if claim is None:
            return None
        finalizers = claim["metadata"].get("finalizers") or []
        if is_terminating(claim):
            if PROTECTION in finalizers and not self._is_used(key):
                kept = [name for name in finalizers if name != PROTECTION]
                await self.cluster.patch(self.kind, key, {"metadata": {"finalizers": kept}})
            return None
        if PROTECTION not in finalizers or claim["spec"].get("volumeName") != volume_name(claim):
            claim = await self.cluster.patch(
                self.kind,
                key,
                {
                    "metadata": {
                        "finalizers": [*(name for name in finalizers if name != PROTECTION), PROTECTION]
                    },
                    "spec": {"volumeName": volume_name(claim)},
                },
            )
        directory = volume_directory(self.state_dir, volume_name(claim))
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        await self._write_volume(claim, directory)
        status: Json = {
            "phase": "Bound",
            "accessModes": claim["spec"].get("accessModes") or ["ReadWriteOnce"],
            "capacity": {"storage": size(claim)},
        }
        await self.cluster.patch_status(self.kind, claim, status)
        return None

    def _is_used(self, key: Key) -> bool:
        return any(
            key[1] in claim_names(pod) and phase_of(pod) not in ("Succeeded", "Failed")
            for pod in self.cluster[PODS].in_namespace(key[0])
        )

    async def _write_volume(self, claim: Json, directory: Path) -> None:
        name = volume_name(claim)
        volume = self.cluster[VOLUMES].get("", name)
        if volume is None:
            volume = await self.cluster.create(VOLUMES, volume_object(claim, directory))
        wanted = size(claim)
        if volume["spec"].get("capacity", {}).get("storage") != wanted:
            # A directory has room for as much as the laptop has: it is as large as asked for at once.
            capacity = {"spec": {"capacity": {"storage": wanted}}}
            volume = await self.cluster.patch(VOLUMES, ("", name), capacity)
        await self.cluster.patch_status(VOLUMES, volume, {"phase": "Bound"})

    async def _reclaim(self, key: Key, present: Json | None) -> None:
        """Delete the volumes, with what is on them, of claims of this name that are gone."""
        kept = volume_name(present) if present is not None else ""
        for volume in self.cluster[VOLUMES].all():
            reference = volume["spec"].get("claimRef") or {}
            if (reference.get("namespace"), reference.get("name")) != key or not volume["spec"].get(
                "hostPath"
            ):
                continue
            if volume["metadata"]["name"] == kept or not reference.get("uid"):
                continue
            if volume["metadata"]["name"] != f"pvc-{reference['uid']}":
                continue
            directory = volume_directory(self.state_dir, volume["metadata"]["name"])
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
            await self.cluster.delete(VOLUMES, volume)
