"""Plans for a StreamPipeline: its objects, and what is said of driver and executors.

The driver's Job is named after its pod template. Another template is another Job, which is made when nothing of the former one
runs any more: two drivers must not work on one checkpoint. What is refused is not begun; what runs already goes on.
Deletion needs no steps: garbage collection takes Job and driver, and with the driver its executors. The checkpoint stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.api.stream_pipeline import RESERVED_CONF, StreamPipeline, StreamPipelineStatus
from supercluster.reconcilers.planners.drift import is_current
from supercluster.reconcilers.planners.pipeline import manifests
from supercluster.reconcilers.planners.plan import (
    Apply,
    CreateObject,
    DeleteObject,
    Ground,
    Manifest,
    Note,
    Plan,
    Step,
)
from supercluster.reconcilers.planners.status import Conditions, status_patch

ERROR_CHARACTERS_MAX = 1024
Finding = tuple[Reason, str]


@dataclass(frozen=True, slots=True)
class DriverView:
    """A driver's pod."""

    name: str
    job: str
    is_running: bool = False
    is_failed: bool = False
    is_over: bool = False
    """Its containers have ended, or never began and can't any more."""
    trouble: str = ""
    """Why it does not run: the scheduler's or the node's words."""
    error: str = ""
    """Its last line, when it failed."""
    exit_code: int | None = None
    created: str = ""


@dataclass(frozen=True, slots=True)
class PipelineObserved:
    """What one look at Kubernetes shows of a pipeline."""

    has_brokers: bool = False
    """The namespace has a SuperCluster or a Cluster."""
    has_program: bool = True
    has_secret: bool = True
    others: tuple[StreamPipeline, ...] = ()
    """All other StreamPipelines that the operator serves, of any namespace."""
    claim: Manifest | None = None
    config: Manifest | None = None
    jobs: tuple[Manifest, ...] = ()
    drivers: tuple[DriverView, ...] = ()
    executors: int = 0
    """Whose containers run."""
    refusal: str | None = None
    """Why a step of this round was refused for good."""


def plan_stream_pipeline(
    desired: StreamPipeline, observed: PipelineObserved, default_image: str, now: datetime
) -> Plan:
    if desired.metadata.deletion_timestamp is not None:
        return Plan()
    image = desired.spec.image or default_image
    job = manifests.driver_job(desired, image)
    conditions = Conditions(desired.status.conditions, desired.metadata.generation, now)
    refused = _refusal(desired, observed)
    steps: tuple[Step, ...] = ()
    if refused is None:
        steps = tuple(_steps(desired, observed, image, job))
    _describe(desired, observed, job, conditions, refused, is_synced=not steps)
    name = job["metadata"]["name"]
    there = next((each for each in observed.jobs if _name(each) == name), None)
    driver = _current(observed, name)
    failed = [each for each in observed.drivers if each.job == name and each.error]
    status = StreamPipelineStatus(
        observed_generation=desired.metadata.generation,
        job=name if there is not None else None,
        driver=driver.name if driver is not None else None,
        executors=observed.executors,
        failures=int(((there or {}).get("status") or {}).get("failed") or 0),
        last_error=max(failed, key=lambda each: each.created).error if failed else None,
        image=image,
        conditions=conditions.result(),
    )
    patch = status_patch(desired.status.to_object(), status.to_object())
    return Plan(steps, patch, conditions.notes())


def _name(body: Mapping[str, Any]) -> str:
    return str(body["metadata"]["name"])


