"""Losing nodes and planes: what stops, what stays, what comes back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.localplane.lab import Lab, Labs, bare_pod, web_set
from tests.support.tiers import case

from supercluster.localplane import client as plane_client
from supercluster.localplane.agent import start_agent
from supercluster.localplane.node import faults, leftovers
from supercluster.localplane.node.agent import StateInUse

pytestmark = pytest.mark.e2e


def in_session(session: int) -> list[int]:
    """Living processes of a session."""
    stats = {pid: leftovers.stat_of(pid) for pid in leftovers.pids()}
    return [pid for pid, stat in stats.items() if stat is not None and stat[2] == session and stat[0] != "Z"]


def condition(obj: plane_client.Json, kind: str) -> str:
    return next(str(one["status"]) for one in obj["status"]["conditions"] if one["type"] == kind)


@pytest.mark.parametrize(("destroy", "starts"), [(False, 2), (True, 1)])
async def test_a_lost_node_takes_its_pods_down_and_its_return_brings_them_back(
    lab: Lab, destroy: bool, starts: int
) -> None:
    await lab.create(plane_client.STATEFUL_SETS, web_set())
    await lab.ready("web-0", "web-1", "web-2")
    node = lab.pod("web-1")["spec"]["nodeName"]
    process = (await lab.ask("web-1"))["pid"]
    address = lab.pod("web-1")["status"]["podIP"]
    assert await lab.agent.faults.lose_node(node, destroy_volumes=destroy) == 1
    assert in_session(process) == []
    await lab.until(lambda: not lab.is_ready("web-1"))
    assert condition(lab.held(plane_client.NODES, node), "Ready") == "Unknown"
    assert lab.is_ready("web-0")
    await lab.agent.faults.return_node(node)
    await lab.ready("web-1")
    assert (await lab.ask("web-1"))["starts"] == starts
    assert lab.pod("web-1")["status"]["podIP"] == address
    assert condition(lab.held(plane_client.NODES, node), "Ready") == "True"
    assert not lab.held(plane_client.NODES, node)["spec"].get("taints")


async def test_pods_of_a_deleted_node_are_removed_and_wait_for_their_volumes_node(lab: Lab) -> None:
    await lab.create(plane_client.STATEFUL_SETS, web_set())
    await lab.ready("web-0", "web-1", "web-2")
    before = lab.pod("web-2")
    await lab.delete(plane_client.NODES, before["spec"]["nodeName"])

    def is_waiting() -> bool:
        pod = lab.get(plane_client.PODS, "web-2")
        return (
            pod is not None
            and not pod["spec"].get("nodeName")
            and "status" in pod
            and bool(
                [one for one in pod["status"].get("conditions") or () if one.get("reason") == "Unschedulable"]
            )
        )

    await lab.until(is_waiting)
    assert lab.pod("web-2")["metadata"]["uid"] != before["metadata"]["uid"]


async def test_pods_go_on_with_their_volumes_after_a_restart_of_the_plane(labs: Labs) -> None:
    lab = await labs.start()
    await lab.create(plane_client.STATEFUL_SETS, web_set())
    await lab.ready("web-0", "web-1", "web-2")
    before = {name: (pod["metadata"]["uid"], pod["status"]["podIP"]) for name, pod in lab.pods().items()}
    processes = [(await lab.ask(name))["pid"] for name in before]
    await labs.stop()
    assert not any(in_session(process) for process in processes)
    lab = await labs.start()
    await lab.until(
        lambda: all(pod["status"]["containerStatuses"][0]["restartCount"] == 1 for pod in lab.pods().values())
    )
    await lab.ready("web-0", "web-1", "web-2")
    assert before == {
        name: (pod["metadata"]["uid"], pod["status"]["podIP"]) for name, pod in lab.pods().items()
    }
    assert [(await lab.ask(name))["starts"] for name in before] == [2, 2, 2]


async def test_a_node_that_a_smaller_plane_has_not_is_unreachable_until_it_returns(labs: Labs) -> None:
    lab = await labs.start(nodes=2)
    await lab.create(plane_client.STATEFUL_SETS, web_set(replicas=2))
    await lab.ready("web-0", "web-1")
    name = next(name for name, pod in lab.pods().items() if pod["spec"]["nodeName"] == "node-2")
    await labs.stop()
    lab = await labs.start(nodes=1)
    await lab.until(lambda: condition(lab.held(plane_client.NODES, "node-2"), "Ready") == "Unknown")
    await lab.until(lambda: not lab.is_ready(name))
    await lab.agent.faults.return_node("node-2")
    await lab.ready("web-0", "web-1")


async def test_two_agents_do_not_share_a_state_directory(labs: Labs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supercluster.localplane.node.agent.LOCK_WAIT_S", 0.1)
    lab = await labs.start()
    with pytest.raises(StateInUse, match="another plane is running"):
        await start_agent(lab.plane.server.plain_url, lab.plane.token, lab.state_dir, 1)


async def test_levers_need_the_token_and_work_over_http(lab: Lab) -> None:
    await lab.create(plane_client.PODS, bare_pod("target", "-c", "exec sleep 1000"))
    await lab.ready("target")
    told = await faults.call(lab.state_dir, "GET", "/pods")
    (process,) = told["items"][0]["processes"].values()
    body = {"namespace": "default", "pod": "target"}
    assert await faults.call(lab.state_dir, "POST", "/faults/kill", body) == {"killed": [process]}
    await lab.until(lambda: lab.pod("target")["status"]["containerStatuses"][0]["restartCount"] == 1)
    with pytest.raises(RuntimeError, match="node 'moon' is not one of node-1"):
        await faults.call(lab.state_dir, "POST", "/faults/lose-node", {"node": "moon"})
    where = lab.state_dir / "agent.json"
    assert where.stat().st_mode & 0o077 == 0
    where.write_text(json.dumps({**json.loads(where.read_text()), "token": "wrong"}))
    with pytest.raises(RuntimeError, match="Unauthorized"):
        await faults.call(lab.state_dir, "GET", "/pods")


async def _plane_process(state_dir: Path) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "supercluster.localplane",
        "--state",
        str(state_dir),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert b"ready at" in await process.stdout.readline()
    return process


@pytest.mark.parametrize(
    "number",
    [
        case(signal.SIGKILL, id="SIGKILL", is_short=True),
        case(signal.SIGTERM, id="SIGTERM", is_short=False),
    ],
)
async def test_nothing_outlives_the_plane(tmp_path: Path, number: int) -> None:
    """Children, their children, and those that made a session of their own."""
    state_dir = tmp_path / "state"
    plane = await _plane_process(state_dir)
    told = json.loads((state_dir / "ready.json").read_text())
    async with plane_client.Client(told["plainUrl"], (state_dir / "token").read_text().strip()) as client:
        await client.create(
            plane_client.PODS, bare_pod("family", "-c", "sleep 1000 & setsid sleep 1000 & echo family; wait")
        )
        async with asyncio.timeout(60):
            while len(leftovers.find(state_dir)) < 3:
                await asyncio.sleep(0.05)
    family = leftovers.find(state_dir)
    plane.send_signal(number)
    await plane.wait()
    async with asyncio.timeout(60):
        while any(_lives(pid) for pid in family):
            await asyncio.sleep(0.02)
    assert leftovers.find(state_dir) == []


def _lives(pid: int) -> bool:
    stat = leftovers.stat_of(pid)
    return stat is not None and stat[0] != "Z"


def test_a_record_that_goes_away_while_it_is_read_is_none(tmp_path: Path) -> None:
    """Two look for what a plane has left, and one is faster."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / str(os.getpid())).symlink_to("nowhere")
    assert leftovers.find(tmp_path) == []


async def test_a_plane_that_was_killed_is_followed_by_one_that_starts_its_pods_again(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    for expected in (0, 1):
        plane = await _plane_process(state_dir)
        told = json.loads((state_dir / "ready.json").read_text())
        async with plane_client.Client(told["plainUrl"], (state_dir / "token").read_text().strip()) as client:
            if not expected:
                await client.create(plane_client.PODS, bare_pod("phoenix", "-c", "exec sleep 1000"))
            async with asyncio.timeout(60):
                while True:
                    pod = await client.get(plane_client.PODS, "default", "phoenix")
                    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
                    if statuses[0].get("ready") and statuses[0]["restartCount"] == expected:
                        break
                    await asyncio.sleep(0.05)
        os.kill(plane.pid, signal.SIGKILL)
        await plane.wait()
    async with asyncio.timeout(60):
        while leftovers.find(state_dir):
            await asyncio.sleep(0.02)
