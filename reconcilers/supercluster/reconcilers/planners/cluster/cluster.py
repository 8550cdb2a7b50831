"""Plans for a Cluster: its objects in Kubernetes, restarts of one broker at a time, and deletion by its
policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from supercluster.api import Cluster, ClusterStatus, SuperCluster
from supercluster.api.cluster import BrokerStatus
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.api.super_cluster import PortTls, TlsStage
from supercluster.reconcilers.planners import founding, map_majority, naming, tls_ports
from supercluster.reconcilers.planners.cluster import manifests
from supercluster.reconcilers.planners.cluster.advice import advise
from supercluster.reconcilers.planners.cluster.broker_config import (
    broker_config,
    file_digest,
    is_join_only,
    out_of_range,
    port_told,
    stage_told,
    voters_in,
)
from supercluster.reconcilers.planners.cluster.certificates import server_name, why_unusable
from supercluster.reconcilers.planners.cluster.cluster_observed import ClusterObserved
from supercluster.reconcilers.planners.cluster.deletion import plan_deletion
from supercluster.reconcilers.planners.cluster.manifests import OperatorDefaults
from supercluster.reconcilers.planners.cluster.restart_order import PodView, why_not_drainable
from supercluster.reconcilers.planners.cluster.rollout_plan import (
    Rollout,
    RolloutView,
    blocked,
    plan_rollout,
    settings_of,
    settings_trouble,
    tell_rollout,
)
from supercluster.reconcilers.planners.cluster.scale_down import ScaleDown, brokers_there, plan_scale_down
from supercluster.reconcilers.planners.cluster.volumes import (
    Volumes,
    claim_identity,
    claim_size,
    plan_volumes,
)
from supercluster.reconcilers.planners.drift import DIGEST_ANNOTATION, differences, is_current
from supercluster.reconcilers.planners.founding import Missing, voters_for
from supercluster.reconcilers.planners.move.views import share_bytes_per_s
from supercluster.reconcilers.planners.plan import FINALIZER, Apply, Manifest, Note, Plan, SetFinalizers, Step
from supercluster.reconcilers.planners.status import (
    Conditions,
    is_within,
    parse_timestamp,
    put_blocked,
    status_patch,
)
from supercluster.reconcilers.planners.tls_ports import PORTS
from supercluster.reconcilers.planners.tls_stages import OFF

RECORDED_RECHECK_MS = 1
# While something keeps brokers from being evicted, or settings are on their way, nothing in Kubernetes changes.
LOOK_AGAIN_MS = 1_000
# In a roll-out all is whole for moments, again and again: the budget for evictions is closed at once, and opened after this.
OPEN_AFTER = timedelta(seconds=2)


def plan_cluster(
    desired: Cluster, observed: ClusterObserved, defaults: OperatorDefaults, now: datetime
) -> Plan:
    conditions = Conditions(desired.status.conditions, desired.metadata.generation, now)
    if desired.metadata.deletion_timestamp is not None:
        return plan_deletion(
            desired,
            observed,
            conditions,
            lambda since: _patch(desired, observed, conditions, None, parting_since=since),
            now,
        )
    refusal = _refusal(desired, observed)
    if refusal is not None:
        conditions.put(ConditionType.ACCEPTED, False, *refusal)
        for type_ in (ConditionType.SYNCED, ConditionType.READY):
            conditions.put(type_, False, Reason.NOT_ACCEPTED, refusal[1])
        return Plan((), _patch(desired, observed, conditions, None), conditions.notes())
    assert observed.super_cluster is not None
    conditions.put(ConditionType.ACCEPTED, True, Reason.AS_DECLARED)
    scaling = _scaling(desired, observed, observed.super_cluster, now)
    volumes = plan_volumes(
        desired,
        observed.claims,
        scaling.replicas,
        observed.pods,
        observed.expandable,
        now,
        observed.super_cluster.identity,
    )
    advise(desired, scaling.refused, volumes, conditions)
    voters = _meta_voters(desired, observed, observed.super_cluster)
    tls_stage = _tls_stage(desired, observed, observed.super_cluster)
    if not voters or isinstance(voters, Missing) or tls_stage is None:
        message = f"waiting until SuperCluster {desired.spec.super_cluster} has recorded who starts it"
        return _not_begun(desired, observed, conditions, None, message)
    rollout = _rollout(desired, observed, scaling.replicas, now)
    drainable = why_not_drainable(observed.pods, scaling.replicas, observed.reports, rollout.choice)
    is_open = drainable is None and _may_be_open(desired, observed, now)
    wanted = _wanted(
        desired,
        observed,
        observed.super_cluster,
        scaling,
        volumes,
        voters,
        tls_stage,
        defaults,
        is_open=is_open,
    )
    if not desired.status.meta_voters:
        # Recorded before anything is made: they must not be chosen again from another state of things.
        return _not_begun(desired, observed, conditions, wanted, "next: record the first voters")
    if scaling.is_to_be_recorded:
        message = f"next: record who goes; {scaling.doing}"
        conditions.put(ConditionType.SYNCED, False, Reason.DRAINING, message)
        patch = _patch(desired, observed, conditions, wanted)
        return Plan((), patch, conditions.notes(), recheck_after_ms=scaling.recheck_after_ms)
    steps = _apply_steps(desired, observed, wanted)
    if scaling.step is not None:
        steps = (*steps, scaling.step)
    steps = (*steps, *volumes.steps)
    # The budget for evictions is closed, a step of its own, before anything is restarted.
    rolls = not steps and rollout.step is not None
    if not steps and not rolls:
        steps = volumes.late_steps
    notes = _describe(desired, observed, conditions, wanted, steps, rollout)
    map_majority.describe(observed.super_cluster, conditions)
    put_blocked(conditions, blocked(desired, rollout, observed.super_cluster.status.repair, now))
    if drainable is None:
        conditions.put(ConditionType.DRAINABLE, True, Reason.AS_DECLARED)
    else:
        conditions.put(ConditionType.DRAINABLE, False, *drainable)
    if rolls and rollout.step is not None:
        steps = (rollout.step,)
    elif rollout.step is not None:
        rollout = replace(rollout, status=desired.status.rollout)  # Nobody's turn has come yet.
    late = settings_trouble(observed.pods, observed.reports, wanted.settings)
    again = LOOK_AGAIN_MS if not is_open or late is not None else None
    return Plan(
        steps,
        _patch(desired, observed, conditions, wanted, rollout=rollout),
        (*conditions.notes(), *notes, *wanted.volumes.notes),
        recheck_after_ms=rollout.recheck_after_ms or scaling.recheck_after_ms or again,
        # What was told takes effect on the brokers, of which the next to be asked may know a moment later.
        wait_after_step=rolls or (bool(steps) and steps[0] is scaling.step),
    )


def _rollout(desired: Cluster, observed: ClusterObserved, replicas: int, now: datetime) -> Rollout:
    """One cluster after the other: the map of streams has voters in each, and moves have replicas in two."""
    running = observed.objects.get(("StatefulSet", naming.stateful_set(desired.metadata.name)), {})
    view = RolloutView(observed.pods, replicas, running, observed.reports, observed.moving, observed.rolling)
    return plan_rollout(desired, view, now)


def _not_begun(
    desired: Cluster,
    observed: ClusterObserved,
    conditions: Conditions,
    wanted: _Wanted | None,
    message: str,
) -> Plan:
    conditions.put(ConditionType.SYNCED, False, Reason.APPLYING, message)
    conditions.put(ConditionType.READY, False, Reason.BROKERS_STARTING, "nothing is made yet")
    patch = _patch(desired, observed, conditions, wanted)
    return Plan((), patch, conditions.notes(), recheck_after_ms=RECORDED_RECHECK_MS if wanted else None)


def _meta_voters(
    desired: Cluster, observed: ClusterObserved, super_cluster: SuperCluster
) -> tuple[str, ...] | Missing | None:
    told = voters_in(observed.objects.get(("ConfigMap", naming.config_map(desired.metadata.name))))
    known = desired.status.meta_voters or told
    return known or voters_for(desired, super_cluster.status.founder, observed.siblings)


def _tls_stage(desired: Cluster, observed: ClusterObserved, super_cluster: SuperCluster) -> TlsStage | None:
    """What is recorded, else what brokers were told before; None: nobody has decided yet."""
    if super_cluster.status.tls is not None:
        return super_cluster.status.tls.stage
    name = desired.metadata.name
    return stage_told(
        observed.objects.get(("ConfigMap", naming.config_map(name))),
        observed.objects.get(("StatefulSet", naming.stateful_set(name))),
    )


def _ports(desired: Cluster, observed: ClusterObserved, super_cluster: SuperCluster) -> dict[str, PortTls]:
    """In the same way, of clients and monitoring."""
    if super_cluster.status.tls is not None:
        return {port: tls_ports.status_of(super_cluster, port).stage for port in PORTS}
    told = observed.objects.get(("ConfigMap", naming.config_map(desired.metadata.name)))
    return {port: port_told(told, port) for port in PORTS}


def _refusal(desired: Cluster, observed: ClusterObserved) -> tuple[Reason, str] | None:
    """Why the spec can't be carried out beside the other resources."""
    spec, namespace = desired.spec, desired.metadata.namespace
    if observed.super_cluster is None or observed.super_cluster.metadata.deletion_timestamp is not None:
        state = "is being deleted" if observed.super_cluster else "is not there"
        told = (
            f"spec.superCluster is {spec.super_cluster}, and SuperCluster {spec.super_cluster} {state} in namespace "
            f"{namespace}; create it, or delete this resource and create it with the right name"
        )
        return Reason.SUPER_CLUSTER_NOT_FOUND, told
    voters = _meta_voters(desired, observed, observed.super_cluster)
    if isinstance(voters, Missing):
        founder = voters.founder.cluster
        told = (
            f"SuperCluster {spec.super_cluster} was begun by Cluster {founder}, which is not there, and its volume claims "
            f"are kept: create Cluster {founder} again to go on from them, or use a new SuperCluster"
        )
        return Reason.FOUNDER_MISSING, told
    beyond = out_of_range(desired)
    if beyond is not None:
        return Reason.OUT_OF_RANGE, beyond
    if observed.refusal is not None:
        return Reason.INVALID_OBJECT, observed.refusal
    return None


