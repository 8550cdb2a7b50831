"""Roll-outs in whole rounds against fakes: hand-over, one pod at a time, budgets, the operator killed anywhere (OP-3, OP-4)."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_rounds import CLUSTER, NS, KilledError, World
from tests.support.tiers import every

from supercluster.broker.settings.reload import digest_of
from supercluster.reconcilers.observe.rollouts import reports_of
from supercluster.reconcilers.planners.cluster.restart_order import GroupTrouble

BROKERS = ("east-0", "east-1", "east-2")


class Rolling(World):
    """A cluster whose StatefulSet wants another revision; pods that are deleted come back with it."""

    def __init__(self) -> None:
        super().__init__()
        self.led = dict.fromkeys(BROKERS, 2)
        self.restarted: list[str] = []
        self.most_away = 0

    async def begin(self) -> None:
        await self.converge()
        self.clock.ms += 2_000
        await self.converge()
        self.change("StatefulSet", "east", lambda body: body["status"].update(updateRevision="r2"))

    def go_on(self) -> None:
        """Brokers hand over, pods that were deleted come back."""
        for name, state in self.brokers.restart.items():
            if state.get("stepsAside"):
                avoid = dict(self.brokers.handed)[name]
                heirs = [b for b in BROKERS if b not in (name, *avoid)] or list(avoid)
                self.led[heirs[0]] += self.led[name]
                self.led[name] = 0
        there = {name for kind, _, name in self.kube.objects if kind == "Pod"}
        away = [name for name in BROKERS if name not in there]
        self.most_away = max(self.most_away, len(away))
        for name in away:
            self.restarted.append(name)
            assert self.led[name] == 0, f"{name} was restarted as a leader"
            self.brokers.restart.pop(name, None)
            self._pod(name)
        for name in BROKERS:
            state = self.brokers.restart.setdefault(name, {})
            state |= {"leads": self.led[name], "movable": self.led[name]}

    def _pod(self, name: str) -> None:
        other = next(body for (kind, _, _), body in self.kube.objects.items() if kind == "Pod")
        labels = {**other["metadata"]["labels"], "controller-revision-hash": "r2"}
        metadata = {"name": name, "namespace": NS, "labels": labels}
        self.kube.put({**other, "metadata": metadata})

    def revisions(self) -> set[str]:
        return {
            body["metadata"]["labels"]["controller-revision-hash"]
            for (kind, _, _), body in self.kube.objects.items()
            if kind == "Pod"
        }

    async def roll(self, rounds: int = 60) -> None:
        for _ in range(rounds):
            self.go_on()
            await self.round(CLUSTER)
            self.clock.ms += 1000
            if self.revisions() == {"r2"} and condition(self.status(CLUSTER), "Synced")["status"] == "True":
                return
        raise AssertionError(f"the roll-out does not end: {self.status(CLUSTER)['conditions']}")

    @property
    def budget(self) -> int:
        found: int = self.kube.objects["PodDisruptionBudget", NS, "east"]["spec"]["maxUnavailable"]
        return found


@pytest.mark.covers("OP-3")
async def test_every_broker_is_restarted_once_as_a_follower() -> None:
    world = Rolling()
    await world.begin()
    assert world.budget == 1
    world.go_on()
    await world.round(CLUSTER)
    assert world.budget == 0, "nobody else is taken away while a roll-out is at work"
    await world.roll()
    assert sorted(world.restarted) == list(BROKERS)
    assert world.most_away == 1
    assert "rollout" not in world.status(CLUSTER)
    assert sum(world.led.values()) == 6
    world.clock.ms += 2_000
    await world.round(CLUSTER)
    assert world.budget == 1
    assert world.told().count("HandingOverLeaderships") == world.told().count("RestartingBroker") == 3


@pytest.mark.covers("OP-3", "OP-4")
async def test_an_operator_killed_at_any_call_restarts_nobody_twice() -> None:
    for number in range(0, 400, every(13, 3)):
        world = Rolling()
        await world.begin()
        calls = world.num_calls
        world.die_at_call(number)
        with suppress(KilledError):
            await world.roll()
        world.kube.fail = world.brokers.fail = lambda _: None
        if world.num_calls - calls < number:
            break
        world.restart()
        await world.roll()
        assert sorted(world.restarted) == list(BROKERS), number
        assert world.most_away == 1
    assert number > 15


@pytest.mark.covers("OP-3")
async def test_an_approval_wakes_the_cluster_and_another_one_is_another_revisions() -> None:
    world = Rolling()
    world.change("Cluster", "east", lambda body: body["spec"].update(rollout={"mode": "Supervised"}))
    await world.begin()
    world.go_on()
    for _ in range(3):
        await world.round(CLUSTER)
    assert condition(world.status(CLUSTER), "Synced")["reason"] == "AwaitingRestartApproval"
    assert world.told().count("AwaitingRestartApproval") == 1
    assert world.budget == 1, "who waits for approval may be drained"
    annotations = {"supercluster.dev/approve-restart": "r2"}
    world.change("Cluster", "east", lambda body: body["metadata"].update(annotations=annotations))
    await world.roll()
    assert sorted(world.restarted) == list(BROKERS)


@pytest.mark.covers("OP-3")
async def test_the_cluster_is_synced_when_every_broker_has_the_new_settings() -> None:
    world = World()

    def digest() -> str:
        found = world.kube.objects.get(("ConfigMap", NS, "east-config"), {})
        return digest_of(found.get("data", {}).get("broker.json", "").encode())

    world.brokers.newest_settings = digest
    await world.converge()
    old = digest()
    world.change("Cluster", "east", lambda body: body["spec"].update(limits={"maxConnections": 7}))
    world.brokers.settings = dict.fromkeys(BROKERS, old)
    pods = [key for key in world.kube.objects if key[0] == "Pod"]
    await world.round(CLUSTER)
    told: Any = json.loads(world.kube.objects["ConfigMap", NS, "east-config"]["data"]["broker.json"])
    assert told["limits"]["maxConnections"] == 7
    synced = condition(world.status(CLUSTER), "Synced")
    assert synced["reason"] == "SettingsPending"
    assert "0 of 3 brokers" in synced["message"]
    world.brokers.settings = {"east-2": old}
    world.brokers.refused = {"east-2": "tags[0] is 7"}
    await world.round(CLUSTER)
    assert condition(world.status(CLUSTER), "Synced")["reason"] == "SettingsRefused"
    world.brokers.settings = {}
    await world.round(CLUSTER)
    assert condition(world.status(CLUSTER), "Synced")["status"] == "True"
    assert world.status(CLUSTER)["settings"] == digest()
    assert [key for key in world.kube.objects if key[0] == "Pod"] == pods, "nobody was restarted"


def test_the_answers_of_all_brokers_say_it_of_every_group_once() -> None:
    short = {"account": "$G", "name": "a", "brokers": ["east-1"], "members": ["east-0", "east-1"]}
    other = {"account": "APP", "name": "b", "brokers": ["east-2"], "members": ["east-2"]}
    alone = {"account": "$G", "name": "c"}
    told = reports_of(
        {
            "east-0": {"leads": 2, "movable": 1, "behind": [short], "behindTotal": 3, "leaderless": [alone]},
            "east-1": {"behind": [other], "leaderless": [alone], "config": {"digest": "d", "refused": "r"}},
        }
    )
    assert told.behind == (
        GroupTrouble("a", ("east-1",), ("east-0", "east-1")),
        GroupTrouble("b of account APP", ("east-2",), ("east-2",)),
    )
    assert told.leaderless == (GroupTrouble("c", (), ("east-0", "east-1")),)
    assert told.unnamed == 2
    assert (told.brokers["east-0"].leads, told.brokers["east-0"].movable) == (2, 1)
    assert (told.brokers["east-1"].settings, told.brokers["east-1"].refused) == ("d", "r")


def test_a_group_that_one_broker_knows_no_leader_of_has_one_when_another_one_leads_it() -> None:
    short = {"account": "$G", "name": "a", "brokers": ["east-2"], "members": ["east-0", "east-2"]}
    lost = [{"account": "$G", "name": "a"}, {"account": "$G", "name": "b"}]
    found = reports_of(
        {
            "east-0": {"leads": 1, "behind": [short], "behindTotal": 1, "lacking": ["east-2"]},
            "east-2": {"leads": 0, "leaderless": lost, "leaderlessTotal": 2, "lacking": []},
            "east-3": {"leads": 0},
        }
    )
    assert [group.name for group in found.leaderless] == ["b"]
    assert [(report.lacking, report.leaderless) for report in found.brokers.values()] == [
        (frozenset({"east-2"}), 0),
        (frozenset(), 2),
        (None, 0),
    ]
