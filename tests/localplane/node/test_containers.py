"""Images, probes, exits and ends of containers, as people see them in a pod's status."""

from __future__ import annotations

import os

import pytest
from tests.localplane.lab import Lab, bare_pod, web_set, web_template

from supercluster.localplane import client as plane_client
from supercluster.localplane.client import Kind
from supercluster.localplane.node import leftovers

pytestmark = pytest.mark.e2e


async def test_an_unknown_image_is_an_err_image_pull_with_a_hint(lab: Lab) -> None:
    await lab.create(plane_client.PODS, bare_pod("strange", "true", image="docker.io/library/nginx:1.27"))
    await lab.until(lambda: lab.state_of("strange").get("waiting", {}).get("reason") == "ErrImagePull")
    message = lab.state_of("strange")["waiting"]["message"]
    assert "docker.io/library/nginx:1.27" in message
    assert "supercluster/broker" in message
    assert lab.pod("strange")["status"]["phase"] == "Pending"


async def test_a_failing_container_backs_off_after_one_restart_at_once(lab: Lab) -> None:
    await lab.create(plane_client.PODS, bare_pod("crash", "-c", "echo on my way down; exit 3"))
    await lab.until(lambda: lab.state_of("crash").get("waiting", {}).get("reason") == "CrashLoopBackOff")
    status = lab.pod("crash")["status"]["containerStatuses"][0]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 3
    assert "10s" in status["state"]["waiting"]["message"]
    assert lab.log("crash") == "on my way down\n"
    await lab.until(lambda: lab.events("BackOff"))


@pytest.mark.parametrize(("code", "phase", "reason"), [(0, "Succeeded", "Completed"), (7, "Failed", "Error")])
async def test_a_pod_that_is_not_restarted_ends_with_its_exit_code(
    lab: Lab, code: int, phase: str, reason: str
) -> None:
    pod = bare_pod("once", "-c", f"exit {code}")
    pod["spec"]["restartPolicy"] = "Never"
    await lab.create(plane_client.PODS, pod)
    await lab.until(lambda: lab.pod("once").get("status", {}).get("phase") == phase)
    over = lab.state_of("once")["terminated"]
    assert (over["exitCode"], over["reason"]) == (code, reason)


async def test_init_containers_run_before_in_order_and_share_volumes(lab: Lab) -> None:
    mount = [{"name": "scratch", "mountPath": "/scratch"}]
    pod = bare_pod("inits", "-c", "cat /scratch/words; exec sleep 1000", volumeMounts=mount)
    pod["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    pod["spec"]["initContainers"] = [
        {
            "name": name,
            "image": "localplane/sh",
            "args": ["-c", f"echo {name} >> /scratch/words"],
            "volumeMounts": mount,
        }
        for name in ("first", "second")
    ]
    await lab.create(plane_client.PODS, pod)
    await lab.ready("inits")
    await lab.until(lambda: lab.log("inits") == "first\nsecond\n")


async def test_a_failing_readiness_probe_takes_the_pod_out_of_the_endpoints(lab: Lab) -> None:
    service = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
    }
    await lab.create(plane_client.SERVICES, service)
    await lab.create(plane_client.STATEFUL_SETS, web_set(replicas=1))
    await lab.ready("web-0")
    await lab.until(lambda: " web.default\n" in (lab.state_dir / "hosts").read_text())
    sick = (
        lab.state_dir / "volumes" / lab.held(plane_client.CLAIMS, "data-web-0")["spec"]["volumeName"] / "sick"
    )
    sick.touch()
    await lab.until(lambda: not lab.is_ready("web-0"))
    await lab.until(lambda: "addresses" not in lab.held(plane_client.ENDPOINTS, "web")["subsets"][0])
    hosts = lab.state_dir / "hosts"
    await lab.until(lambda: " web.default\n" not in hosts.read_text())
    sick.unlink()
    await lab.ready("web-0")
    assert lab.pod("web-0")["status"]["containerStatuses"][0]["restartCount"] == 0
    await lab.until(lambda: lab.held(plane_client.ENDPOINTS, "web")["subsets"][0].get("addresses"))


