"""What a StreamPipeline tells of its driver's progress and troubles."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.reconcilers.builders import NOW
from tests.reconcilers.planners.stream_pipelines import (
    IMAGE,
    pipeline,
    plan,
    running,
    said,
)

from supercluster.reconcilers.observe.stream_pipelines import progress_of
from supercluster.reconcilers.planners.plan import Apply
from supercluster.reconcilers.planners.status import timestamp


def told(minutes_ago: float, **parts: Any) -> str:
    stamp = timestamp(NOW - timedelta(minutes=minutes_ago))
    return json.dumps({"batch": 4, "lag": 20, "rowsPerSecond": 5, "lastProgressTime": stamp, **parts})


def test_progress_of_the_driver_is_in_the_status() -> None:
    found = plan(pipeline(), running(progress=progress_of(told(1))))
    assert found.status_patch is not None
    assert found.status_patch["progress"]["lag"] == 20
    assert said(found, "Ready")[1] == "Serving"
    for bad in (None, "", "[]", told(1, batch="x"), told(1, lastProgressTime="yesterday")):
        assert progress_of(bad) is None, bad


@pytest.mark.parametrize(("minutes", "reason"), [(9, "Serving"), (11, "QueryStalled"), (-5, "Serving")])
def test_a_query_that_ends_no_batch_is_stalled(minutes: int, reason: str) -> None:
    found = plan(pipeline(), running(progress=progress_of(told(minutes))))
    assert said(found, "Ready")[1] == reason
    if reason == "QueryStalled":
        assert "kubectl -n pipes delete pod count-x" in said(found, "Ready")[2]


@pytest.mark.parametrize(("seconds", "is_near"), [(899, True), (900, False), (None, False)])
def test_a_stream_that_is_about_to_overtake_its_reader_is_warned_of(
    seconds: int | None, is_near: bool
) -> None:
    streams: list[dict[str, Any]] = [{"name": "flights", "nextSequence": 10, "lag": 20}, {"name": "delays"}]
    if seconds is not None:
        streams[0]["retentionSeconds"] = seconds
    found = plan(
        pipeline(), running(progress=progress_of(told(1, streams=streams, retentionSeconds=seconds)))
    )
    status, reason, message = said(found, "Warning")
    assert (status, reason) == (("True", "RetentionNear") if is_near else ("False", "NoIssues"))
    assert said(found, "Ready")[0] == "True"
    if is_near:
        for words in ("stream flights removes messages within 15 minutes", "maxAge", "spec.executors"):
            assert words in message
        assert "delays" not in message
        stopped = running(is_running=False, is_over=True, progress=progress_of(told(1, streams=streams)))
        assert said(plan(pipeline(), stopped), "Warning")[0] == "False", "nobody reads, so nobody knows"


@pytest.mark.parametrize(("seconds", "reason"), [(59, "Serving"), (61, "DriverNodeLost")])
def test_a_driver_that_was_to_end_and_has_not_is_on_a_lost_node(seconds: int, reason: str) -> None:
    ends_by = timestamp(NOW - timedelta(seconds=seconds))
    found = plan(pipeline(), running(ends_by=ends_by, node="n1"))
    assert said(found, "Ready")[1] == reason
    former = replace(running(ends_by=ends_by, node="n1"), jobs=())
    assert not [
        step
        for step in plan(pipeline(executors={"count": 3}), former).steps
        if isinstance(step, Apply) and step.manifest["kind"] == "Job"
    ]
    if reason == "DriverNodeLost":
        assert "delete pod count-x --force" in said(found, "Ready")[2]
        assert said(plan(pipeline(), running(ends_by=ends_by, is_over=True)), "Ready")[1] != reason


@pytest.mark.parametrize(
    ("code", "error"),
    [(128, 'exec: "driver": executable file not found in $PATH'), (1, "No module named 'supercluster'")],
)
def test_an_image_without_our_package_is_named(code: int, error: str) -> None:
    found = plan(
        pipeline(), running(is_running=False, is_failed=True, is_over=True, exit_code=code, error=error)
    )
    assert said(found, "Ready")[1] == "ImageUnsuitable"
    assert IMAGE in said(found, "Ready")[2]
    assert "FROM supercluster/spark" in said(found, "Ready")[2]


def test_executors_that_are_pending_are_told_in_the_schedulers_words() -> None:
    trouble = "count-1-exec-1: 0/3 nodes are available: 3 Insufficient cpu"
    found = plan(pipeline(), replace(running(), executors=0, executor_trouble=trouble))
    assert said(found, "Ready")[1] == "ExecutorsStarting"
    assert trouble in said(found, "Ready")[2]
    assert "spec.executors" in said(found, "Ready")[2]


@pytest.mark.parametrize(
    "driver",
    [{"progress": progress_of(told(0, ended=True))}, {"is_running": False, "is_over": True}],
    ids=["it stops Spark", "its Job does not know yet"],
)
def test_at_the_end_of_a_program_nothing_starts(driver: dict[str, Any]) -> None:
    found = plan(pipeline(), replace(running(**driver), executors=0))
    for type_ in ("Ready", "Whole"):
        assert said(found, type_)[:2] == ("True", "ProgramEnded")


@pytest.mark.parametrize(
    "error",
    [
        "ZeroDivisionError: division by zero",
        "StreamNotFoundError: stream 'x' does not exist on these brokers; check the option 'stream' and the user's account",
        "driver count-y works on checkpoint s3a://b/x (Lease checkpoint-1); let it end",
    ],
)
def test_what_a_driver_fails_of_is_told_while_it_is_started_again(error: str) -> None:
    found = plan(
        pipeline(), running(is_running=False, is_failed=True, is_over=True, exit_code=1, error=error)
    )
    assert said(found, "Ready")[:2] == ("False", "DriverFailing")
    assert error in said(found, "Ready")[2]
