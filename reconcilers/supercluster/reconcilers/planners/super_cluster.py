"""Plans for a SuperCluster: its credentials, what applications need, and a status that counts its members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from supercluster.api import Cluster, Stream, StreamMove, SuperCluster, SuperClusterStatus
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.api.recovery import RecoveryStatus
from supercluster.api.super_cluster import OTHER_MOVES_MAX, LeavingStatus, MemberStatus, RepairStatus
from supercluster.reconcilers.planners import drain_moves, manifests, naming, recovery_of_map, repair_moves
from supercluster.reconcilers.planners.accounts import AccountsPlan, AccountView, plan_accounts
from supercluster.reconcilers.planners.cordons import CordonView, plan_cordons
from supercluster.reconcilers.planners.drift import differences
from supercluster.reconcilers.planners.founding import Traces, first_of, founder
from supercluster.reconcilers.planners.move_views import BrokersMove, grants, of_others
from supercluster.reconcilers.planners.plan import (
    FINALIZER,
    Apply,
    MakeCredentials,
    Note,
    Plan,
    SetFinalizers,
    Step,
)
from supercluster.reconcilers.planners.recovery_of_map import MapRecoveryView
from supercluster.reconcilers.planners.repair_moves import RepairObserved
from supercluster.reconcilers.planners.repair_pace import is_due_soon
from supercluster.reconcilers.planners.status import Conditions, put_held_up, status_patch
from supercluster.reconcilers.planners.strategies import BUILT_IN, Strategy

# While a StreamMove waits for a place, the brokers are asked this often what else moves.
WAITING_RECHECK_MS = 1_000
# The shortest time until a repair that becomes due: many become so within seconds.
DUE_RECHECK_MS = 50
# After repairs were begun.
REPAIR_RECHECK_MS = 200
APPLICATION = "application"
OPERATOR = "operator"
ROUTE = "route"
GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class CredentialsView:
    """What the credentials Secret has. Passwords are kept out of repr, so that no log shows them."""

    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By user of users.json."""
    operator_users: frozenset[str] = frozenset()
    """Those with the operator's role."""
    has_route: bool = False
    has_gateway: bool = False

    def missing(self, application_user: str) -> tuple[str, ...]:
        wanting = []
        if application_user not in self.passwords:
            wanting.append(APPLICATION)
        if naming.OPERATOR_USER not in self.operator_users:
            wanting.append(OPERATOR)
        if not self.has_route:
            wanting.append(ROUTE)
        if not self.has_gateway:
            wanting.append(GATEWAY)
        return tuple(wanting)


@dataclass(frozen=True, slots=True)
class SuperClusterObserved:
    """What one look at Kubernetes shows of a super-cluster."""

    clusters: tuple[Cluster, ...] = ()
    streams: tuple[Stream, ...] = ()
    moves: tuple[StreamMove, ...] = ()
    running: tuple[BrokersMove, ...] | None = ()
    """What the brokers carry out, asked while a StreamMove waits for a place; None when they did not say."""
    lost: tuple[str, ...] = ()
    """Of clusters that are out of contact as a whole, in the brokers' words: what is lost with each."""
    accounts: tuple[AccountView, ...] | None = None
    """What the brokers have of accounts; None when they did not say."""
    refusal: str | None = None
    """Why a step was refused for good."""
    repair: RepairObserved | None = None
    """What repair is planned from; None: the brokers do not say."""
    credentials: CredentialsView | None = None
    client_secret: Mapping[str, Any] | None = field(default=None, repr=False)
    traces: Traces = field(default_factory=Traces)
    cordons: CordonView | None = None
    """None: the brokers do not say."""
    map_recovery: MapRecoveryView = field(default_factory=MapRecoveryView)
    """Asked for only while a forced recovery of the map is asked for."""