async def test_a_failing_liveness_probe_restarts_the_container(lab: Lab) -> None:
    probe = {
        "exec": {"command": ["sh", "-c", "test ! -e /data/sick"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }
    template = web_template(livenessProbe=probe)
    await lab.create(plane_client.STATEFUL_SETS, web_set(replicas=1, template=template))
    await lab.ready("web-0")
    sick = (
        lab.state_dir / "volumes" / lab.held(plane_client.CLAIMS, "data-web-0")["spec"]["volumeName"] / "sick"
    )
    sick.touch()
    await lab.until(lambda: lab.pod("web-0")["status"]["containerStatuses"][0]["restartCount"] >= 1)
    sick.unlink()
    await lab.ready("web-0")
    assert "Liveness probe failed" in " ".join(await lab.events("Unhealthy"))


async def test_a_container_is_not_ready_before_its_startup_probe_has_passed(lab: Lab) -> None:
    probe = {"exec": {"command": ["sh", "-c", "test -e go"]}, "periodSeconds": 1, "failureThreshold": 100}
    await lab.create(plane_client.PODS, bare_pod("slow", "-c", "exec sleep 1000", startupProbe=probe))
    await lab.until(lambda: "running" in lab.state_of("slow"))
    assert lab.pod("slow")["status"]["containerStatuses"][0]["started"] is False
    assert not lab.is_ready("slow")
    root = lab.state_dir / "pods" / "default" / lab.pod("slow")["metadata"]["uid"] / "root"
    (root / "go").touch()
    await lab.ready("slow")


async def test_a_missing_secret_holds_the_container_until_it_is_there(lab: Lab) -> None:
    env = [{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "words", "key": "one"}}}]
    await lab.create(plane_client.PODS, bare_pod("waits", "-c", "echo $WORD; exec sleep 1000", env=env))
    await lab.until(
        lambda: lab.state_of("waits").get("waiting", {}).get("reason") == "CreateContainerConfigError"
    )
    assert 'secret "words" not found' in lab.state_of("waits")["waiting"]["message"]
    await lab.create(
        plane_client.SECRETS,
        {"metadata": {"name": "words", "namespace": "default"}, "data": {"one": "ZXJzdGVz"}},
    )
    await lab.ready("waits")
    await lab.until(lambda: lab.log("waits") == "erstes\n")


async def test_a_deleted_pod_gets_sigterm_and_then_sigkill_and_leaves_no_child(lab: Lab) -> None:
    words = "trap 'echo asked' TERM; setsid sleep 1000 & sleep 1000 & echo started; while :; do wait; done"
    pod = bare_pod("stubborn", "-c", words)
    pod["spec"]["terminationGracePeriodSeconds"] = 1
    await lab.create(plane_client.PODS, pod)
    await lab.until(
        lambda: "started" in (lab.log("stubborn") if lab.get(plane_client.PODS, "stubborn") else "")
    )
    uid = lab.pod("stubborn")["metadata"]["uid"]
    (process,) = lab.agent.faults.pods()[0]["processes"].values()
    await lab.until(lambda: len(leftovers.of_container(process, f"{uid}/main")) == 3)
    await lab.delete(plane_client.PODS, "stubborn")
    await lab.until(lambda: lab.get(plane_client.PODS, "stubborn") is None)
    assert leftovers.of_container(process, f"{uid}/main") == []
    assert "asked" in (lab.state_dir / "pods" / "default" / uid / "main.log").read_text()


async def test_pods_see_only_their_own_environment(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "PYTEST_CURRENT_TEST" in os.environ
    await lab.create(plane_client.PODS, bare_pod("env", "-c", "env; echo end; exec sleep 1000"))
    await lab.ready("env")
    await lab.until(lambda: lab.log("env").endswith("end\n"))
    seen = dict(line.split("=", 1) for line in lab.log("env").splitlines() if "=" in line)
    assert "PYTEST_CURRENT_TEST" not in seen
    assert seen["HOSTNAME"] == "env"
    assert seen["SUPERCLUSTER_HOSTS_FILE"] == str(lab.state_dir / "hosts")


WHO_AM_I = """
import json, os, ssl, urllib.request, base64
config = json.load(open(os.environ["KUBECONFIG"]))
cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
trust = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}}).encode()
headers = {"Authorization": "Bearer " + user["token"], "Content-Type": "application/json"}
request = urllib.request.Request(
    cluster["server"] + "/apis/authentication.k8s.io/v1/selfsubjectreviews", data=body, headers=headers
)
with urllib.request.urlopen(request, context=trust) as answer:
    told = json.load(answer)
print(told["status"]["userInfo"]["username"], config["contexts"][0]["context"]["namespace"], flush=True)
"""


async def test_a_pod_reaches_the_api_as_its_service_account(lab: Lab) -> None:
    pod = bare_pod("robot", "-c", WHO_AM_I, image="localplane/python")
    pod["spec"] |= {"restartPolicy": "Never", "serviceAccountName": "robot"}
    await lab.client.create(
        Kind("", "v1", "serviceaccounts", "ServiceAccount"),
        {"metadata": {"name": "robot", "namespace": "default"}},
    )
    await lab.create(plane_client.PODS, pod)
    await lab.until(lambda: lab.pod("robot")["status"].get("phase") in ("Succeeded", "Failed"))
    assert lab.log("robot") == "system:serviceaccount:default:robot default\n"


async def test_a_pod_that_mounts_no_token_gets_no_credentials(lab: Lab) -> None:
    pod = bare_pod("plain", "-c", "echo ${KUBECONFIG:-none}; exec sleep 1000")
    pod["spec"]["automountServiceAccountToken"] = False
    await lab.create(plane_client.PODS, pod)
    await lab.until(lambda: lab.log("plain") == "none\n")
