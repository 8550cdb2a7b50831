"""The only module that destroys or shrinks anything (SF-30): it deletes objects and streams, drops
finalizers, and shortens lists of brokers or clusters.

A plan gives the step and its ground. Before the step is executed, the resource that wants it and the object
itself are read from the API server by their exact names; a cache or a label alone is never trusted. `RULES`
lists the further requirements of each ground. Deletions carry the uid and the version that were read as
preconditions. If a requirement can't be verified the step is held (`HeldError`) and retried; an outdated
object is read again (409).
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supercluster.api import API_VERSION, Cluster, Stream, SuperCluster
from supercluster.api.common import Resource
from supercluster.reconcilers.execute.checks import (
    Case,
    Check,
    annotation,
    broker_holds_nothing,
    brokers_have_parted,
    finalize_is_asked_for,
    hold_nothing,
    is_being_deleted,
    is_marked_as_ours,
    is_of_the_cluster,
    is_of_the_stateful_set,
    is_terminating,
    job_is_ours,
    members_are_known,
    move_is_ours,
    name_of,
    never_started,
    no_broker_is_left,
    no_broker_uses_it,
    no_cluster_is_left,
    no_migration_needs_it,
    no_stream_is_retained,
    policy_is_delete,
    uid_of,
    volume_is_of_no_use,
    volume_stays,
    was_drained,
)
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.certificates import (
    authority_view,
    brokers_of,
    certificate_view,
    look_at_loaded,
)
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.certificates import CertificatesView, why_waiting
from supercluster.reconcilers.planners.move.generated import TRIM_LABEL
from supercluster.reconcilers.planners.plan import (
    FINALIZER,
    IDENTITY_ANNOTATION,
    CreateObject,
    DeleteObject,
    DeleteStream,
    ExchangeAuthority,
    FinalizeMigration,
    Ground,
    LeaveBrokers,
    Manifest,
    SetFinalizers,
    Stage,
)
from supercluster.reconcilers.planners.stream.config import mark_of, resource_mark
from supercluster.reconcilers.ports import Brokers, BrokerTarget, Json, Kube, KubeError, mapping

MAY_SHRINK = frozenset({"StatefulSet", "ConfigMap", "Secret"})
"""Kinds of objects that have lists of brokers or clusters in them."""
GIVEN_AN_OWNER = frozenset({"ConfigMap", "PodDisruptionBudget", "Secret", "Service"})
"""Kinds that the operator has no right to delete. It makes the resource their owner, and garbage collection takes them with it."""


class HeldError(Exception):
    """A step that destroys or shrinks is held: that it does no harm can't be shown now. The words are for people."""


RULES: Mapping[Ground, tuple[Check, ...]] = {
    Ground.CLUSTER_DELETED: (
        is_being_deleted,
        policy_is_delete,
        members_are_known,
        is_of_the_cluster,
        no_broker_uses_it,
        no_stream_is_retained,
        no_migration_needs_it,
    ),
    Ground.BROKERS_PARTED: (
        is_being_deleted,
        members_are_known,
        is_of_the_cluster,
        no_stream_is_retained,
        brokers_have_parted,
        no_migration_needs_it,
    ),
    Ground.BROKERS_GONE: (is_being_deleted, members_are_known, is_of_the_cluster, no_broker_is_left),
    Ground.BROKER_DRAINED: (
        policy_is_delete,
        members_are_known,
        is_of_the_cluster,
        no_broker_uses_it,
        was_drained,
        broker_holds_nothing,
    ),
    Ground.VOLUME_UNUSABLE: (
        members_are_known,
        is_of_the_stateful_set,
        never_started,
        volume_is_of_no_use,
    ),
    Ground.RESTART: (is_of_the_stateful_set, volume_stays),
    Ground.CREDENTIALS_UNUSED: (
        is_being_deleted,
        members_are_known,
        is_marked_as_ours,
        no_cluster_is_left,
        no_migration_needs_it,
    ),
    Ground.MOVE_NOT_NEEDED: (move_is_ours,),
    Ground.DRIVER_REPLACED: (job_is_ours,),
}
"""In the order in which they are asked. For all of them the resource that plans it and the object are read first."""