def plan_super_cluster(
    desired: SuperCluster,
    observed: SuperClusterObserved,
    now: datetime,
    strategies: Mapping[str, Strategy] = BUILT_IN,
) -> Plan:
    conditions = Conditions(desired.status.conditions, desired.metadata.generation, now)
    if desired.metadata.deletion_timestamp is not None:
        return _deletion(desired, observed, conditions)
    repairing = repair_moves.consider(
        desired, observed.repair, observed.streams, observed.moves, strategies, now
    )
    draining = drain_moves.consider(
        desired, observed.repair, observed.clusters, observed.streams, observed.moves, strategies, now
    )
    own = _steps(desired, observed)
    # Steps of its own come first: if there are any, what was refused was one of them.
    recovering = recovery_of_map.consider(
        desired, observed.map_recovery, observed.refusal if not own else None, conditions
    )
    if recovering.has_refusal:
        observed = replace(observed, refusal=None)
    # What is lost comes before what is to go.
    moves = repairing.steps or draining.steps
    accounts = plan_accounts(desired, observed.accounts, hold=any(map(_is_rolling, observed.clusters)))
    # What is refused of accounts keeps no replica from being replaced.
    steps = own or recovering.steps or moves or accounts.steps
    steps = steps or plan_cordons(desired, observed.clusters, observed.cordons)
    _describe(desired, observed, conditions, steps)
    _describe_accounts(observed, conditions, accounts)
    if observed.repair is not None:
        put_held_up(conditions, draining.held_up)
    # That somebody else's move has ended, or that a broker is away, is no event in Kubernetes.
    is_watching = waits_for_a_place(observed.moves) or repairing.is_watching or draining.is_watching
    is_watching = is_watching or is_due_soon(desired, observed.repair) or recovering.is_waiting
    patch = _patch(
        desired, observed, conditions, accounts, repairing.status, draining.status, recovering.status
    )
    if steps and steps is moves:
        # They are of different streams, and were planned with one budget: none depends on another one.
        return Plan(
            steps,
            patch,
            conditions.notes(),
            REPAIR_RECHECK_MS,
            wait_after_step=True,
            in_a_row=len(moves),
        )
    recheck_ms = WAITING_RECHECK_MS if is_watching else None
    if repairing.next_ms is not None:
        soon_ms = max(repairing.next_ms, DUE_RECHECK_MS)
        recheck_ms = soon_ms if recheck_ms is None else min(recheck_ms, soon_ms)
    return Plan(steps, patch, conditions.notes(), recheck_after_ms=recheck_ms)


def waits_for_a_place(moves: tuple[StreamMove, ...]) -> bool:
    return any(move.status.phase == "Queued" for move in moves)


def _steps(desired: SuperCluster, observed: SuperClusterObserved) -> tuple[Step, ...]:
    steps: list[Step] = []
    if FINALIZER not in desired.metadata.finalizers:
        steps.append(
            SetFinalizers((*desired.metadata.finalizers, FINALIZER), desired.metadata.resource_version)
        )
    user = desired.spec.application_user
    credentials = observed.credentials or CredentialsView()
    missing = credentials.missing(user)
    if missing:
        manifest = manifests.credentials_secret(desired)
        name = manifest["metadata"]["name"]
        reason = (
            EventReason.DRIFT_REPAIRED
            if observed.credentials is not None
            else EventReason.CREDENTIALS_GENERATED
        )
        note = Note.done(reason, f"made credentials in Secret {name} for: {', '.join(missing)}")
        steps.append(MakeCredentials(manifest, user, missing, note))
        return tuple(steps)
    first = first_of(desired, observed.clusters)
    url = naming.client_url(first) if first else ""
    urls = ",".join(sorted(naming.client_url(cluster) for cluster in observed.clusters))
    secret = manifests.client_secret(desired, user, credentials.passwords[user], url, urls)
    if observed.client_secret is None or differences(secret, observed.client_secret):
        steps.append(Apply(secret))
    return tuple(steps)


def _describe(
    desired: SuperCluster, observed: SuperClusterObserved, conditions: Conditions, steps: tuple[Step, ...]
) -> None:
    conditions.put(ConditionType.ACCEPTED, True, Reason.AS_DECLARED)
    if steps:
        conditions.put(ConditionType.SYNCED, False, Reason.APPLYING, f"next: {steps[0]}")
    else:
        conditions.put(ConditionType.SYNCED, True, Reason.AS_DECLARED)
    if not observed.clusters:
        message = f"no Cluster in namespace {desired.metadata.namespace} has spec.superCluster {desired.metadata.name}"
        conditions.put(ConditionType.READY, False, Reason.NO_CLUSTER, message)
        return
    starting = [
        f"Cluster {cluster.metadata.name} has {cluster.status.ready_replicas} of {cluster.spec.replicas} brokers ready"
        for cluster in sorted(observed.clusters, key=lambda cluster: cluster.metadata.name)
        if not _is_ready(cluster)
    ]
    if observed.lost:
        message = "; ".join((*observed.lost, *starting))
        conditions.put(ConditionType.READY, False, Reason.CLUSTER_OUT_OF_CONTACT, message)
        return
    if starting:
        conditions.put(ConditionType.READY, False, Reason.MEMBERS_STARTING, "; ".join(starting))
        return
    names = ", ".join(sorted(cluster.metadata.name for cluster in observed.clusters))
    message = f"Cluster {names} is ready" if len(observed.clusters) == 1 else f"Clusters {names} are ready"
    conditions.put(ConditionType.READY, True, Reason.MEMBERS_READY, message)


