"""Whole rounds against a fake API server and fake brokers: from nothing to ready, drift, failures, kills (OP-2, OP-4)."""

from __future__ import annotations

import copy
import itertools
import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from tests.reconcilers.builders import DEFAULTS, clone, condition
from tests.reconcilers.fakes import FakeBrokers, FakeKube, VirtualClock
from tests.support.tiers import every

from supercluster.api import SuperCluster
from supercluster.reconcilers.execute.executor import Executor
from supercluster.reconcilers.execute.tools import Tools
from supercluster.reconcilers.handlers.rounds import Rounds
from supercluster.reconcilers.kinds.reconcilers import RECONCILERS
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.planners.map_majority import LOOK_MS
from supercluster.reconcilers.planners.stream.config import META_RESOURCE
from supercluster.reconcilers.planners.super_cluster.map_recovery import recovery_id
from supercluster.reconcilers.ports import (
    BrokersRefusedError,
    BrokersUnreachableError,
    Key,
    KubeError,
)
from supercluster.reconcilers.worker import Outcome

NS = "demo-ns"
DELETED = {"deletionTimestamp": "2026-01-02T00:00:00Z"}
SC, CLUSTER, STREAM = (
    Key("SuperCluster", NS, "demo"),
    Key("Cluster", NS, "east"),
    Key("Stream", NS, "flights"),
)


class KilledError(Exception):
    """The process ends here."""


class World:
    """A namespace, its brokers, and an operator that can be killed at any call and started again."""

    def __init__(self) -> None:
        self.kube, self.brokers, self.clock = FakeKube(), FakeBrokers(), VirtualClock()
        self.passwords = 0
        self.restart()
        self.declare("SuperCluster", "demo")
        self.declare("Cluster", "east", superCluster="demo")
        self.declare("Stream", "flights", superCluster="demo", subjects=["flights.>"])

    def restart(self) -> None:
        """A new process: it knows nothing but what it can see."""
        self.cache = ObjectCache()
        executor = Executor(Tools(self.kube, self.brokers, self.cache, self._password, now=self.clock.now))
        self.rounds = Rounds(self.kube, self.brokers, self.cache, executor, self.clock, DEFAULTS)

    @property
    def num_calls(self) -> int:
        """What the operator asked of Kubernetes and of brokers so far."""
        return len(self.kube.calls) + len(self.brokers.calls)

    def die_at_call(self, number: int) -> None:
        """Kill the operator at a call, counted from here on; none after it fails."""
        calls = itertools.count()

        def die(_: str) -> Exception | None:
            return KilledError() if next(calls) == number else None

        self.kube.fail = self.brokers.fail = die

    def fail_one_write(self, error: KubeError) -> None:
        failures = [error]

        def fail(call: str) -> Exception | None:
            return None if call.startswith(("get", "list")) or not failures else failures.pop()

        self.kube.fail = fail

    def change(self, kind: str, name: str, edit: Callable[[Any], None]) -> None:
        """Somebody changes an object."""
        body = clone(self.kube.objects[(kind, NS, name)])
        edit(body)
        self.kube.put(body)

    def delete(self, key: Key) -> None:
        """Somebody asks for a deletion; finalizers hold it up."""
        self.change(key.kind, key.name, lambda body: body["metadata"].update(DELETED))

    def _password(self) -> str:
        self.passwords += 1
        return f"secret-{self.passwords}"

    def declare(self, kind: str, name: str, /, **spec: Any) -> None:
        self.kube.put(
            {
                "apiVersion": "supercluster.dev/v1alpha1",
                "kind": kind,
                "metadata": {"name": name, "namespace": NS},
                "spec": spec,
            }
        )

    async def round(self, key: Key) -> Outcome:
        self.kube.show(self.cache)
        return await self.rounds.reconcile(key)

    async def converge(self) -> None:
        """Rounds of everything, pods started by hand, until nothing is written any more."""
        for _ in range(10):
            calls = len(self.kube.calls)
            for kind, _, name in list(self.kube.objects):
                if kind in RECONCILERS:
                    await self.round(Key(kind, NS, name))
            self.start_pods()
            if not [call for call in self.kube.calls[calls:] if not call.startswith("get")]:
                return
        raise AssertionError(f"does not converge: {self.kube.calls[-20:]}")

    def start_pods(self) -> None:
        for cluster in ("east", "west"):
            stateful_set = self.kube.objects.get(("StatefulSet", NS, cluster))
            if stateful_set is not None:
                self._start_pods_of(cluster, stateful_set)

    def _start_pods_of(self, cluster: str, stateful_set: Mapping[str, Any]) -> None:
        self.kube.put({**stateful_set, "status": {"updateRevision": "r1", "observedGeneration": 1}})
        for number in range(stateful_set["spec"]["replicas"]):
            self.kube.put(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": f"{cluster}-{number}",
                        "namespace": NS,
                        "ownerReferences": [{"kind": "StatefulSet", "uid": stateful_set["metadata"]["uid"]}],
                        "labels": {
                            **stateful_set["spec"]["template"]["metadata"]["labels"],
                            "controller-revision-hash": "r1",
                        },
                    },
                    "spec": {"nodeName": f"node-{number}"},
                    "status": {
                        "podIP": f"127.77.0.{number}",
                        "conditions": [{"type": "Ready", "status": "True"}],
                        "containerStatuses": [{"name": "broker", "ready": True, "state": {"running": {}}}],
                    },
                }
            )

    def status(self, key: Key) -> Mapping[str, Any]:
        status: Mapping[str, Any] = self.kube.objects[(key.kind, key.namespace, key.name)].get("status", {})
        return status

    def secret(self, name: str) -> dict[str, str]:
        data = self.kube.objects[("Secret", NS, name)]["data"]
        return {key: b64decode(value).decode() for key, value in data.items()}

    def told(self) -> list[str]:
        return [str(note.reason) for note in self.kube.events]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.covers("SF-26", "OP-3")