@dataclass(frozen=True, slots=True)
class _Wanted:
    replicas: int
    meta_voters: tuple[str, ...]
    objects: tuple[Manifest, ...]
    scaling: ScaleDown
    volumes: Volumes
    settings: str
    """Digest of the brokers' settings file."""

    @property
    def stateful_set(self) -> Manifest:
        return self.objects[-1]


def running_brokers(stateful_set: Manifest | None) -> int:
    """How many the StatefulSet was told to run."""
    return int((stateful_set or {}).get("spec", {}).get("replicas", 0))


def _scaling(
    desired: Cluster, observed: ClusterObserved, super_cluster: SuperCluster, now: datetime
) -> ScaleDown:
    running = observed.objects.get(("StatefulSet", naming.stateful_set(desired.metadata.name)))
    there = brokers_there(desired, running_brokers(running))
    return plan_scale_down(desired, there, observed.going, super_cluster.status.leaving, now)


def _may_be_open(desired: Cluster, observed: ClusterObserved, now: datetime) -> bool:
    """Is the budget for evictions open already, or has it been a while that it could be?"""
    there = observed.objects.get(("PodDisruptionBudget", naming.stateful_set(desired.metadata.name)), {})
    if there.get("spec", {}).get("maxUnavailable"):
        return True
    told = next((each for each in desired.status.conditions if each.type == ConditionType.DRAINABLE), None)
    since = parse_timestamp(told.last_transition_time) if told and told.status == "True" else None
    return since is not None and not is_within(since, OPEN_AFTER, now)


