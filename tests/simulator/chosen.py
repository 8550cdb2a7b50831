"""The simulator runs of `make test`, and the run that catches each mutant.

`make sim` runs 2,000 seeds. These few are chosen from them so that they meet every feature that a plan can have, and every
mutant. What a seed does shifts with the broker's code: `make sim-mutants` reports the rows of `CAUGHT_BY` that no longer hold.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulator.cutover_plan import CutoverPlan
from tests.simulator.mutation import Mutant
from tests.simulator.plan import Plan
from tests.simulator.run import SCENARIOS
from tests.simulator.scenario import Scenario
from tests.simulator.super_plan import SuperPlan

CHOSEN_MAX = 60
"""Seeds of clusters and super-clusters. The budget is 110 seconds of the processor."""

CHOSEN: dict[str, tuple[int, ...]] = {
    "cluster": (
        *(*range(6), *range(8, 15), *range(18, 22), 25, 27, 28, *range(34, 39), 40, 41, 44, 45),
        *(52, 57, 59, 62, *range(64, 68), 69, 70, 73, 85, 117, 669, 1109),
    ),
    "moves": (7, 12, 15, 16, 23, 39, 47, 55, 79, 87, 119, 473, 547, 1373),
    "stream": (1, 2, 10, 12, 24),
    "map": (0, 1, 2, 5, 8, 9),
    "copies": (0, 1, 2),
    "volumes": (0, 1, 5),
    "cutover": (9, 10, 19, 27, 39, 89),
}
"""Scenario → seeds."""

MET_BY: dict[str, int] = {
    "clock forwards": 28,
    "clock back": 1,
    "clock wrong at a start": 12,
    "one way": 18,
    "lasting cut": 4,
    "put back": 14,
    "lost founder": 20,
    "bad sectors": 12,
    "end in an fsync": 3,
    "snapshot in chunks": 14,
    "busy turn": 9,
    "end in a start": 40,
}
"""Rare fault → the chosen seed of a cluster in which it happens, and is not just drawn."""

CAUGHT_BY: dict[str, int] = {
    "vote-without-log": 3,
    "commit-older-term": 1,
    "vote-not-saved": 3,
    "vote-before-it-is-durable": 3,
    "conflict-not-truncated": 1,
    "commit-unmatched": 4,
    "minority-commits": 3,
    "nobody-wakes": 1,
    "unwritten-is-confirmed": 3,
    "unsynced-is-confirmed": 3,
    "silent-with-other-logs": 3,
    "stranger-becomes-voter": 36,
    "empty-node-starts-meta-group": 10,
    "first-members-told-once": 21,
    "first-member-joins-as-stranger": 13,
    "deleted-group-comes-back": 4,
    "ack-before-commit": 21,
    "sessions-dropped-by-new-leader": 21,
    "sessions-not-in-snapshots": 21,
    "given-up-in-silence": 18,
    "numbers-out-of-order": 1,
    "window-not-sent-again": 21,
    "sent-again-as-new": 1,
    "message-ids-dropped-by-new-leader": 21,
    "stale-map-removes-groups": 0,
    "judged-by-committed-state": 19,
    "fullness-by-committed-state": 27,
    "window-freed-at-append": 21,
    "capture-by-old-map": 0,
    "expiry-by-local-clock": 18,
    "leader-time-is-the-clock": 28,
    "consumers-eat-the-reserve": 11,
    "session-counter-repeats": 21,
    "records-not-checked": 10,
    "checkpoint-beyond-log": 27,
    "vote-not-synced": 21,
    "membership-not-synced": 0,
    "empty-volume-keeps-identity": 20,
    "page-cache-is-believed": 27,
    "an-unreadable-map-is-lost": 0,
    "lost-copy-keeps-identity": 3,
    "learners-counted": 12,
    "joint-phase-skipped": 7,
    "old-half-not-asked": 15,
    "comparison-skipped": 12,
    "tail-not-compared": 79,
    "deletes-only-counted": 16,
    "consumers-left-behind": 23,
    "origin-retired-at-once": 23,
    "grace-time-ignored": 23,
    "end-before-commit": 39,
    "new-count-left-behind": 47,
    "away-and-never-fetched": 47,
    "older-lineage-goes-on": 1,
    "tail-not-kept": 2,
    "everybody-begins-the-lineage": 1,
    "forced-while-it-lives": 1,
    "floor-is-ignored": 1,
    "window-fills-nothing": 10,
    "lineage-begins-empty": 1,
    "older-map-goes-on": 0,
    "unknown-copies-are-dropped": 1,
    "map-begins-with-the-end-of-its-log": 2,
    "older-map-is-not-kept": 8,
    "map-is-forced-while-it-lives": 0,
    "floor-of-the-map-is-ignored": 1,
    "account-limits-not-judged": 1,
    "accounts-left-out-of-snapshots": 14,
    "position-beyond-its-messages": 19,
    "young-trouble-is-exchanged": 0,
    "usable-copies-are-exchanged": 0,
    "usable-again-stays-noted": 0,
    "unusable-copies-are-not-told": 0,
    "carried-is-replayed-without-its-state": 12,
    "interest-not-asked": 25,
    "work-queue-keeps-what-was-done": 25,
    "given-up-and-forgotten": 25,
    "never-expires-and-goes": 18,
    "ttls-not-in-snapshots": 18,
    "ttls-a-second-early": 18,
    "limits-behind-the-fence": 27,
    "fence-stops-nothing": 9,
    "taken-before-it-is-open": 9,
    "opened-without-handed": 9,
    "cleaned-before-the-last-word": 9,
    "forgotten-when-cleaned": 9,
    "earlier-states-are-believed": 0,
    "leader-time-by-one-clock": 5,
    "leads-before-it-knows-the-time": 669,
    "put-back-keeps-its-names": 0,
    "loss-goes-unnoticed": 0,
}
"""Mutant → the chosen seed of its scenario that catches it."""

_LONG = "tests/broker/jetstream/state/test_long_entries.py::test_"
_SINK = "tests/simulator/test_sink.py::test_every_row_is_one_message_whoever_repeats_what"
_POLICIES = "tests/broker/storage/test_policy_changes.py"
CAUGHT_BY_TEST: dict[str, str] = {
    "verdicts-forgotten-by-time": (
        "tests/broker/jetstream/publish/test_admission.py::test_a_verdict_is_kept_however_long_its_publisher_is_silent"
    ),
    "read-errors-are-damage": (
        "tests/broker/storage/test_log_faults.py::"
        "test_a_record_that_the_disk_does_not_give_back_is_asked_for_again_and_waited_for_then"
    ),
    "unreadable-identity-is-none": (
        "tests/broker/storage/test_volume_store.py::test_a_file_that_cannot_be_read_for_a_moment_makes_no_other_volume"
    ),
    "good-records-are-moved": (
        "tests/broker/storage/test_log_faults.py::test_a_crash_at_any_step_of_a_repair_leaves_every_good_record"
    ),
    "newer-files-are-damaged": (
        "tests/broker/storage/test_log_faults.py::test_a_file_of_a_newer_version_is_refused_and_nothing_is_written"
    ),
    "a-base-that-is-gone-was-none": (
        "tests/broker/storage/test_log_faults.py::test_without_its_base_a_log_is_lost_and_nothing_of_it_is_removed"
    ),
    "what-reads-well-is-durable": (
        "tests/broker/storage/test_policy_changes.py::test_where_every_kill_counts_as_a_power_failure_what_reads_well_is_written_again"
    ),
    "the-head-counts-as-durable": (
        "tests/broker/storage/test_policy_changes.py::test_where_the_log_begins_says_nothing_of_the_entries_before_it_in_its_segment"
    ),
    "a-damaged-registry-stops-the-start": (
        "tests/broker/storage/test_volume_store.py::test_a_registry_with_a_damaged_line_is_answered_like_one_that_is_gone"
    ),
    "a-vote-in-memory-is-believed": (
        "tests/broker/storage/test_votes_apart.py::test_no_sequence_of_kills_and_power_failures_takes_a_vote_back"
    ),
    "votes-share-a-sector": (
        "tests/broker/storage/test_log_faults.py::test_a_disk_that_writes_4_kib_at_once_tears_one_slot_of_a_vote_at_most"
    ),
    "rot-in-the-last-line-is-torn": (
        "tests/broker/storage/test_volume_store.py::test_a_bit_that_turns_over_in_the_last_line_of_the_registry_is_no_line_cut_short"
    ),
    "newer-files-behind-damage-are-moved": (
        "tests/broker/storage/test_log_faults.py::test_a_segment_of_a_newer_version_behind_a_damaged_one_is_not_touched"
    ),
    "unreadable-entries-are-not-waited-for": (
        "tests/broker/storage/test_log_faults.py::test_what_is_to_be_written_again_and_cannot_be_read_is_waited_for"
    ),
    "a-failed-opening-keeps-its-files": (
        "tests/broker/storage/test_log_faults.py::test_an_opening_that_fails_leaves_no_file_open"
    ),
    "a-newer-checkpoint-does-not-help": (
        "tests/broker/storage/test_log_faults.py::"
        "test_a_damaged_state_at_the_base_costs_nothing_where_a_newer_one_is_whole"
    ),
    "segments-beyond-32-bits": "tests/broker/settings/test_settings.py::test_errors_name_field_value_and_remedy",
    "a-damaged-note-is-believed": (
        "tests/broker/storage/test_volume_store.py::test_a_note_that_cannot_be_read_is_told_from_none"
    ),
    "a-close-that-fails-ends-the-process": (
        "tests/broker/storage/test_volume_store.py::test_a_descriptor_that_cannot_be_closed_is_a_disk_error"
    ),
    "removed-file-by-file": (
        "tests/broker/storage/test_volume_store.py::"
        "test_a_crash_at_any_step_of_a_removal_leaves_all_of_a_copy_or_nothing"
    ),
    "short-log-votes-by-what-is-left": (
        "tests/broker/raft/test_raft_following.py::test_a_member_that_lost_a_record_helps_nobody_to_lead_without_it"
    ),
    "short-log-leads": (
        "tests/broker/raft/test_raft_chaos.py::test_one_member_at_a_time_may_lose_records_of_its_middle_and_votes_on[25]"
    ),
    "checkpoint-in-the-midst-of-an-entry": f"{_LONG}whatever_happens_meanwhile_it_is_applied_as_a_whole[due]",
    "judged-in-the-midst-of-an-entry": f"{_LONG}what_is_published_meanwhile_is_judged_behind_it",
    "goes-on-from-half-an-entry": (
        "tests/broker/jetstream/recovery/test_migrating_copies.py::"
        "test_a_state_is_kept_for_the_very_log_that_it_is_of_alone[mid-entry]"
    ),
    **dict.fromkeys(
        (
            "confirmed-by-the-policy-alone",
            "confirmed-before-the-disk-knows",
            "confirmed-while-nothing-is-to-be-owed",
            "nothing-owed-before-all-is-durable",
            "owing-believed-from-the-page-cache",
            "overtaken-write-counts",
            "nothing-owed-behind-a-failed-fsync",
            "stronger-policy-forgets-what-it-owes",
        ),
        f"{_POLICIES}::test_a_log_that_counts_as_sound_has_all_that_it_ever_confirmed[seeds0-True]",
    ),
    "vote-takes-a-clear-back": (
        f"{_POLICIES}::test_a_log_that_counts_as_sound_has_all_that_it_ever_confirmed[seeds2-True]"
    ),
    "vote-deaf-to-what-it-took-along": (
        f"{_POLICIES}::test_a_vote_hears_of_the_failure_of_what_it_took_along"
    ),
    "batch-known-by-its-attempt": _SINK,
    "abort-without-condition": _SINK,
    "position-in-another-entry": _SINK,
    "block-released-from-its-beginning": _SINK,
    "commit-without-its-offsets": _SINK,
    "second-write-taken-for-a-repeat": _SINK,
    "late-commit-of-an-earlier-run-counts": "tests/broker/jetstream/sink/test_sink.py::test_another_run_repeats_a_batch_and_a_second_write_of_a_run_does_not",
    "parts-in-another-order": _SINK,
    "writers-not-in-snapshots": _SINK,
    "staged-rows-go-with-the-log": (
        "tests/simulator/test_sink.py::test_the_log_is_kept_from_the_first_staged_row_however_few_messages_are_left"
    ),
    "next-release-before-the-last-is-applied": (
        "tests/broker/jetstream/stream/test_sink_release.py::"
        "test_nothing_is_released_while_an_entry_is_not_applied"
    ),
    "old-half-is-ignored": (
        "tests/broker/raft/test_raft_membership.py::test_a_joint_membership_needs_both_majorities"
    ),
    "double-ack-before-commit": (
        "tests/broker/jetstream/stream/test_replica.py::"
        "test_a_leader_that_was_cut_off_gives_back_what_says_the_same_a_second_time"
    ),
    "checkpoint-not-synced": (
        "tests/broker/storage/test_checkpoints_apart.py::"
        "test_one_counts_when_its_file_and_its_name_are_durable"
    ),
    "no-reserve": (
        "tests/broker/storage/test_log_faults.py::test_room_is_kept_for_entries_that_are_not_messages"
    ),
    "other-incarnation-joins": (
        "tests/broker/moves/test_audit_and_pace.py::"
        "test_a_broker_holds_what_the_map_names_in_exactly_that_incarnation"
    ),
    "two-moves-at-once": (
        "tests/broker/jetstream/meta_leader/test_moves.py::test_a_second_move_is_refused_with_peers_and_lag"
    ),
    "old-log-has-the-last-word": (
        "tests/broker/moves/test_audit_and_pace.py::"
        "test_a_copy_of_before_the_move_gives_way_and_only_a_replaced_target_asks_its_own_log"
    ),
    "learner-forgotten": (
        "tests/broker/moves/test_plan.py::"
        "test_turning_back_drops_learners_and_leaves_the_joint_membership_backwards"
    ),
    "positions-not-in-snapshots": (
        "tests/broker/jetstream/sources/test_origins.py::"
        "test_a_snapshot_of_a_mirror_has_its_gaps_and_position"
    ),
    "doubtful-member-votes": (
        "tests/broker/raft/test_raft_chaos.py::test_one_member_at_a_time_may_lose_a_confirmed_tail[50]"
    ),
    "learner-is-counted": (
        "tests/broker/raft/test_raft_membership.py::test_a_learner_counts_for_no_majority"
    ),
    "deposed-leader-answers": (
        "tests/broker/jetstream/stream/test_replica.py::"
        "test_a_deposed_leader_does_not_answer_by_entries_of_the_next_one"
    ),
    # A green that is right has the digest that was handed over, or does not open.
    "cleaned-by-another-digest": (
        "tests/broker/jetstream/meta_leader/test_migrations.py::"
        "test_blues_copies_go_by_the_evidence_of_both_sides_alone"
    ),
    "other-history-is-taken": (
        "tests/broker/raft/test_raft_following.py::test_a_follower_stops_where_a_leader_has_another_history"
    ),
    "old-heartbeats-settle-doubt": (
        "tests/broker/raft/test_raft_following.py::"
        "test_doubt_ends_when_all_that_the_leader_had_at_first_is_durable_and_not_before"
    ),
    "loss-is-made-up-for": (
        "tests/broker/raft/test_raft_following.py::"
        "test_a_member_whose_disk_went_back_is_told_what_it_had_confirmed_and_gets_nothing"
    ),
    "starts-left-out-of-the-map": (
        "tests/simulator/test_put_back.py::test_the_map_remembers_what_no_process_has_heard"
    ),
    "answer-beyond-the-log": (
        "tests/broker/raft/test_raft_following.py::test_a_leader_stops_when_a_member_confirms_what_it_does_not_have"
    ),
    "checkpoint-of-several-entries": (
        "tests/broker/jetstream/state/test_snapshot.py::"
        "test_a_view_gives_the_state_as_of_its_entry_whatever_is_applied_while_it_is_read"
    ),
    "two-beginnings-merge": "tests/simulator/test_two_beginnings.py::test_two_maps_never_merge",
    "stalls-count": (
        "tests/broker/test_own_time.py::test_time_in_which_a_process_stood_still_does_not_count"
    ),
    "overtaken-is-lost": (
        "tests/simulator/test_thin_links.py::test_what_a_replica_lacks_crosses_a_thin_link_once"
    ),
    "judged-and-not-appended": (
        "tests/broker/jetstream/stream/test_replica.py::"
        "test_nothing_is_judged_while_leadership_is_on_its_way_to_another"
    ),
    "handed-out-behind-a-stall": (
        "tests/broker/jetstream/consumer/test_commit_gate.py::"
        "test_behind_a_stall_a_delivery_leaves_once_the_leadership_is_confirmed"
    ),
    "handed-out-before-commit": (
        "tests/broker/jetstream/stream/test_replica.py::test_a_leader_that_is_cut_off_hands_nothing_out"
    ),
    "handed-out-in-doubt": (
        "tests/broker/jetstream/consumer/test_uncertain_deliveries.py::"
        "test_where_another_entry_came_to_stand_nothing_leaves_and_requests_go_on_as_they_were"
    ),
    "a-carried-message-is-left-out": (
        "tests/simulator/test_carrying.py::test_one_old_key_does_not_keep_the_log_for_ever"
    ),
    "first-copy-goes-before-the-second-is-durable": (
        "tests/simulator/test_carrying.py::test_the_first_copy_of_a_message_stays_until_the_second_is_durable"
    ),
    "carried-entries-are-dropped": (
        "tests/simulator/test_carrying.py::test_one_old_key_does_not_keep_the_log_for_ever"
    ),
    "sent-without-the-state-that-counts": (
        "tests/simulator/test_carrying.py::"
        "test_a_copy_that_was_away_gets_the_state_that_counts_with_what_was_carried"
    ),
    "uncommitted-membership-in-checkpoints": (
        "tests/broker/jetstream/replica/test_applied_membership.py::"
        "test_a_copy_without_a_checkpoint_keeps_no_membership_that_may_be_truncated"
    ),
    "unfenced-behind-handed": (
        "tests/simulator/test_two_worlds.py::"
        "test_behind_handed_blue_takes_nothing_back_however_long_green_is_silent"
    ),
    "sessions-without-their-world": (
        "tests/simulator/test_two_worlds.py::"
        "test_a_number_whose_verdict_was_not_heard_before_the_cut_keeps_it_behind_the_cut"
    ),
    "duplicate-window-lost": (
        "tests/simulator/test_two_worlds.py::"
        "test_what_blue_has_stored_under_a_message_id_is_stored_by_green_no_second_time"
    ),
    "cancel-after-leaving": (
        "tests/broker/moves/test_plan.py::"
        "test_turning_back_drops_learners_and_leaves_the_joint_membership_backwards"
    ),
}
"""Mutants that only expensive seeds catch → the test of `make test` that fails."""


def scenario_of(mutant: Mutant) -> str:
    """The scenario that catches a mutant."""
    return mutant.recovers or ("moves" if mutant.moves else "cluster")


def features(scenario: str, seed: int) -> frozenset[str]:
    """The features of a seed's plan, which is drawn and not run."""
    drawn = SCENARIOS[scenario](seed)
    found = {*_of_plan(drawn.plan), *_of_streams(drawn), *_of_storage(drawn)}
    if scenario == "cluster":
        found |= {f"rare {kind}" for kind in drawn.weather.rare.drawn}
    if isinstance(drawn.plan, SuperPlan):
        found |= set(_of_moves(drawn.plan))
    if isinstance(drawn.plan, CutoverPlan):
        found |= set(_of_cutovers(drawn.plan))
    return frozenset(f"{scenario}: {feature}" for feature in found)


