"""The reasons why a StreamPipeline can't run, each with a remedy."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from supercluster.api import cron
from supercluster.api.conditions import Reason
from supercluster.api.stream_pipeline import RESERVED_CONF, StreamPipeline
from supercluster.reconcilers.planners.pipeline.checkpoints import checkpoint_of, claim_name
from supercluster.reconcilers.planners.pipeline.manifests import SHARED
from supercluster.reconcilers.planners.pipeline.pod_template import refused_part
from supercluster.reconcilers.planners.pipeline.views import PipelineObserved

Finding = tuple[Reason, str]


def refusal_of(desired: StreamPipeline, observed: PipelineObserved) -> Finding | None:
    """Why the spec can't be carried out, and what to do."""
    spec, namespace = desired.spec, desired.metadata.namespace
    if observed.refusal is not None:
        return Reason.NOT_ACCEPTED, observed.refusal
    if observed.has_brokers and not spec.allow_beside_brokers:
        return Reason.BESIDE_BROKERS, (
            f"namespace {namespace} has a SuperCluster or a Cluster, and any account that can create pods there can mount the credentials of its "
            "brokers; make the pipeline in another namespace, with spec.superClusterNamespace, or set spec.allowBesideBrokers"
        )
    reserved = sorted(name for name in spec.spark_conf if name.startswith(RESERVED_CONF))
    if reserved:
        return Reason.RESERVED_PROPERTY, (
            f"spec.sparkConf has {reserved[0]}, which the operator or the driver sets; remove it (spec.driver and spec.executors "
            "have the sizes)"
        )
    part = refused_part(spec.pod_template)
    if part:
        return Reason.RESERVED_PROPERTY, (
            f"spec.podTemplate has {part}, which the operator sets or does not pass on; remove it"
        )
    if not observed.has_secret:
        whole = f"{desired.super_cluster_namespace}/{spec.super_cluster}-client"
        return Reason.CREDENTIALS_NOT_FOUND, (
            f"Secret {desired.secret_name} is not in namespace {namespace}; copy Secret {whole} there, or name another one as "
            "spec.credentialsSecret"
        )
    if not observed.has_authority:
        return Reason.CREDENTIALS_NOT_FOUND, (
            f"Secret {spec.ca_secret} with a key ca.crt is not in namespace {namespace}; create it, or name another one as spec.caSecret"
        )
    unclear = _schedule_error(desired)
    if unclear:
        return Reason.INVALID_SCHEDULE, unclear
    modes = ((observed.claim or {}).get("spec") or {}).get("accessModes") or [SHARED]
    if spec.checkpoint.type == "Claim" and spec.checkpoint.claim.mount_on_executors and SHARED not in modes:
        return Reason.CHECKPOINT_NOT_SHARED, (
            f"PersistentVolumeClaim {claim_name(desired)} has {', '.join(modes)}, and executors can mount it with {SHARED} alone; name another "
            "one as spec.checkpoint.claim.name, or copy what is in it"
        )
    rival = _rival(desired, observed)
    if rival is not None:
        whose = f"{rival.metadata.namespace}/{rival.metadata.name}"
        return Reason.CHECKPOINT_CLAIMED, (
            f"{checkpoint_of(desired)} is the checkpoint of StreamPipeline {whose} too, which is older; two drivers on one checkpoint would "
            "repeat and lose messages, so name another one in spec.checkpoint"
        )
    program = spec.python.config_map if spec.python is not None else None
    if not observed.has_program and program is not None:
        return Reason.PROGRAM_NOT_FOUND, (
            f"ConfigMap {program.name} with a key {program.key} is not in namespace {namespace}; create it, or put "
            "spec.python.configMap right"
        )
    return None


def _schedule_error(desired: StreamPipeline) -> str:
    spec = desired.spec
    if spec.schedule is None:
        return ""
    try:
        cron.parse(spec.schedule)
    except ValueError as error:
        return f"spec.schedule is {spec.schedule!r}: {error}"
    try:
        ZoneInfo(spec.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"spec.timeZone is {spec.time_zone!r}, which is no time zone; write one such as Europe/Berlin"
    return ""


def _rival(desired: StreamPipeline, observed: PipelineObserved) -> StreamPipeline | None:
    """The oldest other pipeline on the same checkpoint, if it is older."""
    place = checkpoint_of(desired)
    if not place:
        return None
    on_it = [each for each in (desired, *observed.others) if checkpoint_of(each) == place]
    first = min(on_it, key=lambda each: (*each.metadata.age_key, each.metadata.namespace))
    return None if first is desired else first
