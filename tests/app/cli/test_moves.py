"""`supercluster plan`, `move`, `moves` and `explain` as a user types them."""

from __future__ import annotations

import json

import pytest
from tests.app.commands.test_moves import NOT_FOUND, STREAM, move
from tests.app.test_adapters import Server, kube, server
from tests.support.command_line import run_line

from supercluster.app.commands.errors import EXIT_FAILED, EXIT_OK, CommandError
from supercluster.app.kube import KubeClient

__all__ = ["kube", "server"]

QUORUM = {"voters": 3, "majority": 2, "well": 3}
PLAN = {
    "targets": [{"name": "west-0", "reason": "most room"}],
    "rejected": [],
    "quorumBefore": QUORUM,
    "quorumAfter": QUORUM,
    "headRoom": [],
    "disturbs": [],
}


@pytest.mark.covers("MV-13")
@pytest.mark.parametrize("words", [("plan",), ("move", "--dry-run")])
async def test_a_plan_is_json_on_standard_output_alone_and_changes_nothing(
    words: tuple[str, ...], server: Server, kube: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = move(phase="Planned", message="may start", plan=PLAN)
    planned["spec"]["dryRun"], planned["metadata"]["resourceVersion"] = True, "7"
    server.answers = [(200, STREAM), (201, {}), (200, planned), (200, planned), (200, {})]
    assert await run_line(kube, *words, "flights", "--to", "west", "-o", "json") == EXIT_OK
    printed = capsys.readouterr()
    assert json.loads(printed.out)["status"]["plan"]["targets"] == PLAN["targets"]
    assert printed.err == "Planned: may start\n"
    asked = [(method, path.rpartition("/")[2]) for method, path, *_ in server.asked]
    assert asked[0] == ("GET", "flights")
    assert asked[1] == ("POST", "streammoves")
    assert asked[-1][0] == "DELETE"
    assert server.asked[1][4]["spec"]["dryRun"] is True


async def test_a_plan_of_an_unknown_stream_ends_at_once_and_leaves_nothing(
    server: Server, kube: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = {
        "type": "Planned",
        "status": "False",
        "reason": "StreamNotFound",
        "message": "there is no stream nope",
    }
    conditions = [{**lacking, "lastTransitionTime": "2026-11-29T00:00:00Z"}]
    pending = move(phase="Pending", message="there is no stream nope", conditions=conditions)
    pending["metadata"]["resourceVersion"] = "7"
    known = (200, {"items": [{"metadata": {"name": "demo"}}]})
    server.answers = [NOT_FOUND, known, (201, {}), (200, pending), (200, pending), (200, {})]
    assert await run_line(kube, "plan", "nope", "--to", "west") == EXIT_FAILED
    assert server.asked[-1][0] == "DELETE"
    assert "there is no stream nope" in capsys.readouterr().out


async def test_moves_are_a_table_or_json(
    server: Server, kube: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = {"items": [move(phase="Running", percent="40%")]}
    server.answers = [(200, listed), (200, listed), (200, {"items": []})]
    assert await run_line(kube, "moves") == EXIT_OK
    assert capsys.readouterr().out.splitlines()[1].split()[:6] == ["a", "-", "-", "-", "Running", "40%"]
    assert await run_line(kube, "moves", "-o", "json") == EXIT_OK
    assert json.loads(capsys.readouterr().out)[0]["status"]["percent"] == "40%"
    assert await run_line(kube, "moves") == EXIT_OK
    assert capsys.readouterr() == ("", "no moves in namespace ns\n")


async def test_a_stream_is_explained_as_json_with_what_is_not_as_it_should_be(
    server: Server, kube: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    fine = {"type": "Ready", "status": "True", "reason": "R", "message": ""}
    wrong = {"type": "Synced", "status": "False", "reason": "Moving", "message": "m"}
    status = {"conditions": [fine, wrong], "replicas": [{"name": "east-0"}], "rejected": []}
    server.answers = [(200, {**STREAM, "status": status}), NOT_FOUND]
    assert await run_line(kube, "explain", "flights", "-o", "json") == EXIT_OK
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["conditions"]) == ("flights", [wrong])
    with pytest.raises(CommandError, match="no Stream flights in namespace ns; `supercluster status`"):
        await run_line(kube, "explain", "flights")


async def test_an_explanation_says_a_message_once(
    server: Server, kube: KubeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "spec.placement.cluster is nrth, which is no Cluster"
    reasons = {
        "Ready": "NotAccepted",
        "Whole": "NotAccepted",
        "Accepted": "ClusterNotFound",
        "Synced": "NotAccepted",
    }
    conditions = [
        {"type": type_, "status": "False", "reason": reason, "message": why}
        for type_, reason in reasons.items()
    ]
    server.answers = [(200, {**STREAM, "status": {"conditions": conditions}})]
    await run_line(kube, "explain", "flights")
    assert capsys.readouterr().out.count(why) == 1
