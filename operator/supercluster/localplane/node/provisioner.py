"""Volumes for claims: one directory of the state each.

On the embedded plane its own controller binds claims at once (`controllers.claim`). Elsewhere the cluster's
controllers wait for `Provisioner`: it creates the volume of a claim whose first pod was assigned to one of
these nodes, expands it, and deletes it when it is released.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from supercluster.localplane.client import CLAIMS, STORAGE_CLASSES, VOLUMES, Json, Key, key_of
from supercluster.localplane.controllers.base import Cluster, Controller, is_terminating, phase_of
from supercluster.localplane.controllers.scheduler import HOSTNAME, SELECTED_NODE
from supercluster.localplane.event_recorder import EventRecorder
from supercluster.localplane.node.nodes import SimulatedNode

PROVISIONER = "localplane"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
CLASS = "localplane"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
CLAIM_BYTES = "1Gi"


def volume_name(claim: Json) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def volume_directory(state_dir: Path, name: str) -> Path:
    return state_dir / "volumes" / name


def size(claim: Json) -> str:
    """The size that is asked for."""
    return str(((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage") or CLAIM_BYTES)


def volume_object(claim: Json, directory: Path, node: str = "") -> Json:
    """The volume of a claim; with `node`, pods that use it run there."""
    spec: Json = {
        "accessModes": claim["spec"].get("accessModes") or ["ReadWriteOnce"],
        "capacity": {"storage": size(claim)},
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim["metadata"]["namespace"],
            "name": claim["metadata"]["name"],
            "uid": claim["metadata"]["uid"],
        },
        "hostPath": {"path": str(directory), "type": "DirectoryOrCreate"},
        "persistentVolumeReclaimPolicy": "Delete",
        "volumeMode": "Filesystem",
    }
    if claim["spec"].get("storageClassName"):
        spec["storageClassName"] = claim["spec"]["storageClassName"]
    if node:
        rule = {"key": HOSTNAME, "operator": "In", "values": [node]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
    meta = {"name": volume_name(claim), "annotations": {PROVISIONED_BY: PROVISIONER}}
    return {"metadata": meta, "spec": spec}


def storage_class(*, is_default: bool) -> Json:
    return {
        "metadata": {"name": CLASS, "annotations": {DEFAULT_CLASS: "true"} if is_default else {}},
        "provisioner": PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete",
        "allowVolumeExpansion": True,
    }


def _annotation(obj: Json, name: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(name) or "")


class Provisioner(Controller):
    """Volumes for claims of the class `localplane`, on the nodes of one agent."""

    kind = CLAIMS

    def __init__(
        self, cluster: Cluster, recorder: EventRecorder, state_dir: Path, nodes: dict[str, SimulatedNode]
    ) -> None:
        super().__init__(cluster, recorder)
        self._state_dir = state_dir
        self._nodes = nodes
        self.watch(VOLUMES, self._claim_of)

    def _claim_of(self, volume: Json) -> list[Key]:
        reference = volume["spec"].get("claimRef") or {}
        return [(reference.get("namespace", ""), reference.get("name", ""))]

    async def ensure_class(self) -> None:
        """Make the storage class, the default one where there is none."""
        held = list(self.cluster[STORAGE_CLASSES].all())
        if not any(found["metadata"]["name"] == CLASS for found in held):
            is_default = not any(_annotation(found, DEFAULT_CLASS) == "true" for found in held)
            await self.cluster.create(STORAGE_CLASSES, storage_class(is_default=is_default))

    async def sync(self, key: Key) -> float | None:
        await self._reclaim(key)
        claim = self.cluster[self.kind].get(*key)
        if claim is None or is_terminating(claim):
            return None
        volume = self.cluster[VOLUMES].get("", volume_name(claim))
        if volume is None:
            await self._provide(claim)
        elif self._is_ours(volume):
            await self._grow(claim, volume)
        return None

    async def _provide(self, claim: Json) -> None:
        found = self.cluster[STORAGE_CLASSES].get("", claim["spec"].get("storageClassName") or "")
        node = _annotation(claim, SELECTED_NODE)
        is_ours = found is not None and found["provisioner"] == PROVISIONER and node in self._nodes
        if not is_ours or claim["spec"].get("volumeName") or phase_of(claim) != "Pending":
            return
        directory = volume_directory(self._state_dir, volume_name(claim))
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        await self.cluster.create(VOLUMES, volume_object(claim, directory, node))

    async def _grow(self, claim: Json, volume: Json) -> None:
        """A directory has room for as much as the machine has: it is as large as asked for at once."""
        if phase_of(claim) != "Bound":
            return
        capacity = {"storage": size(claim)}
        if volume["spec"].get("capacity") != capacity:
            await self.cluster.patch(VOLUMES, key_of(volume), {"spec": {"capacity": capacity}})
        if (claim.get("status") or {}).get("capacity") != capacity:
            await self.cluster.patch_status(self.kind, claim, {"capacity": capacity})

    async def _reclaim(self, key: Key) -> None:
        """Delete released volumes of claims of this name, with what is on them."""
        for volume in self.cluster[VOLUMES].all():
            if self._claim_of(volume) != [key] or not self._is_ours(volume):
                continue
            policy = volume["spec"].get("persistentVolumeReclaimPolicy")
            if phase_of(volume) == "Released" and policy == "Delete":
                directory = volume_directory(self._state_dir, volume["metadata"]["name"])
                await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
                await self.cluster.delete(VOLUMES, volume)

    def _is_ours(self, volume: Json) -> bool:
        directory = volume_directory(self._state_dir, volume["metadata"]["name"])
        path = (volume["spec"].get("hostPath") or {}).get("path")
        return _annotation(volume, PROVISIONED_BY) == PROVISIONER and path == str(directory)
