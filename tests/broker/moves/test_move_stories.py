"""Every story in `tests/scripts/moves` ends as it is written there."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from tests.broker.moves.script import SCRIPTS, play
from tests.support.tiers import case

LONG = {"target_breaks_and_nobody_else_fits"}
"""A quarter of an hour of simulated time; tests/broker/jetstream/test_meta_upkeep.py shows the same of the meta group alone."""


@pytest.mark.covers(
    "MV-3", "MV-4", "MV-5", "MV-6", "MV-7", "MV-9", "MV-10", "MV-12", "SF-4", "SF-5", "SF-6", "SF-8"
)
@pytest.mark.parametrize(
    "path",
    [case(path, id=path.stem, is_short=path.stem not in LONG) for path in sorted(SCRIPTS.glob("*.txt"))],
)
def test_the_story_ends_as_it_is_told(path: Path) -> None:
    told, now = path.read_text(), play(path)
    difference = difflib.unified_diff(told.splitlines(), now.splitlines(), "told", "now", lineterm="")
    assert now == told, "\n".join(difference)
