"""`supercluster move` and its kin: a declared stream is moved by its placement, another by a StreamMove."""

from __future__ import annotations

from typing import Any

import pytest
from tests.app.test_adapters import Server, kube, server

from supercluster.api import StreamMove
from supercluster.app.commands import moves
from supercluster.app.kube import KubeClient

__all__ = ["kube", "server"]

STREAM: dict[str, Any] = {
    "metadata": {"name": "flights", "namespace": "ns", "generation": 4},
    "spec": {"superCluster": "demo", "subjects": ["f"]},
    "status": {"cluster": "east"},
}
CLUSTERS = (
    200,
    {
        "items": [
            {"metadata": {"name": name}, "spec": {"superCluster": whole, "replicas": 2}}
            for name, whole in (("east", "demo"), ("west", "demo"), ("far", "other"))
        ]
    },
)
NOT_FOUND = (404, {"reason": "NotFound"})


def move(name: str = "a", **status: Any) -> dict[str, Any]:
    spec = {"superCluster": "demo", "stream": "s", "destination": {"cluster": "west"}}
    return {"metadata": {"name": name, "namespace": "ns", "uid": "u"}, "spec": spec, "status": status}


@pytest.mark.covers("MV-1", "OP-2")
async def test_a_declared_stream_is_moved_by_its_own_placement(server: Server, kube: KubeClient) -> None:
    patched = {**STREAM, "metadata": {**STREAM["metadata"], "generation": 5}}
    server.answers = [(200, STREAM), CLUSTERS, (200, patched)]
    name, said = await moves.ask(kube, "ns", moves.Wish("flights", "west", bytes_per_s="1Mi"))
    assert name == "flights-g5"
    assert "streammove/flights-g5" in said
    method, path, _, _, body = server.asked[2]
    assert (method, path.rsplit("/", 2)[1:]) == ("PATCH", ["streams", "flights"])
    assert body == {"spec": {"placement": {"cluster": "west"}, "move": {"bandwidth": {"bytesPerS": "1Mi"}}}}


@pytest.mark.parametrize("wanted", ["wset", "far", ""])
async def test_a_cluster_that_is_not_of_the_super_cluster_is_refused_before_anything_is_changed(
    server: Server, kube: KubeClient, wanted: str
) -> None:
    server.answers = [(200, STREAM), CLUSTERS]
    with pytest.raises(moves.MoveError, match="its Clusters are: east, west"):
        await moves.ask(kube, "ns", moves.Wish("flights", wanted))
    assert [asked[0] for asked in server.asked] == ["GET", "GET"]


async def test_a_move_of_what_is_not_there_is_not_waited_for(server: Server, kube: KubeClient) -> None:
    lacking = {
        "type": "Planned",
        "status": "False",
        "reason": "StreamNotFound",
        "message": "there is no stream s",
    }
    stamped = {**lacking, "lastTransitionTime": "2026-11-29T00:00:00Z"}
    server.answers = [(200, move(phase="Pending", message="there is no stream s", conditions=[stamped]))]
    said: list[str] = []
    found = await moves.watch(kube, "ns", "a", 5.0, said.append)
    assert found is not None
    assert said == ["Pending: there is no stream s"]


async def test_a_dry_run_is_deleted_as_it_is_by_then(server: Server, kube: KubeClient) -> None:
    body = move()
    body["metadata"]["resourceVersion"] = "7"
    written_meanwhile = (409, {"reason": "Conflict"})
    server.answers = [(200, body), written_meanwhile, (200, body), (200, {}), NOT_FOUND]
    await moves.forget(kube, "ns", "a")
    await moves.forget(kube, "ns", "a")
    assert [asked[0] for asked in server.asked] == ["GET", "DELETE", "GET", "DELETE", "GET"]


async def test_a_stream_that_is_there_already_is_not_waited_for(server: Server, kube: KubeClient) -> None:
    server.answers = [(200, STREAM), (200, STREAM)]
    name, said = await moves.ask(kube, "ns", moves.Wish("flights", "east"))
    assert name == ""
    assert "is in east already" in said


@pytest.mark.covers("SF-23")
async def test_a_stream_that_nobody_declares_gets_a_move_of_the_only_super_cluster(
    server: Server, kube: KubeClient
) -> None:
    known = (200, {"items": [{"metadata": {"name": "demo"}}]})
    server.answers = [NOT_FOUND, known, (201, {}), NOT_FOUND, (200, move()), (200, move(phase="Queued"))]
    name, _ = await moves.ask(kube, "ns", moves.Wish("KV_prices", "west"))
    assert name.startswith("kv-prices-")
    body = server.asked[2][4]
    assert body["spec"] == {
        "superCluster": "demo",
        "destination": {"cluster": "west"},
        "dryRun": False,
        "stream": "KV_prices",
    }
    StreamMove.model_validate(body)


async def test_of_a_move_of_a_stream_that_is_not_there_nothing_is_left(
    server: Server, kube: KubeClient
) -> None:
    """Only the operator can say which streams there are without a resource, so it is asked."""
    lacking = {"type": "Planned", "status": "False", "reason": "StreamNotFound", "message": "none"}
    conditions = [{**lacking, "lastTransitionTime": "2026-11-29T00:00:00Z"}]
    pending = move(phase="Pending", message="there is no stream nope", conditions=conditions)
    pending["metadata"]["resourceVersion"] = "7"
    known = (200, {"items": [{"metadata": {"name": "demo"}}]})
    server.answers = [NOT_FOUND, known, (201, {}), (200, pending), (200, pending), (200, {})]
    with pytest.raises(moves.MoveError, match="there is no stream nope"):
        await moves.ask(kube, "ns", moves.Wish("nope", "west"))
    assert server.asked[-1][0] == "DELETE"


