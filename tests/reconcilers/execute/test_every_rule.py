"""Every rule of `execute/destructive.py` is held by a story that ends badly without it (SF-30, B5).

`STORIES` has a row for each check of a ground, for each check that a method of the Destroyer asks, and for each of its own
conditions. A row breaks one thing in a world in which the step would be carried out. With the rule the step is refused. A mutant
without the rule carries it out. The list of rules comes from the module's own text, so a new rule without a row fails.
"""

from __future__ import annotations

import ast
import asyncio
import copy
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from tests.reconcilers.builders import clone
from tests.reconcilers.handlers.test_rounds import DELETED, NS
from tests.reconcilers.handlers.test_scale_down_rounds import Shrinking

from supercluster.api.common import Resource
from supercluster.reconcilers.execute import destructive
from supercluster.reconcilers.kinds.reconcilers import RECONCILERS
from supercluster.reconcilers.observe.targets import broker_target
from supercluster.reconcilers.planners.move.generated import TRIM_LABEL
from supercluster.reconcilers.planners.plan import (
    CLUSTER_ANNOTATION,
    IDENTITY_ANNOTATION,
    CreateObject,
    DeleteObject,
    DeleteStream,
    ExchangeAuthority,
    FinalizeMigration,
    Ground,
    LeaveBrokers,
    SetFinalizers,
    Stage,
)
from supercluster.reconcilers.ports import KubeError

pytestmark = pytest.mark.covers("SF-30")

CLAIM = "PersistentVolumeClaim"
SOURCE = Path(destructive.__file__)
MIGRATION = {
    "blue": {"superCluster": "demo"},
    "green": {"urls": ["http://10.9.9.9:8222"], "credentialsSecret": "next"},
    "scope": {},
}


class Site(Shrinking):
    """Five brokers of Cluster east, and a second Cluster, west."""

    def edit(self, kind: str, name: str, **parts: Any) -> None:
        """Merge parts of the metadata, the spec or the status."""

        def merge(body: dict[str, Any]) -> None:
            for part, changes in parts.items():
                body[part] = {**body.get(part, {}), **changes}

        self.change(kind, name, merge)

    def annotate(self, kind: str, name: str, key: str, value: str) -> None:
        there = self.kube.objects[kind, NS, name]["metadata"].get("annotations", {})
        self.edit(kind, name, metadata={"annotations": {**there, key: value}})

    def remove(self, kind: str, *names: str) -> None:
        for of, namespace, name in list(self.kube.objects):
            if of == kind and (not names or name in names):
                del self.kube.objects[of, namespace, name]

    def uid(self, kind: str, name: str) -> str:
        return str(self.kube.objects[kind, NS, name]["metadata"]["uid"])

    def body(self, kind: str, name: str) -> dict[str, Any]:
        return clone(self.kube.objects[kind, NS, name])


async def _converged() -> Site:
    world = Site()
    world.declare("Cluster", "west", superCluster="demo")
    await world.converge()
    return world


BASE = asyncio.run(_converged())


@dataclass(frozen=True)
class Scene:
    """A step that is carried out, as far as nothing is broken."""

    prepare: Callable[[Site], None]
    carry_out: Callable[[Any, Site, Resource], Awaitable[object]]
    """`module.Destroyer`'s method."""
    whose: tuple[str, str]
    """The resource that wants it."""


Break = Callable[[Site], None]


def destroyer(module: Any, world: Site) -> Any:
    return module.Destroyer(world.kube, world.brokers, world.cache)


def target(world: Site) -> Any:
    return broker_target(world.cache, NS, "demo")


def delete(kind: str, name: str, ground: Ground) -> Callable[[Any, Site, Resource], Awaitable[object]]:
    async def carry_out(module: Any, world: Site, resource: Resource) -> object:
        body = world.cache.get(kind, NS, name)
        assert body is not None
        step = DeleteObject(str(body["apiVersion"]), kind, NS, name, str(body["metadata"]["uid"]), ground)
        return await destroyer(module, world).delete(resource, step, target(world))

    return carry_out


