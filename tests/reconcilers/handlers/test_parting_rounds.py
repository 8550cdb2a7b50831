"""Deleting a Cluster while another one stays, as whole rounds: its voters part before its brokers go, however it is deleted, and
whatever happens in between (SF-35, OP-6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from tests.reconcilers.builders import clone, condition
from tests.reconcilers.handlers.test_rounds import CLUSTER, NS, SC, STREAM, KilledError, World
from tests.support.tiers import every

from supercluster.reconcilers.execute import checks, destructive
from supercluster.reconcilers.execute.cluster import CLUSTER_STEPS
from supercluster.reconcilers.execute.objects import finalizers
from supercluster.reconcilers.execute.tools import StepHandler
from supercluster.reconcilers.observe import look
from supercluster.reconcilers.planners.plan import CLUSTER_ANNOTATION, IDENTITY_ANNOTATION, SetFinalizers
from supercluster.reconcilers.ports import Key

STATEFUL_SET = ("StatefulSet", NS, "east")
WEST = Key("Cluster", NS, "west")
OURS = ("StatefulSet", "ConfigMap", "Service", "PodDisruptionBudget")


class LostMapError(AssertionError):
    """Voters went that others still count."""


class TwoClusters(World):
    """Voters of the map are in both. Brokers end with their StatefulSet; what is deleted is judged by what they are then."""

    def __init__(self) -> None:
        super().__init__()
        self.declare("Cluster", "west", superCluster="demo")
        for name in [f"{cluster}-{number}" for cluster in ("east", "west") for number in range(3)]:
            self.brokers.known[name] = {"node": name, "cluster": name[:4], "inContact": True, "votes": True}
        delete = self.kube.delete

        async def judged(api_version: str, kind: str, *which: str) -> None:
            if kind == "StatefulSet" and self.stays("west") and self.voters("east"):
                raise LostMapError(f"{self.voters('east')} went")
            await delete(api_version, kind, *which)

        self.kube.delete = judged  # type: ignore[method-assign, assignment]

    def stays(self, cluster: str) -> bool:
        body = self.kube.objects.get(("Cluster", NS, cluster))
        return body is not None and not body["metadata"].get("deletionTimestamp")

    def voters(self, cluster: str) -> list[str]:
        return [
            name for name, told in self.brokers.known.items() if told["cluster"] == cluster and told["votes"]
        ]

    def objects_of(self, cluster: str) -> list[str]:
        """Objects that nobody would remove if the operator does not, besides volumes."""
        return [
            f"{kind} {name}"
            for (kind, _, name), body in self.kube.objects.items()
            if kind in OURS
            and body["metadata"]["labels"].get("supercluster.dev/cluster") == cluster
            and not body["metadata"].get("ownerReferences")
        ]

    async def end(self, *keys: Key) -> None:
        for _ in range(12):
            for key in keys or (CLUSTER,):
                if (key.kind, NS, key.name) in self.kube.objects:
                    await self.round(key)


@pytest.fixture
async def world() -> TwoClusters:
    world = TwoClusters()
    await world.converge()
    return world


@pytest.mark.covers("SF-35", "OP-6")
async def test_nothing_that_brokers_need_has_an_owner(world: TwoClusters) -> None:
    uid = world.kube.objects["Cluster", NS, "east"]["metadata"]["uid"]
    assert len(world.objects_of("east")) == 5
    for (kind, _, name), body in world.kube.objects.items():
        if kind in OURS and "east" in name:
            assert not body["metadata"].get("ownerReferences"), f"{kind} {name}"
            assert body["metadata"]["annotations"][CLUSTER_ANNOTATION] == uid


@pytest.mark.covers("SF-35", "OP-6")
async def test_voters_part_then_brokers_go_then_the_rest(world: TwoClusters) -> None:
    world.brokers.keeps_votes = True
    world.delete(CLUSTER)
    await world.end()
    assert STATEFUL_SET in world.kube.objects
    assert "others vote in place of east-0" in condition(world.status(CLUSTER), "Ready")["message"]
    world.brokers.keeps_votes = False
    for name in world.voters("east"):
        world.brokers.known[name]["votes"] = False
    await world.end()
    assert CLUSTER.name not in [name for kind, _, name in world.kube.objects if kind == "Cluster"]
    assert world.objects_of("east") == []
    assert len(world.objects_of("west")) == 5


@pytest.mark.covers("SF-35", "OP-4", "OP-6")
@pytest.mark.parametrize("call", range(0, 60, every(4)))
async def test_an_operator_that_is_killed_between_any_two_steps_loses_nothing(call: int) -> None:
    world = TwoClusters()
    await world.converge()
    world.delete(CLUSTER)
    world.die_at_call(call)
    try:
        await world.end()
    except KilledError:
        world.restart()
    world.kube.fail = world.brokers.fail = lambda _: None
    await world.end()
    assert ("Cluster", NS, "east") not in world.kube.objects
    assert world.objects_of("east") == []


@pytest.mark.covers("OP-6")
@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_a_prune_of_everything_comes_to_its_end(world: TwoClusters, policy: str) -> None:
    world.change("Stream", "flights", lambda body: body["spec"].update(deletionPolicy=policy))
    for key in (SC, CLUSTER, WEST, STREAM):
        world.delete(key)
    await world.end(SC, CLUSTER, WEST, STREAM)
    left = {kind for kind, _, _ in world.kube.objects if kind in ("SuperCluster", "Cluster", "Stream")}
    assert left == set()
    assert ("flights" in world.brokers.streams) == (policy == "Retain")


async def delete_both_where_a_stream_holds_east(world: TwoClusters) -> None:
    for name in ("east", "west"):
        world.change("Cluster", name, lambda body: body["spec"].update(deletionPolicy="Delete"))
    await world.converge()
    assert world.status(STREAM)["cluster"] == "east"
    for key in (WEST, CLUSTER):
        world.delete(key)
    await world.end(WEST, CLUSTER)
    assert STATEFUL_SET in world.kube.objects
    assert condition(world.status(CLUSTER), "Ready")["reason"] == "StreamsRemain"
    assert len(world.voters("east")) == 3


@pytest.mark.covers("SF-35", "OP-6")
async def test_of_clusters_deleted_at_once_the_others_part_from_one_that_is_held(world: TwoClusters) -> None:
    """Three voters of six that ended without a word would have left the map of streams without its majority."""
    await delete_both_where_a_stream_holds_east(world)
    assert world.voters("west") == []
    assert ("Cluster", NS, "west") not in world.kube.objects


@pytest.mark.covers("SF-35", "SF-30")
async def test_a_plan_that_overlooks_one_that_is_held_is_not_carried_out(
    world: TwoClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "needs_parting", lambda *given: False)
    await delete_both_where_a_stream_holds_east(world)
    assert len(world.voters("west")) == 3
    assert ("StatefulSet", NS, "west") in world.kube.objects
    assert condition(world.status(WEST), "Blocked")["reason"] == "NotProvenSafe"


@pytest.mark.covers("SF-35", "OP-6")
async def test_an_owner_of_before_is_taken_off(world: TwoClusters) -> None:
    """An operator of before made it, or a person: whoever it was, foreground deletion would begin with it."""

    def own(body: dict[str, Any]) -> None:
        body["metadata"]["ownerReferences"] = [{"kind": "Cluster", "name": "east", "uid": "u"}]
        body["metadata"]["annotations"].pop(CLUSTER_ANNOTATION)

    for kind, _, name in list(world.kube.objects):
        if kind in OURS and "east" in name:
            world.change(kind, name, own)
    await world.converge()
    assert len(world.objects_of("east")) == 5


@pytest.mark.covers("SF-35", "OP-6")
async def test_an_owner_that_applying_leaves_is_taken_off_all_the_same(world: TwoClusters) -> None:
    """Server-side apply leaves what another field manager wrote."""
    apply, owner = world.kube.apply, {"kind": "Cluster", "name": "east", "uid": "u"}

    async def leaves_it(manifest: Mapping[str, Any]) -> Any:
        metadata = {key: value for key, value in manifest["metadata"].items() if key != "ownerReferences"}
        return await apply({**manifest, "metadata": metadata})

    world.kube.apply = leaves_it  # type: ignore[method-assign]
    world.change("StatefulSet", "east", lambda body: body["metadata"].update(ownerReferences=[owner]))
    await world.converge()
    assert len(world.objects_of("east")) == 5


@pytest.mark.covers("SF-35")
async def test_a_cluster_made_anew_takes_over_what_its_namesake_of_the_super_cluster_left(
    world: TwoClusters,
) -> None:
    """Somebody removed the finalizer by hand: the brokers run on, and the next Cluster of the name has them."""
    del world.kube.objects["Cluster", NS, "east"]
    world.declare("Cluster", "east", superCluster="demo")
    uid = world.kube.objects["Cluster", NS, "east"]["metadata"]["uid"]
    before = clone(world.kube.objects[STATEFUL_SET])
    await world.converge()
    after = world.kube.objects[STATEFUL_SET]
    assert after["metadata"]["annotations"][CLUSTER_ANNOTATION] == uid
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])


@pytest.mark.covers("SF-35", "OP-3", "OP-4")
@pytest.mark.parametrize("by_a_person", [False, True])
async def test_brokers_that_return_to_a_cluster_made_anew_stay_unless_a_person_said_that_they_go(
    world: TwoClusters, by_a_person: bool
) -> None:
    """The map has not forgotten them in between. The new Cluster's status says nothing of them."""
    world.delete(CLUSTER)
    await world.end()
    assert ("Cluster", NS, "east") not in world.kube.objects
    east = [told for told in world.brokers.known.values() if told["cluster"] == "east"]
    assert all(told["leaves"] for told in east)
    if by_a_person:
        east[0]["leavesFor"] = ""
    world.declare("Cluster", "east", superCluster="demo")
    world.restart()
    await world.converge()
    assert [told["node"] for told in east if told["leaves"]] == (["east-0"] if by_a_person else [])
    assert "drain" not in world.status(CLUSTER)
    assert condition(world.status(CLUSTER), "Synced")["status"] == "True"


