"""Lifecycle hooks, sidecars, and probes other than HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.localplane.lab import Lab, bare_pod, web_set, web_template

from supercluster.localplane import client as plane_client
from supercluster.localplane.client import Json

pytestmark = pytest.mark.e2e

LISTEN = """
import os, pathlib, socket, time
while not pathlib.Path("go").exists():
    time.sleep(0.02)
server = socket.create_server((os.environ["IP"], 9000))
while True:
    server.accept()[0].close()
"""


def root(lab: Lab, pod: str) -> Path:
    uid: str = lab.pod(pod)["metadata"]["uid"]
    return lab.state_dir / "pods" / "default" / uid / "root"


async def test_hooks_run_after_the_start_and_before_the_end(lab: Lab) -> None:
    volume = lab.state_dir / "volumes"
    hooks = {
        "postStart": {"exec": {"command": ["sh", "-c", "echo started >> /data/hooks"]}},
        "preStop": {
            "exec": {"command": ["sh", "-c", "kill -0 $(cat /data/pid) && echo stopping >> /data/hooks"]}
        },
    }
    template = web_template(lifecycle=hooks)
    container = template["spec"]["containers"][0]
    container["command"], container["args"] = ["sh", "-c"], ["echo $$$$ > /data/pid; exec sleep 1000"]
    del container["readinessProbe"]
    await lab.create(plane_client.STATEFUL_SETS, web_set(replicas=1, template=template))
    await lab.ready("web-0")
    hooks_seen = volume / lab.held(plane_client.CLAIMS, "data-web-0")["spec"]["volumeName"] / "hooks"
    assert hooks_seen.read_text() == "started\n"
    await lab.client.patch(plane_client.STATEFUL_SETS, ("default", "web"), {"spec": {"replicas": 0}})
    await lab.until(lambda: not lab.pods())
    assert hooks_seen.read_text() == "started\nstopping\n"


async def test_a_failed_post_start_hook_restarts_the_container(lab: Lab) -> None:
    hooks = {"postStart": {"exec": {"command": ["sh", "-c", "echo no good; exit 1"]}}}
    await lab.create(plane_client.PODS, bare_pod("hooked", "-c", "exec sleep 1000", lifecycle=hooks))
    await lab.until(
        lambda: (lab.pod("hooked")["status"].get("containerStatuses") or [{}])[0].get("restartCount")
    )
    await lab.until(lambda: lab.events("FailedPostStartHook"))
    assert "no good" in (await lab.events("FailedPostStartHook"))[0]


async def test_a_tcp_probe_passes_when_the_port_accepts(lab: Lab) -> None:
    env = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    probe = {"tcpSocket": {"port": 9000}, "periodSeconds": 1}
    pod = bare_pod("port", "-c", LISTEN, image="localplane/python", env=env, readinessProbe=probe)
    await lab.create(plane_client.PODS, pod)
    await lab.until(lambda: "running" in lab.state_of("port"))
    assert not lab.is_ready("port")
    (root(lab, "port") / "go").touch()
    await lab.ready("port")


async def test_an_exec_probe_that_hangs_is_ended_and_counts_as_a_failure(lab: Lab) -> None:
    probe = {
        "exec": {"command": ["sh", "-c", "test -e go || exec sleep 1000"]},
        "periodSeconds": 1,
        "timeoutSeconds": 1,
    }
    await lab.create(plane_client.PODS, bare_pod("hangs", "-c", "exec sleep 1000", readinessProbe=probe))
    await lab.until(lambda: lab.events("Unhealthy"))
    assert "timed out after 1s" in (await lab.events("Unhealthy"))[0]
    (root(lab, "hangs") / "go").touch()
    await lab.ready("hangs")


async def test_a_sidecar_starts_before_the_containers_and_runs_beside_them(lab: Lab) -> None:
    mount = [{"name": "shared", "mountPath": "/shared"}]
    sidecar: Json = {
        "name": "helper",
        "image": "localplane/sh",
        "restartPolicy": "Always",
        "args": ["-c", "touch /shared/helped; exec sleep 1000"],
        "startupProbe": {"exec": {"command": ["sh", "-c", "test -e /shared/helped"]}, "periodSeconds": 1},
        "volumeMounts": mount,
    }
    pod = bare_pod("pair", "-c", "test -e /shared/helped && echo helped; exec sleep 1000", volumeMounts=mount)
    pod["spec"] |= {"initContainers": [sidecar], "volumes": [{"name": "shared", "emptyDir": {}}]}
    await lab.create(plane_client.PODS, pod)
    await lab.ready("pair")
    await lab.until(lambda: lab.log("pair") == "helped\n")
    assert set(lab.agent.faults.pods()[0]["processes"]) == {"helper", "main"}
    assert lab.pod("pair")["status"]["initContainerStatuses"][0]["ready"]
    await lab.delete(plane_client.PODS, "pair")
    await lab.until(lambda: not lab.pods())


async def test_programs_die_of_a_broken_pipe_as_they_do_in_a_shell(lab: Lab) -> None:
    pod = bare_pod("pipe", "-c", "(yes; echo outlived >&2) | head -n 1")
    pod["spec"]["restartPolicy"] = "Never"
    await lab.create(plane_client.PODS, pod)
    await lab.until(lambda: lab.pod("pipe")["status"].get("phase") == "Succeeded")
    assert sorted(lab.log("pipe").splitlines()) == ["outlived", "y"]