async def test_brokers_are_told_to_join_only_without_a_restart_and_for_good(world: World) -> None:
    def settings() -> dict[str, Any]:
        config = world.kube.objects[("ConfigMap", NS, "east-config")]
        found: dict[str, Any] = json.loads(config["data"]["broker.json"])
        return found

    world.brokers.is_fresh = False
    await world.converge()
    assert "joinOnly" not in settings()
    template = clone(world.kube.objects[("StatefulSet", NS, "east")]["spec"]["template"])
    world.brokers.is_fresh = True
    await world.converge()
    assert settings()["joinOnly"] is True
    assert world.kube.objects[("StatefulSet", NS, "east")]["spec"]["template"] == template
    # The brokers are out of reach, and the resources come out of a backup, which has no status.
    world.brokers.fail = lambda _: BrokersUnreachableError("cut off")
    for kind, name in (("SuperCluster", "demo"), ("Cluster", "east")):
        world.change(kind, name, lambda body: body.pop("status"))
    world.restart()
    for key in (CLUSTER, SC, CLUSTER, CLUSTER, SC):
        await world.round(key)
        assert settings()["joinOnly"] is True, key
    assert world.status(SC)["founder"]["begun"] is True


async def test_from_manifests_to_ready(world: World) -> None:
    await world.converge()
    for key in (SC, CLUSTER, STREAM):
        assert condition(world.status(key), "Whole")["status"] == "True", key
        assert condition(world.status(key), "Synced")["status"] == "True", key
    assert world.brokers.streams["flights"]["metadata"][META_RESOURCE] == f"{NS}/flights"
    assert {kind for kind, _, _ in world.kube.objects} >= {"StatefulSet", "Service", "ConfigMap", "Secret"}
    users = json.loads(world.secret("demo-credentials")["users.json"])["users"]
    assert [(user["user"], user["role"], user["account"]) for user in users] == [
        ("app", "client", "$G"),
        ("operator", "operator", "$G"),
    ]
    route = json.loads(world.secret("demo-credentials")["cluster.json"])
    gateway = json.loads(world.secret("demo-credentials")["gateway.json"])
    for link in (route, gateway):
        assert link["accept"] == [link["send"]]
    assert route["send"] != gateway["send"]
    client = world.secret("demo-client")
    assert client["password"] == users[0]["password"]
    assert client["url"] == "nats://east.demo-ns.svc:4222"


