"""Repairs that meet something else: a move of the same stream, another loss, a volume that is empty, an operator that is killed
(MR-2, MR-7, OP-4)."""

from __future__ import annotations

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_repair_rounds import Repairing
from tests.reconcilers.handlers.test_rounds import CLUSTER, DELETED, NS, STREAM, KilledError
from tests.support.tiers import every

from supercluster.reconcilers.ports import Key


@pytest.fixture
async def world() -> Repairing:
    world = Repairing()
    await world.converge()
    return world


@pytest.mark.covers("MR-7")
async def test_a_repair_waits_for_a_move_of_its_stream_that_runs_and_comes_after_it(world: Repairing) -> None:
    world.change("Stream", "flights", lambda body: body["spec"].update(replicas=4))
    await world.converge()
    assert list(world.brokers.moves.running) == ["flights"]
    world.lose("east-2")
    await world.wait(90)
    assert world.repairs() == {}
    assert len(world.brokers.moves.started) == 1
    told = condition(world.status(STREAM), "Whole")["message"]
    assert "a move of the stream, or another repair, is under way; one at a time" in told
    world.brokers.moves.running["flights"]["targets"] = [f"east-{n}@a" for n in range(4)]
    world.finish()
    await world.wait(10)
    (repair,) = world.repairs().values()
    assert repair["spec"]["repair"]["nodes"] == ["east-0", "east-1", "east-3", "east-4"]
    assert repair["status"]["phase"] == "Running"


@pytest.mark.covers("MR-7")
async def test_a_move_that_is_asked_for_while_a_repair_runs_comes_after_it(world: Repairing) -> None:
    world.lose("east-2")
    await world.wait(65)
    assert len(world.repairs()) == 1
    world.change("Stream", "flights", lambda body: body["spec"].update(replicas=5))
    await world.wait(30)
    synced = condition(world.status(STREAM), "Synced")
    assert synced["reason"] == "Repairing"
    assert "after it comes the change of spec.replicas to 5" in synced["message"]
    assert len(world.brokers.moves.started) == 1
    world.finish()
    world.give_back("east-2")
    await world.wait(10)
    assert len(world.brokers.moves.started) == 2
    assert world.brokers.moves.running["flights"]["origin_replicas"] == 3


@pytest.mark.covers("MR-2", "MV-13")
async def test_a_move_that_waits_for_a_person_holds_up_no_repair(world: Repairing) -> None:
    world.change(
        "Stream", "flights", lambda body: body["spec"].update(move={"approval": "Manual"}, replicas=5)
    )
    await world.converge()
    (asked,) = (name for kind, _, name in world.kube.objects if kind == "StreamMove")
    assert world.status(Key("StreamMove", NS, asked))["phase"] == "AwaitingApproval"
    world.lose("east-2")
    await world.wait(65)
    (repair,) = world.repairs().values()
    assert repair["status"]["phase"] == "Running"
    assert (
        condition(world.status(Key("StreamMove", NS, asked)), "Progressing")["reason"] == "OtherMoveRunning"
    )
    world.finish()
    world.give_back("east-2")
    await world.wait(35)
    told = world.status(Key("StreamMove", NS, asked))
    assert told["phase"] == "AwaitingApproval"
    assert world.brokers.moves.running == {}


class Stuck(Repairing):
    """A roll-out that can't go on: the node of the broker whose turn it is is gone, and its pod does not end."""

    is_stuck = False

    def start_pods(self) -> None:
        if not self.is_stuck:
            super().start_pods()

    def stick(self) -> None:
        self.is_stuck = True
        self.change("StatefulSet", "east", lambda body: body["status"].update(updateRevision="r2"))
        self.change("Pod", "east-2", lambda body: body["metadata"].update(DELETED))


@pytest.mark.covers("MR-2", "MR-7", "OP-3")
@pytest.mark.parametrize("is_asked_first", [True, False])
async def test_a_move_that_waits_for_a_roll_out_holds_up_no_repair_that_the_roll_out_waits_for(
    is_asked_first: bool,
) -> None:
    """None of the three would ever go on."""
    world = Stuck()
    await world.converge()
    world.stick()
    await world.converge()
    assert condition(world.status(CLUSTER), "Synced")["reason"] == "RollingOut"
    for is_asked in (is_asked_first, not is_asked_first):
        if is_asked:
            world.change("Stream", "flights", lambda body: body["spec"].update(replicas=5))
        else:
            world.lose("east-2")
        await world.converge()
    (asked,) = (name for kind, _, name in world.kube.objects if kind == "StreamMove")
    assert world.status(Key("StreamMove", NS, asked))["phase"] == "Queued"
    await world.wait(65)
    (repair,) = world.repairs().values()
    assert repair["status"]["phase"] == "Running"
    world.finish()
    await world.wait(10)
    assert world.replication["usable"] == 3
    assert world.status(Key("StreamMove", NS, asked))["phase"] == "Queued", "it waits for the roll-out still"
    assert len(world.brokers.moves.started) == 1


