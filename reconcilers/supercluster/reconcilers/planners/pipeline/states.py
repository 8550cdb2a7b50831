"""The status of a StreamPipeline's driver and executors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from supercluster.api import cron
from supercluster.api.conditions import Reason
from supercluster.api.stream_pipeline import StreamPipeline
from supercluster.reconcilers.planners.pipeline import manifests
from supercluster.reconcilers.planners.pipeline.views import (
    DriverView,
    PipelineObserved,
    current_driver,
    current_job,
    name_of,
)
from supercluster.reconcilers.planners.status import is_within, parse_timestamp, timestamp

STALLED_AFTER = timedelta(minutes=10)
RETENTION_NEAR = timedelta(minutes=15)
CODES_WITHOUT_START = frozenset({126, 127, 128})
"""The container's command is not there, or can't be run."""
NO_PACKAGE = "No module named 'supercluster"
NODE_LOST_AFTER = timedelta(minutes=1)
"""Beyond the time by which the node should have ended the driver."""

State = tuple[bool, Reason, str]
"""Whether the pipeline is ready, why, and in words."""
PROGRAM_ENDED: State = (True, Reason.PROGRAM_ENDED, "the program and its queries have ended")


def state_of(
    desired: StreamPipeline,
    observed: PipelineObserved,
    wanted: Mapping[str, Any],
    image: str,
    now: datetime,
) -> State:
    lost = _lost_driver(desired, observed, now)
    if lost is not None:
        return lost
    job = current_job(observed, wanted)
    driver = current_driver(observed, job)
    ended = _ends(job)
    if desired.spec.schedule is not None:
        between = _between_runs(desired, job, ended, driver, now)
        if between is not None:
            return between
    name = name_of(job if job is not None else wanted)
    if "Complete" in ended:
        return PROGRAM_ENDED
    if "Failed" in ended:
        return _gave_up(desired, name, ended["Failed"], driver)
    if desired.spec.suspend and desired.spec.schedule is None:
        return False, Reason.SUSPENDED, "spec.suspend is true"
    return _stalled(desired, driver, now) or _under_way(desired, observed, name, driver, image)


def retention_warnings(driver: DriverView | None) -> list[tuple[Reason, str]]:
    """Streams that are about to remove messages which the driver has not read. Without the seconds, which change all the time."""
    if driver is None or not driver.is_running or driver.progress is None:
        return []
    near = [
        each.name
        for each in driver.progress.streams or ()
        if each.retention_seconds is not None and each.retention_seconds < RETENTION_NEAR.total_seconds()
    ]
    message = (
        "stream {} removes messages within {:.0f} minutes that are not read yet (status.progress has the seconds); have it keep more (maxAge, "
        "maxBytes, maxMessages), or let the pipeline read faster (spec.executors, maxOffsetsPerTrigger of the query)"
    )
    minutes = RETENTION_NEAR.total_seconds() / 60
    return [(Reason.RETENTION_NEAR, message.format(name, minutes)) for name in near]


def _lost_driver(desired: StreamPipeline, observed: PipelineObserved, now: datetime) -> State | None:
    """A driver, of this Job or a former one, that was to end and has not."""
    for driver in observed.drivers:
        ends_by = parse_timestamp(driver.ends_by)
        if driver.is_over or ends_by is None or now <= ends_by + NODE_LOST_AFTER:
            continue
        message = (
            f"driver {driver.name} on node {driver.node} was to end by {driver.ends_by}, and nobody says that it has; no other driver starts "
            f"meanwhile. When it is certain that the node is off: kubectl -n {desired.metadata.namespace} delete pod {driver.name} --force, "
            f"or kubectl delete node {driver.node}"
        )
        return False, Reason.DRIVER_NODE_LOST, message
    return None


def _stalled(desired: StreamPipeline, driver: DriverView | None, now: datetime) -> State | None:
    if driver is None or driver.progress is None or not driver.is_running:
        return None
    since = parse_timestamp(driver.progress.last_progress_time or "")
    if since is None or since > now or is_within(since, STALLED_AFTER, now):
        return None
    namespace, name = desired.metadata.namespace, driver.name
    message = (
        f"no batch has ended since {timestamp(since)}; the driver's log says what it waits for: kubectl -n {namespace} logs {name}; this "
        f"starts it again: kubectl -n {namespace} delete pod {name}"
    )
    return False, Reason.QUERY_STALLED, message


def _ends(job: Mapping[str, Any] | None) -> dict[str, str]:
    """How a Job has ended, with Kubernetes' words."""
    return {
        str(each.get("type")): str(each.get("message") or each.get("reason") or "")
        for each in ((job or {}).get("status") or {}).get("conditions") or ()
        if each.get("status") == "True"
    }


