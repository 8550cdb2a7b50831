"""The snapshots: all input of a plan, taken at one moment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from supercluster.api import Cluster, Migration, ReplicaPolicy, Stream, StreamMove, SuperCluster
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.certificates import (
    authority_view,
    certificate_view,
    known_brokers_of,
    look_at_loaded,
)
from supercluster.reconcilers.observe.context import Attempt, Context
from supercluster.reconcilers.observe.cordons import look_at_cordons
from supercluster.reconcilers.observe.logins import look_at_logins
from supercluster.reconcilers.observe.map_recoveries import look_at_map_recovery
from supercluster.reconcilers.observe.repairs import Hosts, brokers_answer, look_at_repairs
from supercluster.reconcilers.observe.rollouts import look_at_reports
from supercluster.reconcilers.observe.targets import answer_of, broker_target, pods_of
from supercluster.reconcilers.observe.tls_stages import look_at_tls
from supercluster.reconcilers.observe.users import look_at_users
from supercluster.reconcilers.observe.views import (
    account_view,
    brokers_move,
    claim_view,
    credentials_view,
    map_view,
    members_of,
    pod_view,
    stream_info,
)
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.broker_config import is_join_only, voters_in
from supercluster.reconcilers.planners.cluster.certificates import CertificatesView, is_exchanging, issues
from supercluster.reconcilers.planners.cluster.cluster import running_brokers
from supercluster.reconcilers.planners.cluster.cluster_observed import ClusterObserved
from supercluster.reconcilers.planners.cluster.departure import PartingBroker, needs_parting
from supercluster.reconcilers.planners.cluster.rollout_plan import is_at_it, is_rolling
from supercluster.reconcilers.planners.cluster.scale_down import (
    GoingView,
    brokers_there,
    names_to_ask,
    new_victims,
)
from supercluster.reconcilers.planners.founding import Traces
from supercluster.reconcilers.planners.move.views import BrokersMove
from supercluster.reconcilers.planners.plan import IDENTITY_ANNOTATION, LABEL_CLUSTER
from supercluster.reconcilers.planners.replica.drain_moves import of_others, stream_states
from supercluster.reconcilers.planners.replica.drains import plan_drains
from supercluster.reconcilers.planners.replica.policy import PolicyObserved
from supercluster.reconcilers.planners.stream.recovery import RecoveryView, request_of
from supercluster.reconcilers.planners.stream.stream import BrokersView, StreamObserved
from supercluster.reconcilers.planners.super_cluster.accounts import AccountView
from supercluster.reconcilers.planners.super_cluster.super_cluster import (
    SuperClusterObserved,
    waits_for_a_place,
)
from supercluster.reconcilers.planners.tls_stages import has_certificates
from supercluster.reconcilers.ports import (
    Brokers,
    BrokersError,
    BrokersRefusedError,
    BrokersUnreachableError,
    BrokerTarget,
    KubeError,
    mapping,
)


async def look_at_super_cluster(
    context: Context, desired: SuperCluster, attempt: Attempt, _: datetime
) -> SuperClusterObserved:
    cache, brokers, hosts, lists = context.cache, context.brokers, context.hosts, context.lists
    namespace, name = desired.metadata.namespace, desired.metadata.name
    moves = cache.of_super_cluster(StreamMove, namespace, name)
    clusters = cache.of_super_cluster(Cluster, namespace, name)
    target = broker_target(cache, namespace, name)
    running, told, accounts = await asyncio.gather(
        _running_moves(brokers, target if waits_for_a_place(moves) else None),
        brokers_answer(brokers, target),
        _accounts(brokers, target),
    )
    secret = await _secret(cache, hosts, namespace, naming.credentials_secret(name))
    map_ = map_view(told)
    # Without the map nothing is repaired, and a list of streams may wait for a leader that stands still.
    of_repairs = None if map_.unread_ms else told
    return SuperClusterObserved(
        clusters=clusters,
        users=await look_at_users(context, desired, secret),
        logins=await look_at_logins(context, desired, secret),
        # Nothing when nobody says: that brokers are not ready is told without them.
        lost=tuple(map(str, (told or {}).get("lostClusters") or ())) if len(clusters) > 1 else (),
        accounts=accounts,
        repair=await look_at_repairs(
            cache, brokers, hosts, context.handed, desired, target, of_repairs, lists
        ),
        streams=cache.of_super_cluster(Stream, namespace, name),
        moves=moves,
        migrations=cache.of_super_cluster(Migration, namespace, name),
        running=running,
        credentials=credentials_view(secret),
        certificates=await _certificates(cache, brokers, hosts, desired, clusters),
        tls=await look_at_tls(cache, brokers, hosts.kube, desired, clusters, target),
        unreadable=tuple(map(str, cache.unreadable(namespace, name))),
        client_secret=cache.get("Secret", namespace, naming.client_secret(name)),
        traces=_traces(cache, desired),
        map=map_,
        holds_map=bool((told or {}).get("mapIsFresh", False)),
        cordons=await look_at_cordons(cache, hosts, namespace, name, told),
        map_recovery=await look_at_map_recovery(cache, brokers, desired),
        aside=attempt.aside,
        refused_moves=context.refused.of(namespace),
    )


async def _certificates(
    cache: ObjectCache, brokers: Brokers, hosts: Hosts, desired: SuperCluster, clusters: tuple[Cluster, ...]
) -> CertificatesView:
    if not issues(desired):
        return CertificatesView()
    namespace = desired.metadata.namespace
    authority = naming.authority_secret(desired.metadata.name)
    found = {
        cluster.metadata.name: certificate_view(
            await _secret(cache, hosts, namespace, naming.certificate_secret(cluster.metadata.name))
        )
        for cluster in clusters
    }
    signer = authority_view(await _secret(cache, hosts, namespace, authority))
    there = CertificatesView(signer, {name: view for name, view in found.items() if view is not None})
    if not is_exchanging(signer):
        return there
    return replace(
        there,
        brokers={each.metadata.name: known_brokers_of(cache, each) for each in clusters},
        loaded=await look_at_loaded(brokers, broker_target(cache, namespace, desired.metadata.name)),
    )


async def _secret(cache: ObjectCache, hosts: Hosts, namespace: str, name: str) -> Mapping[str, Any] | None:
    """The Secret itself where the cache has none: without its labels it is not seen, and still there."""
    known = cache.get("Secret", namespace, name)
    if known is not None:
        return known
    try:
        return await hosts.kube.get("v1", "Secret", namespace, name)
    except KubeError:
        return None  # The executor asks once more before it makes one.


async def _accounts(brokers: Brokers, target: BrokerTarget | str) -> tuple[AccountView, ...] | None:
    """What the brokers have of accounts; None when nobody says."""
    answers = await answer_of(target, brokers.accounts)
    return tuple(map(account_view, answers)) if answers is not None else None


async def _running_moves(
    brokers: Brokers, target: BrokerTarget | str | None
) -> tuple[BrokersMove, ...] | None:
    """What the brokers move now; None when nobody says. Without a target nobody wants to know."""
    if target is None:
        return ()
    answers = await answer_of(target, brokers.running_moves)
    return tuple(map(brokers_move, answers)) if answers is not None else None


def _traces(cache: ObjectCache, desired: SuperCluster) -> Traces:
    namespace, name = desired.metadata.namespace, desired.metadata.name
    told, join_only = {}, False
    for cluster in cache.of_super_cluster(Cluster, namespace, name):
        config_map = cache.get("ConfigMap", namespace, naming.config_map(cluster.metadata.name))
        told[cluster.metadata.name] = voters_in(config_map)
        join_only = join_only or is_join_only(config_map)
    claims = [mapping(claim.get("metadata")) for claim in cache.claims_of(namespace, name)]
    return Traces(
        told,
        frozenset(str(mapping(each.get("labels")).get(LABEL_CLUSTER)) for each in claims),
        join_only,
        any(mapping(each.get("annotations")).get(IDENTITY_ANNOTATION) == desired.identity for each in claims),
    )


def _rolling(cache: ObjectCache, desired: Cluster, siblings: tuple[Cluster, ...]) -> tuple[str, ...]:
    """Siblings that restart brokers and come first: by name, or because one of theirs is going already."""
    namespace, own = desired.metadata.namespace, desired.metadata.name
    found = []
    for name in sorted(each.metadata.name for each in siblings if each.metadata.name != own):
        pods = pods_of(cache, namespace, name)
        running = cache.get("StatefulSet", namespace, naming.stateful_set(name))
        if is_at_it(running, pods) or (name < own and is_rolling(running, pods)):
            found.append(name)
    return tuple(found)


async def _parting(
    cache: ObjectCache, brokers: Brokers, desired: Cluster, observed: ClusterObserved
) -> tuple[PartingBroker, ...] | None:
    """The brokers of a cluster that is being deleted, as the others know them; None: nobody says."""
    if not needs_parting(desired, observed.siblings, observed.streams):
        return ()
    target = broker_target(cache, desired.metadata.namespace, desired.spec.super_cluster)
    told = await brokers_answer(brokers, target)
    return members_of(desired.metadata.name, told)


async def _going(context: Context, desired: Cluster, observed: ClusterObserved) -> GoingView | None:
    """Brokers of a cluster that has too many, as the map has them; and before they are told so, what speaks against it. Only a
    map that is fresh is believed: by this brokers are taken away for good."""
    cache, brokers = context.cache, context.brokers
    namespace, name = desired.metadata.namespace, desired.metadata.name
    there = brokers_there(
        desired, running_brokers(observed.objects.get(("StatefulSet", naming.stateful_set(name))))
    )
    names, whole = names_to_ask(desired, there, observed.reports), observed.super_cluster
    if not names or whole is None:
        return None
    new = new_victims(desired, there)
    target = broker_target(cache, namespace, whole.metadata.name)
    told = await brokers_answer(brokers, target, with_room=bool(new))
    if told is None or not told.get("mapIsFresh", False):
        return None
    entries = {str(entry.get("node")): entry for entry in map(mapping, told.get("brokers") or ())}
    known = {
        node: PartingBroker(
            node,
            bool(entry.get("leaves")),
            str(entry.get("leavesFor") or ""),
            bool(entry.get("votes")),
            int(entry.get("copies") or 0),
        )
        for node in names
        if (entry := entries.get(node)) is not None
    }
    if not new:
        return GoingView(known)
    seen = await look_at_repairs(cache, brokers, context.hosts, context.handed, whole, target, told)
    if seen is None:
        return GoingView(known)
    clusters, streams = observed.siblings, cache.of_super_cluster(Stream, namespace, whole.metadata.name)
    states, unknown = stream_states(whole, seen, clusters, streams, ())
    gone = frozenset(names) - set(naming.brokers(name, desired.spec.replicas))
    plan = plan_drains(seen.nodes, states, gone, 0)
    listed = sum(len(gone.intersection(living.members)) for living in seen.streams)
    strangers = sum(found.copies for node, found in known.items() if node in gone) - listed
    is_quiet = not any(living.is_moving for living in seen.streams)
    return GoingView(
        known, (*plan.impossible, *of_others(unknown, gone)), max(0, strangers) if is_quiet else 0
    )


async def _expandable(hosts: Hosts, desired: Cluster, observed: ClusterObserved) -> dict[str, bool]:
    """Storage classes of claims that are to be larger, as far as the operator may look at them."""
    names = {
        claim.class_name
        for claim in observed.claims
        if claim.class_name and claim.requested != desired.spec.storage.size
    }
    told = {name: await hosts.allows_expansion(name) for name in sorted(names)}
    return {name: allows for name, allows in told.items() if allows is not None}


async def _claims(hosts: Hosts, desired: Cluster, bodies: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Volume claims with our labels, and those of brokers that do not run: a claim that a person made from a snapshot has no
    labels, and is there all the same."""
    found = [body for body in bodies if body.get("kind") == "PersistentVolumeClaim"]
    if desired.spec.storage.type != "PersistentVolumeClaim":
        return found
    known = {str(mapping(body.get("metadata")).get("name")) for body in found}
    pods = [pod_view(body) for body in bodies if body.get("kind") == "Pod"]
    for pod in pods:
        name = naming.claim(pod.name)
        if pod.running or name in known:
            continue
        try:
            body = await hosts.kube.get("v1", "PersistentVolumeClaim", desired.metadata.namespace, name)
        except KubeError:
            continue  # The executor asks once more before it believes that there is none.
        if body is not None:
            found.append(body)
    return found


