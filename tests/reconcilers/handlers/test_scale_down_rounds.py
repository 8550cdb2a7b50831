"""Fewer brokers, as whole rounds: what they hold is moved off, they go one after the other, or nothing is begun (OP-3, OP-4)."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_rounds import CLUSTER, NS, STREAM, KilledError, World
from tests.support.tiers import every

from supercluster.reconcilers.ports import Key

SC = Key("SuperCluster", NS, "demo")
FIVE = [f"east-{number}" for number in range(5)]


class Shrinking(World):
    """Five brokers; flights on the last three of them. Pods and claims come and go as the StatefulSet says."""

    def __init__(self) -> None:
        super().__init__()
        self.change("Cluster", "east", lambda body: body["spec"].update(replicas=5))
        self.brokers.now_ns = lambda: int(self.clock.now().timestamp()) * 1_000_000_000
        for name in FIVE:
            self.brokers.known[name] = {"node": name, "cluster": "east", "inContact": True, "votes": False}
        self.brokers.members["flights"] = ["east-2", "east-3", "east-4"]

    def scale(self, replicas: int) -> None:
        self.change("Cluster", "east", lambda body: body["spec"].update(replicas=replicas))

    def _start_pods_of(self, cluster: str, stateful_set: Mapping[str, Any]) -> None:
        super()._start_pods_of(cluster, stateful_set)
        taken_over = {"updateRevision": "r1", "observedGeneration": stateful_set["metadata"]["generation"]}
        self.kube.put({**stateful_set, "status": taken_over})
        for number in range(9):
            name = f"{cluster}-{number}"
            if number >= stateful_set["spec"]["replicas"]:
                self.kube.objects.pop(("Pod", NS, name), None)
            elif ("PersistentVolumeClaim", NS, f"data-{name}") not in self.kube.objects:
                template = stateful_set["spec"]["volumeClaimTemplates"][0]
                metadata = {**template["metadata"], "name": f"data-{name}", "namespace": NS}
                body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
                self.kube.put({**body, "spec": template["spec"]})

    @property
    def running(self) -> int:
        return int(self.kube.objects[("StatefulSet", NS, "east")]["spec"]["replicas"])

    @property
    def draining(self) -> list[str]:
        return [broker["name"] for broker in self.status(CLUSTER).get("drain", {}).get("brokers", ())]

    def claims(self) -> list[str]:
        return sorted(name for kind, _, name in self.kube.objects if kind == "PersistentVolumeClaim")

    def leaving(self) -> list[str]:
        return [name for name, entry in self.brokers.known.items() if entry.get("leaves")]

    def config(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.kube.objects[("ConfigMap", NS, "east-config")]["data"]["broker.json"]
        )
        return found

    def drains(self) -> dict[str, Mapping[str, Any]]:
        return {
            name: body
            for (kind, _, name), body in self.kube.objects.items()
            if kind == "StreamMove" and body["spec"].get("drains")
        }

    def finish(self, name: str = "flights", outcome: str = "done", reason: str = "") -> None:
        """The brokers end the move that runs."""
        move = self.brokers.moves.running[name]
        self.brokers.moves.end(name, self.brokers.streams[name], outcome, reason)
        if outcome == "done":
            self.brokers.members[name] = [target.partition("@")[0] for target in move["targets"]]

    def forget(self, *names: str) -> None:
        """They are gone for so long that the map has forgotten them."""
        for name in names:
            del self.brokers.known[name]

    async def wait(self, seconds: int) -> None:
        await self.clock.advance(1000 * seconds)
        await self.converge()

    def synced(self) -> tuple[str, str, str]:
        found = condition(self.status(CLUSTER), "Synced")
        return found["status"], found["reason"], found["message"]


@pytest.fixture
async def world() -> Shrinking:
    world = Shrinking()
    await world.converge()
    return world


@pytest.mark.covers("OP-3", "MR-2")
async def test_brokers_are_emptied_and_go_and_the_map_forgets_them(world: Shrinking) -> None:
    world.scale(3)
    await world.converge()
    assert world.leaving() == ["east-3", "east-4"]
    assert (world.running, world.draining) == (5, ["east-3", "east-4"])
    assert world.synced()[:2] == ("False", "Draining")
    assert "east-3 has 1 copy, east-4 has 1 copy" in world.synced()[2]
    assert "DrainStarted" in world.told()
    (move,) = world.drains().values()
    assert move["spec"]["repair"]["replace"] == ["east-3", "east-4"]
    assert sorted(move["spec"]["repair"]["nodes"]) == ["east-0", "east-1", "east-2"]
    assert move["status"]["phase"] == "Running"
    assert world.status(SC)["leaving"] == {
        "brokers": ["east-3", "east-4"],
        "streams": 1,
        "moving": 1,
        "waiting": [],
    }
    assert condition(world.status(STREAM), "Synced")["message"].startswith(
        f"StreamMove {move['metadata']['name']} takes the copies off east-3, east-4, which goes"
    )
    world.finish()
    await world.converge()
    assert world.running == 3
    assert world.synced()[0] == "True"
    assert "leaving" not in world.status(SC)
    assert world.draining == ["east-3", "east-4"], "until they are forgotten they might come back"
    assert world.claims() == [f"data-{name}" for name in FIVE], "the policy is Retain"
    assert [claim["name"] for claim in world.status(CLUSTER)["retiredClaims"]] == [
        "data-east-3",
        "data-east-4",
    ]
    assert world.told().count("Released") == 2
    assert list(world.config()["peers"]) == ["east-0", "east-1", "east-2"]
    world.forget("east-3", "east-4")
    await world.converge()
    assert "drain" not in world.status(CLUSTER)
    await world.wait(2)  # The budget for evictions is opened.
    calls = len(world.kube.calls)
    await world.wait(60)
    assert [call for call in world.kube.calls[calls:] if not call.startswith("get")] == []


async def test_the_highest_goes_first_and_not_before_it_has_no_vote(world: Shrinking) -> None:
    world.brokers.members["flights"] = ["east-1", "east-2", "east-3"]
    world.brokers.known["east-4"]["votes"] = world.brokers.keeps_votes = True
    world.scale(3)
    await world.converge()
    assert world.running == 5
    assert "east-4 has 0 copies and a vote in the map of streams" in world.synced()[2]
    world.brokers.known["east-4"]["votes"] = False
    await world.converge()
    assert world.running == 4
    assert world.synced()[1] == "Draining"
    world.finish()
    await world.converge()
    assert world.running == 3


@pytest.mark.covers("OP-3")
async def test_the_others_stay_linked_with_one_that_goes_until_its_process_has_ended(
    world: Shrinking,
) -> None:
    def peers() -> dict[str, str]:
        found: dict[str, str] = world.config()["peers"]
        return found

    world.brokers.members["flights"] = ["east-0", "east-1", "east-2"]
    template = world.kube.objects[("StatefulSet", NS, "east")]["spec"]["template"]
    world.scale(4)
    for _ in range(3):
        await world.round(CLUSTER)
    assert world.running == 4
    assert ("Pod", NS, "east-4") in world.kube.objects
    assert "east-4" in peers()
    await world.converge()
    assert "east-4" not in peers()
    assert world.kube.objects[("StatefulSet", NS, "east")]["spec"]["template"] == template, (
        "nobody is restarted"
    )


@pytest.mark.covers("OP-3")
async def test_what_is_impossible_is_not_begun_and_every_stream_is_named(world: Shrinking) -> None:
    await world.converge()
    world.scale(2)
    await world.converge()
    assert world.leaving() == []
    assert (world.running, world.draining, world.drains()) == (5, [], {})
    deferred = condition(world.status(CLUSTER), "Deferred")
    assert (deferred["status"], deferred["reason"]) == ("True", "ScaleDownRefused")
    assert deferred["message"] == (
        "spec.replicas is 2, and east-2, east-3, east-4 can't go; set it back to 5, or: stream flights: 3 replicas, and 2 "
        "brokers would be left for them: set its replicas to 2 or fewer, or keep more brokers"
    )
    assert world.synced()[:2] == ("False", "ScaleDownRefused")
    assert condition(world.status(CLUSTER), "Whole")["status"] == "True"
    world.scale(5)
    await world.converge()
    assert condition(world.status(CLUSTER), "Deferred")["status"] == "False"
    assert world.synced()[0] == "True"


async def test_copies_of_other_accounts_are_not_taken_away_with_their_broker(world: Shrinking) -> None:
    world.brokers.members["flights"] = ["east-0", "east-1", "east-2"]
    world.brokers.known["east-4"]["copies"] = 2
    world.scale(4)
    await world.converge()
    assert world.running == 5
    assert (
        "2 copies belong to streams of other accounts"
        in condition(world.status(CLUSTER), "Deferred")["message"]
    )


@pytest.mark.covers("OP-3")
async def test_raising_the_count_in_the_middle_takes_it_back(world: Shrinking) -> None:
    world.brokers.moves.running["other"] = {"id": "x", "nodes": ["east-2"], "startedNs": 1}
    world.scale(3)
    await world.converge()
    assert [body["status"]["phase"] for body in world.drains().values()] == ["Queued"]
    world.scale(5)
    await world.converge()
    assert world.leaving() == []
    assert (world.running, world.draining, world.drains()) == (5, [], {})
    assert {"DrainCancelled", "DrainMoveWithdrawn"} <= set(world.told())
    assert world.synced()[0] == "True"
    assert world.brokers.moves.started == []


async def test_taking_a_part_of_it_back_keeps_the_rest(world: Shrinking) -> None:
    world.scale(3)
    await world.converge()
    world.scale(4)
    await world.converge()
    assert world.leaving() == ["east-4"]
    world.finish()
    await world.converge()
    assert world.running == 4


async def test_a_broker_that_comes_back_before_it_is_forgotten_is_told_to_stay(world: Shrinking) -> None:
    world.scale(3)
    await world.converge()
    world.finish()
    await world.converge()
    assert world.running == 3
    world.scale(5)
    await world.converge()
    assert world.running == 5
    assert world.leaving() == []
    assert world.draining == []
    assert world.status(CLUSTER)["retiredClaims"] == []


@pytest.mark.covers("MR-2")
async def test_what_a_person_says_of_a_broker_is_done_and_not_taken_back(world: Shrinking) -> None:
    world.brokers.known["east-2"]["leaves"] = True
    await world.converge()
    (move,) = world.drains().values()
    assert move["spec"]["repair"]["replace"] == ["east-2"]
    world.finish()
    await world.wait(60)
    assert world.leaving() == ["east-2"]
    assert (world.running, world.draining) == (5, [])


async def test_brokers_of_a_cluster_that_is_being_deleted_keep_their_copies(world: Shrinking) -> None:
    world.brokers.known["east-2"]["leaves"] = True
    world.delete(CLUSTER)
    await world.round(SC)
    assert world.drains() == {}


async def test_a_map_that_may_be_old_takes_nobody_away(world: Shrinking) -> None:
    world.brokers.members["flights"] = ["east-0", "east-1", "east-2"]
    world.brokers.is_fresh = False
    world.scale(4)
    await world.converge()
    assert world.running == 5
    assert "no broker says what the last of 5 hold" in world.synced()[2]
    world.brokers.is_fresh = True
    await world.converge()
    assert world.running == 4


async def test_one_that_the_brokers_refuse_is_planned_anew(world: Shrinking) -> None:
    world.brokers.moves.refusal = "no suitable peers: east-0 has not enough room"
    world.scale(3)
    for _ in range(3):
        await world.round(CLUSTER)
        await world.round(SC)
    (name,) = world.drains()
    await world.round(Key("StreamMove", NS, name))
    assert world.drains()[name]["status"]["phase"] == "Refused"
    await world.round(SC)
    assert world.drains() == {}, "the fake's clock has it that it was made long ago"
    assert "not enough room" in world.kube.events[-1].message
    world.brokers.moves.refusal = ""
    await world.converge()
    assert [body["status"]["phase"] for body in world.drains().values()] == ["Running"]


async def test_one_that_failed_is_tried_again_a_while_later(world: Shrinking) -> None:
    world.scale(3)
    await world.converge()
    world.finish(outcome="cancelled", reason="called off by a person")
    await world.converge()
    assert sorted(str(body["status"]["phase"]) for body in world.drains().values()) == ["Failed"]
    await world.wait(35)
    assert sorted(str(body["status"]["phase"]) for body in world.drains().values()) == ["Failed", "Running"]


@pytest.mark.covers("OP-5")
async def test_claims_of_brokers_that_went_are_deleted_by_policy_after_a_grace_time(world: Shrinking) -> None:
    world.change("Cluster", "east", lambda body: body["spec"].update(deletionPolicy="Delete"))
    world.scale(3)
    await world.converge()
    world.finish()
    await world.converge()
    await world.wait(9 * 60)
    assert len(world.claims()) == 5
    await world.wait(2 * 60)
    assert world.claims() == ["data-east-0", "data-east-1", "data-east-2"]
    assert world.status(CLUSTER)["retiredClaims"] == []


@pytest.mark.covers("OP-4")
async def test_an_operator_that_is_killed_at_every_second_call_of_a_drain_goes_on() -> None:
    base = Shrinking()
    await base.converge()
    for number in range(0, 400, every(12, 2)):
        world = copy.deepcopy(base)
        world.scale(3)
        world.die_at_call(number)
        died = False
        try:
            await world.converge()
            world.finish()
            await world.converge()
        except KilledError:
            died = True
        world.kube.fail = world.brokers.fail = lambda _: None
        world.restart()
        await world.converge()
        await world.converge()  # What only brokers were told ends the first.
        if world.brokers.moves.running:
            world.finish()
            await world.converge()
        assert (number, world.running, world.synced()[2]) == (number, 3, "")
        assert len(world.brokers.moves.started) == 1
        assert sorted(world.brokers.members["flights"]) == ["east-0", "east-1", "east-2"]
        assert world.leaving() == world.draining == ["east-3", "east-4"]
        if not died:
            assert number > 20
            return
    raise AssertionError("a drain takes more calls than were tried")