async def stale_sibling(world: TwoClusters) -> None:
    """The operator has not heard yet that west is there, and west stays."""
    world.delete(CLUSTER)
    world.kube.show(world.cache)
    world.cache.remove(world.kube.objects["Cluster", NS, "west"])
    for _ in range(6):
        await world.rounds.reconcile(CLUSTER)


async def stripped(world: TwoClusters) -> None:
    """Somebody removed the labels, by which the operator sees objects and pods."""
    world.delete(CLUSTER)
    for kind, name in (("StatefulSet", "east"), *(("Pod", f"east-{n}") for n in range(3))):
        body = clone(world.kube.objects[kind, NS, name])
        body["metadata"]["labels"] = {}
        world.kube.objects[kind, NS, name] = body
    world.restart()
    await world.end()
    if STATEFUL_SET in world.kube.objects and ("Cluster", NS, "east") not in world.kube.objects:
        raise LostMapError("brokers run on that are nobody's")


async def of_a_namesake(world: TwoClusters) -> None:
    """The brokers are those of a Cluster of this name whose finalizer was removed by hand."""
    world.brokers.known.clear()

    def mark(body: dict[str, Any]) -> None:
        body["metadata"]["annotations"][CLUSTER_ANNOTATION] = "another"

    world.change("StatefulSet", "east", mark)
    world.delete(CLUSTER)
    await world.end()
    if STATEFUL_SET not in world.kube.objects:
        raise LostMapError("brokers of another Cluster went")


