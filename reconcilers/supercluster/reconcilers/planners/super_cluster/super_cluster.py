"""Plans for a SuperCluster: its credentials, the Secret for applications, and a status that counts its
members.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import takewhile
from typing import Any

from supercluster.api import Cluster, Migration, Stream, StreamMove, SuperCluster, SuperClusterStatus
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.api.recovery import BEGIN_MAP_ANEW, RecoveryStatus
from supercluster.api.super_cluster import (
    OTHER_MOVES_MAX,
    FounderStatus,
    LeavingStatus,
    MemberStatus,
    MoveGrant,
    RepairStatus,
)
from supercluster.reconcilers.planners import map_majority, naming
from supercluster.reconcilers.planners.cluster.certificates import (
    CertificatesView,
    plan_certificates,
    why_waiting,
)
from supercluster.reconcilers.planners.founding import Traces, asks_anew, beginning, founder
from supercluster.reconcilers.planners.map_majority import MapView
from supercluster.reconcilers.planners.migration.views import needs_sides
from supercluster.reconcilers.planners.move.views import BrokersMove, grants, of_others
from supercluster.reconcilers.planners.plan import (
    FINALIZER,
    DeleteObject,
    ForceMapRecovery,
    Ground,
    MakeCredentials,
    Note,
    Plan,
    SetAside,
    SetFinalizers,
    Step,
)
from supercluster.reconcilers.planners.replica import drain_moves, repair_moves
from supercluster.reconcilers.planners.replica.leaderless_moves import leaderless
from supercluster.reconcilers.planners.replica.repair_moves import RepairObserved
from supercluster.reconcilers.planners.replica.repair_pace import is_due_soon
from supercluster.reconcilers.planners.replica.undeclared import undeclared_below
from supercluster.reconcilers.planners.status import Conditions, put_blocked, put_findings, status_patch
from supercluster.reconcilers.planners.strategies import BUILT_IN, Strategy, StrategyError, strategy_of
from supercluster.reconcilers.planners.super_cluster import map_recovery
from supercluster.reconcilers.planners.super_cluster.accounts import AccountsPlan, AccountView, plan_accounts
from supercluster.reconcilers.planners.super_cluster.cordons import CordonView, plan_cordons
from supercluster.reconcilers.planners.super_cluster.credentials import (
    CredentialsView,
    plan_credentials,
    plan_secret,
)
from supercluster.reconcilers.planners.super_cluster.login_rotation import (
    LoginsPlan,
    LoginsView,
    describe_logins,
    plan_logins,
)
from supercluster.reconcilers.planners.super_cluster.map_recovery import MapRecoveryView
from supercluster.reconcilers.planners.super_cluster.migration_door import migration_door, takes_migrations
from supercluster.reconcilers.planners.super_cluster.users import UsersPlan, UsersView, plan_users
from supercluster.reconcilers.planners.tls_stages import TlsPlan, TlsView, plan_tls

# While a StreamMove waits for a place, the brokers are asked this often what else moves.
WAITING_RECHECK_MS = 1_000
# The shortest time until a repair that becomes due: many become so within seconds.
DUE_RECHECK_MS = 50
# After repairs were begun.
REPAIR_RECHECK_MS = 200
# Users of users.json that a message names.
USERS_TOLD_MAX = 5
# Of steps that are refused so many are told, in so many characters each: a condition holds 4,096.
REFUSALS_TOLD_MAX = 8
REFUSAL_CHARACTERS_MAX = 480


@dataclass(frozen=True, slots=True)
class SuperClusterObserved:
    """What one look at Kubernetes shows of a super-cluster."""

    clusters: tuple[Cluster, ...] = ()
    streams: tuple[Stream, ...] = ()
    moves: tuple[StreamMove, ...] = ()
    migrations: tuple[Migration, ...] = ()
    """That name the super-cluster, as blue or as green."""
    running: tuple[BrokersMove, ...] | None = ()
    """What the brokers carry out, asked while a StreamMove waits for a place; None when they did not say."""
    lost: tuple[str, ...] = ()
    """Of clusters that are out of contact as a whole, in the brokers' words: what is lost with each."""
    accounts: tuple[AccountView, ...] | None = None
    """What the brokers have of accounts; None when they did not say."""
    aside: tuple[SetAside, ...] = ()
    """Steps that failed in this round."""
    refused_moves: Mapping[str, str] = field(default_factory=dict)
    """Names of StreamMoves that Kubernetes did not take a moment ago, and why."""
    repair: RepairObserved | None = None
    """What repair is planned from; None: the brokers do not say."""
    users: UsersView = field(default_factory=UsersView)
    logins: LoginsView = field(default_factory=LoginsView)
    credentials: CredentialsView | None = None
    client_secret: Mapping[str, Any] | None = field(default=None, repr=False)
    certificates: CertificatesView = field(default_factory=CertificatesView)
    tls: TlsView = field(default_factory=TlsView)
    unreadable: tuple[str, ...] = ()
    """Members that this version of the operator can't read, by kind and name."""
    traces: Traces = field(default_factory=Traces)
    map: MapView = field(default_factory=MapView)
    holds_map: bool = False
    """Brokers say that they hold the map of streams, and that a majority confirmed it."""
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
        return _deletion(desired, observed, conditions, now)
    unled = leaderless(observed.moves, observed.running or (), observed.repair)
    places = _places(desired, observed, unled)
    placed = frozenset(grant.uid for grant in places)
    repairing = repair_moves.consider(
        desired,
        observed.repair,
        observed.streams,
        observed.moves,
        strategies,
        now,
        placed,
        unled,
        observed.refused_moves,
    )
    draining = drain_moves.consider(
        desired,
        observed.repair,
        observed.clusters,
        observed.streams,
        observed.moves,
        strategies,
        now,
        observed.refused_moves,
    )
    repair_status = repairing.status
    if repair_status is not None and observed.repair is not None:
        below = undeclared_below(desired, observed.repair)
        repair_status = repair_status.model_copy(update={"undeclared": below})
    aside = observed.aside
    recovering = map_recovery.consider(
        desired, observed.map_recovery, _refusal_of_recovery(aside), conditions
    )
    accounts = plan_accounts(desired, observed.accounts, hold=any(map(_is_rolling, observed.clusters)))
    users, logins = _users(desired, observed, now), _logins(desired, observed)
    tls = plan_tls(desired, observed.tls)
    wanted = _steps(tls.recorded_in(desired), observed, (users.step, logins.step), now)
    # Each of its own steps needs those before it.
    own = tuple(takewhile(lambda step: not _is_aside(step, aside), wanted))
    # A person's word is dealt with once, so it is not passed on while the operator lacks the credentials for it.
    is_able = not any(isinstance(step, MakeCredentials) and step.missing for step in wanted)
    recovery = _left(recovering.steps, aside) if is_able else ()
    stage = _left(_stage_steps(desired, observed, tls), aside) if is_able else ()
    # What is lost comes before what is to go.
    moves = _left(repairing.steps, aside) or _left(draining.steps, aside)
    others = _left(accounts.steps, aside) or _left(
        plan_cordons(desired, observed.clusters, observed.cordons), aside
    )
    steps = own or recovery or stage or moves or others
    _describe(desired, observed, conditions, steps, tls)
    describe_logins(logins, observed.logins, conditions)
    _describe_users_by_hand(desired, observed, conditions)
    _describe_accounts(observed, conditions, accounts, users)
    _describe_accepted(desired, observed, conditions, accounts, users, tls, strategies, is_through=not steps)
    if observed.repair is not None:
        put_blocked(conditions, draining.blocked)
    # That somebody else's move has ended, or that a broker is away, is no event in Kubernetes.
    is_watching = waits_for_a_place(observed.moves) or repairing.is_watching or draining.is_watching
    is_watching = is_watching or is_due_soon(desired, observed.repair) or recovering.is_waiting
    is_watching = is_watching or bool(tls.waiting) or users.waits or logins.is_under_way
    patch = _patch(
        desired,
        observed,
        conditions,
        accounts,
        places,
        tls,
        repair_status,
        draining.status,
        recovering.status,
    )
    notes = (*conditions.notes(), *_note_of_beginning(desired, observed))
    if steps and steps is moves:
        # They are of different streams, and were planned with one budget: none depends on another one.
        return Plan(
            steps,
            patch,
            notes,
            REPAIR_RECHECK_MS,
            wait_after_step=True,
            in_a_row=len(moves),
            goes_on=True,
        )
    recheck_ms = WAITING_RECHECK_MS if is_watching else map_majority.LOOK_MS
    if observed.map.unread_ms:
        recheck_ms = map_majority.RECHECK_MS
    if repairing.next_ms is not None:
        soon_ms = max(repairing.next_ms, DUE_RECHECK_MS)
        recheck_ms = min(recheck_ms, soon_ms)
    in_a_row = len(others) if others and steps is others else 1
    return Plan(steps, patch, notes, recheck_after_ms=recheck_ms, in_a_row=in_a_row, goes_on=True)