def _wanted(
    desired: Cluster,
    observed: ClusterObserved,
    super_cluster: SuperCluster,
    scaling: ScaleDown,
    volumes: Volumes,
    voters: tuple[str, ...],
    tls_stage: TlsStage,
    defaults: OperatorDefaults,
    *,
    is_open: bool,
) -> _Wanted:
    replicas = scaling.replicas
    # One that goes hands over what its clients sent until its process has ended: till then the others stay linked with it.
    linked = max((replicas, *(naming.ordinal(pod.name) + 1 for pod in observed.pods)))
    share = share_bytes_per_s(super_cluster.spec.moves)
    running = observed.objects.get(("StatefulSet", naming.stateful_set(desired.metadata.name)))
    told = is_join_only(observed.objects.get(("ConfigMap", naming.config_map(desired.metadata.name))))
    config = broker_config(
        desired,
        super_cluster.identity,
        linked,
        voters,
        observed.siblings,
        share,
        join_only=founding.is_join_only(super_cluster, told),
        tls_name=server_name(super_cluster),
        tls_stage=tls_stage,
        ports=_ports(desired, observed, super_cluster),
        migration=super_cluster.status.migration,
    )
    door = super_cluster.status.migration
    identity = super_cluster.identity
    objects = (
        manifests.config_map(desired, identity, config),
        manifests.headless_service(desired, identity, takes_migrations=door is not None and door.port),
        manifests.client_service(desired, identity),
        manifests.disruption_budget(desired, identity, defaults.pdb_api_version, is_open=is_open),
        manifests.stateful_set(
            desired,
            identity,
            config,
            replicas,
            defaults,
            claim_size(desired, running),
            claim_identity(identity, running),
        ),
    )
    return _Wanted(replicas, voters, objects, scaling, volumes, file_digest(config))