@pytest.mark.covers("OP-5")
async def test_a_stateful_set_of_somebody_else_holds_no_deletion() -> None:
    """It has the name that ours would have, so ours was never made."""
    world = TwoClusters()
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "east", "namespace": NS}}
    theirs = world.kube.put({**body, "spec": {"replicas": 2}})
    for key in (SC, CLUSTER, SC, CLUSTER, CLUSTER):
        await world.round(key)
    world.brokers.known.clear()
    world.delete(CLUSTER)
    await world.end()
    assert ("Cluster", NS, "east") not in world.kube.objects
    assert world.kube.objects[STATEFUL_SET] == theirs


STORIES: Mapping[str, Callable[[TwoClusters], Any]] = {
    "brokers_have_parted": stale_sibling,
    "no_broker_is_left": stripped,
    "is_of_the_cluster": of_a_namesake,
}


@pytest.mark.covers("SF-35", "SF-30")
@pytest.mark.parametrize("check", STORIES)
async def test_a_check_holds_what_its_story_comes_to(world: TwoClusters, check: str) -> None:
    await STORIES[check](world)
    assert STATEFUL_SET in world.kube.objects
    assert condition(world.status(CLUSTER), "Blocked")["reason"] == "NotProvenSafe"


@pytest.mark.parametrize("check", STORIES)
async def test_without_a_check_its_story_ends_badly(
    world: TwoClusters, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = {
        ground: tuple(each for each in needed if each.__name__ != check)
        for ground, needed in destructive.RULES.items()
    }
    assert rules != destructive.RULES
    monkeypatch.setattr(destructive, "RULES", rules)
    if check == "no_broker_is_left":
        steps = cast("dict[type, StepHandler]", CLUSTER_STEPS)
        monkeypatch.setitem(steps, SetFinalizers, finalizers(checks.no_migration_needs_it))
    with pytest.raises(LostMapError):
        await STORIES[check](world)


@pytest.mark.covers("SF-35", "SF-30")
async def test_what_another_super_clusters_brokers_need_is_not_taken_over(world: TwoClusters) -> None:
    def mark(body: dict[str, Any]) -> None:
        body["metadata"]["annotations"][IDENTITY_ANNOTATION] = "another"

    world.change("ConfigMap", "east-config", mark)
    await world.round(CLUSTER)
    assert (
        "is of a super-cluster of identity another" in condition(world.status(CLUSTER), "Blocked")["message"]
    )
    written = world.kube.objects["ConfigMap", NS, "east-config"]["metadata"]["annotations"]
    assert written[IDENTITY_ANNOTATION] == "another"