def _is_aside(step: Step, aside: Sequence[SetAside]) -> bool:
    return any(each.is_about(step) for each in aside)


def _left(steps: Sequence[Step], aside: Sequence[SetAside]) -> tuple[Step, ...]:
    """Of steps that do not depend on each other, those that have not failed in this round."""
    return tuple(step for step in steps if not _is_aside(step, aside))


def _refusal_of_recovery(aside: Sequence[SetAside]) -> str | None:
    found = (each.refusal for each in aside if isinstance(each.step, ForceMapRecovery))
    return next(filter(None, found), None)


def waits_for_a_place(moves: tuple[StreamMove, ...]) -> bool:
    return any(move.status.phase == "Queued" for move in moves)


def _users(desired: SuperCluster, observed: SuperClusterObserved, now: datetime) -> UsersPlan:
    """Nothing while the brokers' Secret is not there, or can't be read."""
    if observed.credentials is None or observed.credentials.broken:
        return UsersPlan()
    return plan_users(desired, observed.users, now)


def _logins(desired: SuperCluster, observed: SuperClusterObserved) -> LoginsPlan:
    if observed.credentials is None or observed.credentials.broken:
        return LoginsPlan()
    return plan_logins(desired, observed.logins)


def _stage_steps(desired: SuperCluster, observed: SuperClusterObserved, tls: TlsPlan) -> tuple[Step, ...]:
    if tls.step is None:
        return (tls.port_step,) if tls.port_step is not None else ()
    door = migration_door(desired, observed.migrations, observed.credentials, tls.step.goal)
    return (replace(tls.step, migration=door.to_object() if door is not None else None),)