def call(method: str, step: Any) -> Callable[[Any, Site, Resource], Awaitable[object]]:
    async def carry_out(module: Any, world: Site, resource: Resource) -> object:
        return await getattr(destroyer(module, world), method)(resource, step, target(world))

    return carry_out


def apply(kind: str, name: str, edit: Callable[[dict[str, Any]], None]) -> Any:
    async def carry_out(module: Any, world: Site, resource: Resource) -> object:
        there = world.body(kind, name)
        manifest = clone(there)
        edit(manifest)
        return await destroyer(module, world).judge_apply(resource, manifest, there, target(world))

    return carry_out


def handler_checks(kind: str) -> tuple[Any, ...]:
    """What `objects.finalizers(...)` was given for a kind."""
    handler = RECONCILERS[kind].steps.get(SetFinalizers)
    return next((cell.cell_contents for cell in getattr(handler, "__closure__", None) or ()), ())


def drop_finalizer_of(kind: str) -> Callable[[Any, Site, Resource], Awaitable[object]]:
    async def carry_out(module: Any, world: Site, resource: Resource) -> object:
        asked = [each for each in handler_checks(kind) if each.__name__ != getattr(module, "SKIPPED", "")]
        step = SetFinalizers((), resource.metadata.resource_version)
        return await destroyer(module, world).drop_finalizer(resource, step, target(world), *asked)

    return carry_out


def exchange(module: Any, world: Site, resource: Resource) -> Awaitable[object]:
    step = ExchangeAuthority({}, Stage.PROMOTE, "", frozenset(), "")
    judged = destroyer(module, world).judge_exchange(resource, step, {}, target(world))
    return cast("Awaitable[object]", judged)


def goes(world: Site, kind: str, name: str) -> None:
    world.edit(kind, name, metadata=DELETED)


def with_its_data(world: Site) -> None:
    world.edit("Cluster", "east", spec={"deletionPolicy": "Delete"})
    world.edit("Stream", "flights", spec={"deletionPolicy": "Delete"})
    goes(world, "Cluster", "east")


def without_brokers(world: Site) -> None:
    with_its_data(world)
    world.remove("StatefulSet", "east")
    world.remove("Pod")


def parted(world: Site) -> None:
    with_its_data(world)
    for entry in world.brokers.known.values():
        entry |= {"leaves": True, "votes": False}


def drained(world: Site) -> None:
    world.edit("Cluster", "east", spec={"deletionPolicy": "Delete"})
    retired = [{"name": "data-east-4", "since": "2026-01-01T00:00:00Z", "drained": True}]
    world.edit("Cluster", "east", status={"retiredClaims": retired})
    world.edit("StatefulSet", "east", spec={"replicas": 4})
    world.brokers.known["east-4"]["leaves"] = True
    world.brokers.members["flights"] = ["east-0", "east-1", "east-2"]
    world.remove("Pod", "east-4")


def never_began(world: Site) -> None:
    world.remove(CLAIM, "data-east-1")
    world.edit("Pod", "east-1", status={"containerStatuses": []})


def without_clusters(world: Site) -> None:
    world.remove("Cluster")
    goes(world, "SuperCluster", "demo")


def stream_goes(world: Site) -> None:
    world.edit("Stream", "flights", spec={"deletionPolicy": "Delete"})
    goes(world, "Stream", "flights")


def ours(world: Site) -> None:
    labels = {"app.kubernetes.io/managed-by": "supercluster-operator"}
    world.declare("StreamMove", "mine", superCluster="demo", stream="x", replicas=1)
    world.edit("StreamMove", "mine", metadata={"labels": labels})


