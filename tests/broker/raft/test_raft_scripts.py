"""The stories in `tests/scripts/raft` still go as they are written."""

from __future__ import annotations

import pytest
from tests.broker.raft.script import SCRIPTS, play

# Which rows of the requirements and safety rules each story shows.
STORIES = {
    "a_joint_membership_is_led_back_by_an_old_voter": ("SF-6", "MV-9"),
    "election": ("RP-1",),
    "pre_vote_with_a_stale_log": ("RP-1", "RP-8"),
    "conflicting_tail_is_truncated": ("RP-2",),
    "older_terms_are_committed_only_by_an_own_entry": ("RP-1",),
    "leader_transfer": ("RP-1",),
    "leadership_is_handed_over_behind_the_last_commit": ("RP-1",),
    "a_learner_does_not_count": ("RP-1", "SF-4"),
    "joint_consensus_needs_both_majorities": ("SF-5", "SF-6", "SF-8"),
    "joint_membership_is_held_until_compared": ("SF-6",),
    "stale_plan_is_refused": ("SF-5",),
    "removed_leader_hands_over": ("SF-5", "RP-1"),
    "check_quorum": ("RP-1", "RP-8"),
    "quiescence": ("SF-7", "RP-3"),
    "doubtful_member": ("SF-4",),
    "doubtful_majority": ("SF-4", "RP-8"),
    "snapshot": ("RP-2",),
    "read_index": ("RP-1",),
    "full_disk": ("RP-1", "RP-8"),
    "durable_before_confirmed": ("RP-6", "RP-1"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.covers(*rows)) for name, rows in STORIES.items()]
)
def test_story(name: str) -> None:
    path = SCRIPTS / f"{name}.txt"
    assert play(path) == path.read_text()


def test_every_story_is_told() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.txt")} == set(STORIES)