def _steps(
    desired: SuperCluster, observed: SuperClusterObserved, credentials: Sequence[Step | None], now: datetime
) -> tuple[Step, ...]:
    steps: list[Step] = []
    if FINALIZER not in desired.metadata.finalizers:
        steps.append(
            SetFinalizers((*desired.metadata.finalizers, FINALIZER), desired.metadata.resource_version)
        )
    steps += plan_credentials(
        desired,
        observed.credentials,
        observed.client_secret,
        observed.clusters,
        takes_migrations=takes_migrations(desired, observed.migrations),
        is_application_declared=observed.users.declares_application(desired),
    )
    steps += plan_certificates(desired, observed.certificates, observed.clusters, now)
    # Behind all that brokers cannot do without: one that is refused holds up what follows.
    steps += [each for each in credentials if each is not None]
    return tuple(steps)


def _describe(
    desired: SuperCluster,
    observed: SuperClusterObserved,
    conditions: Conditions,
    steps: tuple[Step, ...],
    tls: TlsPlan,
) -> None:
    if observed.credentials is not None and observed.credentials.broken:
        secret = naming.credentials_secret(desired.metadata.name)
        message = f"Secret {secret}: {observed.credentials.broken}; put it right: nothing of it is changed, and nobody new is let in"
        conditions.put(ConditionType.SYNCED, False, Reason.CREDENTIALS_UNREADABLE, message)
    elif observed.certificates.authority is not None and observed.certificates.authority.broken:
        secret = naming.authority_secret(desired.metadata.name)
        message = (
            f"Secret {secret}: {observed.certificates.authority.broken}; put it right: no certificate is issued meanwhile, and "
            "those that brokers have end in time"
        )
        conditions.put(ConditionType.SYNCED, False, Reason.CREDENTIALS_UNREADABLE, message)
    elif steps:
        conditions.put(ConditionType.SYNCED, False, Reason.APPLYING, f"next: {steps[0]}")
    elif observed.aside:
        first = observed.aside[0]
        told = f"tried again: {first.step}" + (
            f": {first.failure[:REFUSAL_CHARACTERS_MAX]}" if first.failure else ""
        )
        conditions.put(ConditionType.SYNCED, False, Reason.APPLYING, told)
    elif waiting := why_waiting(observed.certificates):
        conditions.put(ConditionType.SYNCED, False, Reason.SETTINGS_PENDING, waiting)
    elif tls.waiting:
        conditions.put(ConditionType.SYNCED, False, Reason.SETTINGS_PENDING, tls.waiting)
    else:
        conditions.put(ConditionType.SYNCED, True, Reason.AS_DECLARED)
    if not observed.clusters:
        message = f"no Cluster in namespace {desired.metadata.namespace} has spec.superCluster {desired.metadata.name}"
        conditions.put(ConditionType.READY, False, Reason.NO_CLUSTER, message)
        return
    without = map_majority.trouble(desired, observed.map)
    starting = [
        f"Cluster {cluster.metadata.name} has {cluster.status.ready_replicas} of {cluster.spec.replicas} brokers ready"
        for cluster in sorted(observed.clusters, key=lambda cluster: cluster.metadata.name)
        if not map_majority.serves(cluster, ConditionType.WHOLE)
    ]
    if without:
        message = "; ".join((without, *observed.lost, *starting))
        conditions.put(ConditionType.READY, False, Reason.MAP_WITHOUT_MAJORITY, message)
        return
    if observed.lost:
        message = "; ".join((*observed.lost, *starting))
        conditions.put(ConditionType.READY, False, Reason.CLUSTER_UNREACHABLE, message)
        return
    if not all(map_majority.serves(cluster, ConditionType.READY) for cluster in observed.clusters):
        conditions.put(ConditionType.READY, False, Reason.MEMBERS_STARTING, "; ".join(starting))
        return
    names = ", ".join(sorted(cluster.metadata.name for cluster in observed.clusters))
    subject = f"Cluster {names} is" if len(observed.clusters) == 1 else f"Clusters {names} are"
    conditions.put(ConditionType.READY, True, Reason.MEMBERS_READY, f"{subject} ready")
    if starting:
        conditions.put(ConditionType.WHOLE, False, Reason.MEMBERS_STARTING, "; ".join(starting))
    else:
        conditions.put(ConditionType.WHOLE, True, Reason.MEMBERS_READY, f"{subject} whole")


