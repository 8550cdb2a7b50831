"""docs/kubernetes.md, followed word by word in an empty directory, with helm and kubectl against a control plane without anything of ours."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.conftest import ROOT, RunningPlane
from tests.support.guides import BLOCK, blocks, not_shown

GUIDE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
COMMANDS = "".join(blocks(GUIDE, "sh"))
SECONDS = 240
# Blocks that are not run here, with what they need.
NOT_RUN = {
    "make image": "a container engine",
    "values.yaml <<EOF": "a registry",
    "helm ": "another release, or a digest",
}


def test_every_block_is_run_compared_or_named() -> None:
    assert {language for language, _ in BLOCK.findall(GUIDE)} == {"sh", "bash", "text"}
    for block in blocks(GUIDE, "bash"):
        assert any(words in block for words in NOT_RUN), block


def test_the_table_has_each_value_of_the_chart_and_no_other() -> None:
    """Names below a value count as the value's."""
    values = yaml.safe_load((ROOT / "charts" / "supercluster" / "values.yaml").read_text(encoding="utf-8"))
    table = GUIDE.split("## Values of the chart")[1].split("\n## ")[0]
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    }
    assert {name.split(".")[0] for name in named if not name.startswith(".")} == set(values)
    for name in named:
        if not name.startswith(".") and "." in name:
            whole, part = name.split(".")
            assert part in values[whole], name


@pytest.mark.e2e
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.covers("OP-1")
def test_the_commands_install_upgrade_and_uninstall(
    plane: RunningPlane, kubectl: Path, helm: Path, tmp_path: Path
) -> None:
    checkout = tmp_path / "supercluster"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True, timeout=60)
    environment = {
        **{name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ},
        "PATH": ":".join((str(kubectl.parent), str(helm.parent), os.environ["PATH"])),
        "KUBECONFIG": str(plane.kubeconfig),
        **{f"HELM_{kind}_HOME": str(tmp_path / kind) for kind in ("CACHE", "CONFIG", "DATA")},
    }
    done = subprocess.run(
        ["bash", "-euxc", COMMANDS],
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert not_shown(GUIDE, done.stdout) == [], done.stdout