def _refusal(desired: StreamPipeline, observed: PipelineObserved) -> Finding | None:
    """Why the spec can't be carried out, and what to do."""
    spec, namespace = desired.spec, desired.metadata.namespace
    if observed.refusal is not None:
        return Reason.NOT_ACCEPTED, observed.refusal
    if observed.has_brokers and not spec.allow_beside_brokers:
        return Reason.BESIDE_BROKERS, (
            f"namespace {namespace} has a SuperCluster or a Cluster, and whoever makes pods there can mount the credentials of its "
            "brokers; make the pipeline in another namespace, with spec.superClusterNamespace, or set spec.allowBesideBrokers"
        )
    reserved = sorted(name for name in spec.spark_conf if name.startswith(RESERVED_CONF))
    if reserved:
        return Reason.RESERVED_PROPERTY, (
            f"spec.sparkConf has {reserved[0]}, which the operator or the driver sets; remove it"
        )
    if not observed.has_secret:
        whole = f"{desired.super_cluster_namespace}/{spec.super_cluster}-client"
        return Reason.CREDENTIALS_NOT_FOUND, (
            f"Secret {desired.secret_name} is not in namespace {namespace}; copy Secret {whole} there, or name another one as "
            "spec.credentialsSecret"
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


def checkpoint_of(pipeline: StreamPipeline) -> str:
    """Where its checkpoint is, the same for the same place; empty: nowhere that lasts."""
    checkpoint = pipeline.spec.checkpoint
    if checkpoint.type == "Claim":
        return f"PersistentVolumeClaim {pipeline.metadata.namespace}/{manifests.claim_name(pipeline)}"
    if checkpoint.uri is None:
        return ""
    scheme, _, rest = checkpoint.uri.partition("://")
    host, _, path = rest.partition("/")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    scheme = "s3a" if scheme in ("s3", "s3n") else scheme
    return f"{scheme}://{'/'.join((host.lower(), *parts))}"


def _rival(desired: StreamPipeline, observed: PipelineObserved) -> StreamPipeline | None:
    """The oldest other pipeline on the same checkpoint, if it is older."""
    place = checkpoint_of(desired)
    if not place:
        return None
    on_it = [each for each in (desired, *observed.others) if checkpoint_of(each) == place]
    first = min(on_it, key=lambda each: (*each.metadata.age_key, each.metadata.namespace))
    return None if first is desired else first


def _steps(
    desired: StreamPipeline, observed: PipelineObserved, image: str, job: Mapping[str, Any]
) -> Iterator[Step]:
    checkpoint = desired.spec.checkpoint
    if checkpoint.type == "Claim" and checkpoint.claim.name is None and observed.claim is None:
        yield CreateObject(manifests.checkpoint_claim(desired))
    wanted = manifests.config_map(desired, image)
    if not is_current(wanted, observed.config):
        yield Apply(wanted)
    name = _name(job)
    others = [each for each in observed.jobs if _name(each) != name]
    for each in others:
        metadata = each["metadata"]
        if metadata.get("deletionTimestamp") is None:
            yield DeleteObject(
                *("batch/v1", "Job", metadata["namespace"], metadata["name"], metadata["uid"]),
                Ground.DRIVER_REPLACED,
                note=Note.done(EventReason.UPDATED, f"the driver is stopped, to be started as Job {name}"),
            )
    if others or _older(observed, name):
        return
    there = next((each for each in observed.jobs if _name(each) == name), None)
    if not is_current(job, there):
        note = Note.done(EventReason.CREATED, f"Job {name} of the driver") if there is None else None
        yield Apply(job, note=note)


def _older(observed: PipelineObserved, job: str) -> list[DriverView]:
    """Drivers of former Jobs that have not ended."""
    return [each for each in observed.drivers if each.job != job and not each.is_over]


def _current(observed: PipelineObserved, job: str) -> DriverView | None:
    """The driver that runs or begins; else the one that ended last."""
    own = [each for each in observed.drivers if each.job == job]
    return max(own, key=lambda each: (not each.is_over, each.created), default=None)


def _describe(
    desired: StreamPipeline,
    observed: PipelineObserved,
    job: Mapping[str, Any],
    conditions: Conditions,
    refused: Finding | None,
    *,
    is_synced: bool,
) -> None:
    name = _name(job)
    if refused is not None:
        conditions.put(ConditionType.ACCEPTED, False, *refused)
    else:
        conditions.put(ConditionType.ACCEPTED, True, Reason.AS_DECLARED)
    older = _older(observed, name)
    if refused is not None:
        conditions.put(ConditionType.SYNCED, False, Reason.NOT_ACCEPTED, refused[1])
    elif older:
        message = f"driver {older[0].name} has to end before the next one starts"
        conditions.put(ConditionType.SYNCED, False, Reason.APPLYING, message)
    elif is_synced:
        conditions.put(ConditionType.SYNCED, True, Reason.AS_DECLARED)
    else:
        conditions.put(ConditionType.SYNCED, False, Reason.APPLYING, f"Job {name} is being made")
    there = next((each for each in observed.jobs if _name(each) == name), None)
    if there is None and refused is not None:
        conditions.put(ConditionType.READY, False, Reason.NOT_ACCEPTED, refused[1])
        return
    is_ready, reason, message = _state(desired, observed, name, there)
    conditions.put(ConditionType.READY, is_ready, reason, message)
    if is_ready:
        count = desired.spec.executors.count
        is_whole = reason is Reason.PROGRAM_ENDED or observed.executors >= count
        if is_whole:
            conditions.put(ConditionType.WHOLE, True, reason, message)
        else:
            conditions.put(ConditionType.WHOLE, False, Reason.EXECUTORS_STARTING, message)


def _state(
    desired: StreamPipeline, observed: PipelineObserved, name: str, there: Mapping[str, Any] | None
) -> tuple[bool, Reason, str]:
    """Whether it runs, and what is said of it."""
    ended = {
        each.get("type"): each.get("message") or each.get("reason") or ""
        for each in ((there or {}).get("status") or {}).get("conditions") or ()
        if each.get("status") == "True"
    }
    driver = _current(observed, name)
    if "Complete" in ended:
        return True, Reason.PROGRAM_ENDED, "the program and its queries have ended"
    if "Failed" in ended:
        last = f"; the last one: {driver.error}" if driver is not None and driver.error else ""
        remedy = f"kubectl -n {desired.metadata.namespace} delete job {name}"
        if driver is not None and driver.exit_code == manifests.EXIT_REFUSED:
            return (
                False,
                Reason.PROGRAM_REFUSED,
                (
                    f"{driver.error}. Correct the spec; if the cause is in the image or the ConfigMap, mend it and delete the Job: {remedy}"
                ),
            )
        if driver is not None and driver.exit_code == manifests.EXIT_FINDINGS:
            message = f"{driver.error}; kubectl logs {driver.name} shows all findings. To start the pipeline again: {remedy}"
            return False, Reason.FINDINGS_REPORTED, message
        message = f"Job {name} starts no driver any more ({ended['Failed']}){last}; mend the cause, then delete the Job, which is made again: {remedy}"
        return False, Reason.DRIVER_GAVE_UP, message
    if desired.spec.suspend:
        return False, Reason.SUSPENDED, "spec.suspend is true"
    if driver is None:
        return (
            False,
            Reason.DRIVER_STARTING,
            f"Job {name} has no pod yet; kubectl describe job {name} says why, if it lasts",
        )
    if driver.is_failed:
        error = driver.error or "kubectl logs has its last words"
        return False, Reason.DRIVER_FAILING, f"driver {driver.name} failed and is started again: {error}"
    if not driver.is_running:
        why = f": {driver.trouble}" if driver.trouble else ""
        return False, Reason.DRIVER_STARTING, f"driver {driver.name} does not run yet{why}"
    count = desired.spec.executors.count
    if not observed.executors:
        message = f"driver {driver.name} runs and none of {count} executors; its log says why, if it lasts"
        return False, Reason.EXECUTORS_STARTING, message
    return True, Reason.SERVING, f"the driver and {observed.executors} of {count} executors run"


def last_line(message: str) -> str:
    """What a driver's condition shows of its last words."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ")[:ERROR_CHARACTERS_MAX] if lines else ""
