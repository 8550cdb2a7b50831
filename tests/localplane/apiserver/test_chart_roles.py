"""The operator runs with nothing but the roles that its chart gives it, on an API that enforces them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import eventually

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "supercluster"


def test_the_operator_brings_a_cluster_up_with_its_charts_roles_only(
    plane: Any,
    helm: Path,
    run_kubectl: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    run_kubectl("create", "namespace", "ops")
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        run_kubectl("apply", "--server-side", "-f", str(path))
    command = [str(helm), "template", "rel", str(CHART), "--namespace", "ops"]
    for name in ("rbac", "serviceaccount"):
        command += ["--show-only", f"templates/{name}.yaml"]
    rendered = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "HOME": str(tmp_path)}
    )
    run_kubectl("apply", "-n", "ops", "-f", "-", stdin=rendered.stdout)
    binding = json.loads(run_kubectl("get", "rolebinding", "-n", "ops", "-o", "json").stdout)["items"][0]
    account = binding["subjects"][0]["name"]
    role = json.loads(run_kubectl("get", "role", "-n", "ops", "-o", "json").stdout)["items"][0]
    lease = next(rule["resourceNames"][0] for rule in role["rules"] if rule.get("resourceNames"))
    token = run_kubectl("create", "token", account, "-n", "ops").stdout.strip()
    limited = json.loads(plane.kubeconfig.read_text())
    limited["users"][0]["user"]["token"] = token
    kubeconfig = tmp_path / "limited.kubeconfig"
    kubeconfig.write_text(json.dumps(limited))
    log = tmp_path / "operator.log"
    with log.open("w") as sink:
        operator = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "supercluster.app.main",
                "--kubeconfig",
                str(kubeconfig),
                "--listen",
                "127.0.0.1:0",
                "--lease-namespace",
                "ops",
                "--lease-name",
                lease,
            ],
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HOME": str(tmp_path), "USER": "tester", "POD_NAMESPACE": "ops"},
        )
    try:
        run_kubectl("apply", "-f", str(ROOT / "e2e" / "manifests" / "demo"))

        def ready() -> bool:
            assert operator.poll() is None, log.read_text()[-4000:]
            query = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
            shown = run_kubectl("get", "stream", "flights", "-o", query)
            return shown.stdout == "True"

        eventually(ready, f"the stream to be ready; the operator says {log}", timeout_s=60.0)
        assert "orbidden" not in log.read_text()
    finally:
        operator.terminate()
        operator.wait(30)
