"""Plans for a StreamPipeline: its objects, and the status of driver and executors.

The driver's Job is named after its pod template. A changed template gives a new Job, which is created when no
pod of the former one runs any more: two drivers must not work on one checkpoint. A CronJob is changed in
place, and its next run has the new template. A refused spec starts nothing, and a running driver goes on.
Deletion needs no steps: garbage collection removes Job and driver, and with the driver its executors. The
checkpoint stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.api.stream_pipeline import StreamPipeline, StreamPipelineStatus
from supercluster.reconcilers.planners.drift import is_current
from supercluster.reconcilers.planners.pipeline import manifests
from supercluster.reconcilers.planners.pipeline.refusals import Finding, refusal_of
from supercluster.reconcilers.planners.pipeline.states import retention_warnings, state_of
from supercluster.reconcilers.planners.pipeline.views import (
    PipelineObserved,
    current_driver,
    current_job,
    former,
    name_of,
    older_drivers,
)
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
from supercluster.reconcilers.planners.status import Conditions, put_findings, status_patch

ENDED = frozenset({Reason.PROGRAM_ENDED, Reason.SCHEDULED})


def plan_stream_pipeline(
    desired: StreamPipeline,
    observed: PipelineObserved,
    default_image: str,
    now: datetime,
    *,
    fixed_ids: bool = True,
) -> Plan:
    """`fixed_ids`: pods name the group of the image, by which they write to their volumes."""
    if desired.metadata.deletion_timestamp is not None:
        return Plan()
    image = desired.spec.image or default_image
    wanted = manifests.driver_object(desired, image, fixed_ids=fixed_ids)
    config = manifests.config_map(desired, image, fixed_ids=fixed_ids)
    conditions = Conditions(desired.status.conditions, desired.metadata.generation, now)
    refused = refusal_of(desired, observed)
    steps: tuple[Step, ...] = ()
    if refused is None:
        steps = tuple(_steps(desired, observed, config, wanted))
    _describe(desired, observed, wanted, image, conditions, refused, now, is_synced=not steps)
    status = _status(desired, observed, image, wanted, conditions)
    patch = status_patch(desired.status.to_object(), status.to_object())
    return Plan(steps, patch, conditions.notes())


def _status(
    desired: StreamPipeline,
    observed: PipelineObserved,
    image: str,
    wanted: Mapping[str, Any],
    conditions: Conditions,
) -> StreamPipelineStatus:
    job = current_job(observed, wanted)
    driver = current_driver(observed, job)
    failed = [
        each for each in observed.drivers if job is not None and each.job == name_of(job) and each.error
    ]
    scheduled = (observed.cron_job or {}).get("status") or {} if wanted["kind"] == "CronJob" else {}
    return StreamPipelineStatus(
        observed_generation=desired.metadata.generation,
        job=name_of(job) if job is not None else None,
        last_schedule_time=scheduled.get("lastScheduleTime"),
        last_successful_time=scheduled.get("lastSuccessfulTime"),
        driver=driver.name if driver is not None else None,
        executors=observed.executors,
        failures=int(((job or {}).get("status") or {}).get("failed") or 0),
        last_error=max(failed, key=lambda each: each.created).error if failed else None,
        image=image,
        progress=driver.progress if driver is not None else None,
        conditions=conditions.result(),
    )


def _steps(
    desired: StreamPipeline, observed: PipelineObserved, config: Manifest, wanted: Mapping[str, Any]
) -> Iterator[Step]:
    checkpoint = desired.spec.checkpoint
    if checkpoint.type == "Claim" and checkpoint.claim.name is None and observed.claim is None:
        yield CreateObject(manifests.checkpoint_claim(desired))
    if not is_current(config, observed.config):
        yield Apply(config)
    kind, name = wanted["kind"], name_of(wanted)
    others = former(observed, wanted)
    for each in others:
        metadata = each["metadata"]
        if metadata.get("deletionTimestamp") is None:
            yield DeleteObject(
                *("batch/v1", each["kind"], metadata["namespace"], metadata["name"], metadata["uid"]),
                Ground.DRIVER_REPLACED,
                note=Note.done(EventReason.UPDATED, f"the driver is stopped, to be started by {kind} {name}"),
            )
    if others or older_drivers(observed, wanted):
        return
    there: Manifest | None = observed.cron_job if kind == "CronJob" else current_job(observed, wanted)
    if not is_current(wanted, there):
        note = Note.done(EventReason.CREATED, f"{kind} {name} of the driver") if there is None else None
        yield Apply(wanted, note=note)


def _describe(
    desired: StreamPipeline,
    observed: PipelineObserved,
    wanted: Mapping[str, Any],
    image: str,
    conditions: Conditions,
    refused: Finding | None,
    now: datetime,
    *,
    is_synced: bool,
) -> None:
    if refused is not None:
        conditions.put(ConditionType.ACCEPTED, False, *refused)
    else:
        conditions.put(ConditionType.ACCEPTED, True, Reason.AS_DECLARED)
    driver = current_driver(observed, current_job(observed, wanted))
    put_findings(conditions, ConditionType.WARNING, retention_warnings(driver))
    older = older_drivers(observed, wanted)
    if refused is not None:
        conditions.put(ConditionType.SYNCED, False, Reason.NOT_ACCEPTED, refused[1])
    elif older:
        message = f"driver {older[0].name} has to end before the next one starts"
        conditions.put(ConditionType.SYNCED, False, Reason.APPLYING, message)
    elif is_synced:
        conditions.put(ConditionType.SYNCED, True, Reason.AS_DECLARED)
    else:
        message = f"{wanted['kind']} {name_of(wanted)} is being made"
        conditions.put(ConditionType.SYNCED, False, Reason.APPLYING, message)
    if refused is not None and (desired.spec.schedule is not None or current_job(observed, wanted) is None):
        conditions.put(ConditionType.READY, False, Reason.NOT_ACCEPTED, refused[1])
        return
    is_ready, reason, message = state_of(desired, observed, wanted, image, now)
    conditions.put(ConditionType.READY, is_ready, reason, message)
    if is_ready:
        is_whole = reason in ENDED or observed.executors >= desired.spec.executors.count
        if is_whole:
            conditions.put(ConditionType.WHOLE, True, reason, message)
        else:
            conditions.put(ConditionType.WHOLE, False, Reason.EXECUTORS_STARTING, message)
