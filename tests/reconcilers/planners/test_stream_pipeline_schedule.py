"""A StreamPipeline with a schedule: its CronJob, its runs, and the way between a Job and a CronJob."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.reconcilers.planners.stream_pipelines import (
    IMAGE,
    job,
    made,
    pipeline,
    plan,
    said,
)

from supercluster.reconcilers.planners.pipeline import manifests
from supercluster.reconcilers.planners.pipeline.views import (
    DriverView,
    PipelineObserved,
)
from supercluster.reconcilers.planners.plan import DeleteObject

NIGHTLY = {"schedule": "30 3 * * *", "timeZone": "Europe/Berlin"}


def run(state: str = "", created: str = "2026-01-01T02:30:00Z", name: str = "count-1") -> dict[str, Any]:
    """A Job that the CronJob has made."""
    owner = {"kind": "CronJob", "name": "count", "uid": "c1"}
    metadata = {"name": name, "namespace": "pipes", "uid": name, "creationTimestamp": created}
    ends = [{"type": state, "status": "True", "message": "backoff limit"}] if state else []
    return {
        "kind": "Job",
        "metadata": {**metadata, "ownerReferences": [owner]},
        "status": {"conditions": ends},
    }


def scheduled(*runs: dict[str, Any], **seen: Any) -> PipelineObserved:
    desired = pipeline(**NIGHTLY)
    cron_job = job(desired, status={"lastScheduleTime": "2026-01-01T02:30:00Z"})
    return made(desired, **{"jobs": runs, "drivers": (), "executors": 0, "cron_job": cron_job, **seen})


@pytest.mark.covers("SP-3")
def test_with_a_schedule_runs_end_by_themselves_and_never_overlap() -> None:
    desired = pipeline(**NIGHTLY, suspend=True, failedJobsHistoryLimit=2)
    found = manifests.driver_object(desired, IMAGE)
    assert (found["kind"], found["metadata"]["name"]) == ("CronJob", "count")
    spec = found["spec"]
    assert (spec["schedule"], spec["timeZone"], spec["suspend"]) == ("30 3 * * *", "Europe/Berlin", True)
    assert (spec["concurrencyPolicy"], spec["startingDeadlineSeconds"]) == ("Forbid", 300)
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 2)
    template = spec["jobTemplate"]
    assert template["metadata"]["labels"]["supercluster.dev/stream-pipeline"] == "count"
    assert (template["spec"]["backoffLimit"], template["spec"]["podReplacementPolicy"]) == (6, "Failed")
    (container,) = template["spec"]["template"]["spec"]["containers"]
    assert {"name": "SUPERCLUSTER_TRIGGER", "value": "AvailableNow"} in container["env"]
    assert job(pipeline())["spec"]["backoffLimit"] == 100


@pytest.mark.parametrize(
    ("runs", "drivers", "expected"),
    [
        ((), (), ("True", "Scheduled", "next run: ")),
        ((run("Complete"),), (), ("True", "Scheduled", "next run: ")),
        ((run("Complete"), run("", "2026-01-02T02:30:00Z", "count-2")), (), ("False", "DriverStarting", "count-2")),
        ((run("Failed"),), (DriverView("d", "count-1", is_failed=True, is_over=True, error="no room"),), ("False", "RunFailed", "run count-1 failed: no room; next run: ")),
        ((run("Failed"),), (DriverView("d", "count-1", is_failed=True, is_over=True, error="2 lost", exit_code=3),), ("False", "FindingsReported", "2 lost")),
    ],
)  # fmt: skip
def test_a_schedule_tells_of_its_last_run_and_the_next(
    runs: tuple[dict[str, Any], ...], drivers: tuple[DriverView, ...], expected: tuple[str, str, str]
) -> None:
    found = plan(pipeline(**NIGHTLY), scheduled(*runs, drivers=drivers))
    assert not found.steps
    status, reason, message = said(found, "Ready")
    assert (status, reason) == expected[:2]
    assert expected[2] in message
    assert said(found, "Whole")[0] == expected[0]
    assert found.status_patch is not None
    assert found.status_patch["lastScheduleTime"] == "2026-01-01T02:30:00Z"


def test_a_next_run_is_told_in_universal_time() -> None:
    message = said(plan(pipeline(**NIGHTLY), scheduled()), "Ready")[2]
    assert message.endswith(("T02:30:00Z", "T01:30:00Z"))


def test_between_a_schedule_and_none_the_drivers_end_first() -> None:
    before, after = pipeline(), pipeline(**NIGHTLY)
    steps = plan(after, replace(made(before), config=manifests.config_map(after, IMAGE))).steps
    assert [str(step.kind) for step in steps if isinstance(step, DeleteObject)] == ["Job"]
    assert len(steps) == 1
    leaving = replace(made(before), config=manifests.config_map(after, IMAGE), jobs=())
    assert not plan(after, leaving).steps, "its driver has not ended"
    back = replace(scheduled(run()), config=manifests.config_map(before, IMAGE))
    (step,) = plan(before, back).steps
    assert isinstance(step, DeleteObject)
    assert step.kind == "CronJob"
    driver = DriverView("d", "count-1", is_running=True)
    assert not plan(before, replace(back, cron_job=None, jobs=(), drivers=(driver,))).steps