def _url(desired: Cluster, observed: ClusterObserved) -> str:
    whole = observed.super_cluster
    has_tls = whole is not None and tls_ports.speaks_tls(whole, tls_ports.CLIENTS, by_choice=False)
    return naming.client_url(desired, has_tls=has_tls)


def _apply_steps(desired: Cluster, observed: ClusterObserved, wanted: _Wanted) -> tuple[Step, ...]:
    steps: list[Step] = []
    if FINALIZER not in desired.metadata.finalizers:
        steps.append(
            SetFinalizers((*desired.metadata.finalizers, FINALIZER), desired.metadata.resource_version)
        )
    for manifest in wanted.objects:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        there = observed.objects.get((kind, name))
        if is_current(manifest, there):
            continue
        steps.append(Apply(manifest, note=_apply_note(desired, manifest, there)))
    # Pods wait for the Secrets anyway; without them they would only collect errors.
    if _awaited_secret(desired, observed):
        return tuple(step for step in steps if _kind(step) != "StatefulSet")
    return tuple(steps)


def _awaited_secret(desired: Cluster, observed: ClusterObserved) -> str:
    """A Secret that brokers mount and that they can't work with yet, and why; empty: there is none."""
    if not observed.credentials_ready:
        return naming.credentials_secret(desired.spec.super_cluster)
    assert observed.super_cluster is not None
    if _tls_stage(desired, observed, observed.super_cluster) in (OFF, None):
        return ""
    why = why_unusable(observed.super_cluster, observed.certificate)
    return f"{naming.certificate_secret(desired.metadata.name)}: {why}" if why else ""


def _kind(step: Step) -> str:
    return str(step.manifest["kind"]) if isinstance(step, Apply) else ""


def _apply_note(desired: Cluster, manifest: Manifest, there: Manifest | None) -> Note | None:
    label = f"{manifest['kind']} {manifest['metadata']['name']}"
    settled = desired.status.observed_generation == desired.metadata.generation
    if there is None:
        was_there = settled and any(
            c.type == ConditionType.SYNCED and c.status == "True" for c in desired.status.conditions
        )
        if was_there:
            return Note.done(EventReason.DRIFT_REPAIRED, f"{label} was gone; created it again")
        return Note.done(EventReason.CREATED, f"created {label}")
    if manifest["kind"] == "PodDisruptionBudget" and manifest["metadata"]["annotations"] != there[
        "metadata"
    ].get("annotations"):
        return None  # It is opened and closed all the time; the condition Drainable says so.
    fields = differences(manifest, there)
    digest_path = f"metadata.annotations.{DIGEST_ANNOTATION}"
    if digest_path not in fields:
        # What we want is what we applied, so somebody else changed the object.
        return Note.done(
            EventReason.DRIFT_REPAIRED, f"{label} was changed; set back: {', '.join(fields[:5])}"
        )
    changed = [path for path in fields if path != digest_path][:5]
    return Note.done(EventReason.UPDATED, f"updated {label}: {', '.join(changed) or 'removed fields'}")