@pytest.mark.covers("OP-2")
async def test_a_converged_world_is_only_read(world: World) -> None:
    await world.converge()
    writes = [call for call in world.kube.calls if not call.startswith("get")]
    asked = len(world.brokers.calls)
    for key in (SC, CLUSTER, STREAM):
        await world.round(key)
    assert [call for call in world.kube.calls if not call.startswith("get")] == writes
    assert world.brokers.calls[asked:] == ["brokers", "accounts", "restart", "info"]


@pytest.mark.covers("CL-6", "OP-1")
async def test_a_second_cluster_joins_and_streams_are_placed_in_either(world: World) -> None:
    await world.converge()
    world.declare("Cluster", "west", superCluster="demo")
    world.declare("Stream", "trains", superCluster="demo", subjects=["t"], placement={"cluster": "west"})
    await world.converge()
    told = {
        name: json.loads(world.kube.objects[("ConfigMap", NS, f"{name}-config")]["data"]["broker.json"])
        for name in ("east", "west")
    }
    assert told["east"]["metaVoters"] == told["west"]["metaVoters"] == ["east-0", "east-1", "east-2"]
    assert list(told["east"]["gateways"]) == ["west"]
    assert list(told["west"]["gateways"]) == ["east"]
    assert world.brokers.streams["trains"]["placement"] == {"cluster": "west"}
    assert {member["name"] for member in world.status(SC)["members"]} == {"east", "west"}
    assert condition(world.status(SC), "Whole")["status"] == "True"
    assert not [call for call in world.kube.calls if call.startswith("delete Pod")]


@pytest.mark.covers("OP-4")
@pytest.mark.covers("CL-6")
async def test_the_status_says_what_is_lost_with_a_cluster_that_is_out_of_contact(world: World) -> None:
    world.declare("Cluster", "west", superCluster="demo")
    await world.converge()
    status = world.kube.objects[("SuperCluster", NS, "demo")]["status"]
    assert condition(status, "Whole")["status"] == "True"
    world.brokers.lost = ["cluster west is out of contact (3 brokers): no stream can be created"]
    await world.round(SC)
    ready = condition(world.kube.objects[("SuperCluster", NS, "demo")]["status"], "Whole")
    assert (ready["status"], ready["reason"]) == ("False", "ClusterUnreachable")
    assert ready["message"] == world.brokers.lost[0], "all pods may be ready: the network is not"
    world.brokers.fail = lambda call: BrokersUnreachableError("nobody") if call == "brokers" else None
    await world.round(SC)
    ready = condition(world.kube.objects[("SuperCluster", NS, "demo")]["status"], "Whole")
    assert ready["status"] == "True", "brokers that do not say are for their Clusters' conditions to tell"


async def test_a_status_that_was_lost_is_found_again_from_what_runs(world: World) -> None:
    await world.converge()
    world.change("SuperCluster", "demo", lambda body: body.pop("status"))
    world.change("Cluster", "east", lambda body: body.pop("status"))
    world.declare("Cluster", "alpha", superCluster="demo")
    world.change(
        "Cluster", "alpha", lambda body: body["metadata"].update(creationTimestamp="2025-01-01T00:00:00Z")
    )
    await world.converge()
    assert world.status(SC)["founder"]["brokers"] == ["east-0", "east-1", "east-2"]
    assert world.status(Key("Cluster", NS, "alpha"))["metaVoters"] == ["east-0", "east-1", "east-2"]


@pytest.mark.covers("OP-2")
async def test_no_annotation_or_label_is_put_on_users_objects(world: World) -> None:
    await world.converge()
    for key in (SC, CLUSTER, STREAM):
        metadata = world.kube.objects[(key.kind, NS, key.name)]["metadata"]
        assert not metadata.keys() & {"annotations", "labels"}


@pytest.mark.covers("OP-2")
async def test_drift_on_both_sides_is_repaired_with_an_event(world: World) -> None:
    await world.converge()
    world.change("StatefulSet", "east", lambda body: body["spec"].update(replicas=0))
    world.brokers.streams["flights"]["max_msgs"] = 1
    world.kube.events.clear()
    await world.converge()
    assert world.kube.objects[("StatefulSet", NS, "east")]["spec"]["replicas"] == 3
    assert world.brokers.streams["flights"]["max_msgs"] == -1
    assert world.told().count("DriftRepaired") == 2
    del world.brokers.streams["flights"]
    await world.converge()
    assert "flights" in world.brokers.streams
    assert "StreamLost" in world.told()
    # O25: it serves, and what it lacks is said for as long as the resource is there.
    assert condition(world.status(STREAM), "Whole")["status"] == "True"
    for _ in range(2):
        lost = condition(world.status(STREAM), "MessagesLost")
        assert (lost["status"], lost["reason"]) == ("True", "StreamRecreated")
        assert "its messages are lost, 4 up to sequence 4 when" in lost["message"]
        await world.clock.advance(60_000)
        await world.converge()


