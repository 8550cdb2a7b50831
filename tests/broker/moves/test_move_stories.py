"""Every story in `tests/scripts/moves` ends as it is written there."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from tests.broker.moves.script import SCRIPTS, play
from tests.support.tiers import case

UPKEEP = "tests/broker/jetstream/meta_leader/test_upkeep.py: "
LONG = {
    "cancelled_while_learning": "cancelled_while_joint, and tests/broker/moves/test_plan.py",
    "clusters_are_cut_off_while_learning": "clusters_are_cut_off_while_joint",
    "leader_killed_while_comparing": "leader_killed_while_handing_over",
    "leader_killed_while_learning": "leader_killed_while_handing_over",
    "slower_than_the_stream_grows": "tests/broker/moves/test_catch_up.py; what is said: test_comparing.py",
    "target_breaks": UPKEEP + "another node joins for a target that is stuck",
    "target_breaks_and_nobody_else_fits": UPKEEP + "where nobody else fits, and what waits too long",
    "target_breaks_once": UPKEEP + "a target that comes back late",
    "target_dies_and_comes_back": UPKEEP + "a target that comes back in time",
    "target_is_replaced": UPKEEP + "a target that is gone for too long",
    "target_loses_its_volume": UPKEEP + "a target with another volume",
    "targets_broker_leaves": UPKEEP + "a target whose broker leaves",
}
"""Stories of minutes of simulated time, and what shows the same in `make test`."""


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
