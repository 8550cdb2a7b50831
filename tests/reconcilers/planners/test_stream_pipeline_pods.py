"""What spec.podTemplate and a shared claim add to the pods of driver and executors."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reconcilers.planners.stream_pipelines import (
    IMAGE,
    job,
    made,
    pipeline,
    plan,
    pods,
    said,
)

from supercluster.reconcilers.planners.pipeline import manifests
from supercluster.reconcilers.planners.pipeline.pod_template import refused_part

TEMPLATE = {
    "metadata": {"labels": {"team": "ops"}, "annotations": {"a": "b"}},
    "spec": {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "spark", "operator": "Exists"}],
        "volumes": [{"name": "keys", "secret": {"secretName": "s3"}}],
        "containers": [
            {
                "env": [{"name": "AWS_REGION", "value": "eu"}],
                "envFrom": [{"secretRef": {"name": "s3"}}],
                "volumeMounts": [{"name": "keys", "mountPath": "/keys"}],
            }
        ],
    },
}


def test_the_pod_template_is_added_to_driver_and_executors() -> None:
    for before, after in zip(pods(pipeline()), pods(pipeline(podTemplate=TEMPLATE)), strict=True):
        assert after["metadata"]["labels"] == {**before["metadata"]["labels"], "team": "ops"}
        assert after["metadata"]["annotations"]["a"] == "b"
        assert after["spec"]["nodeSelector"] == {"disk": "fast"}
        assert after["spec"]["securityContext"] == before["spec"]["securityContext"]
        (old,), (new,) = before["spec"]["containers"], after["spec"]["containers"]
        assert new["env"] == [*old["env"], {"name": "AWS_REGION", "value": "eu"}]
        assert new["envFrom"] == [{"secretRef": {"name": "s3"}}]
        assert [each["mountPath"] for each in new["volumeMounts"]][-1] == "/keys"
        assert new["securityContext"] == old["securityContext"]
        assert [each["name"] for each in after["spec"]["volumes"]] == [
            *(each["name"] for each in before["spec"]["volumes"]),
            "keys",
        ]
    assert job(pipeline(podTemplate=TEMPLATE))["metadata"]["name"] != job(pipeline())["metadata"]["name"]


@pytest.mark.parametrize(
    ("template", "part"),
    [
        (TEMPLATE, ""),
        ({}, ""),
        ({"kind": "Pod"}, "spec.podTemplate.kind"),
        ({"spec": []}, "spec.podTemplate.spec (it has to be an object)"),
        ({"metadata": {"name": "x"}}, "spec.podTemplate.metadata.name"),
        ({"metadata": {"labels": {"spark-role": "x"}}}, "spec.podTemplate.metadata.labels[spark-role]"),
        ({"metadata": {"labels": ["x"]}}, "spec.podTemplate.metadata.labels (it has to be an object)"),
        ({"spec": {"serviceAccountName": "admin"}}, "spec.podTemplate.spec.serviceAccountName"),
        ({"spec": {"volumes": [{"name": "client"}]}}, "spec.podTemplate.spec.volumes[client]"),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.podTemplate.spec.containers[0].image"),
        ({"spec": {"containers": [{"env": [{"name": "POD_IP"}]}]}}, "spec.podTemplate.spec.containers[0].env[POD_IP]"),
        ({"spec": {"containers": [{}, {}]}}, "spec.podTemplate.spec.containers (one is enough: it is for driver and executors)"),
    ],
)  # fmt: skip
def test_what_the_operator_sets_cant_be_in_the_pod_template(template: dict[str, Any], part: str) -> None:
    assert refused_part(template) == part


def test_executors_mount_a_claim_that_is_shared() -> None:
    shared = pipeline(checkpoint={"claim": {"mountOnExecutors": True}})
    assert manifests.checkpoint_claim(shared)["spec"]["accessModes"] == ["ReadWriteMany"]
    assert manifests.checkpoint_claim(pipeline())["spec"]["accessModes"] == ["ReadWriteOnce"]
    for pod in pods(shared):
        assert "/checkpoint" in [each["mountPath"] for each in pod["spec"]["containers"][0]["volumeMounts"]]
        assert pod["spec"]["securityContext"]["fsGroup"] == 10001
    job = manifests.driver_object(shared, IMAGE, fixed_ids=False)
    executors = manifests.executor_template(shared, IMAGE, fixed_ids=False)
    for pod in (job["spec"]["template"], executors):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert "fsGroup" not in pod["spec"]["securityContext"]
    (_, executor) = pods(pipeline())
    assert "checkpoint" not in {each["name"] for each in executor["spec"]["volumes"]}
    assert not plan(shared, made(shared)).steps
    refused = plan(shared, made(pipeline()))
    assert not refused.steps
    assert said(refused, "Accepted")[1] == "CheckpointNotShared"


def test_credentials_and_authority_are_files_of_one_folder() -> None:
    for pod in pods(pipeline(caSecret="brokers-ca")):
        (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == "client"]
        secrets = [each["secret"] for each in volume["projected"]["sources"]]
        assert [each["name"] for each in secrets] == ["demo-client", "brokers-ca"]
        assert secrets[1]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
        assert not [each for each in pod["spec"]["containers"][0]["env"] if "PASSWORD" in each["name"]]