@pytest.mark.covers("SF-23")
async def test_streams_that_nobody_declared_are_left_alone(world: World) -> None:
    world.brokers.streams["mine"] = {"name": "mine", "subjects": ["mine"], "num_replicas": 1}
    await world.converge()
    world.delete(STREAM)
    await world.round(STREAM)
    assert world.brokers.streams["mine"] == {"name": "mine", "subjects": ["mine"], "num_replicas": 1}


@pytest.mark.covers("OP-5")
@pytest.mark.parametrize(("policy", "stays"), [("Retain", True), ("Delete", False)])
async def test_deleting_a_stream_does_what_its_policy_says(world: World, policy: str, stays: bool) -> None:
    world.change("Stream", "flights", lambda body: body["spec"].update(deletionPolicy=policy))
    await world.converge()
    world.delete(STREAM)
    await world.round(STREAM)
    assert ("Stream", NS, "flights") not in world.kube.objects
    assert ("flights" in world.brokers.streams) is stays
    if stays:
        assert META_RESOURCE not in world.brokers.streams["flights"]["metadata"]


@pytest.mark.covers("OP-4")
async def test_an_operator_killed_at_any_call_is_taken_over_without_loss() -> None:
    whole = World()
    await whole.converge()
    total = whole.num_calls
    for fatal in range(0, total, every(5)):
        world = World()
        world.die_at_call(fatal)
        try:
            await world.converge()
        except KilledError:
            world.restart()
        await world.converge()
        assert condition(world.status(STREAM), "Whole")["status"] == "True", f"killed at call {fatal}"
        users = json.loads(world.secret("demo-credentials")["users.json"])["users"]
        assert len(users) == 2, f"killed at call {fatal}"
        assert world.brokers.created == ["flights"], f"killed at call {fatal}"


@pytest.mark.covers("OP-4", "OP-5")
@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_an_operator_killed_during_a_deletion_is_taken_over(policy: str) -> None:
    async def deleted() -> World:
        world = World()
        world.change("Stream", "flights", lambda body: body["spec"].update(deletionPolicy=policy))
        await world.converge()
        world.delete(STREAM)
        return world

    whole = await deleted()
    before = whole.num_calls
    await whole.round(STREAM)
    total = whole.num_calls - before
    assert total > 1
    for fatal in range(0, total, every(5)):
        world = await deleted()
        world.die_at_call(fatal)
        with pytest.raises(KilledError):
            await world.round(STREAM)
        world.restart()
        await world.round(STREAM)
        assert ("Stream", NS, "flights") not in world.kube.objects, f"killed at call {fatal}"
        assert ("flights" in world.brokers.streams) is (policy == "Retain"), f"killed at call {fatal}"


async def test_a_stale_look_is_taken_again_without_a_word(world: World) -> None:
    world.fail_one_write(KubeError(409, "Conflict", "modified"))
    outcome = await world.round(SC)
    assert outcome.failed
    assert world.kube.events == []
    await world.converge()


async def test_a_server_error_is_told_and_tried_again(world: World) -> None:
    world.kube.show(world.cache)
    world.fail_one_write(KubeError(500, "InternalError", "disk full"))
    outcome = await world.rounds.reconcile(SC)
    assert outcome.failed
    assert world.told() == ["StepFailed"]
    assert "disk full" in world.kube.events[0].message