def _between_runs(
    desired: StreamPipeline,
    job: Mapping[str, Any] | None,
    ended: Mapping[str, str],
    driver: DriverView | None,
    now: datetime,
) -> State | None:
    """None while a run is under way, or when the last one has ended in a way that the next one would too."""
    codes = (manifests.EXIT_REFUSED, manifests.EXIT_FINDINGS)
    if job is not None and not ended.keys() & {"Complete", "Failed"}:
        return None
    if "Failed" in ended and driver is not None and driver.exit_code in codes:
        return None
    following = "none, since spec.suspend is true" if desired.spec.suspend else next_run(desired, now)
    if "Failed" in ended:
        error = driver.error if driver is not None and driver.error else ended["Failed"]
        assert job is not None
        return False, Reason.RUN_FAILED, f"run {name_of(job)} failed: {error}; next run: {following}"
    if desired.spec.suspend:
        return False, Reason.SUSPENDED, "spec.suspend is true"
    return True, Reason.SCHEDULED, f"next run: {following}"


def next_run(desired: StreamPipeline, now: datetime) -> str:
    """When the next run is due, in Kubernetes' form."""
    spec = desired.spec
    assert spec.schedule is not None
    following = cron.parse(spec.schedule).next_after(now.astimezone(ZoneInfo(spec.time_zone)))
    return timestamp(following.astimezone(UTC)) if following is not None else "never"


def _gave_up(desired: StreamPipeline, name: str, why: str, driver: DriverView | None) -> State:
    remedy = f"kubectl -n {desired.metadata.namespace} delete job {name}"
    error = driver.error if driver is not None else ""
    if driver is not None and driver.exit_code == manifests.EXIT_REFUSED:
        message = f"{error}. Correct the spec; if the cause is in the image or the ConfigMap, mend it and delete the Job: {remedy}"
        return False, Reason.PROGRAM_REFUSED, message
    if driver is not None and driver.exit_code == manifests.EXIT_FINDINGS:
        message = (
            f"{error}; kubectl logs {driver.name} shows all findings. To start the pipeline again: {remedy}"
        )
        return False, Reason.FINDINGS_REPORTED, message
    last = f"; the last one: {error}" if error else ""
    message = f"Job {name} starts no driver any more ({why}){last}; mend the cause, then delete the Job, which is made again: {remedy}"
    return False, Reason.DRIVER_GAVE_UP, message


def _under_way(
    desired: StreamPipeline, observed: PipelineObserved, name: str, driver: DriverView | None, image: str
) -> State:
    if driver is None:
        message = f"Job {name} has no pod yet; kubectl describe job {name} says why, if it lasts"
        return False, Reason.DRIVER_STARTING, message
    if driver.is_failed:
        error = driver.error or "kubectl logs has its last words"
        if driver.exit_code in CODES_WITHOUT_START or NO_PACKAGE in error:
            message = f"image {image} does not start as a driver: {error}; build it FROM supercluster/spark, or leave spec.image out"
            return False, Reason.IMAGE_UNSUITABLE, message
        return False, Reason.DRIVER_FAILING, f"driver {driver.name} failed and is started again: {error}"
    if driver.is_over or (driver.progress is not None and driver.progress.ended):
        return PROGRAM_ENDED
    if not driver.is_running:
        why = f": {driver.trouble}" if driver.trouble else ""
        return False, Reason.DRIVER_STARTING, f"driver {driver.name} does not run yet{why}"
    count = desired.spec.executors.count
    if not observed.executors:
        message = f"driver {driver.name} runs and none of {count} executors; its log says why, if it lasts"
        if observed.executor_trouble:
            message = (
                f"driver {driver.name} runs and none of {count} executors: {observed.executor_trouble}; make room, or ask for less in "
                "spec.executors"
            )
        return False, Reason.EXECUTORS_STARTING, message
    return True, Reason.SERVING, f"the driver and {observed.executors} of {count} executors run"
