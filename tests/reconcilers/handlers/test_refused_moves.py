"""StreamMoves of the operator's own that Kubernetes does not take hold up their streams, and nobody else's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.api.test_crd_schemas import admit
from tests.reconcilers.fakes import VirtualClock
from tests.reconcilers.handlers.test_repair_rounds import SC, Repairing
from tests.reconcilers.handlers.test_rounds import NS

from supercluster.broker.jetstream.admin.moves import read_call
from supercluster.broker.jetstream.config.stream_checks import check_name
from supercluster.reconcilers.observe.refused_creates import CONFLICT_KEPT, KEPT, RefusedCreates
from supercluster.reconcilers.planners.plan import CreateObject, DeleteObject, Ground
from supercluster.reconcilers.planners.status import timestamp
from supercluster.reconcilers.ports import KubeError

WIDE = {"concurrentMax": 32, "concurrentPerNodeMax": 32}


class Judging(Repairing):
    """The API server says when an object was made, and judges StreamMoves by their schema; `wrong` are taken of none."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong = ""
        self.refused: list[str] = []
        create, plan = self.kube.create, self.brokers.plan_move

        async def judged(manifest: Any) -> Any:
            name = manifest["metadata"]["name"]
            faults = (
                admit("StreamMove", manifest["spec"], name=name) if manifest["kind"] == "StreamMove" else []
            )
            if self.wrong and name.startswith(self.wrong):
                faults = ["a webhook says no"]
            if faults:
                self.refused.append(name)
                raise KubeError(422, "Invalid", "; ".join(faults))
            metadata = {**manifest["metadata"], "creationTimestamp": timestamp(self.clock.now())}
            return await create({**manifest, "metadata": metadata})

        async def read(target: Any, name: str, goal: Any, bytes_per_s: int) -> Any:
            read_call({**goal, "bytesPerS": bytes_per_s, "dryRun": True})
            return await plan(target, name, goal, bytes_per_s)

        self.kube.create = judged  # type: ignore[method-assign]
        self.brokers.plan_move = read  # type: ignore[method-assign]

    def give_room(self) -> None:
        self.change("SuperCluster", "demo", lambda body: body["spec"].update(moves=WIDE))
        self.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(budget=WIDE))

    async def minutes(self, count: int) -> None:
        for _ in range(2 * count):
            await self.clock.advance(31_000)
            await self.converge()

    @property
    def running(self) -> set[str]:
        return set(self.brokers.moves.running)


@pytest.mark.covers("MR-1", "MR-4")
async def test_a_repair_that_failed_twice_is_tried_again_though_its_first_try_is_history() -> None:
    world = Judging()
    world.give_room()
    for number in range(19):
        world.declare("Stream", f"s{number:02}", superCluster="demo", subjects=[f"s{number}"])
    await world.converge()
    world.lose("east-2")
    for _ in range(8):
        await world.minutes(1)
        for name in sorted(world.running):
            world.finish(name, *(("cancelled", "nobody can join") if name == "flights" else ()))
        await world.converge()
    world.declare("Stream", "zebra", superCluster="demo", subjects=["zebra"])
    await world.minutes(3)
    assert {"flights", "zebra"} <= world.running
    numbers = [name.rpartition("-")[2] for name in world.repairs() if name.startswith("flights")]
    assert all(len(number) == 1 for number in numbers), "the first try is no more"


@pytest.mark.covers("MR-1")
@pytest.mark.parametrize("name", ["A+B", "x" * 255, "ok_name", "Zähler"])
async def test_a_clients_stream_is_repaired_whatever_name_the_brokers_took(name: str) -> None:
    check_name(name)
    world = Judging()
    world.give_room()
    await world.converge()
    world.brokers.streams[name] = {
        "name": name,
        "num_replicas": 3,
        "subjects": ["orders"],
        "placement": {"cluster": "east"},
    }
    await world.converge()
    world.lose("east-2")
    await world.minutes(3)
    assert {"flights", name} <= world.running