def pipeline(world: Site) -> None:
    world.declare("StreamPipeline", "count", superCluster="demo", python={"configMap": {"name": "program"}})
    metadata: dict[str, Any] = {"name": "count", "namespace": NS}
    owner = {"kind": "StreamPipeline", "name": "count", "uid": world.uid("StreamPipeline", "count")}
    labels = {"supercluster.dev/super-cluster": "demo", "supercluster.dev/stream-pipeline": "count"}
    metadata |= {"ownerReferences": [owner], "labels": labels}
    world.kube.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata})


def migrated(world: Site) -> None:
    world.declare("Migration", "over", **MIGRATION, finalize=True)
    world.edit("Migration", "over", status={"pointOfNoReturnAt": "2026-01-01T00:00:00Z"})
    world.brokers.migrations.records["x"] = {}
    world.brokers.migrations.stages = {}


def drained_and_as_many(world: Site) -> None:
    drained(world)
    world.edit("StatefulSet", "east", spec={"replicas": 5})


def of_identity(world: Site) -> None:
    world.annotate("ConfigMap", "east-config", IDENTITY_ANNOTATION, "ours")


def stream_goes_alone(world: Site) -> None:
    stream_goes(world)
    without_clusters(world)


def west_is_gone(world: Site) -> None:
    world.remove("Cluster", "west")


def nothing(world: Site) -> None:
    """All is as it is to be."""


def drop_from_config(part: str, name: str) -> Callable[[dict[str, Any]], None]:
    def edit(manifest: dict[str, Any]) -> None:
        config = json.loads(manifest["data"]["broker.json"])
        del config[part][name]
        manifest["data"] = {"broker.json": json.dumps(config)}

    return edit


def four_replicas(manifest: dict[str, Any]) -> None:
    manifest["spec"]["replicas"] = 4


def as_declared(manifest: dict[str, Any]) -> None:
    manifest["metadata"]["annotations"][IDENTITY_ANNOTATION] = "ours"


DRAIN = {"spec": {"drains": ["east-4"]}, "kind": "StreamMove", "metadata": {"labels": {TRIM_LABEL: "x"}}}
EAST, DEMO, FLIGHTS = ("Cluster", "east"), ("SuperCluster", "demo"), ("Stream", "flights")
SCENES: Mapping[str, Scene] = {
    "CLUSTER_DELETED": Scene(without_brokers, delete(CLAIM, "data-east-0", Ground.CLUSTER_DELETED), EAST),
    "BROKERS_PARTED": Scene(parted, delete("StatefulSet", "east", Ground.BROKERS_PARTED), EAST),
    "BROKERS_GONE": Scene(without_brokers, delete("ConfigMap", "east-config", Ground.BROKERS_GONE), EAST),
    "BROKER_DRAINED": Scene(drained, delete(CLAIM, "data-east-4", Ground.BROKER_DRAINED), EAST),
    "VOLUME_UNUSABLE": Scene(never_began, delete("Pod", "east-1", Ground.VOLUME_UNUSABLE), EAST),
    "RESTART": Scene(nothing, delete("Pod", "east-1", Ground.RESTART), EAST),
    "CREDENTIALS_UNUSED": Scene(
        without_clusters, delete("Secret", "demo-credentials", Ground.CREDENTIALS_UNUSED), DEMO
    ),
    "MOVE_NOT_NEEDED": Scene(ours, delete("StreamMove", "mine", Ground.MOVE_NOT_NEEDED), DEMO),
    "DRIVER_REPLACED": Scene(
        pipeline, delete("Job", "count", Ground.DRIVER_REPLACED), ("StreamPipeline", "count")
    ),
    "delete_stream": Scene(stream_goes, call("delete_stream", DeleteStream("flights")), FLIGHTS),
    "drop_finalizer": Scene(without_brokers, call("drop_finalizer", SetFinalizers((), "")), EAST),
    "finalize_migration": Scene(
        migrated, call("finalize_migration", FinalizeMigration("x")), ("Migration", "over")
    ),
    "leave": Scene(parted, call("leave", LeaveBrokers(("east-0",))), EAST),
    "judge_creation": Scene(nothing, call("judge_creation", CreateObject(DRAIN)), DEMO),
    "identity": Scene(of_identity, apply("ConfigMap", "east-config", as_declared), EAST),
    "gateway": Scene(
        west_is_gone, apply("ConfigMap", "east-config", drop_from_config("gateways", "west")), EAST
    ),
    "peer": Scene(drained, apply("ConfigMap", "east-config", drop_from_config("peers", "east-4")), EAST),
    "replicas": Scene(drained_and_as_many, apply("StatefulSet", "east", four_replicas), EAST),
    "judge_exchange": Scene(nothing, exchange, DEMO),
    "finalizers of Cluster": Scene(without_brokers, drop_finalizer_of("Cluster"), EAST),
    "finalizers of SuperCluster": Scene(without_clusters, drop_finalizer_of("SuperCluster"), DEMO),
    "finalizers of Stream": Scene(stream_goes_alone, drop_finalizer_of("Stream"), FLIGHTS),
}


