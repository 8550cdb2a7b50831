"""A StreamPipeline as observed in Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supercluster.api.stream_pipeline import PipelineProgress, StreamPipeline
from supercluster.reconcilers.planners.plan import Manifest

ERROR_CHARACTERS_MAX = 1024


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
    node: str = ""
    ends_by: str = ""
    """When its containers are to have ended at the latest; empty: it is not to end."""
    progress: PipelineProgress | None = None
    created: str = ""


@dataclass(frozen=True, slots=True)
class PipelineObserved:
    """What one look at Kubernetes shows of a pipeline."""

    has_brokers: bool = False
    """The namespace has a SuperCluster or a Cluster."""
    has_program: bool = True
    has_secret: bool = True
    has_authority: bool = True
    """The Secret that spec.caSecret names has a ca.crt."""
    others: tuple[StreamPipeline, ...] = ()
    """All other StreamPipelines that the operator serves, of any namespace."""
    claim: Manifest | None = None
    config: Manifest | None = None
    jobs: tuple[Manifest, ...] = ()
    """Those of the pipeline itself, and those of its CronJob."""
    cron_job: Manifest | None = None
    drivers: tuple[DriverView, ...] = ()
    executors: int = 0
    """Whose containers run."""
    executor_trouble: str = ""
    """Why one does not run: the scheduler's or the node's words."""
    refusal: str | None = None
    """Why a step of this round was refused for good."""


def name_of(body: Mapping[str, Any]) -> str:
    return str(body["metadata"]["name"])


def is_run(job: Mapping[str, Any]) -> bool:
    """Was it made by a CronJob?"""
    owners = job["metadata"].get("ownerReferences") or ()
    return any(owner.get("kind") == "CronJob" for owner in owners)


def current_job(observed: PipelineObserved, wanted: Mapping[str, Any]) -> Manifest | None:
    """The Job that is as declared; of a CronJob, the last one it made."""
    if wanted["kind"] == "CronJob":
        runs = [each for each in observed.jobs if is_run(each)]
        return max(runs, key=lambda each: str(each["metadata"].get("creationTimestamp") or ""), default=None)
    return next((each for each in observed.jobs if name_of(each) == name_of(wanted)), None)


def former(observed: PipelineObserved, wanted: Mapping[str, Any]) -> list[Manifest]:
    """Jobs and CronJobs that are not as declared any more."""
    if wanted["kind"] == "CronJob":
        return [each for each in observed.jobs if not is_run(each)]
    jobs = [each for each in observed.jobs if not is_run(each) and name_of(each) != name_of(wanted)]
    return jobs if observed.cron_job is None else [observed.cron_job, *jobs]


def older_drivers(observed: PipelineObserved, wanted: Mapping[str, Any]) -> list[DriverView]:
    """Drivers of former Jobs that have not ended."""
    current = {name_of(wanted)}
    if wanted["kind"] == "CronJob":
        current = {name_of(each) for each in observed.jobs if is_run(each)}
    return [each for each in observed.drivers if each.job not in current and not each.is_over]


def current_driver(observed: PipelineObserved, job: Mapping[str, Any] | None) -> DriverView | None:
    """The driver that runs or begins; else the one that ended last."""
    own = [each for each in observed.drivers if job is not None and each.job == name_of(job)]
    return max(own, key=lambda each: (not each.is_over, each.created), default=None)


def last_line(message: str) -> str:
    """What a driver's condition shows of its last words."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ")[:ERROR_CHARACTERS_MAX] if lines else ""
