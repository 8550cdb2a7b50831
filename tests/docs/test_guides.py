"""Guides to scaling, restarts and others, followed word by word on the embedded control plane: their commands, and what they print."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.support.guides import blocks, not_shown, run_guide
from tests.support.tiers import case

SECONDS = 240
GUIDES = ("move-streams", "scale", "restart", "recover-stream", "recover-map", "certificates", "back-up")
LONG = frozenset({"scale", "restart", "recover-map", "certificates", "back-up"})
"""Other end-to-end tests show in `make test` what these do."""


@pytest.mark.e2e
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("name", [case(each, id=each, is_short=each not in LONG) for each in GUIDES])
def test_a_guides_commands_print_what_it_shows(name: str, tmp_path: Path, kubectl: Path) -> None:
    guide = (ROOT / "docs/guides" / f"{name}.md").read_text(encoding="utf-8")
    said = run_guide("".join(blocks(guide, "sh")), tmp_path, kubectl, SECONDS)
    assert not_shown(guide, said) == [], said