@dataclass(slots=True)
class Destroyer:
    """Carries out what destroys or shrinks.

    Every call raises `HeldError` when the step's harmlessness can't be shown, and `KubeError` 409 when the look that it was planned
    from is out of date; the cache has what was read then.
    """

    kube: Kube
    brokers: Brokers
    cache: ObjectCache

    async def delete(self, resource: Resource, step: DeleteObject, target: BrokerTarget | str) -> None:
        own = await self._own(resource)
        there = await self.kube.get(step.api_version, step.kind, step.namespace, step.name)
        if there is None:
            self._forget(step)
            return
        there = {"kind": step.kind, **there}
        if uid_of(there) != step.uid:
            self.cache.put(there)
            raise _stale(f"{step.kind} {step.name} is another one by now")
        await self._judge(RULES[step.ground], self._case(resource, own, there, target))
        version = str(there["metadata"]["resourceVersion"])
        if step.kind in GIVEN_AN_OWNER:
            metadata = {
                "resourceVersion": version,
                "ownerReferences": [naming.owner(resource)],
            }
            patch = {"metadata": metadata}
            owned = await self.kube.merge_patch(step.api_version, step.kind, step.namespace, step.name, patch)
            self.cache.put(owned)
            return
        await self.kube.delete(step.api_version, step.kind, step.namespace, step.name, step.uid, version)
        left = await self.kube.get(step.api_version, step.kind, step.namespace, step.name)
        if left is None:
            self._forget(step)
        elif step.kind != "Pod":
            self.cache.wrote(left)

    async def delete_stream(self, resource: Resource, step: DeleteStream, target: BrokerTarget) -> None:
        """Only a stream that says itself that the resource declares it."""
        own = await self._own(resource)
        case = self._case(resource, own, own, target)
        await self._judge((is_being_deleted, policy_is_delete, members_are_known), case)
        info = await self.brokers.stream_info(target, step.name)
        if info is None:
            return
        assert isinstance(resource, Stream)
        mark = mark_of(mapping(info.get("config")))
        if mark != resource_mark(resource):
            raise HeldError(f"stream {step.name} is declared by {mark or 'no resource'}")
        await self.brokers.delete_stream(target, step.name)

    async def drop_finalizer(
        self, resource: Resource, step: SetFinalizers, target: BrokerTarget | str, *checks: Check
    ) -> None:
        """The resource goes, and with it all that the operator knows of its part in a super-cluster. `checks`: its kind's."""
        own = await self.kube.get(
            API_VERSION, type(resource).__name__, resource.metadata.namespace, resource.metadata.name
        )
        if own is None:
            return
        self._check(resource, own)
        await self._judge((members_are_known, *checks), self._case(resource, own, own, target))

    async def finalize_migration(
        self, resource: Resource, step: FinalizeMigration, target: BrokerTarget
    ) -> None:
        """Blue's copies are deleted: only while the API server has the person's word, given after the point of no return was stated."""
        own = await self._own(resource)
        await self._judge((finalize_is_asked_for,), self._case(resource, own, own, target))
        await self.brokers.finalize_migration(target, step.id)

    async def leave(self, resource: Resource, step: LeaveBrokers, target: BrokerTarget) -> None:
        own = await self._own(resource)
        await self._judge((members_are_known,), self._case(resource, own, own, target))
        for broker in step.brokers:
            await self.brokers.leave_broker(target, broker, naming.mark(resource))

    async def judge_creation(
        self, resource: Resource, step: CreateObject, target: BrokerTarget | str
    ) -> None:
        """A StreamMove that takes copies away for another reason than that they are lost is not begun blindly."""
        spec = mapping(step.manifest.get("spec"))
        labels = mapping(step.manifest["metadata"].get("labels"))
        if step.manifest["kind"] != "StreamMove" or not (spec.get("drains") or labels.get(TRIM_LABEL)):
            return
        own = resource.to_object()
        await self._judge((members_are_known,), self._case(resource, own, own, target))

    async def judge_apply(
        self, resource: Resource, manifest: Manifest, there: Json, target: BrokerTarget | str
    ) -> Manifest:
        """The manifest as it is to be applied: what shrinks a list takes along what the judgement was made from."""
        whose, wanted = (annotation(body, IDENTITY_ANNOTATION) for body in (there, manifest))
        if whose and wanted and whose != wanted:
            told = f"{manifest['kind']} {name_of(manifest)} is of a super-cluster of identity {whose}, and not {wanted}"
            raise HeldError(
                f"{told}; make a SuperCluster with spec.identity {whose} to go on with its brokers, or delete it"
            )
        loss = shrinking(there, manifest)
        if loss is None:
            return manifest
        own = await self._own(resource)
        case = self._case(resource, own, there, target)
        await self._judge((members_are_known,), case)
        for cluster in loss.clusters:
            body = await case.get(API_VERSION, "Cluster", cluster)
            is_member = mapping((body or {}).get("spec")).get("superCluster") == case.super_cluster
            if body is not None and is_member and not is_terminating(body):
                raise HeldError(f"Cluster {cluster} would be left out, and is there")
        for broker in loss.peers:
            if await case.get("v1", "Pod", broker) is not None:
                raise HeldError(f"broker {broker} would be left out, and its pod is there")
        if loss.brokers:
            why = await hold_nothing(case, list(loss.brokers))
            if why:
                raise HeldError(f"replicas would go down to {manifest['spec']['replicas']}: {why}")
        # No two objects ever had the same version, so it stands for the uid too, which the API server calls immutable (422).
        version = there["metadata"]["resourceVersion"]
        return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": version}}

    async def judge_exchange(
        self, resource: Resource, step: ExchangeAuthority, there: Json, target: BrokerTarget | str
    ) -> None:
        """An authority's key is deleted, or it is trusted no more: only while every broker says, now, that it needs neither."""
        if step.stage is Stage.INTRODUCE:
            return
        own = await self._own(resource)
        assert isinstance(resource, SuperCluster)
        case = self._case(resource, own, there, target)
        await self._judge((members_are_known,), case)
        clusters = self.cache.of_super_cluster(Cluster, case.namespace, case.super_cluster)
        secrets = {
            cluster.metadata.name: certificate_view(
                await case.get("v1", "Secret", naming.certificate_secret(cluster.metadata.name))
            )
            for cluster in clusters
        }
        found = CertificatesView(
            authority_view(there),
            {name: view for name, view in secrets.items() if view is not None},
            {cluster.metadata.name: await brokers_of(self.kube, cluster) for cluster in clusters},
            await look_at_loaded(self.brokers, target),
        )
        why = why_waiting(found)
        if why:
            raise HeldError(why)

    def _case(self, resource: Resource, own: Json, there: Json, target: BrokerTarget | str) -> Case:
        return Case(self.kube, self.brokers, self.cache, resource, own, there, target)

    async def _judge(self, checks: tuple[Check, ...], case: Case) -> None:
        for check in checks:
            why = await check(case)
            if why:
                raise HeldError(why)

    async def _own(self, resource: Resource) -> Json:
        """The resource as it is now, if that is what the plan was made from."""
        metadata = resource.metadata
        own = await self.kube.get(API_VERSION, type(resource).__name__, metadata.namespace, metadata.name)
        if own is None:
            raise _stale(f"{metadata.name} is gone")
        self._check(resource, own)
        return own

    def _check(self, resource: Resource, own: Json) -> None:
        planned, now = resource.metadata, mapping(own.get("metadata"))
        seen = (planned.uid, planned.generation, planned.deletion_timestamp is None)
        if seen != (now.get("uid"), now.get("generation"), now.get("deletionTimestamp") is None):
            self.cache.wrote({"kind": type(resource).__name__, **own})
            raise _stale(f"{planned.name} was changed since the plan was made")

    def _forget(self, step: DeleteObject) -> None:
        known = self.cache.get(step.kind, step.namespace, step.name)
        if known is not None and uid_of(known) == step.uid and step.kind != "Pod":
            self.cache.remove(known)