def _describe_accounts(
    observed: SuperClusterObserved, conditions: Conditions, accounts: AccountsPlan
) -> None:
    if observed.refusal is not None:
        conditions.put(ConditionType.ACCEPTED, False, Reason.REFUSED_BY_BROKERS, observed.refusal)
    elif accounts.refusals:
        message = "; ".join(accounts.refusals)
        conditions.put(ConditionType.ACCEPTED, False, Reason.OUT_OF_RANGE, message)
        conditions.put(ConditionType.SYNCED, False, Reason.NOT_ACCEPTED, "see the condition Accepted")
    elif accounts.is_held:
        message = "accounts are declared when the brokers' restarts are over"
        conditions.put(ConditionType.SYNCED, False, Reason.ROLLING_OUT, message)
    elif accounts.is_unknown and observed.clusters:
        message = "no broker says by which limits accounts are judged"
        conditions.put(ConditionType.SYNCED, None, Reason.BROKERS_UNREACHABLE, message)


def _is_rolling(cluster: Cluster) -> bool:
    """Brokers that are being restarted are no time to begin a move."""
    return any(
        c.type == ConditionType.SYNCED and c.reason == Reason.ROLLING_OUT for c in cluster.status.conditions
    )


def _is_ready(cluster: Cluster) -> bool:
    return any(c.type == ConditionType.READY and c.status == "True" for c in cluster.status.conditions)


def _patch(
    desired: SuperCluster,
    observed: SuperClusterObserved,
    conditions: Conditions,
    accounts: AccountsPlan,
    repair: RepairStatus | None = None,
    leaving: LeavingStatus | None = None,
    map_recovery: RecoveryStatus | None = None,
) -> Mapping[str, Any] | None:
    running = observed.running
    # A roll-out waits until all streams are whole. One that lost a replica is made whole by a repair, so that never waits
    # for the roll-out; of a broker that is being restarted none is made before its time is over (`Node.expected_until`).
    places = grants(
        desired.status.moves,
        observed.moves,
        desired.spec.moves,
        running or (),
        hold=any(map(_is_rolling, observed.clusters)),
        hold_repairs=running is None,
    )
    others = sorted(move.stream for move in of_others(running or (), places))
    status = SuperClusterStatus(
        observed_generation=desired.metadata.generation,
        identity=desired.identity,
        members=tuple(
            MemberStatus(
                name=cluster.metadata.name,
                brokers=cluster.spec.replicas,
                ready=cluster.status.ready_replicas,
            )
            for cluster in sorted(observed.clusters, key=lambda cluster: cluster.metadata.age_key)
        ),
        founder=founder(desired.status.founder, observed.clusters, observed.traces),
        streams=len(observed.streams),
        accounts=accounts.status,
        moves=places,
        other_moves=tuple(others[:OTHER_MOVES_MAX]),
        repair=repair,
        leaving=leaving,
        map_recovery=map_recovery,
        client_secret=naming.client_secret(desired.metadata.name),
        conditions=conditions.result(),
    )
    return status_patch(desired.status.to_object(), status.to_object())


def _deletion(desired: SuperCluster, observed: SuperClusterObserved, conditions: Conditions) -> Plan:
    """The credentials go with the resource, so it stays until no broker needs them."""
    if FINALIZER not in desired.metadata.finalizers:
        return Plan()
    if observed.clusters:
        names = ", ".join(sorted(cluster.metadata.name for cluster in observed.clusters))
        message = f"deletion waits until these Clusters are deleted: {names}"
        conditions.put(ConditionType.READY, False, Reason.CLUSTERS_REMAIN, message)
        accounts = AccountsPlan(status=desired.status.accounts)
        patch = _patch(desired, observed, conditions, accounts, map_recovery=desired.status.map_recovery)
        return Plan(status_patch=patch, notes=conditions.notes())
    rest = tuple(name for name in desired.metadata.finalizers if name != FINALIZER)
    return Plan((SetFinalizers(rest, desired.metadata.resource_version),))
