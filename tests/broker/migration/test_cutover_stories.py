"""Every story in `tests/scripts/cutover` ends as it is written there."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from tests.broker.migration.story import SCRIPTS, play
from tests.support.tiers import case

SEEDS = "tests/simulator/test_chosen_cutovers.py"
LONG = {
    "blue_restarts_when_open": SEEDS,
    "blues_map_leader_changes": SEEDS,
    "calls_wait_while_handed": "cut_while_handed",
    "green_leader_killed_when_open": SEEDS,
    "one_replica": SEEDS,
}
"""Stories that cost more than others, and what shows the same in `make test`."""


@pytest.mark.covers("BG-1", "BG-3", "BG-4", "BG-5", "BG-8", "BG-10", "SF-19", "SF-20", "SF-21")
@pytest.mark.parametrize(
    "path",
    [case(path, id=path.stem, is_short=path.stem not in LONG) for path in sorted(SCRIPTS.glob("*.txt"))],
)
def test_the_story_ends_as_it_is_told(path: Path) -> None:
    told, now = path.read_text(), play(path)
    difference = difflib.unified_diff(told.splitlines(), now.splitlines(), "told", "now", lineterm="")
    assert now == told, "\n".join(difference)