# ---- what each rule is for: one thing is not as it has to be ----------------------------------------------------------


def not_deleted(kind: str, name: str) -> Break:
    def change(world: Site) -> None:
        world.change(kind, name, lambda body: body["metadata"].pop("deletionTimestamp"))

    return change


def retained(world: Site) -> None:
    world.edit("Cluster", "east", spec={"deletionPolicy": "Retain"})


def unlisted(world: Site) -> None:
    world.cache.expect_lists(["Stream"])


def marked_as_another(kind: str, name: str, key: str) -> Break:
    return lambda world: world.annotate(kind, name, key, "another")


def pod_is_back(name: str) -> Break:
    def change(world: Site) -> None:
        world.kube.put(BASE.body("Pod", name))

    return change


def stream_stays(world: Site) -> None:
    world.edit("Stream", "flights", spec={"deletionPolicy": "Retain"})


def migrates(world: Site) -> None:
    world.declare("Migration", "over", **MIGRATION)
    world.edit("Migration", "over", status={"startedAt": "2026-01-01T00:00:00Z"})


def votes(world: Site) -> None:
    world.brokers.known["east-0"]["votes"] = True


def drained_by_another(world: Site) -> None:
    world.change("Cluster", "east", lambda body: body["status"].pop("retiredClaims"))


def holds_a_copy(world: Site) -> None:
    world.brokers.members["flights"] = ["east-0", "east-1", "east-4"]


def owned_by_another(kind: str, name: str) -> Break:
    owner = {"kind": "StatefulSet", "name": "x", "uid": "another"}
    return lambda world: world.edit(kind, name, metadata={"ownerReferences": [owner], "labels": {}})


def owned_by_another_but_ours(kind: str, name: str) -> Break:
    owner = {"kind": "StatefulSet", "name": "x", "uid": "another"}
    return lambda world: world.edit(kind, name, metadata={"ownerReferences": [owner]})