async def test_words_of_the_brokers_become_a_condition(world: World) -> None:
    await world.converge()
    del world.brokers.streams["flights"]
    await world.round(STREAM)  # What is lost is written down first.
    refusal = BrokersRefusedError(400, 10065, "subjects overlap with an existing stream")
    world.brokers.fail = lambda call: refusal if call == "create" else None
    outcome = await world.round(STREAM)
    assert outcome.failed
    accepted = condition(world.status(STREAM), "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "RefusedByBrokers")
    assert "overlap" in accepted["message"]
    world.brokers.fail = lambda _: None
    await world.converge()
    assert condition(world.status(STREAM), "Accepted")["status"] == "True"


async def test_a_configuration_that_cannot_be_is_not_tried_again_and_again(world: World) -> None:
    """NATS answers with code 500 for a configuration that is none, as it does for a broker that is ill."""
    await world.converge()
    del world.brokers.streams["flights"]
    await world.round(STREAM)  # What is lost is written down first.
    refusal = BrokersRefusedError(500, 10052, "duplicates window needs to be >= 100ms")
    world.brokers.fail = lambda call: refusal if call == "create" else None
    await world.round(STREAM)
    accepted = condition(world.status(STREAM), "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "RefusedByBrokers")
    assert "duplicates window" in accepted["message"]
    assert "RefusedByBrokers" in world.told()


async def test_a_refusal_that_may_pass_is_told_with_the_words_of_the_brokers(world: World) -> None:
    await world.converge()
    del world.brokers.streams["flights"]
    await world.round(STREAM)  # What is lost is written down first.
    refusal = BrokersRefusedError(500, 10047, "insufficient storage resources available")
    world.brokers.fail = lambda call: refusal if call == "create" else None
    outcome = await world.round(STREAM)
    assert outcome.failed
    synced = condition(world.status(STREAM), "Synced")
    assert (synced["status"], synced["reason"]) == ("False", "Applying")
    assert "create stream flights" in synced["message"]
    assert "insufficient storage resources available" in synced["message"]
    world.brokers.fail = lambda _: None
    await world.converge()
    assert condition(world.status(STREAM), "Synced")["message"] == ""


async def test_overlapping_subjects_are_told_with_both_streams(world: World) -> None:
    await world.converge()
    world.declare("Stream", "newark", superCluster="demo", subjects=["a", "flights.EWR.*"])
    refusal = BrokersRefusedError(400, 10065, "subjects overlap with an existing stream")
    world.brokers.fail = lambda call: refusal if call == "create" else None
    for _ in range(3):
        await world.round(Key("Stream", NS, "newark"))
    message = condition(world.status(Key("Stream", NS, "newark")), "Accepted")["message"]
    assert message.startswith(
        "spec.subjects has flights.EWR.*, which overlaps with flights.> of stream flights"
    )
    assert f"declared by Stream {NS}/flights" in message


@pytest.mark.covers("OP-2")
async def test_a_list_that_applying_cannot_mend_is_put_back_as_a_whole(world: World) -> None:
    """A Service's ports are merged by number: with a changed one beside ours, two have the same name."""
    await world.converge()
    ports = world.kube.objects[("Service", NS, "east")]["spec"]["ports"]
    before = copy.deepcopy(ports)
    world.change("Service", "east", lambda body: body["spec"]["ports"][0].update(port=4444))
    world.kube.show(world.cache)
    world.fail_one_write(KubeError(422, "Invalid", "spec.ports: Duplicate value"))
    await world.rounds.reconcile(CLUSTER)
    assert world.kube.objects[("Service", NS, "east")]["spec"]["ports"] == before
    assert "patch Service east" in world.kube.calls
    assert condition(world.status(CLUSTER), "Accepted")["status"] == "True"


async def test_silent_brokers_are_waited_for(world: World) -> None:
    await world.converge()
    world.brokers.fail = lambda _: BrokersUnreachableError("time-out")
    await world.round(STREAM)
    assert condition(world.status(STREAM), "Whole")["reason"] == "BrokersUnreachable"
    assert world.status(STREAM)["leader"] == "east-0"


async def test_brokers_that_ignore_a_field_do_not_make_a_busy_loop(world: World) -> None:
    await world.converge()
    world.brokers.streams["flights"]["max_msgs"] = 1

    async def stubborn(target: Any, config: Mapping[str, Any]) -> dict[str, Any]:
        world.brokers.calls.append("update")
        return {"config": {**config, "max_msgs": 1}}

    world.brokers.update_stream = stubborn  # type: ignore[method-assign]
    outcome = await world.round(STREAM)
    assert outcome.failed
    assert world.brokers.calls.count("update") == 1
    assert "max_msgs" in condition(world.status(STREAM), "Accepted")["message"]


async def test_an_object_of_somebody_else_is_not_taken_over(world: World) -> None:
    world.kube.put(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "east-config", "namespace": NS},
            "data": {"a": "b"},
        }
    )
    for key in (SC, CLUSTER, CLUSTER):
        await world.round(key)
    assert world.kube.objects[("ConfigMap", NS, "east-config")]["data"] == {"a": "b"}
    accepted = condition(world.status(CLUSTER), "Accepted")
    assert accepted["status"] == "False"
    assert "was not made by" in accepted["message"]


