"""Builders for tests of StreamPipelines' plans."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.reconcilers.builders import NOW

from supercluster.api import StreamPipeline
from supercluster.reconcilers.planners.pipeline import manifests
from supercluster.reconcilers.planners.pipeline.stream_pipeline import plan_stream_pipeline
from supercluster.reconcilers.planners.pipeline.views import (
    DriverView,
    PipelineObserved,
)
from supercluster.reconcilers.planners.plan import Plan

IMAGE = "supercluster/spark:test"


def pipeline(**spec: Any) -> StreamPipeline:
    declared = {
        "superCluster": "demo",
        "superClusterNamespace": "flights",
        "credentialsSecret": "demo-client",
        "python": {"configMap": {"name": "program"}},
        **spec,
    }
    declared = {name: value for name, value in declared.items() if value is not None}
    return StreamPipeline.model_validate(
        {"metadata": {"name": "count", "namespace": "pipes", "uid": "u1"}, "spec": declared}
    )


def job(desired: StreamPipeline, **parts: Any) -> dict[str, Any]:
    made = manifests.driver_object(desired, IMAGE)
    return {**made, "metadata": {**made["metadata"], "uid": "j1"}, **parts}


def made(desired: StreamPipeline, **seen: Any) -> PipelineObserved:
    there = job(desired)
    found = PipelineObserved(
        claim=manifests.checkpoint_claim(desired),
        config=manifests.config_map(desired, IMAGE),
        jobs=(there,),
        drivers=(DriverView("count-x", there["metadata"]["name"], is_running=True),),
        executors=2,
    )
    return replace(found, **seen)


def plan(desired: StreamPipeline, observed: PipelineObserved) -> Plan:
    return plan_stream_pipeline(desired, observed, IMAGE, NOW)


def said(found: Plan, type_: str) -> tuple[str, str, str]:
    assert found.status_patch is not None
    (entry,) = [each for each in found.status_patch["conditions"] if each["type"] == type_]
    return entry["status"], entry["reason"], entry["message"]


def aged(name: str, second: int, checkpoint: dict[str, Any], namespace: str = "pipes") -> StreamPipeline:
    body = pipeline(checkpoint=checkpoint).to_object()
    stamp = f"2026-01-01T00:00:{second:02d}Z"
    metadata = {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": stamp}
    return StreamPipeline.model_validate({**body, "metadata": metadata})


def running(**parts: Any) -> PipelineObserved:
    name = job(pipeline())["metadata"]["name"]
    return made(pipeline(), drivers=(replace(DriverView("count-x", name, is_running=True), **parts),))


def pods(desired: StreamPipeline) -> list[dict[str, Any]]:
    template = json.loads(manifests.config_map(desired, IMAGE)["data"]["executor.yaml"])
    return [job(desired)["spec"]["template"], template]