def _describe(
    desired: Cluster,
    observed: ClusterObserved,
    conditions: Conditions,
    wanted: _Wanted,
    steps: tuple[Step, ...],
    rollout: Rollout,
) -> tuple[Note, ...]:
    """The conditions Synced and Ready; events that go with them."""
    notes: tuple[Note, ...] = ()
    late = settings_trouble(observed.pods, observed.reports, wanted.settings)
    scaling = wanted.scaling
    if steps:
        conditions.put(ConditionType.SYNCED, False, Reason.APPLYING, f"next: {steps[0]}")
    elif secret := _awaited_secret(desired, observed):
        conditions.put(ConditionType.SYNCED, False, Reason.APPLYING, f"waiting for Secret {secret}")
    elif rollout.choice is not None:
        notes = tell_rollout(rollout, conditions)
    elif scaling.refused or scaling.doing:
        reason = Reason.DRAINING if scaling.doing else Reason.SCALE_DOWN_REFUSED
        conditions.put(ConditionType.SYNCED, False, reason, scaling.doing or scaling.refused)
    elif late is not None:
        conditions.put(ConditionType.SYNCED, False, *late)
    else:
        conditions.put(ConditionType.SYNCED, True, Reason.AS_DECLARED)
    ready = sum(pod.ready and not pod.terminating for pod in observed.pods)
    message = f"{ready} of {wanted.replicas} brokers ready"
    told = {pod.name: pod.trouble or pod.unplaced for pod in observed.pods}
    troubles = sorted(f"{name}: {why}" for name, why in told.items() if why)
    reason, why = _why_not_ready(observed.pods), "; ".join([message, *troubles])
    majority = wanted.replicas // 2 + 1
    if ready < majority:
        conditions.put(ConditionType.READY, False, reason, why)
        return notes
    serving = f"a majority of {wanted.replicas} brokers take clients"
    conditions.put(ConditionType.READY, True, Reason.SERVING, serving)
    if ready >= wanted.replicas:
        conditions.put(ConditionType.WHOLE, True, Reason.BROKERS_READY, message)
    else:
        conditions.put(ConditionType.WHOLE, False, reason, why)
    return notes


def _why_not_ready(pods: tuple[PodView, ...]) -> Reason:
    """The first that a person has to look after; else they are about to be ready."""
    if any(pod.is_out_of_memory for pod in pods):
        return Reason.OUT_OF_MEMORY
    if any(pod.trouble and pod.restarts for pod in pods):
        return Reason.BROKERS_CRASHING
    if any(pod.unplaced for pod in pods):
        return Reason.BROKERS_UNSCHEDULABLE
    return Reason.BROKERS_STARTING


def _patch(
    desired: Cluster,
    observed: ClusterObserved,
    conditions: Conditions,
    wanted: _Wanted | None,
    parting_since: str | None = None,
    rollout: Rollout | None = None,
) -> Mapping[str, Any] | None:
    pods = sorted(observed.pods, key=lambda pod: (len(pod.name), pod.name))
    status = ClusterStatus(
        observed_generation=desired.metadata.generation,
        replicas=wanted.replicas if wanted else desired.status.replicas,
        ready_replicas=sum(pod.ready and not pod.terminating for pod in pods),
        selector=naming.selector_text(desired.metadata.name),
        meta_voters=wanted.meta_voters if wanted else desired.status.meta_voters,
        url=_url(desired, observed) if wanted else desired.status.url,
        brokers=tuple(
            BrokerStatus(
                name=pod.name,
                node=pod.node,
                ready=pod.ready and not pod.terminating,
                restarts=pod.restarts,
                settings=settings_of(observed.reports, pod.name),
            )
            for pod in pods
        ),
        settings=wanted.settings if wanted else desired.status.settings,
        rollout=rollout.status if rollout is not None else desired.status.rollout,
        parting_since=parting_since or desired.status.parting_since,
        drain=wanted.scaling.status if wanted else desired.status.drain,
        retired_claims=wanted.volumes.retired if wanted else desired.status.retired_claims,
        conditions=conditions.result(),
    )
    return status_patch(desired.status.to_object(), status.to_object())