def _describe_users_by_hand(
    desired: SuperCluster, observed: SuperClusterObserved, conditions: Conditions
) -> None:
    """Said once there is a User: until then users.json is as people keep it."""
    found = sorted(observed.users.by_hand - naming.own_users(desired)) if observed.users.users else []
    if not found and not conditions.was(ConditionType.WARNING):
        return
    named = ", ".join(f"{user} of account {account}" for account, user in found[:USERS_TOLD_MAX])
    more = f" and {len(found) - USERS_TOLD_MAX} more" if len(found) > USERS_TOLD_MAX else ""
    told = (
        f"users.json has users that no User declares: {named}{more}; they stay in force. `supercluster users adopt --super-cluster "
        f"{desired.metadata.name}` prints the manifests that take them over"
    )
    put_findings(conditions, ConditionType.WARNING, [(Reason.USERS_BY_HAND, told)] if found else [])


def _describe_accounts(
    observed: SuperClusterObserved, conditions: Conditions, accounts: AccountsPlan, users: UsersPlan
) -> None:
    if _refusals(observed):
        return
    if accounts.refusals or users.refusals:
        conditions.put(ConditionType.SYNCED, False, Reason.NOT_ACCEPTED, "see the condition Accepted")
    elif accounts.is_held:
        message = "accounts are declared when the brokers' restarts are over"
        conditions.put(ConditionType.SYNCED, False, Reason.ROLLING_OUT, message)
    elif accounts.is_unknown and observed.clusters:
        message = "no broker says by which limits accounts are judged"
        conditions.put(ConditionType.SYNCED, None, Reason.BROKERS_UNREACHABLE, message)