async def test_a_replica_on_a_broker_that_is_not_there_is_not_asked_for(
    server: Server, kube: KubeClient
) -> None:
    server.answers = [(200, STREAM), CLUSTERS]
    with pytest.raises(moves.MoveError, match="its brokers are: east-0, east-1, west-0, west-1"):
        await moves.ask_for_replica(kube, "ns", moves.ReplicaWish("flights", "east-2", is_added=True))
    assert [asked[0] for asked in server.asked] == ["GET", "GET"]


async def test_a_stream_that_is_not_accepted_is_not_waited_for(server: Server, kube: KubeClient) -> None:
    """No StreamMove is made then. What was said of an older generation does not count."""
    refused = {"type": "Accepted", "status": "False", "reason": "TooManyReplicas", "message": "west has 2"}
    older, newest = (
        {**STREAM, "status": {"observedGeneration": seen, "conditions": [refused]}} for seen in (3, 4)
    )
    server.answers = [NOT_FOUND, (200, older), NOT_FOUND, (200, newest)]
    with pytest.raises(moves.MoveError, match="not accepted: TooManyReplicas: west has 2"):
        await moves.watch(kube, "ns", "flights-g4", 30, print, "flights")


async def test_which_super_cluster_must_be_clear(server: Server, kube: KubeClient) -> None:
    server.answers = [NOT_FOUND, (200, {"items": []})]
    with pytest.raises(moves.MoveError, match="--super-cluster"):
        await moves.ask(kube, "ns", moves.Wish("mine", "west"))


async def test_a_dry_run_of_a_declared_stream_changes_no_placement(server: Server, kube: KubeClient) -> None:
    server.answers = [(200, STREAM), (201, {})]
    await moves.ask(kube, "ns", moves.Wish("flights", "west", dry_run=True))
    method, _, _, _, body = server.asked[1]
    assert method == "POST"
    assert (body["spec"]["dryRun"], body["spec"]["streamRef"]) == (True, "flights")


async def test_a_move_is_followed_to_its_end(server: Server, kube: KubeClient) -> None:
    told: list[str] = []
    running, done = move(phase="Running", message="learning"), move(phase="Succeeded", message="equal")
    server.answers = [NOT_FOUND, (200, running), (200, running), (200, done)]
    found = await moves.watch(kube, "ns", "a", 30, told.append)
    assert found is not None
    assert told == ["Running: learning", "Succeeded: equal"]


async def test_a_move_that_has_ended_can_not_be_called_off(server: Server, kube: KubeClient) -> None:
    server.answers = [(200, move(phase="Succeeded"))]
    with pytest.raises(moves.MoveError, match="has ended: Succeeded"):
        await moves.cancel(kube, "ns", "a")
    server.answers = [NOT_FOUND]
    with pytest.raises(moves.MoveError, match="no StreamMove a"):
        await moves.cancel(kube, "ns", "a")
    server.answers = [(200, move(phase="Running")), (200, {})]
    assert "is being cancelled" in await moves.cancel(kube, "ns", "a")
    assert server.asked[-1][4] == {"spec": {"cancel": True}}


async def test_moves_are_listed_with_how_far_they_are(server: Server, kube: KubeClient) -> None:
    progress = {"stage": "tail", "etaSeconds": 4}
    server.answers = [
        (200, {"items": [move(phase="Running", percent="40%", progress=progress), move("new")]})
    ]
    header, running, new = moves.table(await moves.fetch(kube, "ns")).splitlines()
    assert header.split()[:5] == ["NAME", "STREAM", "FROM", "TO", "PHASE"]
    assert running.split() == ["a", "-", "-", "-", "Running", "40%", "tail", "4", "s"]
    assert new.split()[4] == "Pending"


async def test_a_move_without_an_end_in_sight_says_so_instead_of_a_time(
    server: Server, kube: KubeClient
) -> None:
    trouble = "the new copies do not catch up: raise the bandwidth of the move well above 9000 bytes/s"
    found = move(phase="Running", message=trouble, progress={"stage": "learning", "trouble": trouble})
    server.answers = [(200, {"items": [found]})]
    _, row = moves.table(await moves.fetch(kube, "ns")).splitlines()
    assert " unknown " in row
    assert "raise the bandwidth of the move well above 9000" in row


@pytest.mark.covers("MR-3")
@pytest.mark.parametrize(("is_added", "verb"), [(True, "add"), (False, "remove")])
async def test_a_replica_is_added_or_removed_by_name_with_a_move_of_its_own(
    server: Server, kube: KubeClient, is_added: bool, verb: str
) -> None:
    server.answers = [(200, STREAM), *([CLUSTERS] if is_added else []), (201, {})]
    name, said = await moves.ask_for_replica(
        kube, "ns", moves.ReplicaWish("flights", "east-1", is_added, bytes_per_s="1Mi")
    )
    assert said == f"streammove/{name} created"
    assert server.asked[-1][4]["spec"] == {
        "superCluster": "demo",
        "members": {verb: ["east-1"]},
        "dryRun": False,
        "streamRef": "flights",
        "bandwidth": {"bytesPerS": "1Mi"},
    }
