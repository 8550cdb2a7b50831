"""StatefulSets: carries out the steps of `statefulset_plan`."""

from __future__ import annotations

from supercluster.localplane.client import CLAIMS, PODS, REVISIONS, STATEFUL_SETS, Json, key_of
from supercluster.localplane.controllers.base import Controller
from supercluster.localplane.controllers.statefulset_plan import plan
from supercluster.localplane.times import now_utc


class StatefulSetController(Controller):
    kind = STATEFUL_SETS
    owns = (PODS, REVISIONS)

    async def reconcile(self, sts: Json) -> float | None:
        namespace, name = key_of(sts)
        wanted = plan(
            sts,
            self.owned_by(sts, REVISIONS),
            self.owned_by(sts, PODS),
            frozenset(name for ns, name in self.cluster[CLAIMS].all_keys() if ns == namespace),
            now_utc(),
        )
        if wanted.create_revision:
            await self.cluster.create(REVISIONS, wanted.create_revision)
        if wanted.renumber_revision:
            revision, number = wanted.renumber_revision
            await self.cluster.patch(REVISIONS, key_of(revision), {"revision": number})
        for claim in wanted.create_claims:
            await self.cluster.create(CLAIMS, claim)
            text = f"create Claim {claim['metadata']['name']} for StatefulSet {name} success"
            self.recorder.normal(sts, "SuccessfulCreate", text)
        for pod in wanted.create_pods:
            failed = f"create Pod {pod['metadata']['name']} in StatefulSet {name} failed error"
            await self.create_pod(sts, pod, failed)
            text = f"create Pod {pod['metadata']['name']} in StatefulSet {name} successful"
            self.recorder.normal(sts, "SuccessfulCreate", text)
        for pod in wanted.delete_pods:
            await self.cluster.delete(PODS, pod)
            text = f"delete Pod {pod['metadata']['name']} in StatefulSet {name} successful"
            self.recorder.normal(sts, "SuccessfulDelete", text)
        for revision in wanted.delete_revisions:
            await self.cluster.delete(REVISIONS, revision)
        if wanted.status:
            await self.cluster.patch_status(self.kind, sts, wanted.status)
        return wanted.again_s