async def look_at_cluster(
    context: Context, desired: Cluster, attempt: Attempt, _: datetime
) -> ClusterObserved:
    cache, brokers, hosts = context.cache, context.brokers, context.hosts
    namespace, name = desired.metadata.namespace, desired.metadata.name
    super_cluster = cache.model(SuperCluster, namespace, desired.spec.super_cluster)
    bodies = list(cache.children_of(Cluster, namespace, name))
    credentials = credentials_view(
        cache.get("Secret", namespace, naming.credentials_secret(desired.spec.super_cluster))
    )
    user = super_cluster.spec.application_user if super_cluster else ""
    siblings = cache.of_super_cluster(Cluster, namespace, desired.spec.super_cluster)
    observed = ClusterObserved(
        super_cluster=super_cluster,
        refusal=attempt.refusal,
        siblings=siblings,
        streams=tuple(
            each
            for each in cache.of_super_cluster(Stream, namespace, desired.spec.super_cluster)
            if each.status.cluster in (None, name) or desired.metadata.deletion_timestamp is not None
        ),
        objects={
            (str(body.get("kind")), str(mapping(body.get("metadata")).get("name"))): body
            for body in bodies
            if body.get("kind") not in ("Pod", "PersistentVolumeClaim")
        },
        pods=tuple(pod_view(body) for body in bodies if body.get("kind") == "Pod"),
        rolling=_rolling(cache, desired, siblings),
        claims=tuple(claim_view(body) for body in await _claims(hosts, desired, bodies)),
        credentials_ready=credentials is not None and not credentials.missing(user),
        certificate=certificate_view(
            await _secret(cache, hosts, namespace, naming.certificate_secret(name))
            if super_cluster is not None and has_certificates(super_cluster)
            else None
        ),
    )
    observed = replace(observed, expandable=await _expandable(hosts, desired, observed))
    if desired.metadata.deletion_timestamp is not None:
        return replace(observed, parting=await _parting(cache, brokers, desired, observed))
    target = broker_target(cache, namespace, desired.spec.super_cluster)
    observed = replace(observed, reports=await look_at_reports(brokers, target))
    observed = replace(observed, going=await _going(context, desired, observed))
    if not is_rolling(observed.objects.get(("StatefulSet", naming.stateful_set(name))), observed.pods):
        return observed
    moving = await _running_moves(brokers, target)
    # Who may be restarted is known only by both.
    return replace(observed, reports=observed.reports if moving is not None else None, moving=moving or ())