def _of_plan(plan: Plan) -> Iterator[str]:
    if not isinstance(plan, SuperPlan):
        yield f"{plan.nodes} brokers, {plan.meta_voters} meta voters"
    yield f"{plan.replicas} replicas, {plan.storage}"
    yield f"retention {plan.retention}"
    limits = {
        "messages": plan.max_msgs >= 0,
        "bytes": plan.max_bytes >= 0,
        "age": plan.max_age_ms > 0,
        "messages of a subject": plan.per_subject > 0,
    }
    discard = "new" if plan.refuses_when_full else "old"
    yield from (f"limit of {kind}, discard {discard}" for kind, is_set in limits.items() if is_set)
    yield from (f"moment {moment}" for moment in plan.moments)


def _of_streams(drawn: Scenario) -> Iterator[str]:
    yield from (
        name
        for name, is_on in {
            "a stream that comes and goes": drawn.plan.side_stream,
            "account limits that change": drawn.limits.is_there,
            "publishers that race for a key": drawn.plan.creators,
            "messages that a person removes": drawn.plan.removes,
            "disks that are filled up": drawn.plan.fills,
            "mirrors, sources and a work queue": drawn.copies.is_on,
        }.items()
        if is_on
    )


def _of_storage(drawn: Scenario) -> Iterator[str]:
    """A fault of the disk, the power or the network means something else under each policy."""
    policy = "memory" if drawn.plan.storage == "memory" else drawn.plan.fsync
    policy = f"{policy}, then others" if drawn.changes_fsync else policy
    yield f"fsync {policy}"
    yield from (f"fault {fault}, fsync {policy}" for fault in drawn.plan.faults)


def _of_moves(plan: SuperPlan) -> Iterator[str]:
    yield f"clusters of {plan.shape}, home {plan.home}"
    yield f"part of moves cancelled {plan.cancels}"
    yield f"grace time {plan.grace_ms} ms"
    if plan.scales:
        yield "replica counts that change"
    if plan.bad_copies:
        yield "copies that read other bytes"


def _of_cutovers(plan: CutoverPlan) -> Iterator[str]:
    yield f"equal names {plan.equal_names}"
    yield f"{plan.far_ms} ms between both"
    yield f"strikes {plan.strikes}"
    yield "an abort" if plan.aborts_after_ms else "no abort"
    if plan.refuses:
        yield "a refusal"
    if plan.is_idle:
        yield "nobody publishes"
