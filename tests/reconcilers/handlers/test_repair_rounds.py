"""The three scenarios of the source document as whole rounds, and what else may happen to a repair (MR-6, OP-4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_rounds import NS, STREAM, KilledError, World
from tests.support.tiers import every

from supercluster.reconcilers.handlers.wakes import concerned
from supercluster.reconcilers.kinds.reconcilers import RECONCILERS
from supercluster.reconcilers.observe.repairs import ZONE_LABEL
from supercluster.reconcilers.planners.status import timestamp
from supercluster.reconcilers.ports import Key

SC, POLICY = Key("SuperCluster", NS, "demo"), Key("ReplicaPolicy", NS, "keep")
FIVE = [f"east-{number}" for number in range(5)]
SELECTOR = {"selector": {"namePattern": "*"}, "checkInterval": "1s"}


class Repairing(World):
    """Five brokers east-0 to east-4; flights on the first three; a policy for every stream."""

    def __init__(self) -> None:
        super().__init__()
        self.change("Cluster", "east", lambda body: body["spec"].update(replicas=5))
        self.declare("ReplicaPolicy", "keep", superCluster="demo", **SELECTOR)
        self.brokers.now_ns = lambda: int(self.clock.now().timestamp()) * 1_000_000_000
        for name in FIVE:
            self.brokers.known[name] = {"node": name, "cluster": "east", "inContact": True}

    def lose(self, name: str) -> None:
        self.brokers.known[name] |= {"inContact": False, "awaySinceNs": self.brokers.now_ns()}

    def give_back(self, name: str) -> None:
        self.brokers.known[name] = {"node": name, "cluster": "east", "inContact": True}

    def spoil(self, name: str, stream: str = "flights", why: str = "") -> None:
        """The broker is there, and can do nothing with its copy."""
        copy = {"account": "$G", "name": stream, "sinceNs": self.brokers.now_ns(), "why": why}
        self.brokers.known[name] |= {"unusable": [copy]}

    async def wait(self, seconds: int) -> None:
        await self.clock.advance(1000 * seconds)
        await self.converge()

    def change_node(self, name: str, **spec: Any) -> None:
        body = self.kube.objects[("Node", "", name)]
        self.kube.put({**body, "spec": spec})

    def repairs(self) -> dict[str, Mapping[str, Any]]:
        return {
            name: body
            for (kind, _, name), body in self.kube.objects.items()
            if kind == "StreamMove" and "repair" in body["spec"]
        }

    def finish(self, name: str = "flights", outcome: str = "done", reason: str = "") -> None:
        """The brokers end the move that runs."""
        move = self.brokers.moves.running[name]
        self.brokers.moves.end(name, self.brokers.streams[name], outcome, reason)
        if outcome == "done":
            self.brokers.members[name] = [target.partition("@")[0] for target in move["targets"]]

    @property
    def replication(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.status(STREAM)["replication"]
        return found


@pytest.fixture
async def world() -> Repairing:
    world = Repairing()
    await world.converge()
    return world


@pytest.mark.covers("MR-1")
async def test_the_status_says_which_word_counts_and_why(world: Repairing) -> None:
    assert world.replication["minimum"] == 3
    assert world.replication["decidedBy"] == "ReplicaPolicy keep"
    world.declare("ReplicaPolicy", "light", superCluster="demo", minReplicas=1, **SELECTOR)
    world.declare("ReplicaPolicy", "heavy", superCluster="demo", minReplicas=2, weight=9, **SELECTOR)
    await world.converge()
    assert world.replication["minimum"] == 2
    assert world.replication["decidedBy"] == "ReplicaPolicy heavy"
    assert "its weight 9 is above that of keep, light" in world.replication["reason"]
    assert condition(world.status(Key("ReplicaPolicy", NS, "keep")), "Warning")["reason"] == "PolicyConflict"
    assert world.status(Key("ReplicaPolicy", NS, "light"))["conflicts"] == ["keep"]
    assert world.status(Key("ReplicaPolicy", NS, "heavy"))["inForce"] == 1
    world.change("Stream", "flights", lambda body: body["spec"].update(minReplicas=1))
    await world.converge()
    assert (world.replication["minimum"], world.replication["decidedBy"]) == (1, "Stream")
    assert (world.replication["desired"], world.replication["usable"]) == (3, 3)
    assert "Deferred" not in {c["type"] for c in world.status(STREAM)["conditions"] if c["status"] == "True"}


@pytest.mark.covers("MR-6", "MR-2", "MR-7")
async def test_one_a_lost_node_is_replaced_after_the_interval(world: Repairing) -> None:
    world.lose("east-2")
    await world.wait(55)
    assert world.repairs() == {}
    assert world.replication["lost"] == ["east-2"]
    assert world.replication["since"]
    assert condition(world.status(POLICY), "Whole")["reason"] == "LostReplicas"
    await world.wait(10)
    (repair,) = world.repairs().values()
    assert repair["spec"]["repair"]["replace"] == ["east-2"]
    assert repair["spec"]["repair"]["nodes"] == ["east-0", "east-1", "east-3"]
    assert repair["status"]["phase"] == "Running"
    assert world.status(SC)["repair"]["repairing"] == 1
    assert condition(world.status(STREAM), "Synced")["reason"] == "Repairing"
    world.finish()
    await world.converge()
    assert [body["status"]["phase"] for body in world.repairs().values()] == ["Succeeded"]
    assert world.rounds.counters.repairs.ended == {(f"{NS}/demo", "done"): 1}
    assert world.replication["usable"] == 3
    assert "since" not in world.replication
    calls = len(world.brokers.moves.started)
    for _ in range(3):
        await world.wait(60)
    assert len(world.brokers.moves.started) == calls == 1, (
        "future checks discover that no action is necessary"
    )
    assert condition(world.status(POLICY), "Whole")["status"] == "True"
    world.give_back("east-2")
    await world.wait(10)
    assert "repair" not in world.status(SC)


@pytest.mark.covers("MR-2")
async def test_a_replica_that_becomes_due_is_looked_at_when_it_does(world: Repairing) -> None:
    world.brokers.now_ns = lambda: round(world.clock.now().timestamp() * 1000) * 1_000_000
    world.lose("east-2")
    await world.clock.advance(60_000)
    outcome = await world.round(SC)
    wait_ms = outcome.recheck_after_ms
    assert wait_ms is not None
    assert wait_ms < 1_000, "flights has its moment within the first second behind the interval"
    await world.clock.advance(wait_ms - 1)
    await world.round(SC)
    assert world.repairs() == {}
    await world.clock.advance(1)
    await world.round(SC)
    assert len(world.repairs()) == 1


@pytest.mark.covers("MR-4")
@pytest.mark.parametrize(
    ("of_repairs", "told"), [("64Mi", {"bytesPerS": str(32 << 20)}), ("1", {"bytesPerS": "1"}), ("0", {})]
)
async def test_repairs_share_the_bandwidth_of_their_policy_and_0_is_no_limit(
    world: Repairing, of_repairs: str, told: Mapping[str, str]
) -> None:
    budget = {"concurrentMax": 2, "bytesPerS": of_repairs}
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(budget=budget))
    world.lose("east-2")
    await world.wait(65)
    (repair,) = world.repairs().values()
    assert repair["spec"].get("bandwidth", {}) == told


class Restarting(Repairing):
    """A roll-out has restarted east-2, whose image takes its time."""

    is_pulling = False

    def start_pods(self) -> None:
        if not self.is_pulling:
            super().start_pods()

    def pull(self) -> None:
        self.is_pulling = True
        for name in FIVE:
            self.change(
                "Pod",
                name,
                lambda body: body["metadata"]["labels"].update({"controller-revision-hash": "r2"}),
            )
        self.change("Pod", "east-2", lambda body: body.update(status={}))
        labels = self.kube.objects["StatefulSet", NS, "east"]["spec"]["volumeClaimTemplates"][0]["metadata"][
            "labels"
        ]
        claim = {"name": "data-east-2", "namespace": NS, "labels": labels}
        self.kube.put({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim})
        self.change("StatefulSet", "east", lambda body: body["status"].update(updateRevision="r2"))
        turn = {"revision": "r2", "updated": 5, "broker": "east-2", "since": timestamp(self.clock.now())}
        self.change("Cluster", "east", lambda body: body["status"].update(rollout=turn))
        self.lose("east-2")


@pytest.mark.covers("MR-2", "OP-3")
async def test_a_broker_that_a_roll_out_restarts_is_waited_for_longer_and_not_for_ever() -> None:
    world = Restarting()
    await world.converge()
    world.pull()
    await world.wait(300)
    assert world.repairs() == {}, "an image that is being pulled is no lost disk"
    assert world.replication["lost"] == ["east-2"]
    assert condition(world.status(Key("Cluster", NS, "east")), "Synced")["reason"] == "RollingOut"
    await world.wait(305)
    (repair,) = world.repairs().values()
    assert repair["spec"]["repair"]["replace"] == ["east-2"]
    assert condition(world.status(Key("Cluster", NS, "east")), "Synced")["reason"] == "RolloutStopped"


@pytest.mark.covers("MR-6", "MR-3")
async def test_two_a_person_adds_one_at_the_same_time_and_both_stay(world: Repairing) -> None:
    world.lose("east-2")
    await world.wait(65)
    assert len(world.repairs()) == 1
    world.change("Stream", "flights", lambda body: body["spec"].update(replicas=4))
    await world.converge()
    assert (
        "after it comes the change of spec.replicas to 4"
        in condition(world.status(STREAM), "Synced")["message"]
    )
    world.finish()
    await world.converge()
    added = world.brokers.moves.running["flights"]
    added["targets"] = [f"{name}@a" for name in ("east-0", "east-1", "east-3", "east-4")]
    world.finish()
    await world.wait(120)
    assert sorted(world.brokers.members["flights"]) == ["east-0", "east-1", "east-3", "east-4"]
    assert len(world.brokers.moves.started) == 2
    assert world.replication["usable"] == 4


@pytest.mark.covers("MR-6")
async def test_three_the_node_is_back_in_time_and_nothing_is_done(world: Repairing) -> None:
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(failureRecoveryInterval="90s"))
    world.lose("east-2")
    await world.wait(60)
    world.give_back("east-2")
    await world.wait(10)
    await world.wait(120)
    assert world.repairs() == {}
    assert world.brokers.moves.started == []
    assert world.replication["usable"] == 3


@pytest.mark.covers("MR-6")
async def test_a_node_that_flaps_every_half_interval_is_never_replaced(world: Repairing) -> None:
    for _ in range(5):
        world.lose("east-2")
        await world.wait(30)
        world.give_back("east-2")
        await world.wait(30)
    assert world.repairs() == {}


@pytest.mark.covers("MR-6")
async def test_a_replica_that_comes_back_while_its_repair_waits_stays(world: Repairing) -> None:
    world.brokers.moves.running["other"] = {"id": "x", "nodes": ["east-0"], "startedNs": 1}
    world.lose("east-2")
    await world.wait(65)
    assert [body["status"]["phase"] for body in world.repairs().values()] == ["Queued"]
    world.give_back("east-2")
    await world.wait(5)
    assert world.repairs() == {}
    assert "RepairWithdrawn" in world.told()
    assert world.brokers.moves.started == []


@pytest.mark.covers("MR-6")
async def test_one_that_came_back_after_the_look_is_left_alone_by_the_brokers(world: Repairing) -> None:
    world.brokers.moves.not_dead = {"east-2"}
    world.lose("east-2")
    await world.wait(65)
    (repair,) = world.repairs().values()
    assert (repair["status"]["phase"], "nothing is to be repaired" in repair["status"]["message"]) == (
        "Cancelled",
        True,
    )
    await world.wait(30)
    assert len(world.repairs()) == 1, "not tried again before another interval has passed"
    world.brokers.moves.not_dead = set()
    await world.wait(40)
    assert sorted(body["status"]["phase"] for body in world.repairs().values()) == ["Cancelled", "Running"]


@pytest.mark.covers("MR-2")
async def test_a_copy_of_no_use_on_a_broker_that_is_there_is_exchanged_after_the_interval(
    world: Repairing,
) -> None:
    world.spoil("east-2")
    await world.wait(50)
    assert world.repairs() == {}
    assert world.replication["lost"] == ["east-2"]
    told = condition(world.status(STREAM), "Whole")
    assert (told["reason"], "east-2 may come back" in told["message"]) == ("LostReplicas", True)
    await world.wait(15)
    (repair,) = world.repairs().values()
    assert repair["spec"]["repair"]["replace"] == ["east-2"]
    assert "in contact and without a usable copy since" in repair["spec"]["repair"]["reason"]
    assert world.status(SC)["repair"]["lostBrokers"] == [], "the broker itself is not lost"
    world.finish()
    world.give_back("east-2")
    await world.wait(10)
    assert world.replication["usable"] == 3
    assert len(world.repairs()) == 1
    assert "repair" not in world.status(SC)


@pytest.mark.covers("MR-2", "MR-6")
async def test_one_whose_disk_works_again_while_its_repair_waits_stays(world: Repairing) -> None:
    world.brokers.moves.running["other"] = {"id": "x", "nodes": ["east-0"], "startedNs": 1}
    world.spoil("east-2")
    await world.wait(65)
    assert [body["status"]["phase"] for body in world.repairs().values()] == ["Queued"]
    world.give_back("east-2")
    await world.wait(5)
    assert world.repairs() == {}
    assert world.brokers.moves.started == []


async def test_a_copy_of_another_stream_or_account_says_nothing_about_this_one(world: Repairing) -> None:
    world.spoil("east-2", "other")
    world.brokers.known["east-1"] |= {"unusable": [{"account": "B", "name": "flights", "sinceNs": 1}]}
    await world.wait(120)
    assert world.repairs() == {}


@pytest.mark.covers("SF-25")
async def test_the_stream_says_at_which_entry_its_copies_halted(world: Repairing) -> None:
    why = "an error in the broker at entry 17 (payload digest 8d5e957f297893aa): OverflowError: int too big"
    for name in FIVE[:3]:
        world.spoil(name, why=why)
    await world.wait(65)
    ready = condition(world.status(STREAM), "Whole")
    assert ready["reason"] == "NoLeader"
    assert "no majority (lost: east-0, east-1, east-2)" in ready["message"]
    assert f"east-0, east-1, east-2: {why}" in ready["message"]


@pytest.mark.covers("MR-7", "MR-2")
async def test_without_a_spare_broker_a_condition_says_so_and_nothing_is_made(world: Repairing) -> None:
    for name in ("east-3", "east-4"):
        world.brokers.known[name]["leaves"] = True
    world.lose("east-2")
    await world.wait(65)
    assert world.repairs() == {}
    ready = condition(world.status(STREAM), "Whole")
    assert ready["reason"] == "LostReplicas"
    assert "no broker can take a replica in the place of east-2: east-3 goes for good" in ready["message"]
    version = world.kube.objects[("SuperCluster", NS, "demo")]["metadata"]["resourceVersion"]
    await world.wait(60)
    await world.wait(60)
    assert world.kube.objects[("SuperCluster", NS, "demo")]["metadata"]["resourceVersion"] == version


@pytest.mark.covers("MR-5")
async def test_zones_and_cordons_of_kubernetes_nodes_count(world: Repairing) -> None:
    for number, zone in enumerate("abcac"):
        node = {"name": f"node-{number}", "namespace": "", "labels": {ZONE_LABEL: zone}}
        world.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": node, "spec": {}})
    world.lose("east-2")
    await world.wait(65)
    (repair,) = world.repairs().values()
    assert repair["spec"]["repair"]["nodes"] == ["east-0", "east-1", "east-4"], "its zone has no replica yet"
    world.finish()
    await world.converge()
    world.change_node("node-3", unschedulable=True)
    world.lose("east-1")
    await world.wait(100)
    assert len(world.repairs()) == 1
    told = condition(world.status(STREAM), "Whole")["message"]
    assert "east-3 runs on a Kubernetes node that is cordoned" in told
    world.change_node("node-3", unschedulable=False)
    await world.wait(35)
    assert len(world.repairs()) == 2


@pytest.mark.covers("MR-2")
async def test_two_nodes_lost_one_after_the_other(world: Repairing) -> None:
    world.lose("east-2")
    await world.wait(65)
    world.finish()
    await world.converge()
    world.lose("east-1")
    await world.wait(65)
    assert len(world.brokers.moves.started) == 2
    world.finish()
    await world.converge()
    assert sorted(world.brokers.members["flights"]) == ["east-0", "east-3", "east-4"]
    assert world.replication["usable"] == 3


async def test_streams_that_no_resource_declares_are_repaired_by_a_pattern_only(world: Repairing) -> None:
    world.brokers.streams["Undeclared_1"] = {
        "name": "Undeclared_1",
        "num_replicas": 3,
        "placement": {"cluster": "east"},
    }
    world.lose("east-2")
    await world.wait(65)
    whom = sorted(str(body["spec"].get("stream")) for body in world.repairs().values())
    assert whom == ["None", "Undeclared_1"]
    names = sorted(world.repairs())
    assert names[1].startswith("undeclared-1-repair-")


@pytest.mark.covers("MR-3")
async def test_a_persons_removal_below_the_minimum_is_refused(world: Repairing) -> None:
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(minReplicas=3))
    world.change("Stream", "flights", lambda body: body["spec"].update(replicas=1))
    await world.converge()
    synced = condition(world.status(STREAM), "Synced")
    assert (synced["status"], synced["reason"]) == ("False", "BelowMinimum")
    assert "ReplicaPolicy keep keeps at least 3: the stream stays at 3" in synced["message"]
    assert world.brokers.moves.started == []
    world.change("Stream", "flights", lambda body: body["spec"].update(minReplicas=1))
    await world.converge()
    assert len(world.brokers.moves.started) == 1, "the stream's own word comes first"


@pytest.mark.covers("MR-1", "MR-3")
async def test_the_super_clusters_minimum_counts_where_no_policy_has_one(world: Repairing) -> None:
    world.change("SuperCluster", "demo", lambda body: body["spec"].update(repair={"minReplicas": 2}))
    await world.converge()
    assert (world.replication["minimum"], world.replication["decidedBy"]) == (2, "SuperCluster demo")
    assert (
        "spec.minReplicas of ReplicaPolicy keep is unset, and spec.repair.minReplicas"
        in world.replication["reason"]
    )
    world.change("Stream", "flights", lambda body: body["spec"].update(replicas=1))
    await world.converge()
    synced = condition(world.status(STREAM), "Synced")
    assert "SuperCluster demo keeps at least 2: the stream stays at 3" in synced["message"]
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(minReplicas=3))
    await world.converge()
    assert (world.replication["minimum"], world.replication["decidedBy"]) == (3, "ReplicaPolicy keep")


@pytest.mark.covers("OP-4")
async def test_an_operator_that_is_killed_at_any_call_of_a_repair_makes_one() -> None:
    for number in range(0, 400, every(7)):
        world = Repairing()
        await world.converge()
        world.lose("east-2")
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
        assert len(world.repairs()) == 1
        assert len(world.brokers.moves.started) == 1
        world.finish()
        await world.converge()
        assert [body["status"]["phase"] for body in world.repairs().values()] == ["Succeeded"]
        if not died:
            assert number > 10
            return
    raise AssertionError("a repair takes more calls than were tried")


@pytest.mark.covers("MR-5", "OP-2", "OP-4")
async def test_brokers_are_told_of_cordoned_nodes_and_of_the_spec_and_of_their_end(world: Repairing) -> None:
    def cordoned() -> dict[str, str]:
        found = {name: told.get("cordoned") for name, told in world.brokers.known.items()}
        return {name: told["reason"] for name, told in found.items() if told}

    await world.wait(5)
    assert not [call for call in world.brokers.calls if call.startswith("cordon")], "they do not say"
    for told in world.brokers.known.values():
        told["cordoned"] = None
    node = {"name": "node-3", "namespace": ""}
    world.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": node, "spec": {"unschedulable": True}})
    await world.wait(35)
    assert cordoned() == {"east-3": "Kubernetes node node-3 is cordoned"}
    world.change("Cluster", "east", lambda body: body["spec"].update(cordoned=["east-4"]))
    await world.wait(5)
    assert cordoned()["east-4"] == "spec.cordoned of Cluster east"
    world.brokers.known["east-0"]["cordoned"] = {"reason": "by hand", "declaredBy": ""}
    world.change_node("node-3", unschedulable=False)
    world.change("Cluster", "east", lambda body: body["spec"].pop("cordoned"))
    await world.wait(35)
    assert cordoned() == {"east-0": "by hand"}
    assert {"BrokerCordoned", "BrokerUncordoned"} <= set(world.told())
    calls = world.brokers.calls.count("cordon east-3")
    await world.wait(35)
    assert world.brokers.calls.count("cordon east-3") == calls
    world.lose("east-2")
    await world.wait(65)
    (repair,) = world.repairs().values()
    assert "east-0" in repair["spec"]["repair"]["nodes"], "it has a copy, and keeps it"


@pytest.mark.covers("MR-5", "OP-2")
async def test_a_drained_nodes_cordon_reaches_the_brokers_while_the_first_pod_goes(world: Repairing) -> None:
    """O31: nodes are looked at every 30 s, and a drain is over before."""
    for told in world.brokers.known.values():
        told["cordoned"] = None
    node = {"name": "node-3", "namespace": ""}
    world.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": node, "spec": {}})
    await world.wait(35)
    world.change_node("node-3", unschedulable=True)
    await world.round(SC)
    east: Any = world.brokers.known["east-3"]
    assert not east["cordoned"], "looked at a moment ago"
    # It takes its time to end.
    world.change("Pod", "east-3", lambda body: body["metadata"].update(finalizers=["test/grace"]))
    world.delete(Key("Pod", NS, "east-3"))
    pod = world.kube.objects["Pod", NS, "east-3"]
    assert SC in set(concerned(RECONCILERS, world.cache, pod))
    await world.round(SC)
    assert east["cordoned"]["reason"] == "Kubernetes node node-3 is cordoned"
    asked = world.kube.calls.count("get Node node-3")
    assert asked
    await world.round(SC)
    assert world.kube.calls.count("get Node node-3") == asked, "once for each pod that goes"


@pytest.mark.covers("MR-2", "OP-4")
async def test_a_secret_of_somebody_elses_keeps_no_replica_from_being_replaced(world: Repairing) -> None:
    """The one for applications: somebody has put another one in its place."""
    del world.kube.objects["Secret", NS, "demo-client"]
    theirs = {"name": "demo-client", "namespace": NS}
    world.kube.put({"apiVersion": "v1", "kind": "Secret", "metadata": theirs, "data": {}})
    world.restart()
    world.lose("east-2")
    await world.wait(65)
    assert "flights" in world.brokers.moves.running
    accepted = condition(world.status(SC), "Accepted")
    assert accepted["status"] == "False"
    assert "Secret demo-client exists in namespace" in accepted["message"]


@pytest.mark.covers("MR-5", "OP-2")
async def test_a_strategy_of_the_super_cluster_that_nobody_knows_is_told_and_all_else_goes_on(
    world: Repairing,
) -> None:
    del world.kube.objects["ReplicaPolicy", NS, "keep"]
    world.restart()
    repair = {"placementStrategy": "nope", "checkInterval": "1s"}
    world.change("SuperCluster", "demo", lambda body: body["spec"].update(repair=repair))
    world.change("Cluster", "east", lambda body: body["spec"].update(cordoned=["east-4"]))
    world.brokers.known["east-4"]["cordoned"] = None
    await world.converge()
    accepted = condition(world.status(SC), "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "UnknownStrategy")
    told = "spec.repair.placementStrategy is nope, and there is no such one; known are least-loaded, most-free-disk, spread-zones"
    assert told in accepted["message"]
    assert condition(world.status(SC), "Whole")["status"] == "True"
    assert condition(world.status(SC), "Synced")["status"] == "True"
    assert world.brokers.known["east-4"]["cordoned"]["reason"] == "spec.cordoned of Cluster east"
    world.lose("east-2")
    await world.wait(65)
    assert world.repairs() == {}
    world.change("SuperCluster", "demo", lambda body: body["spec"]["repair"].pop("placementStrategy"))
    await world.converge()
    assert condition(world.status(SC), "Accepted")["status"] == "True"
    assert len(world.repairs()) == 1


@pytest.mark.covers("MR-1", "SF-23")
async def test_a_policy_tells_of_streams_that_no_resource_declares_and_its_pattern_means(
    world: Repairing,
) -> None:
    other = Key("ReplicaPolicy", NS, "other")
    world.brokers.streams["orders"] = {"name": "orders", "num_replicas": 3, "subjects": ["orders"]}
    selector = {"namePattern": "ord*"}
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(selector=selector))
    world.declare(
        "ReplicaPolicy", "other", superCluster="demo", selector={"namePattern": "orde*"}, minReplicas=1
    )
    await world.converge()
    warnings = condition(world.status(POLICY), "Warning")
    assert (warnings["status"], warnings["reason"]) == ("True", "PolicyConflict")
    assert (
        "ReplicaPolicy other, by its namePattern orde* streams with names such as orde" in warnings["message"]
    )
    assert world.status(POLICY)["conflicts"] == ["other"]
    assert world.status(other)["conflicts"] == ["keep"]
    world.change("ReplicaPolicy", "other", lambda body: body["spec"].update(weight=1))
    await world.converge()
    assert condition(world.status(POLICY), "Warning")["status"] == "False"
    assert world.status(POLICY)["conflicts"] == []
    world.lose("east-2")
    await world.wait(30)
    assert world.status(other).get("belowMinimum", 0) == 0, "one of three will do"
    assert world.status(POLICY).get("belowMinimum", 0) == 0, "orders is not its to keep up"
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(weight=2))
    await world.converge()
    assert world.status(SC)["repair"]["undeclared"] == [
        {"policy": "keep", "belowMinimum": 1, "names": ["orders"]}
    ]
    ready = condition(world.status(POLICY), "Whole")
    assert (ready["status"], ready["reason"]) == ("False", "LostReplicas")
    assert ready["message"] == "1 streams have fewer usable replicas than they must have: orders"
    assert world.status(POLICY)["belowMinimum"] == 1
    assert condition(world.status(other), "Whole")["status"] == "True"
    await world.wait(35)
    assert (world.status(POLICY)["repairing"], world.status(other).get("repairing", 0)) == (1, 0)
    world.finish("flights")
    await world.wait(5)
    world.finish("orders")
    await world.wait(5)
    ready = condition(world.status(POLICY), "Whole")
    assert ready["status"] == "True"
    assert ready["message"].endswith("by the SuperCluster's last look at the brokers")
    assert world.status(POLICY)["belowMinimum"] == world.status(POLICY)["repairing"] == 0


@pytest.mark.covers("MR-4")
async def test_a_clock_that_was_ahead_keeps_no_repair_from_being_tried_again(world: Repairing) -> None:
    world.lose("east-2")
    await world.wait(65)
    day_ms, right = 86_400_000, world.brokers.now_ns
    world.clock.ms += day_ms
    world.brokers.now_ns = lambda: right() - day_ms * 1_000_000
    world.finish(outcome="cancelled", reason="nobody can join")
    await world.converge()
    world.clock.ms -= day_ms
    world.brokers.now_ns = right
    await world.wait(120)
    assert len(world.brokers.moves.started) == 2


@pytest.mark.covers("MR-1")
async def test_why_a_repair_is_made_says_whose_minimum_it_is_and_that_one_is_kept_to_spare(
    world: Repairing,
) -> None:
    world.change("ReplicaPolicy", "keep", lambda body: body["spec"].update(minReplicas=2))
    world.lose("east-2")
    await world.wait(65)
    (made,) = world.repairs().values()
    assert (
        "2 of at least 3 replicas usable (minimum 2 by ReplicaPolicy keep; one more than a majority is kept up)"
        in (made["spec"]["repair"]["reason"])
    )
