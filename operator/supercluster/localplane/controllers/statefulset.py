"""StatefulSets: carries out what `statefulset_plan` says."""

from __future__ import annotations

from supercluster.localplane import client as api
from supercluster.localplane.client import Key
from supercluster.localplane.controllers.base import Cluster, Controller, is_owned_by, now_utc
from supercluster.localplane.controllers.pods import create_pod
from supercluster.localplane.controllers.statefulset_plan import Plan, plan
from supercluster.localplane.event_recorder import EventRecorder


class StatefulSetController(Controller):
    kind = api.STATEFUL_SETS

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        super().__init__(cluster)
        self.recorder = recorder
        self.watch_owned(api.PODS)
        self.watch_owned(api.REVISIONS)

    async def sync(self, key: Key) -> float | None:
        namespace, _ = key
        sts = self.cluster[self.kind].get(*key)
        if sts is None:
            return None
        wanted = plan(
            sts,
            [
                found
                for found in self.cluster[api.REVISIONS].in_namespace(namespace)
                if is_owned_by(found, sts)
            ],
            [pod for pod in self.cluster[api.PODS].in_namespace(namespace) if is_owned_by(pod, sts)],
            frozenset(name for ns, name in self.cluster[api.CLAIMS].all_keys() if ns == namespace),
            now_utc(),
        )
        await self._execute(key, wanted)
        return wanted.again_s

    async def _execute(self, key: Key, wanted: Plan) -> None:
        sts = self.cluster[self.kind].get(*key)
        if sts is None:
            return
        name = sts["metadata"]["name"]
        if wanted.create_revision:
            await self.cluster.create(api.REVISIONS, wanted.create_revision)
        if wanted.renumber_revision:
            revision, number = wanted.renumber_revision
            await self.cluster.patch(api.REVISIONS, api.key_of(revision), {"revision": number})
        for claim in wanted.create_claims:
            await self.cluster.create(api.CLAIMS, claim)
            text = f"create Claim {claim['metadata']['name']} for StatefulSet {name} success"
            self.recorder.normal(sts, "SuccessfulCreate", text)
        for pod in wanted.create_pods:
            failed = f"create Pod {pod['metadata']['name']} in StatefulSet {name} failed error"
            await create_pod(self.cluster, self.recorder, sts, pod, failed)
            text = f"create Pod {pod['metadata']['name']} in StatefulSet {name} successful"
            self.recorder.normal(sts, "SuccessfulCreate", text)
        for pod in wanted.delete_pods:
            await self.cluster.delete(api.PODS, pod)
            text = f"delete Pod {pod['metadata']['name']} in StatefulSet {name} successful"
            self.recorder.normal(sts, "SuccessfulDelete", text)
        for revision in wanted.delete_revisions:
            await self.cluster.delete(api.REVISIONS, revision)
        if wanted.status:
            await self.cluster.patch_status(self.kind, sts, wanted.status)