@pytest.mark.parametrize(
    "target",
    [
        "Service east",
        "ConfigMap east-config",
        "StatefulSet east",
        "PodDisruptionBudget east",
        "Secret demo-client",
    ],
)
async def test_an_object_of_ours_without_its_labels_gets_them_again(world: World, target: str) -> None:
    await world.converge()
    kind, _, name = target.partition(" ")
    labels = world.kube.objects[(kind, NS, name)]["metadata"]["labels"]
    world.change(kind, name, lambda body: body["metadata"].pop("labels"))
    await world.converge()
    assert world.kube.objects[(kind, NS, name)]["metadata"].get("labels") == labels
    assert condition(world.status(CLUSTER), "Ready")["status"] == "True"


async def test_an_object_that_does_not_fit_the_schema_says_so(world: World) -> None:
    world.declare("Stream", "odd", superCluster="demo", subjects=["a"], replicas="many")
    await world.round(Key("Stream", NS, "odd"))
    accepted = condition(world.status(Key("Stream", NS, "odd")), "Accepted")
    assert accepted["reason"] == "InvalidObject"
    assert accepted["message"].startswith("spec.replicas is many: ")


async def test_a_password_that_is_there_is_never_made_anew(world: World) -> None:
    await world.converge()
    before = json.loads(world.secret("demo-credentials")["users.json"])["users"]
    route = world.secret("demo-credentials")["cluster.json"]
    world.change("Secret", "demo-credentials", lambda body: body["data"].pop("gateway.json"))
    await world.converge()
    assert "gateway.json" in world.secret("demo-credentials")
    assert world.secret("demo-credentials")["cluster.json"] == route
    world.change("Secret", "demo-credentials", lambda body: body["data"].pop("cluster.json"))
    await world.converge()
    assert json.loads(world.secret("demo-credentials")["users.json"])["users"] == before
    assert "cluster.json" in world.secret("demo-credentials")


@pytest.mark.covers("RP-8", "OP-4")
@pytest.mark.parametrize("call", range(8))
async def test_a_forced_recovery_is_asked_for_once_whenever_the_operator_is_killed(
    world: World, call: int
) -> None:
    await world.converge()
    annotations = {"supercluster.dev/force-recover": "east-0:4"}
    world.change("Stream", "flights", lambda body: body["metadata"].update(annotations=annotations))
    world.die_at_call(call)
    with suppress(KilledError):
        await world.converge()
    world.restart()
    world.kube.fail = world.brokers.fail = lambda _: None
    await world.converge()
    told = world.status(STREAM)["recovery"]
    assert (told["request"], told["outcome"], told["message"]) == (
        "east-0:4",
        "Recovered",
        "what east-0 lacks",
    )
    assert condition(world.status(STREAM), "Recovered")["status"] == "True"
    assert "RecoveryForced" in world.told()
    asked = world.brokers.calls.count("recover")
    await world.converge()
    assert world.brokers.calls.count("recover") == asked
    assert condition(world.status(STREAM), "Whole")["status"] == "True"


def recover_the_map(world: World, value: str) -> None:
    annotations = {"supercluster.dev/force-recover-meta": value}
    world.change("SuperCluster", "demo", lambda body: body["metadata"].update(annotations=annotations))


