"""Built-in kinds come back complete, as clients expect of a real API server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.localplane.apiserver.apilab import Lab, a_pod, a_set, a_template

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_a_deployment_has_its_rolling_update(lab: Lab) -> None:
    body = {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": a_template(), "strategy": {}},
    }
    spec = lab.create("deployments", body)["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (10, 600)


def test_a_stateful_set_and_its_claims(lab: Lab) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    spec = lab.create("statefulsets", a_set(volumeClaimTemplates=[claim]))["spec"]
    assert spec["podManagementPolicy"] == "OrderedReady"
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert spec["volumeClaimTemplates"][0]["spec"]["volumeMode"] == "Filesystem"


def test_a_pod_and_its_containers(lab: Lab) -> None:
    body = a_pod(volumes=[{"name": "a"}, {"name": "b", "configMap": {"name": "m"}}])
    container = body["spec"]["containers"][0]
    container.update(
        ports=[{"containerPort": 80}],
        livenessProbe={"httpGet": {"port": 80}},
        resources={"limits": {"cpu": 1}},
        env=[{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    )
    made = lab.create("pods", body)
    spec, shown = made["spec"], made["spec"]["containers"][0]
    assert (spec["restartPolicy"], spec["dnsPolicy"], spec["terminationGracePeriodSeconds"]) == (
        "Always",
        "ClusterFirst",
        30,
    )
    assert spec["serviceAccountName"] == "default"
    assert shown["imagePullPolicy"] == "IfNotPresent"
    assert shown["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert shown["livenessProbe"]["httpGet"] == {"port": 80, "path": "/", "scheme": "HTTP"}
    assert shown["livenessProbe"]["periodSeconds"] == 10
    assert shown["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    assert shown["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert spec["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "configMap": {"name": "m", "defaultMode": 0o644}},
    ]
    assert made["status"] == {"phase": "Pending", "qosClass": "Burstable"}


def test_latest_images_are_always_pulled(lab: Lab) -> None:
    for number, (image, policy) in enumerate(
        [("a", "Always"), ("a:latest", "Always"), ("r:5000/a", "Always"), ("r:5000/a:1", "IfNotPresent"), ("a@sha256:0", "IfNotPresent")]
    ):  # fmt: skip
        body = {"metadata": {"name": f"p{number}"}, "spec": {"containers": [{"name": "c", "image": image}]}}
        assert lab.create("pods", body)["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_services_get_addresses_and_ports(lab: Lab) -> None:
    first = lab.create("services", {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}})["spec"]
    second = lab.create(
        "services", {"metadata": {"name": "b"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
    )
    headless = lab.create("services", {"metadata": {"name": "h"}, "spec": {"clusterIP": "None"}})["spec"]
    assert first["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert first["clusterIPs"] == [first["clusterIP"]]
    assert first["clusterIP"] != second["spec"]["clusterIP"]
    assert 30_000 <= second["spec"]["ports"][0]["nodePort"] < 32_768
    assert headless["clusterIP"] == "None"
    replaced = lab.update("services", {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 81}]}})
    assert replaced["spec"]["clusterIP"] == first["clusterIP"]


def test_plain_texts_of_a_secret_are_coded_into_its_data(lab: Lab) -> None:
    made = lab.create(
        "secrets", {"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}, "data": {"x": "eQ=="}}
    )
    assert made["data"] == {"x": "eQ==", "password": "aHVudGVyMg=="}
    assert "stringData" not in made
    assert made["type"] == "Opaque"


def test_a_job_selects_its_pods_by_its_own_uid(lab: Lab) -> None:
    template = a_template()
    template["spec"]["restartPolicy"] = "Never"
    made = lab.create("jobs", {"metadata": {"name": "j"}, "spec": {"template": template}})
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": uid}
    assert made["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == uid
    assert (made["spec"]["completions"], made["spec"]["backoffLimit"]) == (1, 6)


def test_nulls_mean_nothing_in_built_in_kinds(lab: Lab) -> None:
    body = {"metadata": {"name": "a", "labels": None, "creationTimestamp": None}, "data": {"k": "v"}}
    assert "labels" not in lab.create("configmaps", body)["metadata"]


def test_the_schemas_are_what_their_generator_makes() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate_builtin_schemas.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
