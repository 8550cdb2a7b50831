"""Pods of StatefulSets as real processes: readiness, volumes, restarts, addresses."""

from __future__ import annotations

import pytest
from tests.localplane.lab import Lab, web_set

from supercluster.localplane import client as plane_client

pytestmark = pytest.mark.e2e


async def test_three_pods_become_ready_with_their_own_address_claim_and_environment(lab: Lab) -> None:
    await lab.create(
        plane_client.SECRETS,
        {"metadata": {"name": "web", "namespace": "default"}, "data": {"password": "aHVudGVy"}},
    )
    await lab.create(plane_client.STATEFUL_SETS, web_set())
    await lab.ready("web-0", "web-1", "web-2")
    told = [await lab.ask(f"web-{ordinal}") for ordinal in range(3)]
    assert [one["name"] for one in told] == ["web-0", "web-1", "web-2"]
    assert {one["secret"] for one in told} == {"hunter"}
    assert len({lab.pod(f"web-{ordinal}")["status"]["podIP"] for ordinal in range(3)}) == 3
    claim = lab.held(plane_client.CLAIMS, "data-web-1")
    directory = lab.state_dir / "volumes" / claim["spec"]["volumeName"]
    assert claim["status"]["phase"] == "Bound"
    assert told[1]["args"] == [f"--data={directory}/x"]
    nodes = {lab.pod(f"web-{ordinal}")["spec"]["nodeName"] for ordinal in range(3)}
    assert nodes == {"node-1", "node-2", "node-3"}
    await lab.until(lambda: lab.held(plane_client.STATEFUL_SETS, "web")["status"].get("readyReplicas") == 3)


async def test_a_killed_process_is_restarted_with_its_address_and_volume(lab: Lab) -> None:
    await lab.create(plane_client.STATEFUL_SETS, web_set())
    await lab.ready("web-0", "web-1", "web-2")
    address, before = lab.pod("web-1")["status"]["podIP"], await lab.ask("web-1")
    assert lab.agent.faults.kill("default", "web-1") == [before["pid"]]
    await lab.until(lambda: lab.pod("web-1")["status"]["containerStatuses"][0]["restartCount"] == 1)
    await lab.ready("web-1")
    after = await lab.ask("web-1")
    assert lab.pod("web-1")["status"]["podIP"] == address
    assert after["starts"] == 2
    assert after["pid"] != before["pid"]
    last = lab.pod("web-1")["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (137, "Error")


async def test_a_deleted_pod_comes_back_with_its_address_and_volume(lab: Lab) -> None:
    await lab.create(plane_client.STATEFUL_SETS, web_set(replicas=1))
    await lab.ready("web-0")
    before = lab.pod("web-0")
    await lab.delete(plane_client.PODS, "web-0")
    await lab.until(
        lambda: (
            lab.get(plane_client.PODS, "web-0")
            and lab.pod("web-0")["metadata"]["uid"] != before["metadata"]["uid"]
        )
    )
    await lab.ready("web-0")
    assert lab.pod("web-0")["status"]["podIP"] == before["status"]["podIP"]
    assert (await lab.ask("web-0"))["starts"] == 2


async def test_a_changed_config_map_is_seen_in_the_mounted_directory(lab: Lab) -> None:
    config = {"metadata": {"name": "web", "namespace": "default"}, "data": {"greeting": "hello"}}
    await lab.create(plane_client.CONFIG_MAPS, config)
    await lab.create(plane_client.STATEFUL_SETS, web_set(replicas=1))
    await lab.ready("web-0")
    assert (await lab.ask("web-0"))["greeting"] == "hello"
    await lab.client.patch(plane_client.CONFIG_MAPS, ("default", "web"), {"data": {"greeting": "good day"}})

    async def is_new() -> bool:
        return bool((await lab.ask("web-0"))["greeting"] == "good day")

    await lab.until(is_new)
    assert (await lab.ask("web-0"))["starts"] == 1


async def test_names_of_ready_pods_are_in_the_hosts_file(lab: Lab) -> None:
    service = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"name": "http", "port": 8080}]},
    }
    await lab.create(plane_client.SERVICES, service)
    await lab.create(plane_client.STATEFUL_SETS, web_set(replicas=2))
    await lab.ready("web-0", "web-1")
    address = lab.pod("web-1")["status"]["podIP"]
    line = f"{address} web-1.web.default.svc.cluster.local web-1.web.default.svc web-1.web.default"
    await lab.until(lambda: line in (lab.state_dir / "hosts").read_text().splitlines())
    await lab.until(lambda: len(lab.held(plane_client.ENDPOINTS, "web")["subsets"][0]["addresses"]) == 2)


async def test_scaling_down_ends_the_highest_pods_and_keeps_their_claims(lab: Lab) -> None:
    await lab.create(plane_client.STATEFUL_SETS, web_set(replicas=3))
    await lab.ready("web-0", "web-1", "web-2")
    await lab.client.patch(plane_client.STATEFUL_SETS, ("default", "web"), {"spec": {"replicas": 1}})
    await lab.until(lambda: set(lab.pods()) == {"web-0"})
    assert lab.get(plane_client.CLAIMS, "data-web-2") is not None
    await lab.client.patch(plane_client.STATEFUL_SETS, ("default", "web"), {"spec": {"replicas": 3}})
    await lab.ready("web-0", "web-1", "web-2")
    assert (await lab.ask("web-2"))["starts"] == 2
