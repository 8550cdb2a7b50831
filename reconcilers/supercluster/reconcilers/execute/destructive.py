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
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from supercluster.api import API_VERSION, Cluster, Migration, Stream, SuperCluster
from supercluster.api.common import Resource
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.certificates import (
    authority_view,
    brokers_of,
    certificate_view,
    look_at_loaded,
)
from supercluster.reconcilers.observe.views import living_stream, members_of, pod_view
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.certificates import CertificatesView, why_waiting
from supercluster.reconcilers.planners.cluster.departure import consider
from supercluster.reconcilers.planners.migration.views import needs_sides
from supercluster.reconcilers.planners.move.generated import TRIM_LABEL
from supercluster.reconcilers.planners.plan import (
    CLUSTER_ANNOTATION,
    FINALIZER,
    IDENTITY_ANNOTATION,
    LABEL_CLUSTER,
    LABEL_SUPER_CLUSTER,
    MANAGED_BY,
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
from supercluster.reconcilers.ports import Brokers, BrokersError, BrokerTarget, Json, Kube, KubeError, mapping

CLAIM = "PersistentVolumeClaim"
NAMED_MAX = 5
MAY_SHRINK = frozenset({"StatefulSet", "ConfigMap", "Secret"})
"""Kinds of objects that have lists of brokers or clusters in them."""
GIVEN_AN_OWNER = frozenset({"ConfigMap", "PodDisruptionBudget", "Secret", "Service"})
"""Kinds that the operator has no right to delete. It makes the resource their owner, and garbage collection takes them with it."""


class HeldError(Exception):
    """A step that destroys or shrinks is held: that it does no harm can't be shown now. The words are for people."""


@dataclass(frozen=True, slots=True)
class Case:
    """One step that is to be judged."""

    kube: Kube
    brokers: Brokers
    cache: ObjectCache
    resource: Resource
    """As the plan saw it."""
    own: Json
    """The same as the API server has it now."""
    there: Json
    """The object that is to go, as the API server has it now."""
    target: BrokerTarget | str

    @property
    def kind(self) -> str:
        return str(self.there.get("kind"))

    @property
    def name(self) -> str:
        return _name(self.there)

    @property
    def namespace(self) -> str:
        return self.resource.metadata.namespace

    @property
    def super_cluster(self) -> str:
        return self.resource.super_cluster

    @property
    def spec(self) -> Mapping[str, Any]:
        return mapping(self.own.get("spec"))

    async def get(self, api_version: str, kind: str, name: str) -> Json | None:
        return await self.kube.get(api_version, kind, self.namespace, name)


Check = Callable[[Case], Awaitable[str]]
"""Why the step is not to be carried out; empty: this much is shown."""


def _name(body: Mapping[str, Any]) -> str:
    return str(mapping(body.get("metadata")).get("name", ""))


def _uid(body: Mapping[str, Any] | None) -> str:
    return str(mapping((body or {}).get("metadata")).get("uid", ""))


def _is_terminating(body: Mapping[str, Any]) -> bool:
    return mapping(body.get("metadata")).get("deletionTimestamp") is not None


def _annotation(body: Mapping[str, Any], key: str) -> str:
    return str(mapping(mapping(body.get("metadata")).get("annotations")).get(key, ""))


def _owners(body: Mapping[str, Any]) -> set[str]:
    references = mapping(body.get("metadata")).get("ownerReferences") or ()
    return {str(mapping(each).get("uid", "")) for each in references}


def made_by_us(body: Mapping[str, Any]) -> bool:
    labels = mapping(mapping(body.get("metadata")).get("labels"))
    return labels.get("app.kubernetes.io/managed-by") == MANAGED_BY


async def is_being_deleted(case: Case) -> str:
    return "" if _is_terminating(case.own) else f"{case.resource.metadata.name} is not being deleted"


async def policy_is_delete(case: Case) -> str:
    policy = case.spec.get("deletionPolicy")
    return "" if policy == "Delete" else f"spec.deletionPolicy is {policy or 'Retain'}"


async def members_are_known(case: Case) -> str:
    """Every kind was listed since this process leads, and whoever belongs to the super-cluster can be read: what a cache lacks,
    or a model can't parse, is not absent."""
    unlisted = case.cache.unlisted
    if unlisted:
        return f"not listed yet: {', '.join(sorted(unlisted)[:NAMED_MAX])}"
    unreadable = case.cache.unreadable(case.namespace, case.super_cluster)
    if unreadable:
        told = ", ".join(f"{key.kind} {key.name}" for key in unreadable[:NAMED_MAX])
        return f"this version of the operator can't read {told}: put the spec right, or use the version that wrote it"
    return ""


async def is_of_the_cluster(case: Case) -> str:
    """By the uid that is written on it; a claim by name, labels, and the identity that is written on it."""
    cluster = case.resource.metadata
    if case.kind != CLAIM:
        return "" if _is_of(cluster.uid, case.there) else f"it is of another Cluster than {cluster.name} now"
    labels = mapping(mapping(case.there.get("metadata")).get("labels"))
    broker = naming.broker_of_claim(case.name)
    if naming.cluster_of(broker) != cluster.name or naming.ordinal(broker) < 0:
        return f"it is no claim of a broker of Cluster {cluster.name}"
    if (labels.get(LABEL_SUPER_CLUSTER), labels.get(LABEL_CLUSTER)) != (case.super_cluster, cluster.name):
        return "its labels are those of another cluster"
    whole = await case.get(API_VERSION, "SuperCluster", case.super_cluster)
    if whole is None:
        return f"SuperCluster {case.super_cluster} is gone, and with it the identity that the claim would have to have"
    wanted, written = identity_of(whole), _annotation(case.there, IDENTITY_ANNOTATION)
    if written == wanted:
        return ""
    whose = f"is of identity {written}" if written else f"has no annotation {IDENTITY_ANNOTATION}"
    return f"it {whose}, and SuperCluster {case.super_cluster} is of {wanted}"


def _is_of(cluster_uid: str, body: Mapping[str, Any]) -> bool:
    """Objects that an operator of before made have an owner instead."""
    written = _annotation(body, CLUSTER_ANNOTATION)
    return written == cluster_uid if written else cluster_uid in _owners(body)


def identity_of(super_cluster: Mapping[str, Any]) -> str:
    """As `SuperCluster.identity` has it."""
    return str(mapping(super_cluster.get("spec")).get("identity") or _uid(super_cluster))


async def no_broker_uses_it(case: Case) -> str:
    if case.kind != CLAIM:
        return ""
    broker = naming.broker_of_claim(case.name)
    if await case.get("v1", "Pod", broker) is not None:
        return f"pod {broker} is there"
    running = await case.get("apps/v1", "StatefulSet", naming.stateful_set(case.resource.metadata.name))
    count = int(mapping((running or {}).get("spec")).get("replicas") or 0)
    return f"the StatefulSet has {count} replicas" if count > naming.ordinal(broker) else ""


async def no_stream_is_retained(case: Case) -> str:
    """Streams that are declared, to be retained, and live in a cluster that goes with its data: by their resources, and by the brokers'
    word while there are any brokers to be asked."""
    if await policy_is_delete(case):
        return ""
    cluster = case.resource.metadata.name
    held = {
        stream.metadata.name
        for stream in case.cache.of_super_cluster(Stream, case.namespace, case.super_cluster)
        if stream.metadata.deletion_timestamp is None
        and stream.spec.deletion_policy == "Retain"
        and stream.status.cluster == cluster
    }
    if case.kind == "StatefulSet" and not isinstance(case.target, str):
        try:
            found = [living_stream(answer) for answer in await case.brokers.stream_infos(case.target)]
        except BrokersError as error:
            return f"the brokers do not say which streams they hold: {error}"
        for each in found:
            namespace, _, name = each.declared_by.partition("/")
            if namespace != case.namespace or not any(naming.cluster_of(m) == cluster for m in each.members):
                continue
            body = await case.get(API_VERSION, "Stream", name)
            is_deleted = body is None or _is_terminating(body)
            if not is_deleted and mapping((body or {}).get("spec")).get("deletionPolicy") != "Delete":
                held.add(name)
    if not held:
        return ""
    return f"Streams with spec.deletionPolicy Retain live there: {', '.join(sorted(held)[:NAMED_MAX])}"


async def brokers_have_parted(case: Case) -> str:
    """Where another Cluster stays, by the API server: no broker of this one is a voter or a member, by the map's own word."""
    name = case.resource.metadata.name
    listed = await case.kube.list(API_VERSION, "Cluster", case.namespace)
    stays = any(
        _name(body) != name and not _is_terminating(body) and _names(body, case.super_cluster)
        for body in map(mapping, listed.get("items") or ())
    )
    if not stays:
        return ""
    if isinstance(case.target, str):
        return case.target
    try:
        told = await case.brokers.brokers_state(case.target)
    except BrokersError as error:
        return f"the brokers do not say whether those of Cluster {name} have parted: {error}"
    assert isinstance(case.resource, Cluster)
    parting = consider(case.resource, members_of(name, told))
    return parting.message if parting is not None else ""


async def no_broker_is_left(case: Case) -> str:
    """Neither a pod of the cluster nor what would make one."""
    cluster = case.resource.metadata
    running = await case.get("apps/v1", "StatefulSet", naming.stateful_set(cluster.name))
    if running is not None and _is_of(cluster.uid, running):
        return f"StatefulSet {cluster.name} is there"
    pods = (await case.kube.list("v1", "Pod", case.namespace)).get("items") or ()
    left = sorted(
        _name(pod)
        for pod in map(mapping, pods)
        if mapping(mapping(pod.get("metadata")).get("labels")).items()
        >= naming.selector(cluster.name).items()
    )
    return f"brokers are left: {', '.join(left[:NAMED_MAX])}" if left else ""


async def was_drained(case: Case) -> str:
    """By this operator, which wrote so into the Cluster's status while the brokers said it."""
    entries = mapping(case.own.get("status")).get("retiredClaims") or ()
    if any(entry.get("name") == case.name and entry.get("drained") for entry in map(mapping, entries)):
        return ""
    return "its broker was not drained by this Cluster; delete the claim yourself if nothing on it is needed"


async def broker_holds_nothing(case: Case) -> str:
    return await _holds_nothing(case, [naming.broker_of_claim(case.name)])


async def _holds_nothing(case: Case, names: list[str]) -> str:
    """The map's own word, from a broker that is in contact with its leader."""
    if isinstance(case.target, str):
        return case.target
    try:
        told = await case.brokers.brokers_state(case.target)
    except BrokersError as error:
        return f"the brokers do not say what {', '.join(names)} hold: {error}"
    if not told.get("mapIsFresh", False):
        return "the broker that answers is out of contact with the map of streams"
    for entry in map(mapping, told.get("brokers") or ()):
        name, copies = str(entry.get("node")), int(entry.get("copies") or 0)
        if name in names and (copies or entry.get("votes") or not entry.get("leaves")):
            return f"{name} has {copies} copies" if copies else f"{name} is a member of the super-cluster"
    return ""


async def is_of_the_stateful_set(case: Case) -> str:
    name = naming.stateful_set(case.resource.metadata.name)
    running = await case.get("apps/v1", "StatefulSet", name)
    if running is None or not _is_of(case.resource.metadata.uid, running):
        return f"StatefulSet {name} is not of Cluster {case.resource.metadata.name}"
    return "" if _uid(running) in _owners(case.there) else f"it is not owned by StatefulSet {name}"


async def never_started(case: Case) -> str:
    has_run = pod_view(case.there).started
    return "its container has run: what is on its volume may be needed" if has_run else ""


async def volume_is_of_no_use(case: Case) -> str:
    claim = await case.get("v1", CLAIM, naming.claim(case.name))
    if claim is None:
        return ""
    if not _is_terminating(claim):
        return f"claim {naming.claim(case.name)} is there"
    return await copies_are_elsewhere(case)


async def volume_stays(case: Case) -> str:
    """Or nobody needs what is on it: a claim that is being deleted goes with the pod."""
    claim = await case.get("v1", CLAIM, naming.claim(case.name))
    if claim is None or not _is_terminating(claim):
        return ""
    return await copies_are_elsewhere(case)


async def copies_are_elsewhere(case: Case) -> str:
    """Every stream with a copy on the broker is led by another, and all its other copies are current: by the brokers' word."""
    broker = case.name
    why = f"claim {naming.claim(broker)} goes with the pod, and "
    if isinstance(case.target, str):
        return why + case.target
    try:
        told = await case.brokers.brokers_state(case.target)
        answers = await case.brokers.stream_infos(case.target)
    except BrokersError as error:
        return f"{why}the brokers do not say what else has its copies: {error}"
    if not told.get("mapIsFresh", False):
        return f"{why}the broker that answers is out of contact with the map of streams"
    held = [(answer, living_stream(answer)) for answer in answers]
    here = [(answer, each) for answer, each in held if broker in each.members]
    for answer, each in here:
        behind = _behind(answer, broker)
        if each.leader in ("", broker) or each.is_moving or behind or len(each.members) < 2:
            lacking = f"; {', '.join(behind)} lag" if behind else ""
            return f"{why}stream {each.name} is not whole without it{lacking}"
    entries = (mapping(entry) for entry in told.get("brokers") or ())
    copies = next((int(e.get("copies") or 0) for e in entries if e.get("node") == broker), 0)
    strangers = copies - len(here)
    return (
        f"{why}{strangers} of its copies are of streams that the operator does not see"
        if strangers > 0
        else ""
    )


def _behind(answer: Mapping[str, Any], broker: str) -> list[str]:
    replicas = map(mapping, mapping(answer.get("cluster")).get("replicas") or ())
    return sorted(
        str(each.get("name"))
        for each in replicas
        if each.get("name") != broker
        and (not each.get("current") or each.get("offline") or each.get("unusable"))
    )


async def no_cluster_is_left(case: Case) -> str:
    return await _clusters_left(case.kube, case.namespace, case.super_cluster)


async def no_brokers_have_it(case: Case) -> str:
    """A stream that is deleted without brokers, since no Cluster is known: the API server has none either."""
    is_without_brokers = not case.cache.of_super_cluster(Cluster, case.namespace, case.super_cluster)
    return await no_cluster_is_left(case) if is_without_brokers and _is_terminating(case.own) else ""


def _names(cluster: Mapping[str, Any], super_cluster: str) -> bool:
    return bool(mapping(cluster.get("spec")).get("superCluster") == super_cluster)


async def _clusters_left(kube: Kube, namespace: str, super_cluster: str) -> str:
    listed = await kube.list(API_VERSION, "Cluster", namespace)
    left = sorted(_name(body) for body in listed.get("items") or () if _names(body, super_cluster))
    return f"Clusters are left: {', '.join(left[:NAMED_MAX])}" if left else ""


async def is_marked_as_ours(case: Case) -> str:
    written, wanted = _annotation(case.there, IDENTITY_ANNOTATION), identity_of(case.own)
    return (
        "" if written == wanted else f"its annotation {IDENTITY_ANNOTATION} is {written!r}, and not {wanted}"
    )


async def finalize_is_asked_for(case: Case) -> str:
    if not case.spec.get("finalize"):
        return "spec.finalize is not true"
    status = mapping(case.own.get("status"))
    if not status.get("pointOfNoReturnAt"):
        return "the point of no return was not stated"
    proof = mapping(status.get("proof"))
    differing = proof.get("differing") or ()
    return f"green does not confirm {', '.join(map(str, differing))}" if differing else ""


async def no_migration_needs_it(case: Case) -> str:
    """By what the API server has of Migrations that name the super-cluster."""
    listed = await case.kube.list(API_VERSION, "Migration", case.namespace)
    needing = sorted(
        _name(body)
        for body in listed.get("items") or ()
        if case.super_cluster in Migration.named_super_clusters(mapping(body.get("spec")))
        and needs_sides(mapping(body.get("status")))
    )
    if not needing:
        return ""
    return f"Migration {', '.join(needing[:NAMED_MAX])} needs it: set spec.abort or spec.finalize there, and wait until it has ended"


async def move_is_ours(case: Case) -> str:
    is_own = made_by_us(case.there) or case.resource.metadata.uid in _owners(case.there)
    return "" if is_own else "the operator did not make it"


async def job_is_ours(case: Case) -> str:
    """Its pods and their executors end with it; the checkpoint is no part of it."""
    is_own = case.resource.metadata.uid in _owners(case.there)
    return "" if is_own else f"it is not owned by StreamPipeline {case.resource.metadata.name}"


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
        if _uid(there) != step.uid:
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
        whose, wanted = (_annotation(body, IDENTITY_ANNOTATION) for body in (there, manifest))
        if whose and wanted and whose != wanted:
            told = f"{manifest['kind']} {_name(manifest)} is of a super-cluster of identity {whose}, and not {wanted}"
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
            if body is not None and is_member and not _is_terminating(body):
                raise HeldError(f"Cluster {cluster} would be left out, and is there")
        for broker in loss.peers:
            if await case.get("v1", "Pod", broker) is not None:
                raise HeldError(f"broker {broker} would be left out, and its pod is there")
        if loss.brokers:
            why = await _holds_nothing(case, list(loss.brokers))
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
        if known is not None and _uid(known) == step.uid and step.kind != "Pod":
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
            names = naming.brokers(_name(manifest), before)[int(manifest["spec"]["replicas"]) :]
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
