"""Jobs: pods run to their end, repeated when they fail, up to a limit.

Served: completions, parallelism, backoffLimit, activeDeadlineSeconds, ttlSecondsAfterFinished, suspend,
podReplacementPolicy and podFailurePolicy. Not supported, and reported by a condition: completionMode Indexed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

from supercluster.localplane.client import JOBS, PODS, Json
from supercluster.localplane.controllers import pod_failures
from supercluster.localplane.controllers.base import (
    Controller,
    condition,
    is_ready,
    is_terminating,
    phase_of,
    pod_from_template,
)
from supercluster.localplane.times import now_utc, parse_stamp, stamp

BACKOFF_LIMIT = 6
RETRY_FIRST_S = 10.0
RETRY_MAX_S = 360.0


@dataclass(slots=True)
class Plan:
    create: int = 0
    delete: list[Json] = field(default_factory=list)
    delete_job: bool = False
    status: Json = field(default_factory=dict)
    again_s: float | None = None


def is_finished(job: Json) -> bool:
    return any((condition(job, kind) or {}).get("status") == "True" for kind in ("Complete", "Failed"))


def plan(job: Json, pods: Sequence[Json], now: dt.datetime) -> Plan:
    """One step of a job. `pods` are those it owns."""
    result = Plan()
    if is_terminating(job):
        return result
    if is_finished(job):
        _expire(job, now, result)
        return result
    spec, held = job["spec"], job.get("status") or {}
    active = [pod for pod in pods if phase_of(pod) in ("Pending", "Running") and not is_terminating(pod)]
    # Pods may be removed by people; what was counted once stays counted.
    succeeded = max(int(held.get("succeeded") or 0), sum(phase_of(pod) == "Succeeded" for pod in pods))
    ended = [(pod, pod_failures.ruling(spec, pod)) for pod in pods if phase_of(pod) == "Failed"]
    counted = sum(rule is None or rule.action != "Ignore" for _, rule in ended)
    failed = max(int(held.get("failed") or 0), counted)
    parallelism = 1 if spec.get("parallelism") is None else int(spec["parallelism"])
    completions = spec.get("completions")
    started = held.get("startTime") or (None if spec.get("suspend") else stamp(now))
    forbidden = next((rule.message for _, rule in ended if rule is not None and rule.action == "FailJob"), "")
    verdict = _verdict(job, active, succeeded, failed, forbidden, started, now)
    if verdict is None and not spec.get("suspend"):
        wanted = parallelism if completions is None else min(parallelism, int(completions) - succeeded)
        if completions is None and succeeded:
            wanted = 0
        ending = 0
        if spec.get("podReplacementPolicy") == "Failed":
            ending = sum(is_terminating(pod) and phase_of(pod) in ("Pending", "Running") for pod in pods)
        result.create = max(0, wanted - len(active) - ending)
        # Kubernetes waits after failures that it ignores too.
        failures = max(failed, len(ended))
        if result.create and failures:
            result.again_s = _retry_in_s(pods, failures, now)
            result.create = 0 if result.again_s else result.create
    if verdict is not None or spec.get("suspend"):
        result.delete = list(active)
    result.status = {
        "active": (0 if result.delete else len(active) + result.create) or None,
        "ready": sum(is_ready(pod) for pod in active),
        "succeeded": succeeded or None,
        "failed": failed or None,
        "startTime": started,
    }
    if verdict is not None:
        kind, reason, message = verdict
        moment = stamp(now)
        told = {"type": kind, "status": "True", "lastProbeTime": moment, "lastTransitionTime": moment}
        result.status["conditions"] = [{**told, "reason": reason, "message": message}]
        if kind == "Complete":
            result.status["completionTime"] = moment
    elif spec.get("activeDeadlineSeconds") and started:
        left_s = int(spec["activeDeadlineSeconds"]) - (now - parse_stamp(started)).total_seconds()
        result.again_s = min(result.again_s or left_s, max(left_s, 0.1))
    return result


def _verdict(
    job: Json,
    active: Sequence[Json],
    succeeded: int,
    failed: int,
    forbidden: str,
    started: str | None,
    now: dt.datetime,
) -> tuple[str, str, str] | None:
    """Condition, reason and message of a job that is over; None while it goes on. `forbidden`: the failure that ends it by its policy."""
    spec = job["spec"]
    if spec.get("completionMode") == "Indexed":
        return "Failed", "NotServed", "completionMode Indexed is not served by the embedded control plane"
    limit = BACKOFF_LIMIT if spec.get("backoffLimit") is None else int(spec["backoffLimit"])
    restarts = sum(
        int(container.get("restartCount") or 0)
        for pod in active
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
    )
    is_done = (
        succeeded > 0 and not active if spec.get("completions") is None else succeeded >= spec["completions"]
    )
    if is_done:
        return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    if forbidden:
        return "Failed", "PodFailurePolicy", forbidden
    if failed > limit or (spec["template"]["spec"].get("restartPolicy") == "OnFailure" and restarts > limit):
        return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    deadline_s = spec.get("activeDeadlineSeconds")
    if deadline_s and started and (now - parse_stamp(started)).total_seconds() >= int(deadline_s):
        return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
    return None


def _retry_in_s(pods: Sequence[Json], failed: int, now: dt.datetime) -> float | None:
    """How long to wait before the next try after failures; None when it may start."""
    ends = [
        parse_stamp(over["finishedAt"])
        for pod in pods
        if phase_of(pod) == "Failed"
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
        if (over := (container.get("state") or {}).get("terminated")) and over.get("finishedAt")
    ]
    if not ends:
        return None
    wait_s = min(RETRY_FIRST_S * 2 ** min(failed - 1, 10), RETRY_MAX_S)
    left_s = wait_s - (now - max(ends)).total_seconds()
    return left_s if left_s > 0 else None


def _expire(job: Json, now: dt.datetime, result: Plan) -> None:
    ttl_s = job["spec"].get("ttlSecondsAfterFinished")
    if ttl_s is None:
        return
    ends = [
        parse_stamp(found["lastTransitionTime"])
        for found in (job.get("status") or {}).get("conditions") or ()
        if found["type"] in ("Complete", "Failed") and found["status"] == "True"
    ]
    left_s = int(ttl_s) - (now - max(ends)).total_seconds()
    if left_s <= 0:
        result.delete_job = True
    else:
        result.again_s = left_s


class JobController(Controller):
    kind = JOBS
    owns = (PODS,)

    async def reconcile(self, job: Json) -> float | None:
        wanted = plan(job, self.owned_by(job, PODS), now_utc())
        if wanted.delete_job:
            await self.cluster.delete(self.kind, job, propagation="Background")
            return None
        for _ in range(wanted.create):
            made = await self.create_pod(job, self._pod(job))
            self.recorder.normal(job, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        for pod in wanted.delete:
            await self.cluster.delete(PODS, pod)
            self.recorder.normal(job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
        if wanted.status:
            await self.cluster.patch_status(self.kind, job, wanted.status)
            for told in wanted.status.get("conditions") or ():
                note = self.recorder.normal if told["type"] == "Complete" else self.recorder.warning
                note(job, "Completed" if told["type"] == "Complete" else told["reason"], told["message"])
        return wanted.again_s

    def _pod(self, job: Json) -> Json:
        pod = pod_from_template(job["spec"]["template"], self.kind, job)
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        pod["metadata"]["generateName"] = f"{name}-"
        pod["metadata"]["labels"] |= {
            "job-name": name,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "batch.kubernetes.io/controller-uid": uid,
        }
        return pod
