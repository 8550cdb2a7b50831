"""Controllers against the API server, with real pods."""

from __future__ import annotations

import pytest
from tests.localplane.lab import Lab, bare_pod, web_set, web_template

from supercluster.localplane import client as plane_client
from supercluster.localplane.client import Json

pytestmark = pytest.mark.e2e


def versioned(version: str) -> Json:
    template = web_template()
    template["spec"]["containers"][0]["env"].append({"name": "VERSION", "value": version})
    return template


async def test_on_delete_updates_a_pod_only_when_it_is_deleted(lab: Lab) -> None:
    spec: Json = {"updateStrategy": {"type": "OnDelete"}, "template": versioned("1")}
    await lab.create(plane_client.STATEFUL_SETS, web_set(replicas=2, **spec))
    await lab.ready("web-0", "web-1")
    await lab.client.patch(
        plane_client.STATEFUL_SETS, ("default", "web"), {"spec": {"template": versioned("2")}}
    )
    status = await lab.until(
        lambda: (
            (held := lab.held(plane_client.STATEFUL_SETS, "web")["status"])["currentRevision"]
            != held["updateRevision"]
            and held
        )
    )
    assert status["updatedReplicas"] == 0
    before = lab.pod("web-1")["metadata"]["uid"]
    await lab.delete(plane_client.PODS, "web-1")
    await lab.until(lambda: (pod := lab.get(plane_client.PODS, "web-1")) and pod["metadata"]["uid"] != before)
    await lab.ready("web-0", "web-1")
    assert [(await lab.ask(name))["version"] for name in ("web-0", "web-1")] == ["1", "2"]
    labels = lab.pod("web-1")["metadata"]["labels"]
    assert (
        labels["controller-revision-hash"]
        == lab.held(plane_client.STATEFUL_SETS, "web")["status"]["updateRevision"]
    )


async def test_a_rolling_update_reaches_every_pod(lab: Lab) -> None:
    await lab.create(plane_client.STATEFUL_SETS, web_set(replicas=2, template=versioned("1")))
    await lab.ready("web-0", "web-1")
    await lab.client.patch(
        plane_client.STATEFUL_SETS, ("default", "web"), {"spec": {"template": versioned("2")}}
    )

    def is_rolled() -> bool:
        status = lab.held(plane_client.STATEFUL_SETS, "web")["status"]
        return bool(status.get("updatedReplicas") == status.get("readyReplicas") == 2) and (
            status["currentRevision"] == status["updateRevision"]
            and status["observedGeneration"]
            == lab.held(plane_client.STATEFUL_SETS, "web")["metadata"]["generation"]
        )

    await lab.until(lambda: lab.held(plane_client.STATEFUL_SETS, "web")["metadata"]["generation"] == 2)
    await lab.until(is_rolled)
    assert [(await lab.ask(name))["version"] for name in ("web-0", "web-1")] == ["2", "2"]


async def test_a_budget_follows_the_health_of_its_pods(lab: Lab) -> None:
    budget = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }
    await lab.create(plane_client.BUDGETS, budget)
    await lab.create(plane_client.STATEFUL_SETS, web_set())
    await lab.ready("web-0", "web-1", "web-2")
    await lab.until(lambda: lab.held(plane_client.BUDGETS, "web")["status"].get("disruptionsAllowed") == 1)
    await lab.agent.faults.lose_node(lab.pod("web-0")["spec"]["nodeName"])
    await lab.until(lambda: lab.held(plane_client.BUDGETS, "web")["status"].get("disruptionsAllowed") == 0)
    assert lab.held(plane_client.BUDGETS, "web")["status"]["expectedPods"] == 3


async def test_a_deployment_runs_and_rolls_its_pods(lab: Lab) -> None:
    body: Json = {
        "metadata": {"name": "front", "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "front"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": "front"}},
                "spec": bare_pod("x", "-c", "exec sleep 1000")["spec"],
            },
        },
    }
    await lab.create(plane_client.DEPLOYMENTS, body)

    def is_done(image: str, generation: int) -> bool:
        status = lab.held(plane_client.DEPLOYMENTS, "front").get("status") or {}
        images = {pod["spec"]["containers"][0]["image"] for pod in lab.pods().values()}
        return (
            status.get("observedGeneration") == generation
            and status.get("updatedReplicas")
            == status.get("availableReplicas")
            == status.get("replicas")
            == 2
            and images == {image}
        )

    await lab.until(lambda: is_done("localplane/sh", 1))
    container = {"name": "main", "image": "localplane/sh:2", "args": ["-c", "exec sleep 1000"]}
    await lab.client.patch(
        plane_client.DEPLOYMENTS,
        ("default", "front"),
        {"spec": {"template": {"spec": {"containers": [container]}}}},
    )
    await lab.until(lambda: is_done("localplane/sh:2", 2))