@pytest.mark.covers("MR-4", "OP-5")
async def test_a_move_that_kubernetes_refuses_holds_up_no_other_stream_and_is_asked_for_again_later() -> None:
    world = Judging()
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(budget={"concurrentMax": 1}))
    world.declare("Stream", "zebra", superCluster="demo", subjects=["zebra"])
    await world.converge()
    world.wrong = "flights"
    world.lose("east-2")
    await world.minutes(2)
    assert world.running == {"zebra"}
    world.finish("zebra")
    await world.minutes(1)
    waiting = {entry["stream"]: entry["reason"] for entry in world.status(SC)["repair"]["waiting"]}
    assert "can't be made: a webhook says no" in waiting["flights"]
    assert len(world.refused) == 1
    world.wrong = ""
    await world.minutes(int(KEPT / timedelta(minutes=1)))
    assert world.running == {"flights"}


@pytest.mark.covers("OP-4")
async def test_a_drain_goes_on_beside_a_stream_whose_move_is_refused() -> None:
    world = Judging()
    world.kube.objects.pop(("ReplicaPolicy", NS, "keep"))
    world.declare("Stream", "zebra", superCluster="demo", subjects=["zebra"])
    await world.converge()
    for stream in ("flights", "zebra"):
        world.brokers.members[stream] = ["east-4", "east-0", "east-1"]
    world.wrong = "flights"
    world.brokers.known["east-4"] |= {"leaves": True}
    await world.minutes(2)
    assert "zebra" in world.running
    assert "flights" not in world.running
    waiting = {entry["stream"]: entry["reason"] for entry in world.status(SC)["leaving"]["waiting"]}
    assert "can't be made" in waiting["flights"]


@pytest.mark.covers("MR-4")
@pytest.mark.parametrize("rate", ["2T", "9999999999T"])
async def test_a_bandwidth_beyond_what_brokers_take_is_none_that_holds_anything_up(rate: str) -> None:
    world = Judging()
    budget = {"bytesPerS": rate, "concurrentMax": 1}
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(budget=budget))
    world.change("SuperCluster", "demo", lambda body: body["spec"].update(moves={"bytesPerS": rate}))
    await world.converge()
    world.lose("east-2")
    await world.minutes(2)
    assert world.running == {"flights"}


def refusals(clock: VirtualClock) -> RefusedCreates:
    found = RefusedCreates(clock)
    move = CreateObject({"kind": "StreamMove", "metadata": {"namespace": NS, "name": "m"}})
    assert found.note(move, KubeError(422, "Invalid", "no"))
    return found


async def test_what_was_refused_is_known_for_a_while_and_in_its_namespace() -> None:
    clock = VirtualClock()
    found = refusals(clock)
    assert found.of(NS) == {"m": "no"}
    assert found.of("other") == {}
    await clock.advance(int(KEPT / timedelta(milliseconds=1)))
    assert found.of(NS) == {}


async def test_one_of_the_same_name_is_looked_for_soon() -> None:
    clock = VirtualClock()
    found = RefusedCreates(clock)
    move = CreateObject({"kind": "StreamMove", "metadata": {"namespace": NS, "name": "m"}})
    assert found.note(move, KubeError(409, "AlreadyExists", "there"))
    await clock.advance(int(CONFLICT_KEPT / timedelta(milliseconds=1)))
    assert found.of(NS) == {}


def test_other_steps_and_other_errors_are_nothing_to_pass_over() -> None:
    found = RefusedCreates(VirtualClock())
    move = CreateObject({"kind": "StreamMove", "metadata": {"namespace": NS, "name": "m"}})
    assert not found.note(move, KubeError(503, "Unavailable", "later"))
    assert not found.note(
        DeleteObject("v1", "Pod", NS, "p", "u", Ground.RESTART), KubeError(409, "Conflict", "no")
    )
    assert found.of(NS) == {}
