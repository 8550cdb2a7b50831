"""helm 4 against the API server alone: our chart is installed, upgraded, rolled back and taken out."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helm_command import run_helm_in

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[3]
CHART = str(ROOT / "charts" / "supercluster")


@pytest.fixture(scope="module")
def plane_arguments() -> tuple[str, ...]:
    return ("--nodes", "0")


@pytest.fixture
def run_helm(plane: Any, helm: Path, tmp_path: Path) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        where = ("--kubeconfig", str(plane.kubeconfig), "--namespace", "sc")
        return run_helm_in(tmp_path, helm, *where, *arguments).stdout

    return run


def test_the_chart_lives_through_install_upgrade_rollback_and_uninstall(
    run_helm: Callable[..., str], run_kubectl: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    run_helm("install", "rel", CHART, "--create-namespace")
    crds = run_kubectl("get", "crd", "-o", "name").stdout
    assert "streams.supercluster.dev" in crds
    before = json.loads(run_kubectl("get", "deploy", "-n", "sc", "-o", "json").stdout)["items"][0]
    run_helm("upgrade", "rel", CHART, "--set", "image.tag=changed-by-test")
    after = json.loads(run_kubectl("get", "deploy", "-n", "sc", "-o", "json").stdout)["items"][0]

    def image(deployment: dict[str, Any]) -> str:
        return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])

    assert image(after).endswith(":changed-by-test")
    assert image(after) != image(before)
    run_helm("rollback", "rel", "1")
    rolled = json.loads(run_kubectl("get", "deploy", "-n", "sc", "-o", "json").stdout)["items"][0]
    assert image(rolled) == image(before)
    assert json.loads(run_helm("history", "rel", "-o", "json"))[-1]["revision"] == 3
    run_helm("uninstall", "rel")
    assert run_kubectl("get", "deploy,svc,role,rolebinding,secret", "-n", "sc", "-o", "name").stdout == ""
    assert run_kubectl("get", "crd", "-o", "name").stdout == crds, "resources outlive the chart"


@pytest.mark.parametrize("folder", ["files/crds", "crds"])
def test_an_upgrade_brings_the_definitions(
    run_helm: Callable[..., str],
    run_kubectl: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    folder: str,
) -> None:
    """From a chart that has them among its templates, and from one that had them in crds/, where helm never touches them again."""
    run_kubectl("delete", "crd", "--all")
    older = tmp_path / "older"
    shutil.copytree(CHART, older)
    definition = older / "files" / "crds" / "streams.yaml"
    body = yaml.safe_load(definition.read_text())
    # One that no rule of the definition reads.
    del body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][
        "description"
    ]
    definition.write_text(yaml.safe_dump(body, sort_keys=False))
    if folder == "crds":
        (older / "files" / "crds").rename(older / "crds")
        (older / "templates" / "crds.yaml").unlink()
    run_helm("install", "rel", str(older), "--create-namespace")
    assert "description" not in fields(run_kubectl)
    run_helm("upgrade", "rel", CHART, *(["--take-ownership"] if folder == "crds" else []))
    assert "description" in fields(run_kubectl)
    run_helm("uninstall", "rel")
    assert "description" in fields(run_kubectl)


def fields(run_kubectl: Callable[..., subprocess.CompletedProcess[str]]) -> dict[str, Any]:
    """Of a Stream's spec, as the API server has them."""
    body = json.loads(run_kubectl("get", "crd", "streams.supercluster.dev", "-o", "json").stdout)
    schema: dict[str, Any] = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: dict[str, Any] = schema["properties"]["spec"]["properties"]
    return found