async def test_a_job_runs_to_its_completions_and_repeats_a_failed_pod(lab: Lab) -> None:
    template = {"spec": {**bare_pod("x", "-c", "exit 0")["spec"], "restartPolicy": "Never"}}
    body = {
        "metadata": {"name": "count", "namespace": "default"},
        "spec": {"completions": 3, "parallelism": 2, "template": template},
    }
    await lab.create(plane_client.JOBS, body)
    await lab.until(lambda: (lab.held(plane_client.JOBS, "count").get("status") or {}).get("completionTime"))
    status = lab.held(plane_client.JOBS, "count")["status"]
    assert status["succeeded"] == 3
    assert status["conditions"][0]["type"] == "Complete"


async def test_a_job_with_failing_pods_fails(lab: Lab) -> None:
    template = {"spec": {**bare_pod("x", "-c", "exit 4")["spec"], "restartPolicy": "Never"}}
    body = {
        "metadata": {"name": "bad", "namespace": "default"},
        "spec": {"backoffLimit": 0, "template": template},
    }
    await lab.create(plane_client.JOBS, body)
    await lab.until(lambda: (lab.held(plane_client.JOBS, "bad").get("status") or {}).get("conditions"))
    assert lab.held(plane_client.JOBS, "bad")["status"]["conditions"][0]["reason"] == "BackoffLimitExceeded"


async def test_a_claim_in_use_stays_until_its_pod_is_gone_and_takes_its_data_with_it(lab: Lab) -> None:
    await lab.create(plane_client.STATEFUL_SETS, web_set(replicas=1))
    await lab.ready("web-0")
    directory = lab.state_dir / "volumes" / lab.held(plane_client.CLAIMS, "data-web-0")["spec"]["volumeName"]
    assert (directory / "starts").exists()
    await lab.delete(plane_client.CLAIMS, "data-web-0")
    await lab.until(lambda: lab.held(plane_client.CLAIMS, "data-web-0")["metadata"].get("deletionTimestamp"))
    assert lab.is_ready("web-0")
    await lab.client.patch(plane_client.STATEFUL_SETS, ("default", "web"), {"spec": {"replicas": 0}})
    await lab.until(lambda: lab.get(plane_client.CLAIMS, "data-web-0") is None)
    await lab.until(lambda: not directory.exists())


async def test_a_cordoned_node_gets_no_pods(lab: Lab) -> None:
    for name in ("node-1", "node-3"):
        await lab.client.patch(plane_client.NODES, ("", name), {"spec": {"unschedulable": True}})
    await lab.until(
        lambda: all(
            lab.held(plane_client.NODES, name)["spec"].get("unschedulable") for name in ("node-1", "node-3")
        )
    )
    await lab.create(plane_client.STATEFUL_SETS, web_set(replicas=2))
    await lab.ready("web-0", "web-1")
    assert {pod["spec"]["nodeName"] for pod in lab.pods().values()} == {"node-2"}


async def test_a_pod_that_fits_nowhere_says_why(lab: Lab) -> None:
    pod = bare_pod("picky", "-c", "true")
    pod["spec"]["nodeSelector"] = {"disk": "fast"}
    await lab.create(plane_client.PODS, pod)
    await lab.until(lambda: (lab.pod("picky").get("status") or {}).get("conditions"))
    told = lab.pod("picky")["status"]["conditions"][-1]
    assert (told["type"], told["reason"]) == ("PodScheduled", "Unschedulable")
    assert told["message"] == "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."


async def test_a_pod_that_pod_security_refuses_is_an_event_of_what_wanted_it(lab: Lab) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    merge = "application/merge-patch+json"
    body: Json = {"metadata": {"labels": labels}}
    await lab.client.request("PATCH", "/api/v1/namespaces/default", body=body, content_type=merge)
    template = bare_pod("x", "-c", "exit 0")["spec"]
    job: Json = {"metadata": {"name": "once", "namespace": "default"}}
    await lab.create(
        plane_client.JOBS, {**job, "spec": {"template": {"spec": {**template, "restartPolicy": "Never"}}}}
    )
    await lab.create(plane_client.STATEFUL_SETS, web_set(replicas=1))

    async def told() -> dict[str, str]:
        found = (await lab.client.request("GET", "/api/v1/namespaces/default/events"))["items"]
        return {
            each["involvedObject"]["name"]: each["message"]
            for each in found
            if each["reason"] == "FailedCreate"
        }

    async def is_told() -> bool:
        return set(await told()) == {"once", "web"}

    await lab.until(is_told)
    events = await told()
    assert events["once"].startswith("Error creating: pods ")
    assert 'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false' in events["once"]
    assert events["web"].startswith(
        'create Pod web-0 in StatefulSet web failed error: pods "web-0" is forbidden'
    )
