"""Guides whose commands tests run: the blocks ```sh, in their order, in one shell; and what they show, the blocks ```text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from tests.conftest import ROOT

BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(guide: str, language: str) -> list[str]:
    """Contents of the blocks whose opening fence has exactly this word or these words."""
    return [content for info, content in BLOCK.findall(guide) if info == language]


def not_shown(guide: str, said: str) -> list[str]:
    """Lines of the blocks ```text that a run of the guide has not printed in their order. `…` stands for any words of a line."""
    printed, place, found = [" ".join(line.split()) for line in said.splitlines()], 0, []
    for line in "".join(blocks(guide, "text")).splitlines():
        pattern = re.compile(".*".join(map(re.escape, " ".join(line.split()).split("…"))))
        at = next((at for at in range(place, len(printed)) if pattern.fullmatch(printed[at])), None)
        if at is None:
            found.append(line)
        else:
            place = at + 1
    return found


def run_guide(
    script: str,
    folder: Path,
    kubectl: Path,
    seconds: float,
    more: Mapping[str, str] = MappingProxyType({}),
    *,
    folder_of_commands: Path = ROOT,
) -> str:
    """Run a script with a control plane of its own (`supercluster dev`), which is stopped at the end; what it wrote. It has to end well."""
    folders = [str(Path(sys.executable).parent), str(kubectl.parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": ":".join(folders), "XDG_STATE_HOME": str(folder / "state"), **more}
    environment.pop("KUBECONFIG", None)
    # What the guide leaves in the background ends with the shell.
    words = ["bash", "-c", f"set -eux\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}"]
    output = folder / "output.log"
    try:
        with output.open("wb") as file:
            done = subprocess.run(
                words,
                cwd=folder_of_commands,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            )
        said = output.read_text(errors="replace")
        if done.returncode != 0:
            pytest.fail(f"exit code {done.returncode}:\n{said[-6000:]}")
        return said
    finally:
        down = [sys.executable, "-m", "supercluster.app.cli", "dev", "down"]
        subprocess.run(down, env=environment, timeout=120, check=False)
