"""Volumes as whole rounds: made larger without a restart, and made anew under a broker that can't start (OP-3, OP-4)."""

from __future__ import annotations

import copy

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_rounds import CLUSTER, NS, KilledError
from tests.reconcilers.handlers.test_scale_down_rounds import FIVE, Shrinking
from tests.support.tiers import every

from supercluster.reconcilers.ports import KubeError

CLAIM = "PersistentVolumeClaim"


@pytest.fixture
async def world() -> Shrinking:
    world = Shrinking()
    await world.converge()
    return world


def resize(world: Shrinking, size: str) -> None:
    world.change("Cluster", "east", lambda body: body["spec"].update(storage={"size": size}))


def sizes(world: Shrinking) -> list[str]:
    bodies = [world.kube.objects[(CLAIM, NS, name)] for name in world.claims()]
    return [str(body["spec"]["resources"]["requests"]["storage"]) for body in bodies]


@pytest.mark.covers("OP-3")
async def test_claims_grow_and_neither_the_stateful_set_nor_a_pod_is_touched(world: Shrinking) -> None:
    before = world.kube.objects[("StatefulSet", NS, "east")]["spec"]
    pods = {name: world.kube.objects[("Pod", NS, name)]["metadata"]["uid"] for name in FIVE}
    resize(world, "20Gi")
    await world.converge()
    assert sizes(world) == ["20Gi"] * 5
    assert world.told().count("VolumeExpanded") == 5
    assert world.kube.objects[("StatefulSet", NS, "east")]["spec"] == before
    assert {name: world.kube.objects[("Pod", NS, name)]["metadata"]["uid"] for name in FIVE} == pods
    assert world.synced()[0] == "True"
    world.scale(6)
    world.brokers.known["east-5"] = {"node": "east-5", "cluster": "east", "inContact": True}
    await world.converge()
    assert sizes(world) == ["20Gi"] * 6, "the claim of a new broker is made small and grows at once"


async def test_a_class_that_does_not_allow_it_is_said_and_nothing_is_asked_for(world: Shrinking) -> None:
    for name in world.claims():
        world.change(CLAIM, name, lambda body: body["spec"].update(storageClassName="disk"))
    metadata = {"name": "disk", "namespace": ""}
    world.kube.put({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata})
    resize(world, "20Gi")
    await world.converge()
    assert sizes(world) == ["10Gi"] * 5
    deferred = condition(world.status(CLUSTER), "Deferred")
    assert deferred["reason"] == "VolumeNotResized"
    assert "data-east-0 (10Gi, class disk)" in deferred["message"]
    assert world.synced()[0] == "True"


async def test_a_refusal_by_the_server_holds_up_nothing_else(world: Shrinking) -> None:
    def refuse(call: str) -> Exception | None:
        return (
            KubeError(403, "Forbidden", "must support resize") if call.startswith(f"patch {CLAIM}") else None
        )

    world.kube.fail = refuse
    resize(world, "20Gi")
    outcome = await world.round(CLUSTER)
    assert outcome.failed
    assert "StepFailed" in world.told()
    world.change("Cluster", "east", lambda body: body["spec"].update(replicas=6))
    await world.round(CLUSTER)
    assert world.running == 6


@pytest.mark.covers("MR-2", "OP-3")
async def test_a_broker_whose_claim_is_gone_gets_another(world: Shrinking) -> None:
    def strand(body: dict) -> None:
        body["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        body["status"] = {"conditions": [{"type": "Ready", "status": "False"}]}

    del world.kube.objects[(CLAIM, NS, "data-east-1")]
    world.change("Pod", "east-1", strand)
    before = world.kube.objects[("Pod", NS, "east-1")]["metadata"]["uid"]
    await world.round(CLUSTER)
    assert ("Pod", NS, "east-1") not in world.kube.objects
    assert "VolumeLost" in world.told()
    await world.converge()
    assert world.kube.objects[("Pod", NS, "east-1")]["metadata"]["uid"] != before
    assert len(world.claims()) == 5


@pytest.mark.covers("OP-4")
async def test_an_operator_that_is_killed_at_any_call_of_an_expansion_goes_on() -> None:
    base = Shrinking()
    await base.converge()
    for number in range(0, 100, every(5)):
        world = copy.deepcopy(base)
        resize(world, "20Gi")
        world.die_at_call(number)
        died = False
        try:
            await world.converge()
        except KilledError:
            died = True
        world.kube.fail = world.brokers.fail = lambda _: None
        world.restart()
        await world.converge()
        assert sizes(world) == ["20Gi"] * 5
        if not died:
            assert number > 5
            return
    raise AssertionError("an expansion takes more calls than were tried")