def crashed(world: Site) -> None:
    state = {"name": "broker", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    world.edit("Pod", "east-1", status={"containerStatuses": [state]})


def claim_is_there(world: Site) -> None:
    world.kube.put(BASE.body(CLAIM, "data-east-1"))


def only_copy_goes_with_its_pod(world: Site) -> None:
    """A roll-out restarts a broker whose claim is being deleted."""
    finalizers = {"finalizers": ["kubernetes.io/pvc-protection"]}
    world.edit(CLAIM, "data-east-1", metadata={**DELETED, **finalizers})
    world.brokers.members["flights"] = ["east-1"]


def a_cluster_is_left(world: Site) -> None:
    world.declare("Cluster", "late", superCluster="demo")


def declared_by_another(world: Site) -> None:
    world.brokers.streams["flights"]["metadata"] = {}


def not_finalized(world: Site) -> None:
    world.edit("Migration", "over", spec={"finalize": False})


def is_made_anew(world: Site) -> None:
    body = world.body("ConfigMap", "east-config")
    body["metadata"]["uid"] = "made-anew"
    world.kube.objects["ConfigMap", NS, "east-config"] = body


def cluster_vanished(world: Site) -> None:
    world.remove("Cluster", "east")


def spec_changed(world: Site) -> None:
    world.edit("Cluster", "east", spec={"replicas": 7})


def brokers_lag(world: Site) -> None:
    """Of an exchange of authorities: not every broker has loaded what it needs."""


@dataclass(frozen=True)
class Story:
    scene: str
    change: Break
    is_late: bool = False
    """It comes behind the look that the plan was made from."""


GONE = "judge_apply: if body is not None and is_member and (not is_terminating(body))"
PEER = "judge_apply: if await case.get('v1', 'Pod', broker) is not None"
SEEN = "_check: if seen != (now.get('uid'), now.get('generation'), now.get('deletionTimestamp') is None)"
STORIES: Mapping[str, Story] = {
    "CLUSTER_DELETED: is_being_deleted": Story("CLUSTER_DELETED", not_deleted(*EAST)),
    "CLUSTER_DELETED: policy_is_delete": Story("CLUSTER_DELETED", retained),
    "CLUSTER_DELETED: members_are_known": Story("CLUSTER_DELETED", unlisted),
    "CLUSTER_DELETED: is_of_the_cluster": Story(
        "CLUSTER_DELETED", marked_as_another(CLAIM, "data-east-0", IDENTITY_ANNOTATION)
    ),
    "CLUSTER_DELETED: no_broker_uses_it": Story("CLUSTER_DELETED", pod_is_back("east-0")),
    "CLUSTER_DELETED: no_stream_is_retained": Story("CLUSTER_DELETED", stream_stays),
    "CLUSTER_DELETED: no_migration_needs_it": Story("CLUSTER_DELETED", migrates),
    "BROKERS_PARTED: is_being_deleted": Story("BROKERS_PARTED", not_deleted(*EAST)),
    "BROKERS_PARTED: members_are_known": Story("BROKERS_PARTED", unlisted),
    "BROKERS_PARTED: is_of_the_cluster": Story(
        "BROKERS_PARTED", marked_as_another("StatefulSet", "east", CLUSTER_ANNOTATION)
    ),
    "BROKERS_PARTED: no_stream_is_retained": Story("BROKERS_PARTED", stream_stays),
    "BROKERS_PARTED: brokers_have_parted": Story("BROKERS_PARTED", votes),
    "BROKERS_PARTED: no_migration_needs_it": Story("BROKERS_PARTED", migrates),
    "BROKERS_GONE: is_being_deleted": Story("BROKERS_GONE", not_deleted(*EAST)),
    "BROKERS_GONE: members_are_known": Story("BROKERS_GONE", unlisted),
    "BROKERS_GONE: is_of_the_cluster": Story(
        "BROKERS_GONE", marked_as_another("ConfigMap", "east-config", CLUSTER_ANNOTATION)
    ),
    "BROKERS_GONE: no_broker_is_left": Story("BROKERS_GONE", pod_is_back("east-3")),
    "BROKER_DRAINED: policy_is_delete": Story("BROKER_DRAINED", retained),
    "BROKER_DRAINED: members_are_known": Story("BROKER_DRAINED", unlisted),
    "BROKER_DRAINED: is_of_the_cluster": Story(
        "BROKER_DRAINED", marked_as_another(CLAIM, "data-east-4", IDENTITY_ANNOTATION)
    ),
    "BROKER_DRAINED: no_broker_uses_it": Story("BROKER_DRAINED", pod_is_back("east-4")),
    "BROKER_DRAINED: was_drained": Story("BROKER_DRAINED", drained_by_another),
    "BROKER_DRAINED: broker_holds_nothing": Story("BROKER_DRAINED", holds_a_copy),
    "VOLUME_UNUSABLE: members_are_known": Story("VOLUME_UNUSABLE", unlisted),
    "VOLUME_UNUSABLE: is_of_the_stateful_set": Story(
        "VOLUME_UNUSABLE", owned_by_another_but_ours("Pod", "east-1")
    ),
    "VOLUME_UNUSABLE: never_started": Story("VOLUME_UNUSABLE", crashed),
    "VOLUME_UNUSABLE: volume_is_of_no_use": Story("VOLUME_UNUSABLE", claim_is_there),
    "RESTART: is_of_the_stateful_set": Story("RESTART", owned_by_another_but_ours("Pod", "east-1")),
    "RESTART: volume_stays": Story("RESTART", only_copy_goes_with_its_pod),
    "CREDENTIALS_UNUSED: is_being_deleted": Story("CREDENTIALS_UNUSED", not_deleted(*DEMO)),
    "CREDENTIALS_UNUSED: members_are_known": Story("CREDENTIALS_UNUSED", unlisted),
    "CREDENTIALS_UNUSED: is_marked_as_ours": Story(
        "CREDENTIALS_UNUSED", marked_as_another("Secret", "demo-credentials", IDENTITY_ANNOTATION)
    ),
    "CREDENTIALS_UNUSED: no_cluster_is_left": Story("CREDENTIALS_UNUSED", a_cluster_is_left),
    "CREDENTIALS_UNUSED: no_migration_needs_it": Story("CREDENTIALS_UNUSED", migrates),
    "MOVE_NOT_NEEDED: move_is_ours": Story("MOVE_NOT_NEEDED", owned_by_another("StreamMove", "mine")),
    "DRIVER_REPLACED: job_is_ours": Story("DRIVER_REPLACED", owned_by_another_but_ours("Job", "count")),
    "delete: if uid_of(there) != step.uid": Story("BROKERS_GONE", is_made_anew, is_late=True),
    "delete_stream: is_being_deleted": Story("delete_stream", not_deleted(*FLIGHTS)),
    "delete_stream: policy_is_delete": Story("delete_stream", stream_stays),
    "delete_stream: members_are_known": Story("delete_stream", unlisted),
    "delete_stream: if mark != resource_mark(resource)": Story("delete_stream", declared_by_another),
    "drop_finalizer: members_are_known": Story("drop_finalizer", unlisted),
    "finalize_migration: finalize_is_asked_for": Story("finalize_migration", not_finalized),
    "leave: members_are_known": Story("leave", unlisted),
    "judge_creation: members_are_known": Story("judge_creation", unlisted),
    "judge_apply: if whose and wanted and (whose != wanted)": Story(
        "identity", marked_as_another("ConfigMap", "east-config", IDENTITY_ANNOTATION)
    ),
    "judge_apply: members_are_known": Story("gateway", unlisted),
    GONE: Story("gateway", lambda world: world.declare("Cluster", "west", superCluster="demo")),
    PEER: Story("peer", pod_is_back("east-4")),
    "judge_apply: if why": Story("replicas", holds_a_copy),
    "judge_exchange: members_are_known": Story("judge_exchange", unlisted),
    "judge_exchange: if why": Story("judge_exchange", brokers_lag),
    "_judge: if why": Story("RESTART", only_copy_goes_with_its_pod),
    "_own: if own is None": Story("RESTART", cluster_vanished, is_late=True),
    SEEN: Story("RESTART", spec_changed, is_late=True),
    "finalizers of Cluster: no_broker_is_left": Story("finalizers of Cluster", pod_is_back("east-0")),
    "finalizers of Cluster: no_migration_needs_it": Story("finalizers of Cluster", migrates),
    "finalizers of SuperCluster: no_cluster_is_left": Story("finalizers of SuperCluster", a_cluster_is_left),
    "finalizers of SuperCluster: no_migration_needs_it": Story("finalizers of SuperCluster", migrates),
    "finalizers of Stream: no_brokers_have_it": Story(
        "finalizers of Stream", a_cluster_is_left, is_late=True
    ),
}


# ---- the rules, and the module without one of them --------------------------------------------------------------------


def methods(tree: ast.Module) -> Iterator[ast.AsyncFunctionDef | ast.FunctionDef]:
    (found,) = (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "Destroyer")
    yield from (each for each in found.body if isinstance(each, ast.AsyncFunctionDef | ast.FunctionDef))


def asked_in(node: ast.AST) -> list[ast.expr]:
    """The checks that a call of `_judge` names."""
    is_judging = isinstance(node, ast.Call) and ast.unparse(node.func) == "self._judge"
    given = node.args[0] if isinstance(node, ast.Call) and is_judging else None
    return given.elts if isinstance(given, ast.Tuple) else []


def refuses(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and any(isinstance(each, ast.Raise) for each in node.body)


def rules() -> list[str]:
    found = [
        f"{ground.name}: {check.__name__}" for ground, needed in destructive.RULES.items() for check in needed
    ]
    for method in methods(ast.parse(SOURCE.read_text())):
        for node in ast.walk(method):
            if refuses(node):
                found.append(f"{method.name}: if {ast.unparse(cast('ast.If', node).test)}")
            found += [f"{method.name}: {each.id}" for each in asked_in(node) if isinstance(each, ast.Name)]
    for kind in RECONCILERS:
        found += [f"finalizers of {kind}: {check.__name__}" for check in handler_checks(kind)]
    return found


def without(rule: str) -> ModuleType:
    """The module without a rule; the whole module, without its name."""
    where, _, what = rule.partition(": ")
    tree = ast.parse(SOURCE.read_text())
    for method in methods(tree):
        for node in ast.walk(method):
            if method.name != where:
                continue
            if refuses(node) and what == f"if {ast.unparse(cast('ast.If', node).test)}":
                cast("ast.If", node).test = ast.Constant(False)
            asked = asked_in(node)
            asked[:] = [each for each in asked if not isinstance(each, ast.Name) or each.id != what]
    module = ModuleType("mutant_of_destructive")
    sys.modules[module.__name__] = module  # Where dataclasses look for the names in their annotations.
    exec(compile(ast.fix_missing_locations(tree), str(SOURCE), "exec"), module.__dict__)
    of = cast("Any", module)
    of.RULES = {
        ground: tuple(each for each in needed if (ground.name, each.__name__) != (where, what))
        for ground, needed in of.RULES.items()
    }
    of.SKIPPED = what if where.startswith("finalizers of") else ""
    return module


async def is_refused(module: ModuleType, scene: Scene, *changes: Break, late: tuple[Break, ...] = ()) -> bool:
    world = copy.deepcopy(BASE)
    scene.prepare(world)
    for change in changes:
        change(world)
    world.kube.show(world.cache)
    for change in changes:
        if change is unlisted:
            change(world)
    kind, name = scene.whose
    resource = world.cache.parsed(RECONCILERS[kind].kind.model, NS, name)
    assert resource is not None
    for change in late:
        change(world)
    if brokers_lag in changes:
        cast("Any", module).why_waiting = lambda _: "not yet"
    try:
        await scene.carry_out(module, world, resource)
    except KubeError as error:
        if (error.status, error.reason) != (409, "Stale"):
            raise
    except cast("Any", module).HeldError:
        pass
    else:
        return False
    return True


def test_every_rule_has_a_story() -> None:
    assert sorted(STORIES) == sorted(set(rules()))


@pytest.mark.parametrize("name", SCENES)
async def test_a_step_with_nothing_against_it_is_carried_out(name: str) -> None:
    assert not await is_refused(without(""), SCENES[name])


@pytest.mark.parametrize("rule", STORIES)
async def test_a_rule_refuses_what_its_story_comes_to_and_nothing_else_does(rule: str) -> None:
    story = STORIES[rule]
    changes, late = ((), (story.change,)) if story.is_late else ((story.change,), ())
    scene = SCENES[story.scene]
    assert await is_refused(without(""), scene, *changes, late=late)
    try:
        held = await is_refused(without(rule), scene, *changes, late=late)
    except AttributeError:
        held = False  # It went on with nothing in its hands.
    assert not held
