"""docs/guides/cutover.md, followed word by word: its commands in their order, in one shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import ROOT

GUIDE = ROOT / "docs" / "guides" / "cutover.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
LAST = re.compile(r"published (\d+), confirmed (\d+), read (\d+), at (\S+):4222")
SECONDS = 400


def commands(guide: str) -> str:
    """All of them, as one script."""
    return "".join(BLOCK.findall(guide))


def test_the_guide_has_commands_for_every_step_but_abort() -> None:
    found = commands(GUIDE.read_text(encoding="utf-8"))
    for step in ("dev up", "migrate plan", "migrate approve", "migrate status", "migrate finalize"):
        assert f"supercluster {step}" in found


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.covers("BG-1", "BG-5", "BG-8", "BG-9", "BG-12")
def test_the_guides_commands_take_blue_to_green(tmp_path: Path, kubectl: Path) -> None:
    folders = [str(Path(sys.executable).parent), str(kubectl.parent), os.environ["PATH"]]
    state, log = tmp_path / "state", tmp_path / "traffic.log"
    environment = {**os.environ, "PATH": ":".join(folders), "XDG_STATE_HOME": str(state)}
    environment.pop("KUBECONFIG", None)
    # What the guide leaves in the background ends with the shell.
    script = f"set -eux\ntrap 'kill $(jobs -p)' EXIT\n{commands(GUIDE.read_text(encoding='utf-8'))}"
    script = script.replace("traffic.log", str(log))
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        said = LAST.findall(log.read_text())
        published, confirmed, read = (int(count) for count in said[-1][:3])
        assert published == confirmed, log.read_text()
        assert read >= confirmed - 10, "it reads what it publishes"
        assert said[0][3] != said[-1][3], "it is connected elsewhere now"
    finally:
        subprocess.run(
            [sys.executable, "-m", "supercluster.app.cli", "dev", "down"],
            env=environment,
            timeout=120,
            check=False,
        )