def _describe_accepted(
    desired: SuperCluster,
    observed: SuperClusterObserved,
    conditions: Conditions,
    accounts: AccountsPlan,
    users: UsersPlan,
    tls: TlsPlan,
    strategies: Mapping[str, Strategy],
    *,
    is_through: bool,
) -> None:
    """`is_through`: every step was tried in this round. Before that nobody knows whether what was refused still is."""
    refusals = _refusals(observed)
    was_refused = conditions.reason_of(ConditionType.ACCEPTED) == Reason.REFUSED_BY_BROKERS
    if was_refused and not refusals and not is_through:
        return
    found = [(Reason.REFUSED_BY_BROKERS, each) for each in refusals]
    found += [(Reason.OUT_OF_RANGE, each) for each in accounts.refusals]
    found += users.refusals
    found += [(Reason.OUT_OF_RANGE, tls.refusal)] if tls.refusal else []
    try:
        strategy_of(strategies, desired.spec.repair.placement_strategy)
    except StrategyError as error:
        told = (
            f"spec.repair.{error}; set one of these or install its package: until then replicas of streams for which no "
            "ReplicaPolicy counts are neither replaced when they are lost nor moved off brokers that go"
        )
        # Before accounts, of which there may be more than are told.
        found.insert(min(1, len(refusals)), (Reason.UNKNOWN_STRATEGY, told))
    if not found:
        conditions.put(ConditionType.ACCEPTED, True, Reason.AS_DECLARED)
        return
    more = len(found) - REFUSALS_TOLD_MAX
    message = "; ".join(each[:REFUSAL_CHARACTERS_MAX] for _, each in found[:REFUSALS_TOLD_MAX])
    message += f"; and {more} more" if more > 0 else ""
    conditions.put(ConditionType.ACCEPTED, False, found[0][0], message)


def _refusals(observed: SuperClusterObserved) -> list[str]:
    """Of a recovery of the map the condition Recovered tells."""
    return [
        each.refusal
        for each in observed.aside
        if each.refusal and not isinstance(each.step, ForceMapRecovery)
    ]


def _is_rolling(cluster: Cluster) -> bool:
    """Brokers that are being restarted are no time to begin a move."""
    return any(
        c.type == ConditionType.SYNCED and c.reason == Reason.ROLLING_OUT for c in cluster.status.conditions
    )


def _patch(
    desired: SuperCluster,
    observed: SuperClusterObserved,
    conditions: Conditions,
    accounts: AccountsPlan,
    places: tuple[MoveGrant, ...],
    tls: TlsPlan,
    repair: RepairStatus | None = None,
    leaving: LeavingStatus | None = None,
    map_recovery: RecoveryStatus | None = None,
) -> Mapping[str, Any] | None:
    others = sorted(move.stream for move in of_others(observed.running or (), places))
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
        # Whoever can't be read may be the one that began it: a second map would be begun beside the first.
        founder=desired.status.founder if observed.unreadable else _founder(desired, observed),
        streams=len(observed.streams),
        accounts=accounts.status,
        moves=places,
        other_moves=tuple(others[:OTHER_MOVES_MAX]),
        repair=repair,
        leaving=leaving,
        map_recovery=map_recovery,
        migration=migration_door(desired, observed.migrations, observed.credentials, tls.stage),
        tls=tls.status,
        client_secret=naming.client_secret(desired.metadata.name),
        conditions=conditions.result(),
    )
    return status_patch(desired.status.to_object(), status.to_object())


