"""docs/guides/rotate.md, followed word by word: its commands in their order, in one shell, and what they print (CL-5)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.conftest import ROOT
from tests.support.guides import BLOCK, blocks, not_shown, run_guide

GUIDE = (ROOT / "docs" / "guides" / "rotate.md").read_text(encoding="utf-8")
COMMANDS = "".join(blocks(GUIDE, "sh"))
SECONDS = 240


def test_the_guide_has_a_command_for_each_step() -> None:
    for step in (
        "dev up",
        "kind: User",
        "users rotate shop\n",
        "get nu -w",
        "users show",
        "users who-uses",
        '"counter": 1, "after": "90d"',
        "rotate shop --cancel",
        "rotate shop --suspend",
        "--deadline-after",
        "passwordFrom",
        "type: NKey",
        "name: app, adopt: true",
        "users adopt",
        "delete nu/",
        "rotate-credentials=1",
        "dev down",
    ):
        assert step in COMMANDS, step


def test_every_block_is_run_compared_or_read() -> None:
    assert {language for language, _ in BLOCK.findall(GUIDE)} == {"sh", "text", "yaml"}
    for block in blocks(GUIDE, "yaml"):
        yaml.safe_load(block)


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.covers("CL-5")
def test_the_guides_commands_rotate_take_over_and_withdraw(tmp_path: Path, kubectl: Path) -> None:
    said = run_guide(COMMANDS, tmp_path, kubectl, SECONDS, folder_of_commands=tmp_path)
    assert not_shown(GUIDE, said) == [], said
    published, confirmed = (
        int(word.split()[1])
        for word in (tmp_path / "till-1.log").read_text().splitlines()[-1].split(", ")[:2]
    )
    assert published == confirmed > 50
