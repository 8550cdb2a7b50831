"""What the operator deletes and shortens, and what it leaves alone, as whole rounds: by the live object, its identity and the
brokers' word, never by a cache or a label alone (SF-30)."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

import pytest
from tests.reconcilers.builders import clone, condition
from tests.reconcilers.fakes import FakeKube
from tests.reconcilers.handlers.test_rounds import CLUSTER, DELETED, NS, SC, STREAM
from tests.reconcilers.handlers.test_scale_down_rounds import Shrinking

from supercluster.reconcilers.planners.plan import IDENTITY_ANNOTATION
from supercluster.reconcilers.ports import Key, KubeError

CLAIM = "PersistentVolumeClaim"
SECRET = ("Secret", NS, "demo-credentials")


@pytest.fixture
async def world() -> Shrinking:
    world = Shrinking()
    await world.converge()
    return world


def hold_up(world: Shrinking, key: Key) -> str:
    found = condition(world.status(key), "Blocked")
    assert (found["status"], found["reason"]) == ("True", "NotProvenSafe")
    return str(found["message"])


def delete_with_its_data(world: Shrinking) -> None:
    world.change("Cluster", "east", lambda body: body["spec"].update(deletionPolicy="Delete"))
    world.delete(CLUSTER)


def no_brokers(world: Shrinking) -> None:
    for kind, namespace, name in list(world.kube.objects):
        if kind == "Pod":
            del world.kube.objects[kind, namespace, name]


async def end(world: Shrinking) -> None:
    """Rounds of the deleted Cluster while its pods end."""
    for _ in range(12):
        await world.round(CLUSTER)
        if ("StatefulSet", NS, "east") not in world.kube.objects:
            no_brokers(world)


@pytest.mark.covers("SF-30", "OP-5")
async def test_claims_of_another_super_clusters_cluster_of_that_name_stay(world: Shrinking) -> None:
    """O3: `east` of one super-cluster kept its claims; `east` of another is deleted with its data."""
    world.change("Stream", "flights", lambda body: body["spec"].update(deletionPolicy="Delete"))

    def of_prod(body: dict[str, Any]) -> None:
        body["metadata"]["labels"]["supercluster.dev/super-cluster"] = "prod"
        body["metadata"]["annotations"] = {IDENTITY_ANNOTATION: "prod-uid"}

    def of_a_namesake(body: dict[str, Any]) -> None:
        body["metadata"]["annotations"] = {IDENTITY_ANNOTATION: "demo-of-last-year"}

    def by_somebody(body: dict[str, Any]) -> None:
        del body["metadata"]["annotations"]

    template = world.kube.objects[CLAIM, NS, "data-east-0"]
    for number, edit in ((7, of_prod), (8, of_a_namesake), (9, by_somebody)):
        body = clone(template)
        body["metadata"] = {
            **{key: body["metadata"][key] for key in ("labels", "annotations", "namespace")},
            "name": f"data-east-{number}",
        }
        edit(body)
        world.kube.put(body)
    delete_with_its_data(world)
    await end(world)
    assert ("Cluster", NS, "east") not in world.kube.objects
    assert world.claims() == ["data-east-7", "data-east-8", "data-east-9"]
    assert "data-east-7" in world.kube.events[-1].message


@pytest.mark.covers("SF-30", "OP-5")
@pytest.mark.parametrize("change", ["policy", "recreated"])
async def test_a_stale_cache_deletes_nothing(world: Shrinking, change: str) -> None:
    """The Cluster was made anew, or its policy set back, and the watch has not said so yet."""
    world.change("Stream", "flights", lambda body: body["spec"].update(deletionPolicy="Delete"))
    delete_with_its_data(world)
    world.kube.show(world.cache)
    live = world.kube.objects["Cluster", NS, "east"]
    if change == "policy":
        world.change("Cluster", "east", lambda body: body["spec"].update(deletionPolicy="Retain"))
    else:
        live["metadata"]["uid"] = "another"
        del live["metadata"]["deletionTimestamp"]
    await world.rounds.reconcile(CLUSTER)
    assert ("StatefulSet", NS, "east") in world.kube.objects
    assert len(world.claims()) == 5


@pytest.mark.covers("SF-30", "OP-5")
async def test_a_cluster_waits_for_streams_that_are_to_be_retained(world: Shrinking) -> None:
    """O26."""
    delete_with_its_data(world)
    await end(world)
    assert len(world.claims()) == 5
    ready = condition(world.status(CLUSTER), "Whole")
    assert ready["reason"] == "StreamsRemain"
    assert "flights" in ready["message"]
    world.change("Stream", "flights", lambda body: body["spec"].update(deletionPolicy="Delete"))
    await end(world)
    assert world.claims() == []


@pytest.mark.covers("SF-30", "OP-5")
async def test_brokers_say_that_a_stream_lives_there_whatever_its_status_says(world: Shrinking) -> None:
    world.change("Stream", "flights", lambda body: body["status"].update(cluster="west"))
    delete_with_its_data(world)
    await world.round(CLUSTER)
    assert ("StatefulSet", NS, "east") in world.kube.objects
    assert "Retain live there: flights" in hold_up(world, CLUSTER)


def strand(world: Shrinking, name: str, container: dict[str, Any] | None = None) -> None:
    """A pod that does not run, for long; its claim is being deleted and goes with it."""

    def stop(body: dict[str, Any]) -> None:
        body["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        body["status"] = {
            "podIP": body["status"]["podIP"],
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [container] if container else [],
        }

    def terminate(body: dict[str, Any]) -> None:
        body["metadata"].update(DELETED, finalizers=["kubernetes.io/pvc-protection"])

    world.change("Pod", name, stop)
    world.change(CLAIM, f"data-{name}", terminate)


CRASHED = {"name": "broker", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}


@pytest.mark.covers("SF-30", "MR-2")
async def test_a_crashing_broker_keeps_its_volume_though_its_claim_is_being_deleted(world: Shrinking) -> None:
    """O4."""
    world.brokers.known["east-1"]["awaySinceNs"] = 1
    strand(world, "east-1", CRASHED)
    await world.round(CLUSTER)
    assert ("Pod", NS, "east-1") in world.kube.objects
    assert condition(world.status(CLUSTER), "Warning")["reason"] == "VolumeTerminating"


@pytest.mark.covers("SF-30", "MR-2")
@pytest.mark.parametrize(
    ("members", "away", "why"),
    [
        (["east-1"], [], "stream flights is not whole without it"),
        (["east-0", "east-1", "east-2"], ["east-2"], "stream flights is not whole without it"),
    ],
)
async def test_a_volume_with_what_others_lack_does_not_go_with_its_pod(
    world: Shrinking, members: list[str], away: list[str], why: str
) -> None:
    world.brokers.members["flights"] = members
    for name in ("east-1", *away):
        world.brokers.known[name]["awaySinceNs"] = 1
    strand(world, "east-1")
    await world.round(CLUSTER)
    assert ("Pod", NS, "east-1") in world.kube.objects
    assert why in hold_up(world, CLUSTER)


@pytest.mark.covers("SF-30", "MR-2")
async def test_a_volume_that_nobody_needs_goes_with_a_pod_that_never_started(world: Shrinking) -> None:
    world.brokers.members["flights"] = ["east-0", "east-1", "east-2"]
    world.brokers.known["east-1"]["awaySinceNs"] = 1
    strand(world, "east-1")
    await world.round(CLUSTER)
    assert ("Pod", NS, "east-1") not in world.kube.objects


@pytest.mark.covers("SF-30", "MR-2")
async def test_a_claim_without_our_labels_is_there_all_the_same(world: Shrinking) -> None:
    """O5: made from a snapshot by a person."""
    strand(world, "east-1")

    def plain(body: dict[str, Any]) -> None:
        for field in ("labels", "annotations", "deletionTimestamp", "finalizers"):
            body["metadata"].pop(field, None)

    world.change(CLAIM, "data-east-1", plain)
    world.restart()
    for _ in range(3):
        await world.round(CLUSTER)
    assert ("Pod", NS, "east-1") in world.kube.objects
    assert not [call for call in world.kube.calls if call.startswith("delete Pod")]


def users(world: Shrinking) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(b64decode(world.kube.objects[SECRET]["data"]["users.json"]))
    return found


@pytest.mark.covers("SF-30", "CL-5")
@pytest.mark.parametrize("is_refused", [False, True])
async def test_passwords_stay_when_a_secret_is_not_in_the_cache(world: Shrinking, is_refused: bool) -> None:
    """O6: somebody removed its labels, or the list failed."""
    before = clone(world.kube.objects[SECRET]["data"])
    world.change(
        "Secret",
        "demo-credentials",
        lambda body: body["metadata"]["labels"].pop("supercluster.dev/super-cluster"),
    )
    world.restart()
    if is_refused:
        failures = [KubeError(503, "Unavailable", "later")]
        world.kube.fail = lambda call: (
            failures.pop() if call == "get Secret demo-credentials" and failures else None
        )
    for _ in range(3):
        await world.round(SC)
    assert world.kube.objects[SECRET]["data"] == before
    assert world.kube.objects[SECRET]["metadata"]["labels"]["supercluster.dev/super-cluster"] == "demo"
    world.kube.show(world.cache)
    assert world.cache.get(*SECRET) is not None


@pytest.mark.covers("SF-30", "CL-5")
async def test_what_people_have_written_into_users_json_stays(world: Shrinking) -> None:
    """O7: accounts and their imports are there beside the users."""
    accounts = {"A": {"exports": [{"stream": "a.>"}]}}

    def edit(body: dict[str, Any]) -> None:
        content = json.loads(b64decode(body["data"]["users.json"]))
        content["accounts"] = accounts
        content["users"] = [user for user in content["users"] if user["user"] != "app"]
        body["data"]["users.json"] = b64encode(json.dumps(content).encode()).decode()

    world.change("Secret", "demo-credentials", edit)
    await world.converge()
    assert users(world)["accounts"] == accounts
    assert [user["user"] for user in users(world)["users"]] == ["operator", "app"]


@pytest.mark.covers("SF-30", "CL-5")
@pytest.mark.parametrize("text", ['{"users": [', "[]", '{"users": {"user": "app"}}'])
async def test_a_mistake_in_users_json_is_told_and_not_overwritten(world: Shrinking, text: str) -> None:
    """O7."""
    broken = b64encode(text.encode()).decode()
    world.change("Secret", "demo-credentials", lambda body: body["data"].update({"users.json": broken}))
    for _ in range(2):
        await world.round(SC)
    assert world.kube.objects[SECRET]["data"]["users.json"] == broken
    synced = condition(world.status(SC), "Synced")
    assert (synced["status"], synced["reason"]) == ("False", "CredentialsUnreadable")
    assert "users.json can't be read" in synced["message"]


@pytest.mark.covers("SF-30", "OP-5")
async def test_credentials_go_last_and_come_back_while_clusters_remain(world: Shrinking) -> None:
    """O8: foreground deletion begins with what is owned."""
    assert "ownerReferences" not in world.kube.objects[SECRET]["metadata"]
    world.delete(SC)
    del world.kube.objects[SECRET]
    await world.round(SC)
    assert SECRET in world.kube.objects
    del world.kube.objects["Cluster", NS, "east"]
    world.kube.show(world.cache)
    world.declare("Cluster", "late", superCluster="demo")
    for _ in range(2):
        await world.rounds.reconcile(SC)
    assert "ownerReferences" not in world.kube.objects[SECRET]["metadata"]
    assert "Clusters are left: late" in hold_up(world, SC)
    del world.kube.objects["Cluster", NS, "late"]
    uid = world.kube.objects["SuperCluster", NS, "demo"]["metadata"]["uid"]
    for _ in range(2):
        await world.round(SC)
    (owner,) = world.kube.objects[SECRET]["metadata"]["ownerReferences"]
    assert owner["uid"] == uid, "for garbage collection, when it is gone"
    assert ("SuperCluster", NS, "demo") not in world.kube.objects


@pytest.mark.covers("SF-30")
async def test_a_stream_goes_without_brokers_only_while_the_api_server_has_no_cluster(
    world: Shrinking,
) -> None:
    """The cache may not have heard of one yet, and its brokers may have the stream."""
    del world.kube.objects["Cluster", NS, "east"]
    world.delete(STREAM)
    world.kube.show(world.cache)
    world.declare("Cluster", "late", superCluster="demo")
    for _ in range(2):
        await world.rounds.reconcile(STREAM)
    assert ("Stream", NS, "flights") in world.kube.objects
    assert "Clusters are left: late" in hold_up(world, STREAM)
    del world.kube.objects["Cluster", NS, "late"]
    for _ in range(2):
        await world.rounds.reconcile(STREAM)
    assert ("Stream", NS, "flights") not in world.kube.objects


@pytest.mark.covers("SF-30")
async def test_a_super_cluster_stays_for_a_cluster_that_came_behind_its_credentials_turn(
    world: Shrinking,
) -> None:
    del world.kube.objects["Cluster", NS, "east"]
    world.delete(SC)
    world.kube.show(world.cache)

    patch = world.kube.merge_patch

    async def then_a_cluster_comes(*of: Any, **options: Any) -> Any:
        done = await patch(*of, **options)
        if "Secret" in of:
            world.declare("Cluster", "late", superCluster="demo")
        return done

    world.kube.merge_patch = then_a_cluster_comes  # type: ignore[method-assign]
    for _ in range(3):
        await world.rounds.reconcile(SC)
    assert ("SuperCluster", NS, "demo") in world.kube.objects
    assert "Clusters are left: late" in hold_up(world, SC)


async def test_an_owner_of_before_is_taken_off_the_credentials(world: Shrinking) -> None:
    def own(body: dict[str, Any]) -> None:
        body["metadata"]["ownerReferences"] = [{"kind": "SuperCluster", "name": "demo", "uid": "u"}]

    before = users(world)
    world.change("Secret", "demo-credentials", own)
    await world.round(SC)
    assert "ownerReferences" not in world.kube.objects[SECRET]["metadata"]
    assert users(world) == before


@pytest.mark.covers("SF-30", "OP-5")
@pytest.mark.parametrize("kind", ["Cluster", "SuperCluster"])
async def test_a_resource_that_can_not_be_read_is_not_absent(world: Shrinking, kind: str) -> None:
    """O9: a newer version of the operator wrote it, and it was rolled back."""
    world.change("Stream", "flights", lambda body: body["spec"].update(deletionPolicy="Delete"))
    name = "east" if kind == "Cluster" else "demo"
    edit = {"storage": {"type": "Tape"}} if kind == "Cluster" else {"moves": "many"}
    world.change(kind, name, lambda body: body["spec"].update(edit))
    world.delete(STREAM)
    for _ in range(2):
        await world.round(STREAM)
    assert ("Stream", NS, "flights") in world.kube.objects
    assert f"can't read {kind} {name}" in hold_up(world, STREAM)
    assert world.told().count("NotProvenSafe") == 1
    healthy = {"storage": {"type": "PersistentVolumeClaim"}} if kind == "Cluster" else {"moves": {}}
    world.change(kind, name, lambda body: body["spec"].update(healthy))
    for _ in range(2):
        await world.round(STREAM)
    assert ("Stream", NS, "flights") not in world.kube.objects
    assert "flights" not in world.brokers.streams


@pytest.mark.covers("SF-30", "CL-6")
async def test_gateways_of_a_cluster_that_can_not_be_read_stay(world: Shrinking) -> None:
    """O9."""
    world.declare("Cluster", "west", superCluster="demo")
    await world.converge()
    assert list(world.config()["gateways"]) == ["west"]
    urls = world.secret("demo-client")["urls"]
    world.change("Cluster", "west", lambda body: body["spec"].update(storage={"type": "Tape"}))
    for _ in range(2):
        await world.round(CLUSTER)
        await world.round(SC)
    assert list(world.config()["gateways"]) == ["west"]
    assert world.secret("demo-client")["urls"] == urls
    assert "can't read Cluster west" in hold_up(world, CLUSTER)
    assert world.status(SC)["founder"]["cluster"] == "east"
    world.change("Cluster", "west", lambda body: body["spec"].pop("storage"))
    await world.converge()
    assert condition(world.status(CLUSTER), "Blocked")["status"] == "False"


async def test_a_map_is_not_begun_anew_while_a_member_can_not_be_read() -> None:
    """O9: whoever can't be read may be the one that began it."""
    world = Shrinking()
    world.declare("Cluster", "older", superCluster="demo", storage={"type": "Tape"})
    for _ in range(3):
        await world.round(SC)
        await world.round(CLUSTER)
    assert "founder" not in world.status(SC)
    assert ("StatefulSet", NS, "east") not in world.kube.objects