def _founder(desired: SuperCluster, observed: SuperClusterObserved) -> FounderStatus | None:
    record = founder(desired.status.founder, observed.clusters, observed.traces)
    brokers = sum(max(each.spec.replicas, each.status.replicas) for each in observed.clusters)
    # The only broker there is can't begin a second map beside anybody.
    holds_map = observed.holds_map and brokers > 1
    return beginning(desired, record, observed.traces, holds_map=holds_map)


def _note_of_beginning(desired: SuperCluster, observed: SuperClusterObserved) -> tuple[Note, ...]:
    record = desired.status.founder
    if record is None or not record.begun or not asks_anew(desired):
        return ()
    told = (
        "refused: brokers hold the map of streams"
        if observed.holds_map
        else "brokers may begin another map of streams: all that the former one had is given up"
    )
    return (Note.done(EventReason.STREAM_MAP_RECREATED, f"annotation {BEGIN_MAP_ANEW}: {told}"),)


def _places(
    desired: SuperCluster, observed: SuperClusterObserved, unled: Collection[str] = ()
) -> tuple[MoveGrant, ...]:
    """A roll-out waits until all streams are whole. One that lost a replica is made whole by a repair, so that never waits
    for the roll-out; of a broker that is being restarted none is made before its time is over (`Node.expected_until`)."""
    return grants(
        desired.status.moves,
        observed.moves,
        desired.spec.moves,
        observed.running or (),
        hold=any(map(_is_rolling, observed.clusters)),
        hold_repairs=observed.running is None,
        leaderless=unled,
    )


def _deletion(
    desired: SuperCluster, observed: SuperClusterObserved, conditions: Conditions, now: datetime
) -> Plan:
    """The credentials go with the resource, so it stays until no broker needs them."""
    if FINALIZER not in desired.metadata.finalizers:
        return Plan()
    needing = sorted(
        each.metadata.name for each in observed.migrations if needs_sides(each.status.to_object())
    )
    if needing or observed.clusters:
        names = ", ".join(sorted(cluster.metadata.name for cluster in observed.clusters))
        message, reason = f"deletion waits until these Clusters are deleted: {names}", Reason.CLUSTERS_REMAIN
        if needing:
            reason = Reason.MIGRATION_UNDER_WAY
            message = f"deletion waits for Migration {', '.join(needing)}: set spec.abort there to keep blue, or let it come to its end by spec.finalize"
        conditions.put(ConditionType.READY, False, reason, message)
        accounts = AccountsPlan(status=desired.status.accounts)
        places = _places(desired, observed)
        patch = _patch(
            desired,
            observed,
            conditions,
            accounts,
            places,
            TlsPlan(desired.status.tls),
            map_recovery=desired.status.map_recovery,
        )
        # Brokers are not let in without it, and streams that go with their Stream are deleted by brokers.
        again = plan_secret(desired, observed.credentials)
        steps: tuple[Step, ...] = (again,) if again is not None and again.missing else ()
        steps += plan_certificates(desired, observed.certificates, observed.clusters, now)
        return Plan(steps, patch, conditions.notes())
    name = desired.metadata.name
    secrets = {
        naming.credentials_secret(name): observed.credentials,
        naming.authority_secret(name): observed.certificates.authority,
    }
    unused = {
        secret: found.marks.uid
        for secret, found in secrets.items()
        if found is not None and not found.marks.owners and found.marks.identity == desired.identity
    }
    if unused:
        namespace, ground = desired.metadata.namespace, Ground.CREDENTIALS_UNUSED
        return Plan(tuple(DeleteObject("v1", "Secret", namespace, *each, ground) for each in unused.items()))
    rest = tuple(name for name in desired.metadata.finalizers if name != FINALIZER)
    return Plan((SetFinalizers(rest, desired.metadata.resource_version),))