async def look_at_stream(context: Context, desired: Stream, attempt: Attempt, _: datetime) -> StreamObserved:
    cache, brokers = context.cache, context.brokers
    namespace, super_cluster = desired.metadata.namespace, desired.spec.super_cluster
    rivals = cache.claimants(namespace, super_cluster, desired.stream_name)
    target = broker_target(cache, namespace, super_cluster)
    seen = await ask_for_stream(brokers, target, desired.stream_name)
    context.figures.note(desired, seen.info)
    return StreamObserved(
        super_cluster=cache.model(SuperCluster, namespace, super_cluster),
        clusters=cache.of_super_cluster(Cluster, namespace, super_cluster),
        moves=cache.moves_of(desired),
        policies=cache.of_super_cluster(ReplicaPolicy, namespace, super_cluster),
        rivals=tuple(rival for rival in rivals if rival.metadata.uid != desired.metadata.uid),
        brokers=seen,
        recovery=await _ask_for_recovery(brokers, target, desired),
        handed=(await context.handed.of(target)).get(desired.stream_name),
        refusal=attempt.refusal,
        refusal_code=attempt.refusal_code,
        failure=attempt.failure,
    )


async def _ask_for_recovery(brokers: Brokers, target: BrokerTarget | str, desired: Stream) -> RecoveryView:
    """Only while somebody asks for one: every broker looks at its copies for it."""
    if not request_of(desired):
        return RecoveryView()
    if isinstance(target, str):
        return RecoveryView(error=target)
    try:
        answer = await brokers.recovery_state(target, desired.stream_name)
    except BrokersUnreachableError as error:
        return RecoveryView(error=str(error))
    except BrokersRefusedError as error:
        if error.code == 404:
            return RecoveryView(is_there=False)
        return RecoveryView(error=str(error))
    return RecoveryView(declared_by=str(answer.get("declaredBy", "")), done=mapping(answer.get("recovery")))


async def ask_for_stream(brokers: Brokers, target: BrokerTarget | str, name: str) -> BrokersView:
    if isinstance(target, str):
        return BrokersView(error=target)
    try:
        answer = await brokers.stream_info(target, name)
    except BrokersError as error:
        return BrokersView(error=str(error))
    return BrokersView(reachable=True, error="", info=stream_info(answer) if answer is not None else None)


async def look_at_replica_policy(
    context: Context, desired: ReplicaPolicy, _: Attempt, __: datetime
) -> PolicyObserved:
    cache = context.cache
    namespace, super_cluster = desired.metadata.namespace, desired.spec.super_cluster
    return PolicyObserved(
        super_cluster=cache.model(SuperCluster, namespace, super_cluster),
        policies=cache.of_super_cluster(ReplicaPolicy, namespace, super_cluster),
        streams=cache.of_super_cluster(Stream, namespace, super_cluster),
        moves=cache.of_super_cluster(StreamMove, namespace, super_cluster),
    )