@pytest.mark.covers("MR-7")
async def test_a_repair_that_the_brokers_called_off_is_tried_again_after_another_interval(
    world: Repairing,
) -> None:
    world.lose("east-2")
    await world.wait(65)
    world.finish(outcome="cancelled", reason="waited 600 s: nobody else can join")
    await world.converge()
    await world.wait(50)
    assert [body["status"]["phase"] for body in world.repairs().values()] == ["Failed"]
    await world.wait(20)
    phases = sorted(body["status"]["phase"] for body in world.repairs().values())
    assert phases == ["Failed", "Running"]
    world.finish()
    await world.wait(70)
    assert world.replication["usable"] == 3
    assert len(world.brokers.moves.started) == 2


@pytest.mark.covers("MR-2", "MR-7")
async def test_a_second_node_that_is_lost_while_the_first_one_is_replaced_is_replaced_after_it() -> None:
    world = Repairing()
    world.change("Stream", "flights", lambda body: body["spec"].update(replicas=3))
    await world.converge()
    world.lose("east-2")
    await world.wait(65)
    world.brokers.moves.running["flights"]["targets"] = ["east-0@a", "east-1@a", "east-3@a"]
    world.finish()
    world.lose("east-3")
    await world.wait(30)
    assert len(world.repairs()) == 1, "it may come back"
    await world.wait(40)
    assert len(world.repairs()) == 2
    world.finish()
    await world.wait(10)
    assert sorted(world.brokers.members["flights"]) == ["east-0", "east-1", "east-4"]
    world.lose("east-4")
    await world.wait(70)
    told = condition(world.status(STREAM), "Whole")
    assert told["reason"] == "LostReplicas"
    assert "no broker can take a replica in the place of east-4" in told["message"]
    assert len(world.repairs()) == 2, "and nothing thrashes"


@pytest.mark.covers("MR-7")
async def test_two_of_three_at_once_are_no_majority_and_nothing_is_forced(world: Repairing) -> None:
    world.lose("east-1")
    world.lose("east-2")
    await world.wait(200)
    assert world.repairs() == {}
    assert condition(world.status(STREAM), "Whole")["reason"] == "NoLeader"
    (waiting,) = world.status(Key("SuperCluster", NS, "demo"))["repair"]["waiting"]
    assert "1 of 3 replicas are usable, which is no majority (lost: east-1, east-2)" in waiting["reason"]
    world.give_back("east-1")
    await world.wait(10)
    (repair,) = world.repairs().values()
    assert repair["spec"]["repair"]["replace"] == ["east-2"], "with a majority the rest is repaired"


@pytest.mark.covers("MR-7")
async def test_a_broker_that_comes_back_in_time_with_an_empty_volume_is_refilled_and_not_replaced(
    world: Repairing,
) -> None:
    world.lose("east-2")
    await world.wait(40)
    world.give_back("east-2")
    world.brokers.behind = {"east-2"}
    await world.wait(200)
    assert world.repairs() == {}
    told = condition(world.status(STREAM), "Whole")
    assert (told["reason"], "behind: east-2" in told["message"]) == ("ReplicasCatchingUp", True)
    world.brokers.behind = set()
    await world.wait(10)
    assert condition(world.status(STREAM), "Whole")["status"] == "True"


@pytest.mark.covers("MR-7")
async def test_a_broker_whose_volume_is_lost_and_that_stays_away_is_replaced(world: Repairing) -> None:
    claim = ("PersistentVolumeClaim", NS, "data-east-2")
    world.kube.objects.pop(claim, None)
    world.lose("east-2")
    await world.wait(65)
    world.finish()
    world.give_back("east-2")
    world.brokers.behind = {"east-2"}
    await world.wait(120)
    assert world.replication["usable"] == 3
    assert condition(world.status(STREAM), "Whole")["status"] == "True", (
        "what it lacks is not its own any more"
    )
    assert len(world.brokers.moves.started) == 1


@pytest.mark.covers("OP-4", "MR-2")
async def test_an_operator_that_is_killed_at_any_call_exchanges_a_copy_of_no_use_once() -> None:
    for number in range(0, 400, every(15, 3)):
        world = Repairing()
        await world.converge()
        world.spoil("east-2")
        await world.clock.advance(65_000)
        world.die_at_call(number)
        try:
            await world.converge()
            died = False
        except KilledError:
            died = True
        world.kube.fail = world.brokers.fail = lambda _: None
        world.restart()
        await world.converge()
        assert (len(world.repairs()), len(world.brokers.moves.started)) == (1, 1)
        if not died:
            assert number > 10
            return
    raise AssertionError("it takes more calls than were tried")
