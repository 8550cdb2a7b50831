"""Checks that a destructive step needs (SF-30), one function for each statement.

A check returns the reason why its statement can't be shown now, or an empty text. `RULES` in `destructive.py` lists
the checks of each ground. Checks ask the API server for objects by name, and the brokers for what they hold. They never
trust a cache or a label alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from supercluster.api import API_VERSION, Cluster, Migration, Stream
from supercluster.api.common import Resource
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.views import living_stream, members_of, pod_view
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.departure import consider
from supercluster.reconcilers.planners.migration.views import needs_sides
from supercluster.reconcilers.planners.plan import (
    CLUSTER_ANNOTATION,
    IDENTITY_ANNOTATION,
    LABEL_CLUSTER,
    LABEL_SUPER_CLUSTER,
    MANAGED_BY,
)
from supercluster.reconcilers.ports import Brokers, BrokersError, BrokerTarget, Json, Kube, mapping

CLAIM = "PersistentVolumeClaim"
NAMED_MAX = 5


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
        return name_of(self.there)

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


def name_of(body: Mapping[str, Any]) -> str:
    return str(mapping(body.get("metadata")).get("name", ""))


def uid_of(body: Mapping[str, Any] | None) -> str:
    return str(mapping((body or {}).get("metadata")).get("uid", ""))


def is_terminating(body: Mapping[str, Any]) -> bool:
    return mapping(body.get("metadata")).get("deletionTimestamp") is not None


def annotation(body: Mapping[str, Any], key: str) -> str:
    return str(mapping(mapping(body.get("metadata")).get("annotations")).get(key, ""))


def _owners(body: Mapping[str, Any]) -> set[str]:
    references = mapping(body.get("metadata")).get("ownerReferences") or ()
    return {str(mapping(each).get("uid", "")) for each in references}


def made_by_us(body: Mapping[str, Any]) -> bool:
    labels = mapping(mapping(body.get("metadata")).get("labels"))
    return labels.get("app.kubernetes.io/managed-by") == MANAGED_BY


def is_ours(there: Mapping[str, Any], manifest: Mapping[str, Any]) -> bool:
    """Did we make what is there for what the manifest is for? By our label; where somebody took that off, by the identity, the
    Cluster or the owner that is written on both."""
    if made_by_us(there) or _owners(there) & _owners(manifest):
        return True
    written = (IDENTITY_ANNOTATION, CLUSTER_ANNOTATION)
    return any(
        annotation(there, name) == wanted for name in written if (wanted := annotation(manifest, name))
    )


async def is_being_deleted(case: Case) -> str:
    return "" if is_terminating(case.own) else f"{case.resource.metadata.name} is not being deleted"


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
    wanted, written = identity_of(whole), annotation(case.there, IDENTITY_ANNOTATION)
    if written == wanted:
        return ""
    whose = f"is of identity {written}" if written else f"has no annotation {IDENTITY_ANNOTATION}"
    return f"it {whose}, and SuperCluster {case.super_cluster} is of {wanted}"


def _is_of(cluster_uid: str, body: Mapping[str, Any]) -> bool:
    """Objects that an operator of before made have an owner instead."""
    written = annotation(body, CLUSTER_ANNOTATION)
    return written == cluster_uid if written else cluster_uid in _owners(body)


def identity_of(super_cluster: Mapping[str, Any]) -> str:
    """As `SuperCluster.identity` has it."""
    return str(mapping(super_cluster.get("spec")).get("identity") or uid_of(super_cluster))


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
    held = _retained_in(case, case.own)
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
            is_deleted = body is None or is_terminating(body)
            if not is_deleted and mapping((body or {}).get("spec")).get("deletionPolicy") != "Delete":
                held.add(name)
    if not held:
        return ""
    return f"Streams with spec.deletionPolicy Retain live there: {', '.join(sorted(held)[:NAMED_MAX])}"


def _retained_in(case: Case, cluster: Mapping[str, Any]) -> set[str]:
    """Streams that are to be retained and live in a Cluster that goes with its data, by their resources."""
    if mapping(cluster.get("spec")).get("deletionPolicy") != "Delete":
        return set()
    return {
        stream.metadata.name
        for stream in case.cache.of_super_cluster(Stream, case.namespace, case.super_cluster)
        if stream.metadata.deletion_timestamp is None
        and stream.spec.deletion_policy == "Retain"
        and stream.status.cluster == name_of(cluster)
    }


async def brokers_have_parted(case: Case) -> str:
    """Where another Cluster stays, by the API server, or is held by Streams: no broker of this one is a voter or a member, by the
    map's own word."""
    name = case.resource.metadata.name
    listed = await case.kube.list(API_VERSION, "Cluster", case.namespace)
    others = [
        body
        for body in map(mapping, listed.get("items") or ())
        if name_of(body) != name and _names(body, case.super_cluster)
    ]
    if all(is_terminating(body) and not _retained_in(case, body) for body in others):
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
        name_of(pod)
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
    return await hold_nothing(case, [naming.broker_of_claim(case.name)])


async def hold_nothing(case: Case, names: list[str]) -> str:
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
    return "" if uid_of(running) in _owners(case.there) else f"it is not owned by StatefulSet {name}"


async def never_started(case: Case) -> str:
    has_run = pod_view(case.there).started
    return "its container has run: what is on its volume may be needed" if has_run else ""


async def volume_is_of_no_use(case: Case) -> str:
    claim = await case.get("v1", CLAIM, naming.claim(case.name))
    if claim is None:
        return ""
    if not is_terminating(claim):
        return f"claim {naming.claim(case.name)} is there"
    return await copies_are_elsewhere(case)


async def volume_stays(case: Case) -> str:
    """Or nobody needs what is on it: a claim that is being deleted goes with the pod."""
    claim = await case.get("v1", CLAIM, naming.claim(case.name))
    if claim is None or not is_terminating(claim):
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
    listed = await case.kube.list(API_VERSION, "Cluster", case.namespace)
    left = sorted(name_of(body) for body in listed.get("items") or () if _names(body, case.super_cluster))
    return f"Clusters are left: {', '.join(left[:NAMED_MAX])}" if left else ""


async def no_brokers_have_it(case: Case) -> str:
    """A stream that is deleted without brokers, since no Cluster is known: the API server has none either."""
    is_without_brokers = not case.cache.of_super_cluster(Cluster, case.namespace, case.super_cluster)
    return await no_cluster_is_left(case) if is_without_brokers and is_terminating(case.own) else ""


def _names(cluster: Mapping[str, Any], super_cluster: str) -> bool:
    return bool(mapping(cluster.get("spec")).get("superCluster") == super_cluster)


async def is_marked_as_ours(case: Case) -> str:
    written, wanted = annotation(case.there, IDENTITY_ANNOTATION), identity_of(case.own)
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
        name_of(body)
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
