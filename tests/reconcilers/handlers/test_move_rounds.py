"""Whole rounds of a move: from an edited placement to the proof, by the budget, called off, and through kills (OP-4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.reconcilers.builders import clone, condition
from tests.reconcilers.handlers.test_rounds import NS, STREAM, KilledError, World
from tests.support.tiers import every

from supercluster.reconcilers.ports import BrokersUnreachableError, Key, KubeError

SC = Key("SuperCluster", NS, "demo")


class Moving(World):
    """Two clusters, and a stream in each that may be moved."""

    def __init__(self, **moves: Any) -> None:
        super().__init__()
        self.declare("Cluster", "west", superCluster="demo")
        self.declare("Stream", "trains", superCluster="demo", subjects=["trains.>"])
        self.change("SuperCluster", "demo", lambda body: body["spec"].update(moves=moves))

    def twin(self) -> Moving:
        """Another world that is exactly as this one."""
        twin = Moving()
        twin.kube.objects = clone(self.kube.objects)
        twin.kube._version = self.kube._version
        twin.brokers.streams = clone(self.brokers.streams)
        return twin

    def place(self, name: str, cluster: str | None) -> None:
        self.change("Stream", name, lambda body: body["spec"].update(placement={"cluster": cluster}))

    def moves(self) -> dict[str, Mapping[str, Any]]:
        """Statuses of all StreamMoves."""
        return {
            name: body.get("status", {})
            for (kind, _, name), body in self.kube.objects.items()
            if kind == "StreamMove"
        }

    def phases(self) -> dict[str, str]:
        return {name: str(status.get("phase")) for name, status in self.moves().items()}

    def finish(self, name: str, outcome: str = "done", reason: str = "") -> None:
        self.brokers.moves.end(name, self.brokers.streams[name], outcome, reason)


@pytest.fixture
async def world() -> Moving:
    world = Moving()
    await world.converge()
    return world


@pytest.mark.covers("MV-1", "MV-13")
async def test_an_edited_placement_moves_the_stream_and_the_proof_is_kept(world: Moving) -> None:
    world.place("flights", "west")
    await world.converge()
    assert world.phases() == {"flights-g2": "Running"}
    running = world.moves()["flights-g2"]
    assert running["progress"]["stage"] == "learning"
    assert [found["name"] for found in running["plan"]["targets"]] == ["west-0", "west-1", "west-2"]
    assert condition(world.status(STREAM), "Synced")["reason"] == "Moving"
    assert world.status(STREAM)["move"] == {"name": "flights-g2", "phase": "Running"}
    assert [grant["name"] for grant in world.status(SC)["moves"]] == ["flights-g2"]
    world.finish("flights")
    await world.converge()
    assert world.phases() == {"flights-g2": "Succeeded"}
    done = world.moves()["flights-g2"]
    assert done["audit"]["digest"] == "ab"
    assert done["audit"]["members"] == [{"name": "m", "result": "equal"}]
    assert world.status(STREAM)["cluster"] == "west"
    assert condition(world.status(STREAM), "Synced")["status"] == "True"
    assert world.status(SC)["moves"] == []
    assert {"MoveCreated", "MoveStarted", "MoveSucceeded"} <= set(world.told())
    assert (
        "finalizers" not in world.kube.objects[("StreamMove", NS, "flights-g2")]["metadata"]
        or not (world.kube.objects[("StreamMove", NS, "flights-g2")]["metadata"]["finalizers"])
    )


@pytest.mark.covers("MV-13")
async def test_moves_wait_for_their_turn_and_get_their_share(world: Moving) -> None:
    budget = {"concurrentMax": 1, "bytesPerS": "1Mi"}
    world.change("SuperCluster", "demo", lambda body: body["spec"].update(moves=budget))
    world.place("flights", "west")
    world.place("trains", "west")
    await world.converge()
    assert sorted(world.phases().values()) == ["Queued", "Running"]
    assert world.brokers.moves.rates == [2**20]
    (name,) = world.brokers.moves.running
    world.finish(name)
    await world.converge()
    assert sorted(world.phases().values()) == ["Running", "Succeeded"]
    assert len(world.brokers.moves.started) == 2


@pytest.mark.covers("MV-3", "MV-13")
async def test_fewer_replicas_and_a_move_in_one_change_are_made_one_after_the_other(world: Moving) -> None:
    both = {"replicas": 1, "placement": {"cluster": "west"}}
    world.change("Stream", "flights", lambda body: body["spec"].update(both))
    await world.converge()
    assert world.phases() == {"flights-g2-r1": "Running"}
    synced = condition(world.status(STREAM), "Synced")
    assert synced["reason"] == "Scaling"
    assert "after it comes the move to Cluster west" in synced["message"]
    assert world.brokers.streams["flights"]["num_replicas"] == 1
    world.finish("flights")
    await world.converge()
    assert world.phases() == {"flights-g2-r1": "Succeeded", "flights-g2": "Running"}
    world.finish("flights")
    await world.converge()
    assert world.phases() == {"flights-g2-r1": "Succeeded", "flights-g2": "Succeeded"}
    assert condition(world.status(STREAM), "Synced")["status"] == "True"
    assert world.status(STREAM)["cluster"] == "west"
    assert len(world.brokers.moves.started) == 2


@pytest.mark.covers("MV-9")
async def test_setting_the_placement_back_calls_the_move_off(world: Moving) -> None:
    world.place("flights", "west")
    await world.converge()
    world.place("flights", "east")
    await world.converge()
    assert world.brokers.moves.running["flights"]["cancelled"] is True
    assert ("StreamMove", NS, "flights-g2") in world.kube.objects
    world.finish("flights", "cancelled")
    await world.converge()
    assert world.moves() == {}
    assert condition(world.status(STREAM), "Synced")["status"] == "True"
    assert world.status(SC)["moves"] == []


@pytest.mark.covers("MV-9")
async def test_a_cancelled_move_is_not_begun_again_until_the_spec_changes(world: Moving) -> None:
    world.place("flights", "west")
    await world.converge()
    world.change("StreamMove", "flights-g2", lambda body: body["spec"].update(cancel=True))
    await world.converge()
    assert world.phases() == {"flights-g2": "Cancelling"}
    world.finish("flights", "cancelled")
    await world.converge()
    assert world.phases() == {"flights-g2": "Cancelled"}
    synced = condition(world.status(STREAM), "Synced")
    assert (synced["status"], synced["reason"]) == ("False", "MoveEnded")
    assert len(world.brokers.moves.started) == 1
    world.place("flights", "east")
    world.place("flights", "west")
    await world.converge()
    assert world.phases() == {"flights-g2": "Cancelled", "flights-g4": "Running"}


@pytest.mark.covers("MV-13")
async def test_a_move_whose_brokers_are_lost_after_the_plan_was_approved_is_planned_anew(
    world: Moving,
) -> None:
    world.brokers.streams["mine"] = {"name": "mine", "subjects": ["mine"], "num_replicas": 3}
    goal: dict[str, Any] = {"superCluster": "demo", "destination": {"cluster": "west"}}
    world.declare("StreamMove", "mine", **goal, stream="mine", approval="Manual")
    await world.converge()
    assert world.phases()["mine"] == "AwaitingApproval"
    world.brokers.moves.down = {"west-1"}
    world.change("StreamMove", "mine", lambda body: body["spec"].update(approved=True))
    await world.converge()
    assert world.phases()["mine"] == "AwaitingApproval"
    assert world.brokers.moves.started == []
    assert [found["name"] for found in world.moves()["mine"]["plan"]["targets"]] == [
        "west-0",
        "west-2",
        "west-3",
    ]
    world.change("StreamMove", "mine", lambda body: body["spec"].update(approved=False))
    await world.converge()
    world.change("StreamMove", "mine", lambda body: body["spec"].update(approved=True))
    await world.converge()
    assert world.phases()["mine"] == "Running"
    assert world.brokers.moves.running["mine"]["nodes"] == ["east-0", "west-0", "west-2", "west-3"]


@pytest.mark.covers("MV-9", "OP-5")
async def test_deleting_a_stream_while_it_moves_calls_the_move_off_and_gives_its_place_back(
    world: Moving,
) -> None:
    world.place("flights", "west")
    await world.converge()
    move = Key("StreamMove", NS, "flights-g2")
    world.delete(STREAM)
    await world.converge()
    assert ("Stream", NS, "flights") not in world.kube.objects
    world.delete(move)  # as the garbage collector does
    await world.converge()
    assert world.brokers.moves.running["flights"]["cancelled"] is True
    world.finish("flights", "cancelled")
    await world.converge()
    assert world.moves() == {}
    assert world.status(SC)["moves"] == []


@pytest.mark.covers("MV-2")
async def test_a_move_that_the_brokers_refuse_is_made_as_soon_as_they_can(world: Moving) -> None:
    world.brokers.moves.refusal = "3 replicas wanted in cluster west, 2 of 6 nodes can be used"
    world.place("flights", "west")
    await world.converge()
    assert world.phases() == {"flights-g2": "Refused"}
    assert "2 of 6 nodes" in condition(world.status(STREAM), "Synced")["message"]
    assert world.status(STREAM)["rejected"] == [{"name": "east-0", "reason": "is in cluster east, not west"}]
    assert world.brokers.moves.started == []
    world.brokers.moves.refusal = ""
    world.clock.ms += 31_000
    await world.converge()
    assert world.phases() == {"flights-g2": "Running"}
    assert world.status(STREAM)["rejected"] == []


@pytest.mark.covers("MV-13")
async def test_a_move_that_a_person_makes_waits_for_approval_and_a_dry_run_moves_nothing(
    world: Moving,
) -> None:
    world.brokers.streams["mine"] = {"name": "mine", "subjects": ["mine"], "num_replicas": 3}
    goal: dict[str, Any] = {"superCluster": "demo", "destination": {"cluster": "west"}}
    world.declare("StreamMove", "look", **goal, stream="mine", dryRun=True)
    world.declare("StreamMove", "mine", **goal, stream="mine", approval="Manual")
    world.declare("StreamMove", "declared", **goal, stream="flights")
    await world.converge()
    assert world.phases() == {"look": "Planned", "mine": "AwaitingApproval", "declared": "Refused"}
    assert world.brokers.moves.started == []
    world.change("StreamMove", "mine", lambda body: body["spec"].update(approved=True))
    await world.converge()
    assert world.phases()["mine"] == "Running"
    world.finish("mine")
    await world.converge()
    assert world.phases()["mine"] == "Succeeded"


async def test_silent_brokers_leave_a_running_move_as_it_was(world: Moving) -> None:
    world.place("flights", "west")
    await world.converge()
    world.brokers.fail = lambda _: BrokersUnreachableError("time-out")
    await world.converge()
    assert world.phases() == {"flights-g2": "Running"}
    assert condition(world.moves()["flights-g2"], "Progressing")["status"] == "Unknown"
    assert [grant["name"] for grant in world.status(SC)["moves"]] == ["flights-g2"]


@pytest.mark.covers("SF-23", "OP-2")
async def test_an_update_of_the_configuration_takes_no_change_back_that_came_after_the_look(
    world: Moving,
) -> None:
    world.change("Stream", "flights", lambda body: body["spec"].update(description="new"))
    config, looks = world.brokers.streams["flights"], 0

    def meddle(call: str) -> None:
        """After the look of this round, a move and a change of the count have ended."""
        nonlocal looks
        looks += call == "info"
        if looks == 2:
            config.update(num_replicas=1, placement={"cluster": "west"})

    world.brokers.fail = meddle
    await world.round(STREAM)
    found = world.brokers.streams["flights"]
    assert (found["description"], found["num_replicas"], found["placement"]) == (
        "new",
        1,
        {"cluster": "west"},
    )


@pytest.mark.covers("OP-4", "MV-3")
async def test_an_operator_killed_at_any_call_of_a_move_and_another_count_is_taken_over() -> None:
    """Fewer replicas and then the move, in one edit; after a kill another operator goes on from what there is."""
    both = {"replicas": 1, "placement": {"cluster": "west"}}

    async def course(world: Moving) -> None:
        for _ in range(3):
            await world.converge()
            if "flights" in world.brokers.moves.running:
                world.finish("flights")

    ready = Moving()
    await ready.converge()
    ready.change("Stream", "flights", lambda body: body["spec"].update(both))
    whole = ready.twin()
    await course(whole)
    total = whole.num_calls
    assert total > 40
    for fatal in range(0, total, every(17, 3)):
        world = ready.twin()
        world.die_at_call(fatal)
        try:
            await course(world)
        except KilledError:
            world.restart()
        await course(world)
        assert len(world.brokers.moves.started) == 2, f"killed at call {fatal}"
        done = {"flights-g2-r1": "Succeeded", "flights-g2": "Succeeded"}
        assert world.phases() == done, f"killed at call {fatal}"
        assert world.status(STREAM)["cluster"] == "west"
        assert world.brokers.streams["flights"]["num_replicas"] == 1


@pytest.mark.covers("OP-4")
@pytest.mark.parametrize("outcome", ["done", "cancelled"])
async def test_an_operator_killed_at_any_call_of_a_move_is_taken_over(outcome: str) -> None:
    async def course(world: Moving) -> None:
        """Edit, move, end; called again after a kill, it goes on from what there is."""
        await world.converge()
        if "flights" in world.brokers.moves.running:
            if outcome == "cancelled":
                world.change("StreamMove", "flights-g2", lambda body: body["spec"].update(cancel=True))
                await world.converge()
            world.finish("flights", outcome)
        await world.converge()

    whole = Moving()
    await whole.converge()
    before = whole.num_calls
    whole.place("flights", "west")
    await course(whole)
    total = whole.num_calls - before
    assert total > 20
    ready = Moving()
    await ready.converge()
    ready.place("flights", "west")
    for fatal in range(0, total, every(9)):
        world = ready.twin()
        world.die_at_call(fatal)
        try:
            await course(world)
        except KilledError:
            world.restart()
            await course(world)
        assert len(world.brokers.moves.started) == 1, f"killed at call {fatal}"
        phase = "Succeeded" if outcome == "done" else "Cancelled"
        assert world.phases() == {"flights-g2": phase}, f"killed at call {fatal}"
        assert world.status(STREAM)["cluster"] == ("west" if outcome == "done" else "east")
        assert world.status(SC)["moves"] == [], f"killed at call {fatal}"


async def test_a_move_that_was_made_by_the_process_before_is_not_made_twice(world: Moving) -> None:
    world.place("flights", "west")
    world.kube.fail_next.append(KubeError(409, "AlreadyExists", "flights-g2 exists"))
    outcome = await world.round(STREAM)
    assert outcome.failed
    await world.converge()
    assert world.phases() == {"flights-g2": "Running"}
