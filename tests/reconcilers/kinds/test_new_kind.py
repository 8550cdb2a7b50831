"""A new kind of resource is a model, a planner and one record: cache, wake-ups, rounds and executor know no kind by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import kopf
import pytest
from tests.reconcilers.builders import DEFAULTS, condition
from tests.reconcilers.fakes import FakeBrokers, FakeKube, VirtualClock

from supercluster.api import API_VERSION, GROUP, VERSION, SuperCluster
from supercluster.api.common import ApiModel, Conditions, Resource
from supercluster.api.conditions import ConditionType, Reason
from supercluster.api.crd import KINDS, Kind, definition
from supercluster.reconcilers.execute.executor import Executor
from supercluster.reconcilers.execute.tools import Tools
from supercluster.reconcilers.handlers.intake import Intake
from supercluster.reconcilers.handlers.registration import build_registry
from supercluster.reconcilers.handlers.rounds import Rounds
from supercluster.reconcilers.kinds.reconciler import Reconciler
from supercluster.reconcilers.kinds.reconcilers import RECONCILERS, Reconcilers
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.context import Attempt, Context
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners import status as planned_status
from supercluster.reconcilers.planners.plan import Apply, Plan, Step
from supercluster.reconcilers.ports import BrokerTarget, Key

NS = "demo-ns"
LABEL = "supercluster.dev/toy"
SC, EAST, BALL, DOLL = (
    Key(*each)
    for each in (
        ("SuperCluster", NS, "demo"),
        ("Cluster", NS, "east"),
        ("Toy", NS, "ball"),
        ("Toy", NS, "doll"),
    )
)


class ToySpec(ApiModel):
    super_cluster: str
    colour: str = "red"


class ToyStatus(ApiModel):
    conditions: Conditions = ()


class Toy(Resource):
    """A ConfigMap with a colour and the identity of a super-cluster."""

    spec: ToySpec
    status: ToyStatus = ToyStatus()


@dataclass(frozen=True, slots=True)
class ToyObserved:
    super_cluster: SuperCluster | None
    there: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Paint(Step):
    """A step that no other kind has."""

    name: str
    colour: str

    def __str__(self) -> str:
        return f"paint {self.name} {self.colour}"


async def _paint(tools: Tools, resource: Resource, step: Paint, target: BrokerTarget | str) -> None:
    patch = {"data": {"colour": step.colour}}
    namespace = resource.metadata.namespace
    tools.cache.put(await tools.kube.merge_patch("v1", "ConfigMap", namespace, step.name, patch))


def plan_toy(desired: Toy, observed: ToyObserved, now: datetime) -> Plan:
    conditions = planned_status.Conditions(desired.status.conditions, desired.metadata.generation, now)
    if observed.super_cluster is None:
        conditions.put(ConditionType.READY, False, Reason.SUPER_CLUSTER_NOT_FOUND, desired.super_cluster)
        return Plan((), *_told(desired, conditions))
    data = {"colour": "none", "identity": observed.super_cluster.identity}
    name = f"toy-{desired.metadata.name}"
    if observed.there is None:
        labels = {**naming.labels(desired.super_cluster), LABEL: desired.metadata.name}
        metadata = {
            "name": name,
            "namespace": desired.metadata.namespace,
            "labels": labels,
        }
        return Plan((Apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}),))
    if observed.there["data"]["colour"] != desired.spec.colour:
        return Plan((Paint(name, desired.spec.colour),))
    conditions.put(ConditionType.READY, True, Reason.SERVING)
    return Plan((), *_told(desired, conditions))


def _told(desired: Toy, conditions: planned_status.Conditions) -> tuple[Any, Any]:
    status = ToyStatus(conditions=conditions.result())
    return planned_status.status_patch(desired.status.to_object(), status.to_object()), conditions.notes()


async def _observe(context: Context, desired: Toy, _: Attempt, __: datetime) -> ToyObserved:
    namespace, name = desired.metadata.namespace, desired.metadata.name
    return ToyObserved(
        context.cache.model(SuperCluster, namespace, desired.super_cluster),
        context.cache.get("ConfigMap", namespace, f"toy-{name}"),
    )


TOY = Reconciler(
    kind=Kind(Toy, "toys", "toy", (), child_label=LABEL),
    observe=_observe,
    plan=lambda _, desired, seen, now: plan_toy(desired, seen, now),
    reads=frozenset({SuperCluster}),
    wakes=lambda cache, key, spec: [Key("Toy", key.namespace, spec["friend"])] if "friend" in spec else [],
    matters=lambda metadata, status: (metadata.get("annotations"),),
    steps={Paint: _paint},
)


class World:
    """A namespace whose operator serves toys too."""

    def __init__(self) -> None:
        self.kube, self.clock, self.woken = FakeKube(), VirtualClock(), list[Key]()
        reconcilers: Reconcilers = {**RECONCILERS, TOY.kind.name: TOY}
        self.cache = ObjectCache(each.kind for each in reconcilers.values())
        self.intake = Intake(self.cache, self.woken.append, reconcilers)
        brokers = FakeBrokers()
        executor = Executor(Tools(self.kube, brokers, self.cache, str, now=self.clock.now))
        self.rounds = Rounds(
            self.kube, brokers, self.cache, executor, self.clock, DEFAULTS, reconcilers=reconcilers
        )

    def hear(self, kind: str, name: str, **parts: Any) -> list[Key]:
        """The watch tells of an object; who is woken by it."""
        there = self.kube.objects.get((kind, NS, name), {"metadata": {"name": name, "namespace": NS}})
        metadata = {**there["metadata"], **parts.pop("metadata", {})}
        body = {"apiVersion": API_VERSION, "kind": kind, **there, **parts, "metadata": metadata}
        self.woken.clear()
        self.intake.take("MODIFIED", self.kube.put(body))
        return list(self.woken)


def test_a_record_is_all_that_wake_ups_need() -> None:
    world = World()
    assert world.hear("Toy", "ball", spec={"superCluster": "demo"}) == [BALL]
    assert world.hear("Toy", "doll", spec={"superCluster": "demo", "friend": "ball"}) == [DOLL, BALL]
    assert world.hear("SuperCluster", "demo", spec={}) == [SC, BALL, DOLL]
    assert world.hear("Cluster", "east", spec={"superCluster": "demo"}) == [EAST, SC]
    assert not world.hear("Toy", "ball", status={"figure": 7})
    assert world.hear("Toy", "ball", metadata={"annotations": {"supercluster.dev/play": "1"}}) == [BALL]
    assert world.hear("ConfigMap", "toy-ball", metadata={"labels": {LABEL: "ball"}}) == [BALL]
    made = world.cache.children_of(Toy, NS, "ball")
    assert [each["metadata"]["name"] for each in made] == ["toy-ball"]


async def test_a_record_is_all_that_rounds_and_the_executor_need() -> None:
    world = World()
    world.hear("Toy", "ball", spec={"superCluster": "demo"})
    await world.rounds.reconcile(BALL)
    assert _ready(world) == ("False", "SuperClusterNotFound")
    world.hear("SuperCluster", "demo", spec={}, metadata={"uid": "abc"})
    await world.rounds.reconcile(BALL)
    assert world.kube.objects["ConfigMap", NS, "toy-ball"]["data"] == {"colour": "red", "identity": "abc"}
    assert _ready(world) == ("True", "Serving")
    world.hear("Toy", "ball", spec={"superCluster": "demo", "colour": 5})
    await world.rounds.reconcile(BALL)
    assert _ready(world) == ("False", "InvalidObject")
    assert world.cache.unreadable(NS, "demo") == (BALL,)


async def test_a_step_that_no_record_has_is_named() -> None:
    toy = Toy.model_validate(
        {"metadata": {"name": "ball", "namespace": NS}, "spec": {"superCluster": "demo"}}
    )
    with pytest.raises(TypeError, match="Paint for a Toy: paint toy-ball red"):
        await World().rounds.executor.run(toy, Paint("toy-ball", "red"), "", {})


def _ready(world: World) -> tuple[str, str]:
    found = condition(world.kube.objects["Toy", NS, "ball"]["status"], "Ready")
    return found["status"], found["reason"]


def test_a_record_is_all_that_the_watch_and_the_definition_need() -> None:
    registry = build_registry(World().intake, "policy/v1")
    watched = {handler.selector for handler in registry._watching.get_all_handlers() if handler.selector}
    assert kopf._cogs.structs.references.Selector(GROUP, VERSION, "toys") in watched  # type: ignore[attr-defined]
    assert definition(TOY.kind)["spec"]["names"]["plural"] == "toys"


def test_every_definition_has_a_record() -> None:
    assert [each.kind for each in RECONCILERS.values()] == list(KINDS)
