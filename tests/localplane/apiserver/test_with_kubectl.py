"""The real kubectl against the API server alone, as a person uses it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.localplane.apiserver.apilab import a_definition, a_set

pytestmark = pytest.mark.e2e

Kubectl = Callable[..., subprocess.CompletedProcess[str]]
Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def plane_arguments() -> tuple[str, ...]:
    """Only the API server: what controllers do is tested elsewhere."""
    return ("--nodes", "0")


def manifest(body: Json, api_version: str, kind: str) -> Json:
    return {"apiVersion": api_version, "kind": kind, **body}


@pytest.fixture(scope="module")
def widgets(plane: Any, kubectl: Path, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """kubectl in a cluster that has widgets, whose size is at most 5 and whose name is fixed."""
    from tests.conftest import kubectl_runner

    run = kubectl_runner(kubectl, plane.kubeconfig, tmp_path_factory.mktemp("home"))
    spec = {
        "type": "object",
        "description": "What a widget is to be.",
        "properties": {
            "size": {"type": "integer", "maximum": 5, "default": 2, "description": "How large it is."},
            "shape": {"type": "string"},
            "marks": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        },
        "x-kubernetes-validations": [
            {"rule": "!has(oldSelf.shape) || self.shape == oldSelf.shape", "message": "shape is fixed"}
        ],
    }
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    crd = a_definition(spec, additionalPrinterColumns=columns)
    run("apply", "-f", "-", stdin=manifest(crd, "apiextensions.k8s.io/v1", "CustomResourceDefinition"))
    run("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=20s")
    return run


def widget(name: str, **spec: Any) -> Json:
    return manifest({"metadata": {"name": name}, "spec": spec}, "example.com/v1", "Widget")


def test_apply_get_describe_and_delete_a_custom_resource(widgets: Kubectl) -> None:
    applied = widgets("apply", "-f", "-", stdin=widget("one", shape="round"))
    assert applied.stdout == "widget.example.com/one created\n"
    again = widgets("apply", "-f", "-", stdin=widget("one", shape="round"))
    assert again.stdout == "widget.example.com/one unchanged\n"
    changed = widgets("apply", "-f", "-", stdin=widget("one", shape="round", size=3))
    assert changed.stdout == "widget.example.com/one configured\n"
    assert widgets("get", "wd").stdout.split() == ["NAME", "SIZE", "one", "3"]
    assert "Shape:" in widgets("describe", "widget", "one").stdout
    assert "deleted" in widgets("delete", "widget", "one").stdout
    assert "NotFound" in widgets("get", "widget", "one", check=False).stderr


def test_wait_sees_a_condition_and_a_deletion(widgets: Kubectl) -> None:
    widgets("apply", "-f", "-", stdin=widget("waits"))
    condition = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    widgets("patch", "widget", "waits", "--subresource=status", "--type=merge", "-p", json.dumps(condition))
    widgets("wait", "--for=condition=Ready", "widget/waits", "--timeout=20s")
    widgets("delete", "widget", "waits", "--wait=false")
    widgets("wait", "--for=delete", "widget/waits", "--timeout=20s")


@pytest.mark.covers("OP-5")
@pytest.mark.parametrize(
    ("spec", "told", "told_of_an_apply"),
    [
        (
            {"size": 9},
            *["spec.size: Invalid value: 9: spec.size in body should be less than or equal to 5"] * 2,
        ),
        (
            {"size": "big"},
            'spec.size in body must be of type integer: "string"',
            ".spec.size: expected numeric",
        ),
        ({"colour": "red"}, 'unknown field "spec.colour"', ".spec.colour: field not declared in schema"),
    ],
)
def test_a_bad_manifest_is_refused_with_field_and_value(
    widgets: Kubectl, spec: Json, told: str, told_of_an_apply: str
) -> None:
    for how, expected in (((), told), (("--server-side",), told_of_an_apply)):
        refused = widgets("apply", *how, "-f", "-", stdin=widget("bad", **spec), check=False)
        assert refused.returncode == 1
        assert expected in refused.stderr


def test_a_rule_about_changes_refuses_an_edit(widgets: Kubectl) -> None:
    widgets("apply", "-f", "-", stdin=widget("fixed", shape="round"))
    refused = widgets("apply", "-f", "-", stdin=widget("fixed", shape="square"), check=False)
    assert "shape is fixed" in refused.stderr


def test_explain_reads_the_schemas(widgets: Kubectl) -> None:
    assert "How large it is." in widgets("explain", "widget.spec.size").stdout
    assert "What a widget is to be." in widgets("explain", "widgets.spec").stdout
    shown = widgets("explain", "statefulset.spec.template.spec.containers.readinessProbe").stdout
    assert "failureThreshold" in shown


def test_an_applied_object_can_be_taken_over_by_server_side_apply(widgets: Kubectl) -> None:
    body = widget("moved", marks=["a.>"], size=1)
    widgets("apply", "-f", "-", stdin=body)
    for _ in range(2):
        moved = widgets("apply", "--server-side", "-f", "-", stdin=body)
        assert moved.stderr == ""
        shown = widgets("get", "widget", "moved", "-o", "jsonpath={.spec.marks[*]}")
        assert shown.stdout == "a.>"
    widgets("delete", "widget", "moved")


def test_what_the_plane_does_not_have_is_said(run_kubectl: Kubectl) -> None:
    pod = {"metadata": {"name": "idle"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    run_kubectl("apply", "-f", "-", stdin=manifest(pod, "v1", "Pod"))
    refused = run_kubectl(
        "create", "--raw", "/api/v1/namespaces/default/pods/idle/exec", "-f", "-", stdin={}, check=False
    )
    assert "has no pods/exec: pods are processes of this machine" in refused.stderr
    run_kubectl("delete", "pod", "idle", "--now")


@pytest.mark.parametrize("kind", ["Namespace", "Service"])
def test_names_that_become_host_names_have_no_dots(run_kubectl: Kubectl, kind: str) -> None:
    body = manifest(
        {"metadata": {"name": "a.b"}, "spec": {} if kind == "Namespace" else {"ports": [{"port": 1}]}},
        "v1",
        kind,
    )
    refused = run_kubectl("apply", "-f", "-", stdin=body, check=False)
    assert 'metadata.name: Invalid value: "a.b"' in refused.stderr


def test_server_side_apply_conflicts_and_can_be_forced(run_kubectl: Kubectl) -> None:
    body = manifest(a_set("ssa", replicas=2), "apps/v1", "StatefulSet")
    run_kubectl("apply", "--server-side", "-f", "-", stdin=body)
    run_kubectl("scale", "statefulset", "ssa", "--replicas=5")
    refused = run_kubectl("apply", "--server-side", "-f", "-", stdin=body, check=False)
    assert "conflict" in refused.stderr
    assert ".spec.replicas" in refused.stderr
    run_kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=body)
    shown = run_kubectl("get", "statefulset", "ssa", "-o", "jsonpath={.spec.replicas}")
    assert shown.stdout == "2"
    run_kubectl("delete", "statefulset", "ssa")


def test_patches_labels_annotations_and_images(run_kubectl: Kubectl) -> None:
    run_kubectl("apply", "-f", "-", stdin=manifest(a_set("many"), "apps/v1", "StatefulSet"))
    run_kubectl("label", "sts", "many", "tier=front")
    run_kubectl("annotate", "sts", "many", "note=x")
    run_kubectl("set", "image", "sts/many", "c=img:2")
    run_kubectl(
        "patch", "sts", "many", "--type=json", "-p", '[{"op":"replace","path":"/spec/replicas","value":3}]'
    )
    run_kubectl("patch", "sts", "many", "-p", '{"spec":{"minReadySeconds":4}}')
    stored = json.loads(run_kubectl("get", "sts", "-l", "tier=front", "-o", "json").stdout)["items"][0]
    assert stored["spec"]["template"]["spec"]["containers"][0]["image"] == "img:2"
    assert (stored["spec"]["replicas"], stored["spec"]["minReadySeconds"]) == (3, 4)
    assert stored["metadata"]["annotations"]["note"] == "x"
    edited = manifest(a_set("many", replicas=3, minReadySeconds=4), "apps/v1", "StatefulSet")
    assert "many" in run_kubectl("diff", "-f", "-", stdin=edited, check=False).stdout
    run_kubectl("delete", "sts", "many", "--cascade=foreground")


def test_what_kubectl_sends_as_protobuf(run_kubectl: Kubectl) -> None:
    run_kubectl("create", "namespace", "pb")
    run_kubectl("create", "configmap", "m", "-n", "pb", "--from-literal=a=b")
    run_kubectl("create", "secret", "generic", "s", "-n", "pb", "--from-literal=password=hunter2")
    run_kubectl("create", "serviceaccount", "bob", "-n", "pb")
    run_kubectl("create", "role", "r", "-n", "pb", "--verb=get,list", "--resource=configmaps")
    run_kubectl("create", "rolebinding", "rb", "-n", "pb", "--role=r", "--serviceaccount=pb:bob")
    assert (
        run_kubectl("get", "secret", "s", "-n", "pb", "-o", "jsonpath={.data.password}").stdout
        == "aHVudGVyMg=="
    )
    run_kubectl("create", "deployment", "d", "-n", "pb", "--image=nginx:1", "--replicas=2", "--port=80")
    run_kubectl("create", "service", "nodeport", "s", "-n", "pb", "--tcp=80:8080")
    run_kubectl("create", "job", "j", "-n", "pb", "--image=busybox", "--", "true")
    run_kubectl("create", "cronjob", "c", "-n", "pb", "--image=busybox", "--schedule=* * * * *", "--", "true")
    run_kubectl("create", "pdb", "b", "-n", "pb", "--selector=app=d", "--min-available=50%")
    run_kubectl("create", "quota", "q", "-n", "pb", "--hard=pods=3")
    shown = run_kubectl(
        "get",
        "deploy",
        "d",
        "-n",
        "pb",
        "-o",
        "jsonpath={.spec.replicas} {.spec.template.spec.containers[0].image}",
    )
    assert shown.stdout == "2 nginx:1"
    shown = run_kubectl(
        "get",
        "pdb,svc",
        "-n",
        "pb",
        "-o",
        "jsonpath={.items[*].spec.minAvailable} {.items[*].spec.ports[0].targetPort}",
    )
    assert shown.stdout == "50% 8080"
    token = run_kubectl("create", "token", "bob", "-n", "pb").stdout.strip()
    assert token.count(".") == 2
    bob = "--as=system:serviceaccount:pb:bob"
    assert run_kubectl("auth", "can-i", "list", "configmaps", "-n", "pb", bob).stdout == "yes\n"
    assert run_kubectl("auth", "can-i", "list", "secrets", "-n", "pb", bob, check=False).stdout == "no\n"
    assert "configmaps" in run_kubectl("auth", "can-i", "--list", "-n", "pb", bob).stdout
    assert "supercluster-admin" in run_kubectl("auth", "whoami").stdout
    run_kubectl("delete", "namespace", "pb", "--timeout=20s")
    assert "NotFound" in run_kubectl("get", "namespace", "pb", check=False).stderr


def test_version_and_kinds(run_kubectl: Kubectl) -> None:
    assert "Server Version: v1.35" in run_kubectl("version").stdout
    kinds = run_kubectl("api-resources", "--namespaced=false", "-o", "name").stdout.split()
    assert {"nodes", "namespaces", "customresourcedefinitions.apiextensions.k8s.io"} <= set(kinds)
    assert "policy/v1" in run_kubectl("api-versions").stdout.split()


@pytest.mark.parametrize("name", ["superclusters", "clusters", "streams"])
def test_our_definitions_are_applied_both_ways(run_kubectl: Kubectl, name: str) -> None:
    path = str(ROOT / "crds" / f"{name}.yaml")
    run_kubectl("apply", "--server-side", "-f", path)
    run_kubectl("apply", "--server-side", "-f", path)
    run_kubectl("wait", "--for=condition=Established", f"crd/{name}.supercluster.dev", "--timeout=20s")
    assert run_kubectl("get", name).stderr == "No resources found in default namespace.\n"
    run_kubectl("delete", "-f", path, "--timeout=20s")


def test_a_list_is_applied_and_each_of_it_is_validated(run_kubectl: Kubectl) -> None:
    def settings(name: str, **more: object) -> dict[str, object]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}

    def apply(*items: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        listed = {"apiVersion": "v1", "kind": "List", "items": items}
        return run_kubectl("apply", "-f", "-", stdin=listed, check=check)

    done = apply(settings("one", data={"a": "1"}), settings("two"))
    assert done.stdout == "configmap/one created\nconfigmap/two created\n"
    assert 'unknown field "colour"' in apply(settings("three", colour="blue"), check=False).stderr
    run_kubectl("delete", "configmap", "one", "two")