@pytest.mark.covers("SF-30")
async def test_nothing_is_deleted_before_every_kind_was_listed(world: Shrinking) -> None:
    """O11."""
    world.change("Stream", "flights", lambda body: body["spec"].update(deletionPolicy="Delete"))
    world.delete(STREAM)
    world.restart()
    world.cache.expect_lists(["Cluster"])
    await world.round(STREAM)
    assert "not listed yet: Cluster" in hold_up(world, STREAM)
    assert "flights" in world.brokers.streams
    world.cache.listed("Cluster")
    for _ in range(2):
        await world.round(STREAM)
    assert ("Stream", NS, "flights") not in world.kube.objects


@pytest.mark.covers("SF-30", "OP-3")
async def test_fewer_brokers_only_as_the_brokers_say_that_these_hold_nothing(world: Shrinking) -> None:
    """The plan was made a moment ago; meanwhile a copy came to a broker that is to go."""
    world.scale(3)
    await world.converge()
    world.finish()
    for name in ("east-3", "east-4"):
        world.brokers.known[name]["leaves"] = True
    world.kube.show(world.cache)
    asked = 0

    def meanwhile(call: str) -> Exception | None:
        nonlocal asked
        if call == "get StatefulSet east":
            world.brokers.members["flights"] = ["east-0", "east-1", "east-4"]
            asked += 1
        return None

    world.kube.fail = meanwhile
    for _ in range(2):
        await world.round(CLUSTER)
    assert asked
    assert world.running == 5