@pytest.mark.covers("RP-8", "OP-4")
@pytest.mark.parametrize("call", range(12))
async def test_a_forced_recovery_of_the_map_is_begun_once_whenever_the_operator_is_killed(
    world: World, call: int
) -> None:
    await world.converge()
    recover_the_map(world, "east-1:40")
    world.die_at_call(call)
    with suppress(KilledError):
        await world.converge()
    world.restart()
    world.kube.fail = world.brokers.fail = lambda _: None
    await world.converge()
    told = world.status(SC)["mapRecovery"]
    assert told == {"request": "east-1:40", "outcome": "Recovered", "message": "what east-1 lacks"}
    assert condition(world.status(SC), "Recovered")["status"] == "True"
    assert "RecoveryForced" in world.told()
    ((broker, body),) = world.brokers.map_asked
    assert (broker, body["node"], body["acceptLastIndex"]) == ("east-1", "east-1", 40)
    asked = world.brokers.calls.count("map recovery")
    await world.converge()
    assert world.brokers.calls.count("map recovery") == asked


@pytest.mark.covers("RP-8")
async def test_a_recovery_of_the_map_that_is_refused_is_no_refusal_of_the_accounts(world: World) -> None:
    await world.converge()
    world.brokers.map_alive = "a majority is in contact"
    recover_the_map(world, "east-1:40")
    await world.converge()
    assert world.status(SC)["mapRecovery"]["outcome"] == "Refused"
    assert "a majority is in contact" in world.status(SC)["mapRecovery"]["message"]
    assert condition(world.status(SC), "Accepted")["status"] == "True"
    world.brokers.map_alive = ""
    await world.converge()
    assert not world.brokers.map_asked, "a value that was refused is not tried later"
    recover_the_map(world, "east-1:40:again")
    await world.converge()
    assert world.status(SC)["mapRecovery"]["outcome"] == "Recovered"


@pytest.mark.covers("RP-8", "OP-4")
async def test_others_tell_of_a_recovery_of_the_map_when_its_broker_is_gone(world: World) -> None:
    """It was begun, the broker died behind it, and so did the operator."""
    await world.converge()
    recover_the_map(world, "east-1:40")
    world.brokers.deaf = {"east-1"}
    await world.round(SC)
    assert "mapRecovery" not in world.status(SC)
    assert "east-1 does not say" in condition(world.status(SC), "Recovered")["message"]
    whole = world.cache.parsed(SuperCluster, NS, "demo")
    assert whole is not None
    act = recovery_id(whole, "east-1:40")
    world.brokers.map_recovered = {"id": act, "known": [act], "mayLose": "the end"}
    await world.converge()
    assert world.status(SC)["mapRecovery"]["message"] == "the end"
    assert not world.brokers.map_asked


def account(world: World, name: str) -> Mapping[str, Any]:
    (found,) = [entry for entry in world.status(SC)["accounts"] if entry["name"] == name]
    return found  # type: ignore[no-any-return]


