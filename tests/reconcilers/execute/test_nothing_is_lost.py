"""No sequence of events, stale caches, restarts, foreign objects and mistakes has the operator delete the only copy of a message.

A model of a namespace: an API server, a cache that hears of things late or never, volumes that go with their claims, and brokers
whose copies are on these volumes. Two super-clusters take turns in having a Cluster `east`. Whatever the operator deletes is judged
by what the model knows, not by what the operator sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.reconcilers.builders import DEFAULTS, clone
from tests.reconcilers.fakes import FakeBrokers, FakeKube, VirtualClock
from tests.support.tiers import examples

from supercluster.reconcilers.execute import destructive
from supercluster.reconcilers.execute.executor import Executor
from supercluster.reconcilers.execute.tools import Tools
from supercluster.reconcilers.handlers.rounds import Rounds
from supercluster.reconcilers.kinds.reconcilers import RECONCILERS
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.planners.cluster import deletion as cluster_deletion
from supercluster.reconcilers.planners.plan import IDENTITY_ANNOTATION
from supercluster.reconcilers.ports import BrokerTarget, Json, KubeError

NS = "ns"
CLAIM = "PersistentVolumeClaim"
KINDS = (*RECONCILERS, "StatefulSet", "Pod", "Service", "ConfigMap", "Secret", CLAIM, "PodDisruptionBudget")
BROKERS = 4
MINUTE_MS = 60_000


class Ledger(FakeKube):
    """Tells of every deletion that it carried out, with the object as it was before."""

    def __init__(self, judge: Callable[[Json], None]) -> None:
        super().__init__()
        self._judge = judge

    async def delete(self, *arguments: str) -> None:
        kind, namespace, name, _, version = arguments[1:6]
        there = clone(self.objects.get((kind, namespace, name)))
        await super().delete(*arguments)
        if there is not None and there["metadata"]["resourceVersion"] == version:
            self._judge(there)


class BrokersOfAll:
    """The brokers of each super-cluster, asked by their target."""

    def __init__(self, world: Model) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def ask(target: BrokerTarget, *arguments: Any, **named: Any) -> Any:
            brokers = self._world.brokers[target.super_cluster]
            if name == "delete_stream":
                self._world.judge_stream(arguments[0])
            return await getattr(brokers, name)(target, *arguments, **named)

        return ask


class Model:
    def __init__(self) -> None:
        self.kube = Ledger(self.judge)
        self.clock = VirtualClock()
        self.brokers = {"prod": FakeBrokers(), "test": FakeBrokers()}
        for each in self.brokers.values():
            each.now_ns = lambda: int(self.clock.now().timestamp()) * 1_000_000_000
        self.holds: dict[str, set[str]] = {}
        """What is on a volume, by the uid of its claim: streams with all their messages."""
        self.passwords = 0
        self.restart()
        for name in self.brokers:
            self.declare("SuperCluster", name)
        self.cluster("prod")

    # What the operator is.

    def restart(self) -> None:
        self.cache = ObjectCache()
        self.cache.expect_lists(KINDS)
        brokers: Any = BrokersOfAll(self)
        executor = Executor(Tools(self.kube, brokers, self.cache, self._password, now=self.clock.now))
        self.rounds = Rounds(self.kube, brokers, self.cache, executor, self.clock, DEFAULTS)

    def _password(self) -> str:
        self.passwords += 1
        return f"secret-{self.passwords}"

    async def look(self) -> None:
        """One round of everything that the cache has."""
        for key in self.cache.all_keys():
            if key.kind in RECONCILERS:
                with suppress(KubeError):  # As a worker does: the next round is another try.
                    await self.rounds.reconcile(key)

    def hear(self, kind: str) -> None:
        """The watch tells of a kind, or a list of it succeeds."""
        for key in self.cache.all_keys():
            known = self.cache.get(key.kind, key.namespace, key.name)
            if key.kind == kind and known is not None and (kind, NS, key.name) not in self.kube.objects:
                self.cache.remove(known)
        for (of_kind, _, _), body in list(self.kube.objects.items()):
            if of_kind == kind and self.cache.is_ours(body):
                self.cache.put(clone(body))
        self.cache.listed(kind)

    # What people do.

    def declare(self, kind: str, name: str, **spec: Any) -> None:
        if (kind, NS, name) not in self.kube.objects:
            metadata = {"name": name, "namespace": NS}
            api_version = "supercluster.dev/v1alpha1"
            self.kube.put({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})

    def cluster(self, super_cluster: str, policy: str = "Retain") -> None:
        self.declare("Cluster", "east", superCluster=super_cluster, deletionPolicy=policy, replicas=3)

    def edit(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        body = clone(self.kube.objects.get((kind, NS, name)))
        if body is not None:
            body["spec"] = {**body["spec"], **change}
            self.kube.put(body)

    def ask_for_deletion(self, kind: str, name: str) -> None:
        body = clone(self.kube.objects.get((kind, NS, name)))
        if body is not None:
            body["metadata"].setdefault("deletionTimestamp", "2026-01-02T00:00:00Z")
            self.kube.put(body)

    def strip(self, kind: str, name: str) -> None:
        """Somebody removes labels, as a careless tool does."""
        body = clone(self.kube.objects.get((kind, NS, name)))
        if body is not None:
            body["metadata"].pop("labels", None)
            self.kube.put(body)

    # What Kubernetes does.

    def control(self) -> None:
        """The StatefulSet's controller, the nodes, and the protection of claims that are in use."""
        running = self.kube.objects.get(("StatefulSet", NS, "east"))
        wanted = running["spec"]["replicas"] if running is not None else 0
        for number in range(BROKERS):
            name = f"east-{number}"
            if number >= wanted:
                self.kube.objects.pop(("Pod", NS, name), None)
        for name in self.claims():
            body = self.kube.objects[CLAIM, NS, name]
            pod = ("Pod", NS, name.removeprefix("data-"))
            if body["metadata"].get("deletionTimestamp") and pod not in self.kube.objects:
                del self.kube.objects[CLAIM, NS, name]
        for number in range(wanted):
            self._start(f"east-{number}", running or {})
        if running is not None:
            generation = running["metadata"]["generation"]
            self.kube.put({**running, "status": {"updateRevision": "r1", "observedGeneration": generation}})
        self._tell_brokers()

    def _start(self, name: str, stateful_set: Mapping[str, Any]) -> None:
        template = stateful_set["spec"]["volumeClaimTemplates"][0]
        if (CLAIM, NS, f"data-{name}") not in self.kube.objects:
            metadata = {
                **clone(template["metadata"]),
                "name": f"data-{name}",
                "namespace": NS,
                "finalizers": ["kubernetes.io/pvc-protection"],
            }
            made = self.kube.put(
                {"apiVersion": "v1", "kind": CLAIM, "metadata": metadata, "spec": template["spec"]}
            )
            self.holds[made["metadata"]["uid"]] = set()
        if ("Pod", NS, name) in self.kube.objects:
            return
        claim = self.kube.objects[CLAIM, NS, f"data-{name}"]
        pod_template = stateful_set["spec"]["template"]["metadata"]
        is_ours_to_run = claim["metadata"].get("annotations", {}).get(IDENTITY_ANNOTATION) == self.identity(
            pod_template["labels"]["supercluster.dev/super-cluster"]
        )
        # A broker refuses the volume of another super-cluster, and a claim that goes is mounted by nobody new.
        runs = is_ours_to_run and not claim["metadata"].get("deletionTimestamp")
        crashed = {"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
        state = {"ready": True, "state": {"running": {}}} if runs else crashed
        never = claim["metadata"].get("deletionTimestamp")
        self.kube.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": NS,
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "ownerReferences": [{"kind": "StatefulSet", "uid": stateful_set["metadata"]["uid"]}],
                    "labels": {**pod_template["labels"], "controller-revision-hash": "r1"},
                },
                "spec": {"nodeName": f"node-of-{name}"},
                "status": {
                    "podIP": "127.77.0.1",
                    "conditions": [{"type": "Ready", "status": "True" if runs else "False"}],
                    "containerStatuses": [] if never else [{"name": "broker", **state}],
                },
            }
        )

    def crash(self, number: int) -> None:
        """The container ends, and is started again without end."""
        body = clone(self.kube.objects.get(("Pod", NS, f"east-{number}")))
        if body is not None:
            body["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
            waiting = {"restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
            body["status"]["containerStatuses"] = [{"name": "broker", **waiting}]
            self.kube.put(body)
        self._tell_brokers()

    def kill(self, number: int) -> None:
        self.kube.objects.pop(("Pod", NS, f"east-{number}"), None)
        self.control()

    def replace(self, number: int) -> None:
        """The pod comes back before the protection of a claim that goes lets it go."""
        running = self.kube.objects.get(("StatefulSet", NS, "east"))
        if running is not None and (CLAIM, NS, f"data-east-{number}") in self.kube.objects:
            self.kube.objects.pop(("Pod", NS, f"east-{number}"), None)
            self._start(f"east-{number}", running)
            self._tell_brokers()

    # What brokers do.

    def owner(self) -> str:
        """The super-cluster that has the Cluster now."""
        body = self.kube.objects.get(("StatefulSet", NS, "east"))
        return _super_cluster(body) if body else ""

    def identity(self, super_cluster: str) -> str:
        body = self.kube.objects.get(("SuperCluster", NS, super_cluster))
        return body["metadata"]["uid"] if body else ""

    def claims(self) -> list[str]:
        return sorted(name for kind, _, name in self.kube.objects if kind == CLAIM)

    def uid(self, broker: str) -> str:
        body = self.kube.objects.get((CLAIM, NS, f"data-{broker}"))
        return body["metadata"]["uid"] if body else ""

    def _runs(self, broker: str) -> bool:
        body = self.kube.objects.get(("Pod", NS, broker), {})
        return any("running" in each["state"] for each in body.get("status", {}).get("containerStatuses", ()))

    def _tell_brokers(self) -> None:
        name = self.owner()
        if not name:
            return
        brokers = self.brokers[name]
        for number in range(BROKERS):
            broker = f"east-{number}"
            entry = brokers.known.get(broker)
            if entry is None:
                if not self._runs(broker):
                    continue
                entry = brokers.known[broker] = {"node": broker, "cluster": "east", "votes": False}
            entry["inContact"] = self._runs(broker)
            entry["awaySinceNs"] = 0 if self._runs(broker) else 1
            on_disk = self.holds.get(self.uid(broker), set())
            entry["unusable"] = [
                {"name": each, "account": "$G"}
                for each in brokers.streams
                if broker in brokers.held(each) and f"{name}/{each}" not in on_disk
            ]

    def fill(self) -> None:
        """Copies come to be on the volumes of members, where a stream is new or has a leader."""
        name = self.owner()
        if not name:
            return
        brokers = self.brokers[name]
        for each in brokers.streams:
            mark = f"{name}/{each}"
            members = brokers.held(each)
            current = [m for m in members if self._runs(m) and mark in self.holds.get(self.uid(m), set())]
            is_new = not any(mark in held for held in self.holds.values())
            for member in members:
                if self._runs(member) and (is_new or len(current) > len(members) // 2):
                    self.holds[self.uid(member)].add(mark)
        self._tell_brokers()

    def narrow(self, number: int) -> None:
        """A client has a stream of its own with one replica."""
        name = self.owner()
        if name and self._runs(f"east-{number}"):
            self.brokers[name].streams.setdefault("own", {"name": "own", "num_replicas": 1})
            self.brokers[name].members.setdefault("own", [f"east-{number}"])
            self.fill()

    # What must not happen.

    def judge(self, gone: Json) -> None:
        """The operator deleted an object: is it a volume, or does one go with it?"""
        kind, name = gone["kind"], gone["metadata"]["name"]
        if kind == "StatefulSet":
            self._judge_end_of_brokers(_super_cluster(gone))
            return
        claim = gone
        if kind == "Pod":
            claim = self.kube.objects.get((CLAIM, NS, f"data-{name}"), {})
            if not claim or not claim["metadata"].get("deletionTimestamp"):
                return
        elif kind != CLAIM:
            return
        volume = claim["metadata"]["uid"]
        for mark in self.holds.get(volume, set()):
            others = [
                each
                for each in self.claims()
                if (uid := self.kube.objects[CLAIM, NS, each]["metadata"]["uid"]) != volume
                and mark in self.holds.get(uid, set())
            ]
            if others:
                continue
            self._judge_by_person(mark.partition("/")[0])
            identity = claim["metadata"].get("annotations", {}).get(IDENTITY_ANNOTATION)
            assert identity == self.identity(mark.partition("/")[0]), f"{name} has {mark}"

    def _judge_end_of_brokers(self, super_cluster: str) -> None:
        """Only of this Cluster, which a person deletes; its volumes stay, unless they are to go with it."""
        body = self.kube.objects.get(("Cluster", NS, "east"))
        assert body is not None, "the Cluster is not there"
        assert body["spec"]["superCluster"] == super_cluster
        assert body["metadata"].get("deletionTimestamp")
        if body["spec"]["deletionPolicy"] == "Delete":
            self._judge_by_person(super_cluster)

    def _judge_by_person(self, super_cluster: str) -> None:
        """Only a person who deletes this Cluster with all its data, and no Stream that is to be retained in it."""
        body = self.kube.objects.get(("Cluster", NS, "east"))
        assert body is not None, "the Cluster is not there"
        assert body["spec"]["superCluster"] == super_cluster
        assert body["spec"]["deletionPolicy"] == "Delete"
        assert body["metadata"].get("deletionTimestamp")
        for stream in self.streams():
            is_held = stream["spec"]["superCluster"] == super_cluster
            there = (
                stream["spec"].get("name", stream["metadata"]["name"]) in self.brokers[super_cluster].streams
            )
            if is_held and there and not stream["metadata"].get("deletionTimestamp"):
                assert stream["spec"]["deletionPolicy"] == "Delete", "it was to be retained"

    def streams(self) -> Iterator[Json]:
        return (body for (kind, _, _), body in self.kube.objects.items() if kind == "Stream")

    def judge_stream(self, name: str) -> None:
        body = self.kube.objects.get(("Stream", NS, name))
        assert body is not None
        assert body["spec"]["deletionPolicy"] == "Delete"
        assert body["metadata"].get("deletionTimestamp")


def _super_cluster(stateful_set: Mapping[str, Any]) -> str:
    """By the template, whose labels nobody can change."""
    labels = stateful_set["spec"]["template"]["metadata"]["labels"]
    return str(labels["supercluster.dev/super-cluster"])


POLICY = st.sampled_from(["Retain", "Delete"])
NUMBER = st.integers(0, BROKERS - 1)
WHOSE = st.sampled_from(["prod", "test"])
ACTIONS = st.one_of(
    st.tuples(st.just("look")),
    st.tuples(st.just("look")),
    st.tuples(st.just("hear"), st.sampled_from(KINDS)),
    st.tuples(st.just("hear all")),
    st.tuples(st.just("hear all")),
    st.tuples(st.just("control")),
    st.tuples(st.just("fill")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("wait")),
    st.tuples(st.just("fail")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("delete"), st.sampled_from(["Cluster", "Cluster", "Stream"])),
    st.tuples(st.just("hand over"), WHOSE, POLICY),
    st.tuples(st.just("end"), POLICY),
    st.tuples(st.just("delete claim"), NUMBER),
    st.tuples(st.just("delete claim"), NUMBER),
    st.tuples(st.just("cluster"), WHOSE, POLICY),
    st.tuples(st.just("stream"), WHOSE, POLICY),
    st.tuples(st.just("policy"), st.sampled_from(["Cluster", "Stream"]), POLICY),
    st.tuples(st.just("scale"), st.integers(1, BROKERS)),
    st.tuples(st.just("unreadable"), st.sampled_from(["Cluster", "Stream"])),
    st.tuples(st.just("strip"), st.sampled_from(["Secret", CLAIM, "StatefulSet"]), NUMBER),
    st.tuples(st.just("crash"), NUMBER),
    st.tuples(st.just("kill"), NUMBER),
    st.tuples(st.just("replace"), NUMBER),
    st.tuples(st.just("narrow"), NUMBER),
)


async def play(actions: list[tuple[Any, ...]]) -> Model:
    world = Model()
    await act(world, "stream", "prod", "Retain")
    await settle(world)
    await settle(world)
    for action in actions:
        await act(world, *action)
    await settle(world)
    return world


async def settle(world: Model) -> None:
    for _ in range(4):
        for kind in KINDS:
            world.hear(kind)
        await world.look()
        world.control()
        world.fill()


async def act(world: Model, what: str, *how: Any) -> None:
    match what:
        case "look":
            await world.look()
        case "hear":
            world.hear(how[0])
        case "hear all":
            for kind in KINDS:
                world.hear(kind)
        case "control":
            world.control()
        case "fill":
            world.fill()
        case "restart":
            world.restart()
        case "wait":
            await world.clock.advance(11 * MINUTE_MS)
        case "settle":
            await settle(world)
        case "hand over":
            await act(world, "delete", "Cluster")
            await settle(world)
            world.cluster(*how)
            await settle(world)
        case "end":
            await act(world, "policy", "Cluster", "Delete")
            await act(world, "policy", "Stream", how[0])
            await act(world, "delete", "Cluster")
            await settle(world)
        case "fail":
            failures = [KubeError(503, "Unavailable", "later")]
            world.kube.fail = lambda _: failures.pop() if failures else None
        case "delete":
            world.ask_for_deletion(how[0], "east" if how[0] == "Cluster" else "flights")
        case "delete claim":
            world.ask_for_deletion(CLAIM, f"data-east-{how[0]}")
        case "cluster":
            world.cluster(*how)
        case "stream":
            spec = {"superCluster": how[0], "deletionPolicy": how[1], "subjects": ["flights.>"]}
            world.declare("Stream", "flights", **spec)
        case "policy":
            name = "east" if how[0] == "Cluster" else "flights"
            world.edit(how[0], name, {"deletionPolicy": how[1]})
        case "scale":
            world.edit("Cluster", "east", {"replicas": how[0]})
        case "unreadable":
            kind, name = how[0], "east" if how[0] == "Cluster" else "flights"
            body = world.kube.objects.get((kind, NS, name), {})
            broken = body.get("spec", {}).get("storage") == {"type": "Tape"}
            world.edit(kind, name, {"storage": None} if broken else {"storage": {"type": "Tape"}})
        case "strip":
            kind, number = how
            names = {"Secret": "prod-credentials", CLAIM: f"data-east-{number}", "StatefulSet": "east"}
            world.strip(kind, names[kind])
        case "crash":
            world.crash(how[0])
        case "kill":
            world.kill(how[0])
        case "replace":
            world.replace(how[0])
        case "narrow":
            world.narrow(how[0])


LOOKS: list[tuple[Any, ...]] = [("look",), ("look",), ("wait",), ("look",), ("look",)]
DELETED: list[tuple[Any, ...]] = [
    *(("policy", "Stream", "Delete"), ("policy", "Cluster", "Delete"), ("settle",), ("settle",)),
    ("delete", "Cluster"),
]
# Ways to a loss that a part of `RULES` each keeps closed, by the name of the check.
STORIES: Mapping[str, list[tuple[Any, ...]]] = {
    "is_of_the_cluster": [
        *(("narrow", 0), ("settle",), ("hand over", "test", "Delete"), ("end", "Delete"), *[("settle",)] * 6),
    ],
    "no_stream_is_retained": [*DELETED, ("hear", "Cluster"), ("policy", "Stream", "Retain"), *LOOKS],
    "members_are_known": [
        *(*DELETED, ("restart",)),
        *(("hear", kind) for kind in ("Cluster", "SuperCluster", "StatefulSet", "Pod", CLAIM)),
        *(("policy", "Stream", "Retain"), *LOOKS),
    ],
    "volume_is_of_no_use": [
        *(("narrow", 0), ("settle",), ("delete claim", 0), ("replace", 0), ("hear all",), *LOOKS),
    ],
}


@pytest.mark.covers("SF-30")
@example(STORIES["is_of_the_cluster"])
@example(STORIES["no_stream_is_retained"])
@example(STORIES["members_are_known"])
@example(STORIES["volume_is_of_no_use"])
@settings(max_examples=examples(40, 3000), deadline=None)
@given(st.lists(ACTIONS, min_size=3, max_size=20))
def test_the_only_copy_of_a_message_is_never_deleted(actions: list[tuple[Any, ...]]) -> None:
    asyncio.run(play(actions))


@pytest.mark.parametrize("check", STORIES)
def test_without_a_check_its_story_ends_in_a_loss(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the property would hold because the model never comes near it."""
    rules = {
        ground: tuple(each for each in checks if each.__name__ != check)
        for ground, checks in destructive.RULES.items()
    }
    assert rules != destructive.RULES
    monkeypatch.setattr(destructive, "RULES", rules)
    # The planner of a Cluster's end asks for the identity too.
    monkeypatch.setattr(cluster_deletion, "_is_of", lambda *_: True)
    with pytest.raises(AssertionError):
        asyncio.run(play(STORIES[check]))


def test_the_model_comes_to_a_cluster_that_goes_with_its_data() -> None:
    """Else the property would hold because nothing is ever deleted."""
    story: list[tuple[Any, ...]] = [
        ("policy", "Stream", "Delete"),
        ("settle",),
        ("settle",),
    ]
    world = asyncio.run(play(story))
    assert len(world.claims()) == 3
    assert sum("prod/flights" in held for held in world.holds.values()) == 3
    gone = asyncio.run(
        play(
            [
                *story,
                ("policy", "Cluster", "Delete"),
                ("delete", "Cluster"),
                ("delete", "Stream"),
                *[("settle",)] * 6,
            ]
        )
    )
    assert gone.claims() == []
    assert gone.brokers["prod"].streams == {}
