"""CronJobs: creates a Job at each time of a schedule. Of missed times only the last one is made up for."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass, field

from supercluster.api import cron
from supercluster.localplane.client import CRON_JOBS, JOBS, Json, RequestError
from supercluster.localplane.controllers.base import Controller, is_terminating, is_true, owner_reference
from supercluster.localplane.controllers.job import is_finished
from supercluster.localplane.times import now_utc, parse_stamp, stamp

SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
KEPT_SUCCEEDED = 3
KEPT_FAILED = 1
AGAIN_MAX_S = 3600.0


@dataclass(slots=True)
class Plan:
    create: Json | None = None
    delete: list[Json] = field(default_factory=list)
    status: Json = field(default_factory=dict)
    again_s: float | None = None
    refusal: str = ""
    """Why nothing can be scheduled; "" when all is well."""


def plan(cron_job: Json, jobs: Sequence[Json], now: dt.datetime) -> Plan:
    """One step. `jobs` are those it owns."""
    result = Plan()
    if is_terminating(cron_job):
        return result
    spec, held = cron_job["spec"], cron_job.get("status") or {}
    active = [job for job in jobs if not is_finished(job)]
    last = held.get("lastScheduleTime")
    try:
        schedule = cron.parse(spec["schedule"])
        zone: dt.tzinfo = zoneinfo.ZoneInfo(spec["timeZone"]) if spec.get("timeZone") else dt.UTC
    except (ValueError, zoneinfo.ZoneInfoNotFoundError) as error:
        result.refusal = f"unparseable schedule {spec['schedule']!r}: {error}"
        return result
    local = now.astimezone(zone)
    if not spec.get("suspend"):
        due = schedule.latest_between(_since(cron_job, last, local), local)
        if due is not None:
            last = _start(cron_job, due, active, result) or last
        following = schedule.next_after(local)
        if following is not None:
            result.again_s = min((following - local).total_seconds() + 0.1, AGAIN_MAX_S)
    ends = [
        job["status"]["completionTime"] for job in jobs if (job.get("status") or {}).get("completionTime")
    ]
    result.delete += _history(jobs, "Complete", spec.get("successfulJobsHistoryLimit"), KEPT_SUCCEEDED)
    result.delete += _history(jobs, "Failed", spec.get("failedJobsHistoryLimit"), KEPT_FAILED)
    ended = {job["metadata"]["uid"] for job in result.delete}
    result.status = {
        "active": [_reference(job) for job in active if job["metadata"]["uid"] not in ended] or None,
        "lastScheduleTime": last,
        "lastSuccessfulTime": max([*ends, held.get("lastSuccessfulTime") or ""]) or None,
    }
    return result


def _since(cron_job: Json, last: str | None, local: dt.datetime) -> dt.datetime:
    """From when on a missed time counts."""
    since = parse_stamp(last or cron_job["metadata"]["creationTimestamp"])
    deadline_s = cron_job["spec"].get("startingDeadlineSeconds")
    if deadline_s is not None:
        since = max(since, local - dt.timedelta(seconds=int(deadline_s)))
    return since.astimezone(local.tzinfo)


def _start(cron_job: Json, due: dt.datetime, active: Sequence[Json], result: Plan) -> str | None:
    """Plan the job of `due`, unless the policy forbids it. The time, if it is dealt with."""
    policy = cron_job["spec"].get("concurrencyPolicy", "Allow")
    if active and policy == "Forbid":
        return None
    if policy == "Replace":
        result.delete += active
    template, meta = cron_job["spec"]["jobTemplate"], cron_job["metadata"]
    labels = (template.get("metadata") or {}).get("labels") or {}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    moment = stamp(due.astimezone(dt.UTC))
    result.create = {
        "metadata": {
            # Named by its time, so that the same time never makes two jobs.
            "name": f"{meta['name']}-{int(due.timestamp()) // 60}",
            "namespace": meta["namespace"],
            "labels": dict(labels),
            "annotations": {**annotations, SCHEDULED_AT: moment},
            "ownerReferences": [owner_reference(CRON_JOBS, cron_job)],
        },
        "spec": template["spec"],
    }
    return moment


def _history(jobs: Sequence[Json], kind: str, limit: int | None, default: int) -> list[Json]:
    over = sorted(
        (job for job in jobs if is_true(job, kind)),
        key=lambda job: str(job["metadata"].get("creationTimestamp")),
    )
    return over[: max(0, len(over) - (default if limit is None else int(limit)))]


def _reference(job: Json) -> Json:
    meta = job["metadata"]
    names = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
    return {"apiVersion": "batch/v1", "kind": "Job", **names}


class CronJobController(Controller):
    kind = CRON_JOBS
    owns = (JOBS,)

    async def reconcile(self, cron_job: Json) -> float | None:
        wanted = plan(cron_job, self.owned_by(cron_job, JOBS), now_utc())
        if wanted.refusal:
            self.recorder.warning(cron_job, "UnparseableSchedule", wanted.refusal)
            return None
        for job in wanted.delete:
            await self.cluster.delete(JOBS, job, propagation="Background")
        if wanted.create:
            try:
                made = await self.cluster.create(JOBS, wanted.create)
                self.recorder.normal(cron_job, "SuccessfulCreate", f"Created job {made['metadata']['name']}")
            except RequestError as error:
                # The job of this time is there already: an earlier step ended before it could say so.
                if error.reason != "AlreadyExists":
                    raise
        await self.cluster.patch_status(self.kind, cron_job, wanted.status)
        return wanted.again_s