@pytest.mark.covers("OP-1", "OP-2", "SF-12")
async def test_accounts_are_declared_on_the_brokers_repaired_and_withdrawn(world: World) -> None:
    await world.converge()
    world.brokers.declared["by-hand"] = {"streamsMax": 5, "declaredBy": ""}
    limits = {"streamsMax": 2, "storageBytesMax": "1Ki"}
    world.change(
        "SuperCluster",
        "demo",
        lambda body: body["spec"].update(accounts=[{"name": "shop", "limits": limits}, {"name": "$G"}]),
    )
    await world.converge()
    declared = world.brokers.declared["shop"]
    assert (declared["streamsMax"], declared["storageBytesMax"], declared["memoryBytesMax"]) == (2, 1024, 0)
    assert declared["declaredBy"] == f"{NS}/demo"
    assert (account(world, "shop")["inForce"], account(world, "$G")["streams"]) == (True, 1)
    assert condition(world.status(SC), "Synced")["status"] == "True"
    told = world.brokers.calls.count("set account")

    world.brokers.declared["shop"]["streamsMax"] = 99
    await world.converge()
    assert world.brokers.declared["shop"]["streamsMax"] == 2
    assert "DriftRepaired" in world.told()
    assert world.brokers.calls.count("set account") == told + 1

    refusal = BrokersRefusedError(400, 10052, "streamsMax is no known field")
    world.brokers.fail = lambda call: refusal if call == "set account" else None
    world.change(
        "SuperCluster", "demo", lambda body: body["spec"]["accounts"][0]["limits"].update(streamsMax=3)
    )
    outcome = await world.round(SC)
    assert outcome.failed
    accepted = condition(world.status(SC), "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "RefusedByBrokers")
    assert "declare account shop: streamsMax is no known field" in accepted["message"]
    assert "RefusedByBrokers" in world.told()
    assert not account(world, "shop")["inForce"]

    world.brokers.fail = lambda _: None
    world.change("SuperCluster", "demo", lambda body: body["spec"].pop("accounts"))
    await world.converge()
    assert world.brokers.declared == {"by-hand": {"streamsMax": 5, "declaredBy": ""}}, "that is a person's"
    assert world.status(SC).get("accounts", []) == []
    assert condition(world.status(SC), "Accepted")["status"] == "True"


def two_accounts(world: World) -> None:
    accounts = [{"name": "shop", "limits": {"streamsMax": 2}}, {"name": "yard", "limits": {"streamsMax": 3}}]
    world.change("SuperCluster", "demo", lambda body: body["spec"].update(accounts=accounts))


@pytest.mark.covers("OP-2", "OP-3")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BrokersRefusedError(400, 10052, "streamsMax is no known field"), "RefusedByBrokers"),
        (BrokersRefusedError(503, 10008, "no leader"), "AsDeclared"),
        (BrokersUnreachableError("no broker answers"), "AsDeclared"),
    ],
)
async def test_an_account_that_fails_keeps_no_cordon_from_the_brokers(
    world: World, error: Exception, reason: str
) -> None:
    await world.converge()
    world.brokers.known = {"east-0": {"node": "east-0", "cluster": "east", "cordoned": None}}
    world.brokers.fail = lambda call: error if call == "set account" else None
    two_accounts(world)
    world.change("Cluster", "east", lambda body: body["spec"].update(cordoned=["east-0"]))
    outcome = await world.round(SC)
    assert world.brokers.known["east-0"]["cordoned"]["reason"] == "spec.cordoned of Cluster east"
    assert outcome.failed, "it is tried again"
    assert outcome.recheck_after_ms == LOOK_MS, "and what else there is to do is seen as soon as ever"
    assert condition(world.status(SC), "Accepted")["reason"] == reason
    why = "" if reason == "RefusedByBrokers" else f": {error}"
    assert condition(world.status(SC), "Synced")["message"] == f"tried again: declare account shop{why}"
    world.brokers.fail = lambda _: None
    await world.converge()
    assert sorted(world.brokers.declared) == ["shop", "yard"]
    assert condition(world.status(SC), "Synced")["status"] == "True"


@pytest.mark.covers("OP-2")
async def test_an_account_that_is_refused_holds_up_no_other_account(world: World) -> None:
    await world.converge()
    declare = world.brokers.set_account

    async def refuse_shop(target: Any, name: str, record: Mapping[str, Any] | None) -> None:
        if name == "shop":
            raise BrokersRefusedError(400, 10052, "shop is no name for an account")
        await declare(target, name, record)

    world.brokers.set_account = refuse_shop  # type: ignore[method-assign]
    two_accounts(world)
    await world.round(SC)
    assert sorted(world.brokers.declared) == ["yard"]
    accepted = condition(world.status(SC), "Accepted")
    assert (accepted["status"], accepted["message"].count("declare account")) == ("False", 1)
    await world.round(SC)
    assert condition(world.status(SC), "Accepted") == accepted
    assert world.told().count("RefusedByBrokers") == 1


@pytest.mark.covers("OP-2")
async def test_more_refusals_than_a_condition_holds_are_counted(world: World) -> None:
    await world.converge()
    refusal = BrokersRefusedError(400, 10052, "no " * 500)
    world.brokers.fail = lambda call: refusal if call == "set account" else None
    world.brokers.known = {"east-0": {"node": "east-0", "cluster": "east", "cordoned": None}}
    accounts = [{"name": f"a{number}"} for number in range(256)]
    world.change("SuperCluster", "demo", lambda body: body["spec"].update(accounts=accounts))
    world.change("Cluster", "east", lambda body: body["spec"].update(cordoned=["east-0"]))
    await world.round(SC)
    message = condition(world.status(SC), "Accepted")["message"]
    assert message.startswith("declare account a0: no no")
    assert message.endswith("; and 248 more")
    assert world.brokers.known["east-0"]["cordoned"], "they come behind all the accounts"