@pytest.mark.covers("SF-30", "MV-1")
async def test_a_foreign_object_of_that_name_is_told(world: Shrinking) -> None:
    """O27: it was asked for, for ever, without a word."""
    world.declare("Cluster", "west", superCluster="demo")
    await world.converge()
    generation = world.kube.objects["Stream", NS, "flights"]["metadata"]["generation"] + 1
    world.declare(
        "StreamMove",
        f"flights-g{generation}",
        superCluster="demo",
        streamRef="other",
        destination={"cluster": "west"},
    )
    world.change("Stream", "flights", lambda body: body["spec"].update(placement={"cluster": "west"}))
    for _ in range(3):
        await world.round(STREAM)
    accepted = condition(world.status(STREAM), "Accepted")
    assert accepted["status"] == "False"
    assert f"StreamMove flights-g{generation} exists" in accepted["message"]


@pytest.mark.covers("SF-30")
async def test_every_deletion_has_uid_and_version(world: Shrinking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever changes the object between the look and the deletion has it stay."""
    world.change("Stream", "flights", lambda body: body["spec"].update(deletionPolicy="Delete"))
    delete_with_its_data(world)
    deleted = FakeKube.delete

    async def touched_before(self: FakeKube, *arguments: str) -> None:
        kind, namespace, name = arguments[1:4]
        body = self.objects[kind, namespace, name]
        touched = {"annotations": {"touched": body["metadata"]["resourceVersion"]}}
        self.put({**body, "metadata": {**body["metadata"], **touched}})
        await deleted(self, *arguments)

    monkeypatch.setattr(FakeKube, "delete", touched_before)
    await end(world)
    assert ("StatefulSet", NS, "east") in world.kube.objects
    assert len(world.claims()) == 5
