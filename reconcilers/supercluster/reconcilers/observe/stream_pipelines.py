"""The snapshot of a StreamPipeline. The prerequisites of its driver are checked until there is a Job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from supercluster.api import Cluster, StreamPipeline, SuperCluster
from supercluster.api.stream_pipeline import PipelineProgress
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.views import pod_view
from supercluster.reconcilers.planners.pipeline import manifests
from supercluster.reconcilers.planners.pipeline.checkpoints import claim_name
from supercluster.reconcilers.planners.pipeline.views import (
    DriverView,
    PipelineObserved,
    last_line,
)
from supercluster.reconcilers.planners.status import parse_timestamp
from supercluster.reconcilers.ports import Kube, KubeError, mapping

PROGRESS = "supercluster.dev/progress"
COMPONENT = "app.kubernetes.io/component"


async def look_at_stream_pipeline(
    cache: ObjectCache, kube: Kube, desired: StreamPipeline
) -> PipelineObserved:
    namespace, name = desired.metadata.namespace, desired.metadata.name
    made = list(cache.children_of(StreamPipeline, namespace, name))
    jobs = tuple(body for body in made if body.get("kind") == "Job")
    cron_job = next((body for body in made if body.get("kind") == "CronJob"), None)
    pods = [body for body in made if body.get("kind") == "Pod"]
    executors = [pod_view(body) for body in pods if _component(body) == "executor"]
    has_program = has_secret = has_authority = True
    if not jobs and cron_job is None:
        has_secret = await _get(kube, "Secret", namespace, desired.secret_name) is not None
        if desired.spec.ca_secret is not None:
            authority = await _get(kube, "Secret", namespace, desired.spec.ca_secret)
            has_authority = authority is not None and (
                not authority or "ca.crt" in mapping(authority.get("data"))
            )
        python = desired.spec.python
        program = python.config_map if python is not None else None
        if program is not None:
            body = await _get(kube, "ConfigMap", namespace, program.name)
            has_program = body is not None and (
                not body or program.key in {**mapping(body.get("data")), **mapping(body.get("binaryData"))}
            )
    return PipelineObserved(
        has_brokers=cache.has_any(namespace, SuperCluster, Cluster),
        has_program=has_program,
        has_secret=has_secret,
        has_authority=has_authority,
        others=tuple(
            each for each in cache.all_of(StreamPipeline) if each.metadata.uid != desired.metadata.uid
        ),
        claim=cache.get("PersistentVolumeClaim", namespace, claim_name(desired)),
        config=cache.get("ConfigMap", namespace, manifests.config_map_name(desired)),
        jobs=jobs,
        cron_job=cron_job,
        drivers=tuple(driver_view(body) for body in pods if _component(body) == "driver"),
        executors=sum(each.running and not each.terminating for each in executors),
        executor_trouble=next(
            (
                f"{each.name}: {each.unplaced or each.trouble}"
                for each in executors
                if each.unplaced or each.trouble
            ),
            "",
        ),
    )


def progress_of(annotation: object) -> PipelineProgress | None:
    """What a driver has written of itself; None where that does not fit a status."""
    try:
        found = PipelineProgress.model_validate_json(str(annotation or ""))
    except ValidationError:
        return None
    return found if parse_timestamp(found.last_progress_time or "") is not None else None


async def _get(kube: Kube, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
    """An empty one where nobody says: then the driver's pod waits for it."""
    try:
        return await kube.get("v1", kind, namespace, name)
    except KubeError:
        return {}


def _component(pod: Mapping[str, Any]) -> str:
    return str(mapping(mapping(pod.get("metadata")).get("labels")).get(COMPONENT, ""))


def driver_view(pod: Mapping[str, Any]) -> DriverView:
    seen, metadata, status = pod_view(pod), mapping(pod.get("metadata")), mapping(pod.get("status"))
    phase = status.get("phase")
    labels = mapping(metadata.get("labels"))
    states = [mapping(mapping(each).get("state")) for each in status.get("containerStatuses") or ()]
    ended = next((mapping(each["terminated"]) for each in states if "terminated" in each), {})
    waiting = next((mapping(each["waiting"]) for each in states if "waiting" in each), {})
    told = waiting.get("message") or ""
    if not told and waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        told = waiting["reason"]
    error = last_line(str(ended.get("message") or ""))
    if phase == "Failed" and not error:
        error = str(ended.get("reason") or status.get("message") or status.get("reason") or "")
        if ended.get("exitCode") is not None:
            error = f"exit code {ended['exitCode']} ({error})"
    return DriverView(
        name=seen.name,
        job=str(labels.get("batch.kubernetes.io/job-name") or labels.get("job-name") or ""),
        is_running=seen.running and not seen.terminating,
        is_failed=phase == "Failed",
        is_over=phase in ("Failed", "Succeeded"),
        trouble=seen.unplaced or str(told),
        error=error if phase == "Failed" else "",
        node=seen.node,
        ends_by=str(metadata.get("deletionTimestamp") or ""),
        progress=progress_of(mapping(metadata.get("annotations")).get(PROGRESS)),
        exit_code=ended.get("exitCode"),
        created=seen.created,
    )
