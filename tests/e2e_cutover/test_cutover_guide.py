"""docs/guides/cutover.md, followed word by word: its commands in their order, in one shell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.support.guides import blocks, run_guide

GUIDE = ROOT / "docs" / "guides" / "cutover.md"
COMMANDS = "".join(blocks(GUIDE.read_text(encoding="utf-8"), "sh"))
LAST = re.compile(r"published (\d+), confirmed (\d+), read (\d+), at (\S+):4222")
SECONDS = 400


def test_the_guide_has_commands_for_every_step_but_abort() -> None:
    for step in ("dev up", "migrate plan", "migrate approve", "migrate status", "migrate finalize"):
        assert f"supercluster {step}" in COMMANDS


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.covers("BG-1", "BG-5", "BG-8", "BG-9", "BG-12")
def test_the_guides_commands_take_blue_to_green(tmp_path: Path, kubectl: Path) -> None:
    log = tmp_path / "traffic.log"
    run_guide(COMMANDS.replace("traffic.log", str(log)), tmp_path, kubectl, SECONDS)
    said = LAST.findall(log.read_text())
    published, confirmed, read = (int(count) for count in said[-1][:3])
    assert published == confirmed, log.read_text()
    assert read >= confirmed - 10, "it reads what it publishes"
    assert said[0][3] != said[-1][3], "it is connected elsewhere now"