def _stale(message: str) -> KubeError:
    return KubeError(409, "Stale", message)


def is_drop(resource: Resource, step: SetFinalizers) -> bool:
    return FINALIZER in resource.metadata.finalizers and FINALIZER not in step.finalizers


@dataclass(frozen=True, slots=True)
class Loss:
    """What an apply would leave out."""

    clusters: tuple[str, ...] = ()
    """Other clusters that brokers, or applications, would be told of no more."""
    peers: tuple[str, ...] = ()
    """Brokers of the own cluster that the others would be told of no more."""
    brokers: tuple[str, ...] = ()
    """Brokers whose pods would go."""


def shrinking(there: Mapping[str, Any], manifest: Mapping[str, Any]) -> Loss | None:
    """What a manifest has less of than the object; None: nothing, or it is of no kind that could."""
    match manifest["kind"]:
        case "StatefulSet":
            before = int(mapping(there.get("spec")).get("replicas") or 0)
            names = naming.brokers(name_of(manifest), before)[int(manifest["spec"]["replicas"]) :]
            return Loss(brokers=names) if names else None
        case "ConfigMap":
            old, new = _config(there), _config(manifest)
            clusters = sorted(mapping(old.get("gateways")).keys() - mapping(new.get("gateways")).keys())
            peers = sorted(mapping(old.get("peers")).keys() - mapping(new.get("peers")).keys())
            return Loss(tuple(clusters), tuple(peers)) if clusters or peers else None
        case "Secret":
            lost = sorted(_clusters_of(there) - _clusters_of(manifest))
            return Loss(tuple(lost)) if lost else None
    return None


def _clusters_of(secret: Mapping[str, Any]) -> set[str]:
    """Of the addresses that applications are given: `nats://<cluster>.<namespace>.svc:<port>`."""
    try:
        urls = b64decode(str(mapping(secret.get("data")).get("urls", ""))).decode()
    except ValueError:
        return set()
    hosts = (url.partition("//")[2].partition(".")[0] for url in urls.split(","))
    return {host for host in hosts if host}


def _config(body: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(str(mapping(body.get("data")).get("broker.json", ""))))
    except ValueError:
        return {}
