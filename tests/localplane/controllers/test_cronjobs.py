"""Cron schedules, and the jobs that CronJobs make at their times."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from supercluster.api import cron
from supercluster.localplane.client import Json
from supercluster.localplane.controllers import cronjob

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)  # a Friday


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("* * * * *", "2026-01-02T03:05"),
        ("*/15 * * * *", "2026-01-02T03:15"),
        ("0 0 * * *", "2026-01-03T00:00"),
        ("@hourly", "2026-01-02T04:00"),
        ("30 1,13 * * *", "2026-01-02T13:30"),
        ("0 12 * * mon-wed", "2026-01-05T12:00"),
        ("0 0 * * 7", "2026-01-04T00:00"),
        ("0 0 13 * fri", "2026-01-09T00:00"),
        ("0 0 29 feb *", "2028-02-29T00:00"),
        ("5/20 3 * * *", "2026-01-02T03:05"),
    ],
)
def test_the_next_time_of_a_schedule(schedule: str, expected: str) -> None:
    found = cron.parse(schedule).next_after(NOW)
    assert found is not None
    assert found.isoformat(timespec="minutes") == f"{expected}+00:00"


def test_a_day_that_never_comes_has_no_next_time() -> None:
    assert cron.parse("0 0 30 2 *").next_after(NOW) is None


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        ("* * * *", "has 4 fields"),
        ("60 * * * *", "minute '60': '60' is not from 0 to 59"),
        ("* 5-1 * * *", "runs backwards"),
        ("*/0 * * * *", "step '0' must be a number above 0"),
        ("* * * foo *", "'foo' is not from 1 to 12"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_named(schedule: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        cron.parse(schedule)


def make(schedule: str = "*/5 * * * *", created: str = "2026-01-02T00:00:00Z", **spec: Any) -> Json:
    return {
        "metadata": {"name": "c", "namespace": "ns", "uid": "c", "creationTimestamp": created},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": {}}}, **spec},
    }


def job(name: str, over: str = "") -> Json:
    found: Json = {"metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": name}}
    if over:
        found["status"] = {"conditions": [{"type": over, "status": "True"}]}
    return found


def test_of_missed_times_only_the_last_is_made_up_for() -> None:
    wanted = cronjob.plan(make(), [], NOW)
    assert wanted.create is not None
    assert wanted.create["metadata"]["annotations"][cronjob.SCHEDULED_AT] == "2026-01-02T03:00:00Z"
    assert wanted.status["lastScheduleTime"] == "2026-01-02T03:00:00Z"
    after = {**make(), "status": wanted.status}
    again = cronjob.plan(after, [job("a")], NOW)
    assert again.create is None
    assert again.again_s == pytest.approx(55.1)


def test_a_missed_time_beyond_its_deadline_is_left_out() -> None:
    assert cronjob.plan(make(startingDeadlineSeconds=60), [], NOW).create is None
    assert cronjob.plan(make(startingDeadlineSeconds=600), [], NOW).create is not None


@pytest.mark.parametrize(
    ("policy", "is_created", "deleted"),
    [("Allow", True, []), ("Forbid", False, []), ("Replace", True, ["a"])],
)
def test_what_becomes_of_a_job_that_still_runs(policy: str, is_created: bool, deleted: list[str]) -> None:
    wanted = cronjob.plan(make(concurrencyPolicy=policy), [job("a")], NOW)
    assert (wanted.create is not None) == is_created
    assert [one["metadata"]["name"] for one in wanted.delete] == deleted


def test_a_suspended_one_and_one_that_cannot_be_read_make_nothing() -> None:
    assert cronjob.plan(make(suspend=True), [], NOW).create is None
    assert "'now and then'" in cronjob.plan(make("now and then"), [], NOW).refusal
    assert "Atlantis" in cronjob.plan(make(timeZone="Europe/Atlantis"), [], NOW).refusal


def test_old_jobs_are_dropped_beyond_the_limits() -> None:
    jobs = [job(f"ok-{number}", "Complete") for number in range(5)]
    jobs += [job(f"bad-{number}", "Failed") for number in range(3)]
    names = [one["metadata"]["name"] for one in cronjob.plan(make(suspend=True), jobs, NOW).delete]
    assert names == ["ok-0", "ok-1", "bad-0", "bad-1"]


def test_times_are_those_of_the_time_zone() -> None:
    wanted = cronjob.plan(make("0 9 * * *", "2026-01-01T12:00:00Z", timeZone="Asia/Tokyo"), [], NOW)
    assert wanted.create is not None
    assert wanted.create["metadata"]["annotations"][cronjob.SCHEDULED_AT] == "2026-01-02T00:00:00Z"
