"""Rounds of a StreamPipeline: from what it needs to its Job, and from one driver to the next."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reconcilers.builders import DEFAULTS, condition
from tests.reconcilers.fakes import FakeBrokers, FakeKube, VirtualClock

from supercluster.api import API_VERSION
from supercluster.reconcilers.execute.executor import Executor
from supercluster.reconcilers.execute.tools import Tools
from supercluster.reconcilers.handlers.intake import Intake
from supercluster.reconcilers.handlers.rounds import Rounds
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.stream_pipelines import driver_view
from supercluster.reconcilers.ports import Key

NS = "pipes"
COUNT = Key("StreamPipeline", NS, "count")
SPEC = {
    "superCluster": "demo",
    "superClusterNamespace": "flights",
    "credentialsSecret": "demo-client",
    "python": {"configMap": {"name": "program"}},
}


class World:
    def __init__(self) -> None:
        self.kube, self.clock, self.woken = FakeKube(), VirtualClock(), list[Key]()
        self.cache = ObjectCache()
        self.intake = Intake(self.cache, self.woken.append)
        brokers = FakeBrokers()
        tools = Tools(self.kube, brokers, self.cache, str, now=self.clock.now)
        self.rounds = Rounds(self.kube, brokers, self.cache, Executor(tools), self.clock, DEFAULTS)

    def put(self, kind: str, name: str, **parts: Any) -> dict[str, Any]:
        there = self.kube.objects.get((kind, NS, name), {"metadata": {"name": name, "namespace": NS}})
        metadata = {**there["metadata"], **parts.pop("metadata", {})}
        api_version = API_VERSION if kind == "StreamPipeline" else "v1"
        body = self.kube.put(
            {"apiVersion": api_version, "kind": kind, **there, **parts, "metadata": metadata}
        )
        self.intake.take("MODIFIED", body)
        return body

    async def settle(self) -> None:
        await self.rounds.reconcile(COUNT)
        for body in list(self.kube.objects.values()):
            self.intake.take("MODIFIED", body)

    def jobs(self) -> list[str]:
        return [name for kind, _, name in self.kube.objects if kind == "Job"]

    def ready(self) -> str:
        return str(condition(self.kube.objects["StreamPipeline", NS, "count"]["status"], "Ready")["reason"])


def pod(component: str, job: str, **status: Any) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/component": component,
        "supercluster.dev/super-cluster": "demo",
        "supercluster.dev/stream-pipeline": "count",
        "batch.kubernetes.io/job-name": job,
    }
    return {"metadata": {"labels": labels}, "status": status}


RUNS = {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"running": {}}}]}


async def served() -> World:
    world = World()
    world.put("StreamPipeline", "count", spec=SPEC)
    await world.settle()
    assert (world.ready(), world.jobs()) == ("NotAccepted", [])
    world.kube.put({"kind": "Secret", "metadata": {"name": "demo-client", "namespace": NS}})
    program = {"name": "program", "namespace": NS}
    world.kube.put({"kind": "ConfigMap", "metadata": program, "data": {"main.py": "pass"}})
    await world.settle()
    (job,) = world.jobs()
    assert world.ready() == "DriverStarting"
    assert world.put("Pod", "driver-1", **pod("driver", job, **RUNS))
    assert world.woken[-1:] == [COUNT], "its driver's pod wakes it"
    world.put("Pod", "exec-1", **pod("executor", "", **RUNS))
    world.put("Pod", "exec-2", **pod("executor", "", **RUNS))
    await world.settle()
    assert world.ready() == "Serving"
    return world


async def test_it_begins_when_what_it_needs_is_there() -> None:
    world = await served()
    kinds = {kind for kind, _, _ in world.kube.objects}
    assert kinds == {"StreamPipeline", "Secret", "ConfigMap", "PersistentVolumeClaim", "Job", "Pod"}
    status = world.kube.objects["StreamPipeline", NS, "count"]["status"]
    assert (status["driver"], status["executors"]) == ("driver-1", 2)


async def test_an_executor_without_a_node_is_told() -> None:
    world = await served()
    words = {"type": "PodScheduled", "status": "False", "message": "Insufficient cpu"}
    for name in ("exec-1", "exec-2"):
        world.put("Pod", name, **pod("executor", "", phase="Pending", conditions=[words]))
    await world.settle()
    assert world.ready() == "ExecutorsStarting"
    status = world.kube.objects["StreamPipeline", NS, "count"]["status"]
    assert "exec-1: Insufficient cpu" in condition(status, "Ready")["message"]


async def test_the_next_driver_waits_for_the_end_of_the_last_one() -> None:
    world = await served()
    (before,) = world.jobs()
    world.put("StreamPipeline", "count", spec={**SPEC, "executors": {"count": 3}})
    await world.settle()
    assert world.jobs() == [], "its driver is still there"
    await world.settle()
    assert world.jobs() == []
    gone = world.kube.objects.pop(("Pod", NS, "driver-1"))
    world.intake.take("DELETED", gone)
    await world.settle()
    (after,) = world.jobs()
    assert after != before


async def test_a_job_of_somebody_else_is_not_deleted() -> None:
    world = await served()
    (name,) = world.jobs()
    job = world.kube.objects["Job", NS, name]
    world.put("Job", name, metadata={**job["metadata"], "ownerReferences": [{"uid": "other"}]})
    world.put("StreamPipeline", "count", spec={**SPEC, "executors": {"count": 3}})
    await world.settle()
    assert world.jobs() == [name]


async def test_a_namespace_with_brokers_is_refused() -> None:
    world = World()
    world.put("SuperCluster", "demo", spec={})
    world.put("StreamPipeline", "count", spec={"superCluster": "demo", "python": {"file": "/app.py"}})
    await world.settle()
    status = world.kube.objects["StreamPipeline", NS, "count"]["status"]
    assert condition(status, "Accepted")["reason"] == "BesideBrokers"
    assert condition(status, "Stalled")["status"] == "True"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (RUNS, ("", "", True, False)),
        ({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "no cpu"}]}, ("no cpu", "", False, False)),
        ({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]}, ("no such image", "", False, False)),
        ({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 1, "message": "x\nerror: E: no stream\n"}}}]}, ("", "E: no stream", False, True)),
        ({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}, ("", "exit code 137 (OOMKilled)", False, True)),
    ],
)  # fmt: skip
def test_a_drivers_pod_says_why_it_does_not_run(
    status: dict[str, Any], expected: tuple[str, str, bool, bool]
) -> None:
    seen = driver_view(pod("driver", "j", **status))
    assert (seen.trouble, seen.error, seen.is_running, seen.is_over) == expected


async def test_the_authority_has_to_be_there_too() -> None:
    world = World()
    world.put("StreamPipeline", "count", spec={**SPEC, "caSecret": "ca", "python": {"file": "/app.py"}})
    for name, data in (("demo-client", {}), ("ca", {"tls.crt": "eA=="})):
        world.kube.put({"kind": "Secret", "metadata": {"name": name, "namespace": NS}, "data": data})
    await world.settle()
    status = world.kube.objects["StreamPipeline", NS, "count"]["status"]
    assert "Secret ca with a key ca.crt" in condition(status, "Accepted")["message"]
    world.kube.put(
        {"kind": "Secret", "metadata": {"name": "ca", "namespace": NS}, "data": {"ca.crt": "eA=="}}
    )
    await world.settle()
    assert world.ready() == "DriverStarting"
