"""Migrations in the map of streams: what each operation makes of a stream, in blue's map and in green's, alike on every replica.

Rules BG-4 and SF-19 to SF-22: one owner per stream, whatever is repeated, late or lost.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.encoding.sections import Section, section
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.map_recovery import MapRecovery
from supercluster.broker.jetstream.meta.migration import (
    ENDED_MAX,
    Following,
    Green,
    Migration,
    StreamMigration,
    StreamStage,
    next_group,
)
from supercluster.broker.jetstream.meta.migration_changes import (
    abort_migration,
    arrived_stream,
    clean_stream,
    discard_stream,
    end_migration,
    far_stream,
    finalize_migration,
    follow_stream,
    hand_stream,
    migrate_stream,
    start_migration,
    unfollow_stream,
    unhand_stream,
    unmigrate_stream,
)
from supercluster.broker.jetstream.meta.operations import (
    delete_stream,
    put_stream,
    recover_stream,
    start_move,
)
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta.stream_recovery import Recovery
from supercluster.broker.jetstream.replica.lineage import is_same_stream, lineage_of
from supercluster.broker.raft.entry import EntryKind, make_entry

BLUE, GREEN = "0b1e0b1e", "94ee94ee"
MEMBERS = ("blue-0@a", "blue-1@b", "blue-2@c")
FAR = (f"green-0%{GREEN}@d.1", f"green-1%{GREEN}@e.1")
NEAR = ("green-0@d.1", "green-1@e.1")
CONFIG = read_stream({"name": "S", "subjects": ["s"]})
GROUP = "S.$G.S.1"
TO_GREEN = Migration("shop/move/1", Green("green", "green", ("green-0:7422",), "green"), GREEN)


class Map:
    """A state that is fed entries; after each one a second one is restored from its snapshot and compared."""

    def __init__(self) -> None:
        self.state = MetaState()
        self.index = 0

    def do(self, body: bytes) -> list[str]:
        self.index += 1
        payload = b"".join(bytes(part) for part in section(Section.META, [body]))
        entry = make_entry(
            term=1, index=self.index, kind=EntryKind.BATCH, payload=payload, time_ns=self.index * 1000
        )
        touched = self.state.apply(entry)
        assert MetaState.restore(self.state.snapshot()) == self.state
        return touched

    @property
    def stream(self) -> Assignment:
        return self.state.streams["$G", "S"]

    @property
    def way(self) -> StreamMigration:
        assert self.stream.migration is not None
        return self.stream.migration

    @property
    def following(self) -> Following:
        assert self.stream.following is not None
        return self.stream.following


def blue() -> Map:
    found = Map()
    found.do(put_stream("$G", "S", GROUP, CONFIG, MEMBERS))
    found.do(start_migration(TO_GREEN))
    return found


def handed() -> Map:
    found = blue()
    found.do(migrate_stream(found.stream, TO_GREEN))
    found.do(hand_stream(found.stream, found.way))
    return found


def follow(found: Map, attempt: int = 1, source: str = GROUP, migration: str = TO_GREEN.id) -> list[str]:
    following = Following(migration, attempt, source, BLUE, FAR)
    group = next_group(source, migration, attempt)
    return found.do(follow_stream("$G", "S", group, CONFIG, following, NEAR, created_ns=77))


# ---- blue ------------------------------------------------------------------------------------------------------------


def test_a_stream_goes_to_green_and_is_never_blues_again() -> None:
    """BG-4, SF-19: from *opened* on the stream's group is green's, and blue's own is known as the one that it comes from."""
    found = handed()
    assert (found.stream.group, found.stream.far_world) == (GROUP, "")
    to_be = found.way.next_group
    assert found.do(far_stream(found.stream, TO_GREEN.id, 1, "d1", 41)) == [GROUP, to_be]
    assert (found.stream.group, found.stream.far_world, found.stream.source_group) == (to_be, GREEN, GROUP)
    assert is_same_stream(to_be, GROUP)
    assert lineage_of(to_be) == 1
    assert found.state.by_group(GROUP) == found.state.by_group(to_be) == found.stream
    assert found.state.shown() == [found.stream]
    for late in (
        unhand_stream(found.stream, TO_GREEN.id, 1),
        unmigrate_stream(found.stream, TO_GREEN.id),
        migrate_stream(found.stream, replace(TO_GREEN, id="another")),
    ):
        assert found.do(late) == []


def test_a_stream_is_cleaned_only_by_the_evidence_of_both_sides() -> None:
    """BG-12, SF-22: equal digests, and green's last sequence is not before the cut."""
    found = handed()
    assert found.do(clean_stream(found.stream, TO_GREEN.id, 1, "d1", 41)) == []
    found.do(far_stream(found.stream, TO_GREEN.id, 1, "d1", 41))
    for digest, last_seq, attempt in (("d2", 41, 1), ("d1", 40, 1), ("", 41, 1), ("d1", 41, 2)):
        assert found.do(clean_stream(found.stream, TO_GREEN.id, attempt, digest, last_seq)) == []
    assert found.do(clean_stream(found.stream, TO_GREEN.id, 1, "d1", 50))
    assert found.way.stage is StreamStage.CLEANED


def test_a_stream_is_discarded_only_at_its_attempt_and_is_greens_still() -> None:
    """BG-12, rule 18."""
    found = handed()
    assert found.do(discard_stream(found.stream, TO_GREEN.id, 1)) == []
    found.do(far_stream(found.stream, TO_GREEN.id, 1, "d1", 41))
    assert found.do(discard_stream(found.stream, TO_GREEN.id, 2)) == []
    assert found.do(discard_stream(found.stream, TO_GREEN.id, 1))
    assert (found.way.stage, found.way.discarded, found.stream.far_world) == (
        StreamStage.CLEANED,
        True,
        GREEN,
    )
    assert StreamMigration.from_json(found.way.to_json()) == found.way


def test_after_a_refusal_the_next_attempt_has_a_group_of_its_own() -> None:
    """SF-20: copies of the attempt that green refused are of no use for another one."""
    found = handed()
    first = found.way
    found.do(unhand_stream(found.stream, TO_GREEN.id, 1))
    second = found.way
    assert (second.stage, second.attempt, second.source) == (StreamStage.LEARNING, 2, GROUP)
    assert second.next_group != first.next_group
    assert found.state.by_group(first.next_group) is None
    assert found.do(far_stream(found.stream, TO_GREEN.id, 1, "d1", 41)) == []


def test_an_attempt_has_one_mark_and_what_comes_late_is_void() -> None:
    """SF-20: a second mark of the attempt, and a second end of it, would be about the fence of another one."""
    found = handed()
    first = found.way
    found.do(unhand_stream(found.stream, TO_GREEN.id, 1))
    assert found.do(hand_stream(found.stream, first)) == []
    found.do(hand_stream(found.stream, found.way))
    assert found.do(unhand_stream(found.stream, TO_GREEN.id, 1)) == []
    assert (found.way.stage, found.way.attempt) == (StreamStage.HANDING, 2)


def test_a_recovered_map_learns_the_mark_again_from_the_streams_own_log() -> None:
    """SF-20: blue lost its map behind *handing*, and the stream's log has HANDED. It never takes writes by that."""
    lost = handed()
    mark = replace(lost.way, digest="d1")
    older = Map()
    older.do(put_stream("$G", "S", GROUP, CONFIG, MEMBERS))
    older.state.recovered(MapRecovery("r", "meta~1", "m", "meta", 0, 9, 9, 3, "", 0), 1 << 32)
    assert older.do(hand_stream(older.stream, mark)) == [GROUP, lost.way.next_group]
    assert older.way == mark
    assert older.stream.attempts >= lost.stream.attempts


def test_a_mark_that_comes_behind_an_abort_holds_nothing() -> None:
    """SF-20: it was under way when another leader of the stream carried the abort out. Nobody would end it again."""
    found = blue()
    found.do(migrate_stream(found.stream, TO_GREEN))
    late = hand_stream(found.stream, found.way)
    found.do(abort_migration(TO_GREEN.id))
    found.do(unmigrate_stream(found.stream, TO_GREEN.id))
    assert found.do(late) == []
    assert found.stream.migration is None


def test_a_recovered_map_takes_a_later_attempt_than_the_one_that_it_has_marked() -> None:
    """SF-20: its backup is from before the end of attempt 1, and the stream's log is at attempt 2. Else what green has opened could
    never be noted."""
    older, lost = handed(), handed()
    lost.do(unhand_stream(lost.stream, TO_GREEN.id, 1))
    lost.do(hand_stream(lost.stream, lost.way))
    older.state.recovered(MapRecovery("r", "meta~1", "m", "meta", 0, 9, 9, 3, "", 0), 1 << 32)
    assert older.do(hand_stream(older.stream, lost.way))
    assert older.way == lost.way
    assert older.do(hand_stream(older.stream, handed().way)) == []
    assert older.do(far_stream(older.stream, TO_GREEN.id, 2, "d1", 41))


def test_a_repair_and_the_mark_keep_each_other_out() -> None:
    """SF-20: a move drops what is neither a voter nor its target from the stream's group, so also green's copies."""
    found = blue()
    found.do(migrate_stream(found.stream, TO_GREEN))
    repair = start_move(found.stream, CONFIG, "r", ("b-9@1.1",), MEMBERS)
    mark = hand_stream(found.stream, found.way)
    assert found.do(repair)
    assert found.do(mark) == []
    assert found.do(hand_stream(found.stream, replace(found.way, digest="d1"))), (
        "what was handed over was handed over"
    )
    other = handed()
    assert other.do(repair) == []
    assert other.stream.move is None


def test_attempts_of_another_migration_go_on_counting() -> None:
    """A frame of the migration before is known by its number."""
    found = blue()
    found.do(migrate_stream(found.stream, TO_GREEN))
    found.do(abort_migration(TO_GREEN.id))
    found.do(unmigrate_stream(found.stream, TO_GREEN.id))
    assert found.stream.migration is None
    assert found.state.migrations[TO_GREEN.id].dropped == ((GROUP, 1),)
    again = replace(TO_GREEN, id="shop/move/2")
    found.do(end_migration(TO_GREEN.id))
    found.do(start_migration(again))
    found.do(migrate_stream(found.stream, again))
    assert (found.way.id, found.way.attempt) == (again.id, 2)


def test_what_is_deleted_while_green_learns_is_remembered_for_green() -> None:
    found = blue()
    found.do(migrate_stream(found.stream, TO_GREEN))
    found.do(delete_stream(found.stream))
    assert found.state.migrations[TO_GREEN.id].dropped == ((GROUP, 1),)
    assert (found.state.migrating, found.state.other_groups) == (set(), {})


def test_a_lineage_that_ended_while_green_learned_it_is_remembered_for_green() -> None:
    """BG-9: an abort names the new group, of which green may know nothing, and the hidden stream would be there for ever."""
    found = blue()
    found.do(migrate_stream(found.stream, TO_GREEN))
    recovery = Recovery("r", MEMBERS[0], GROUP, 0, 0, 0, 0, "")
    found.do(recover_stream(found.stream, "S.$G.S.1~1", recovery))
    assert (found.way.source, found.way.attempt) == ("S.$G.S.1~1", 2)
    assert found.state.migrations[TO_GREEN.id].dropped == ((GROUP, 1),)


def test_a_stream_that_moves_is_not_learned() -> None:
    found = blue()
    found.do(start_move(found.stream, CONFIG, "m1", ("blue-3@z.1",), MEMBERS))
    assert found.do(migrate_stream(found.stream, TO_GREEN)) == []


def test_two_migrations_of_one_account_are_not_under_way_at_once() -> None:
    found = blue()
    found.do(start_migration(replace(TO_GREEN, id="b", account="A")))
    assert list(found.state.migrations) == [TO_GREEN.id]
    found.do(end_migration(TO_GREEN.id))
    for account in ("A", "B", ""):
        found.do(start_migration(replace(TO_GREEN, id=f"x{account}", account=account)))
    assert list(found.state.migrations) == [TO_GREEN.id, "xA", "xB"]
    assert found.state.migrations["xA"].started_ns > 0


def test_one_that_is_called_off_is_in_the_way_of_another_until_its_streams_are_back() -> None:
    found = blue()
    other = replace(TO_GREEN, id="b")
    found.do(migrate_stream(found.stream, TO_GREEN))
    found.do(abort_migration(TO_GREEN.id))
    found.do(start_migration(other))
    assert list(found.state.migrations) == [TO_GREEN.id]
    found.do(unmigrate_stream(found.stream, TO_GREEN.id))
    found.do(start_migration(other))
    assert list(found.state.migrations) == [TO_GREEN.id, "b"]
    assert found.state.migrations[TO_GREEN.id].runs


def test_of_migrations_that_ended_only_the_last_ones_are_remembered() -> None:
    found = Map()
    for number in range(2 * ENDED_MAX):
        found.do(start_migration(replace(TO_GREEN, id=f"m{number}")))
        found.do(end_migration(f"m{number}"))
    found.do(start_migration(TO_GREEN))
    assert len(found.state.migrations) == ENDED_MAX + 1
    assert TO_GREEN.id in found.state.migrations


def test_a_migration_is_remembered_for_as_long_as_green_has_a_stream_by_it() -> None:
    """Blue's clients are served from there, so where that is has to be known."""
    found = handed()
    found.do(far_stream(found.stream, TO_GREEN.id, 1, "d1", 41))
    found.do(end_migration(TO_GREEN.id))
    for number in range(2 * ENDED_MAX):
        found.do(start_migration(replace(TO_GREEN, id=f"m{number}")))
        found.do(end_migration(f"m{number}"))
    assert TO_GREEN.id in found.state.migrations


def test_finalize_and_abort_are_marks_of_the_migration() -> None:
    found = blue()
    found.do(finalize_migration(TO_GREEN.id))
    found.do(abort_migration(TO_GREEN.id))
    found.do(abort_migration("unknown"))
    told = found.state.migrations[TO_GREEN.id]
    assert (told.final, told.cancelled, told.runs) == (True, True, True)


# ---- green -----------------------------------------------------------------------------------------------------------


def test_a_stream_that_comes_is_seen_by_nobody_until_it_is_open() -> None:
    """BG-4: its name is taken; `created` is blue's, for who stores positions (rule 17)."""
    found = Map()
    follow(found)
    assert found.state.shown() == []
    assert found.state.coming == {("$G", "S")}
    assert (found.stream.members, found.following.members) == (NEAR, FAR)
    assert found.stream.created_ns == 77
    assert found.stream.has_begun_before
    assert found.state.by_group(GROUP) == found.stream
    wider = read_stream({"name": "S", "subjects": ["s", "t"]})
    found.do(arrived_stream(found.stream, 1, "d1", 41, wider, NEAR[:1]))
    assert found.state.shown() == [found.stream]
    assert (found.stream.config, found.stream.members, found.stream.following) == (wider, NEAR[:1], None)
    assert found.stream.arrival is not None
    assert (found.stream.arrival.digest, found.stream.arrival.last_seq) == ("d1", 41)
    assert found.state.by_group(GROUP) == found.stream


def test_an_older_attempt_has_no_effect_on_a_newer_one() -> None:
    """SF-20: frames may be late, and copies that have become green's are never dropped by one."""
    found = Map()
    follow(found, attempt=2)
    before = found.stream
    assert follow(found, attempt=1) == []
    assert follow(found, attempt=2, migration="shop/move/0") == []
    assert found.do(unfollow_stream(found.stream, TO_GREEN.id, 1)) == []
    assert found.do(unfollow_stream(found.stream, "shop/move/0", 2)) == []
    assert found.do(arrived_stream(found.stream, 1, "d1", 41, CONFIG, NEAR)) == []
    assert found.stream == before
    touched = follow(found, attempt=3)
    assert {before.group, found.stream.group, GROUP} == set(touched)


def test_what_is_open_is_not_followed_anew_nor_dropped() -> None:
    found = Map()
    follow(found)
    found.do(arrived_stream(found.stream, 1, "d1", 41, CONFIG, NEAR))
    before = found.stream
    assert follow(found, attempt=2) == []
    assert found.do(unfollow_stream(found.stream, TO_GREEN.id, 1)) == []
    assert found.stream == before


def test_nothing_is_left_of_a_stream_that_blue_keeps() -> None:
    found = Map()
    follow(found)
    group = found.stream.group
    assert set(found.do(unfollow_stream(found.stream, TO_GREEN.id, 1))) == {group, GROUP}
    assert (found.state.streams, found.state.coming, found.state.other_groups) == ({}, set(), {})


# ---- any order -------------------------------------------------------------------------------------------------------

ACTS = ("migrate", "hand", "unhand", "open", "clean", "discard", "unmigrate", "delete", "put", "recovered")


def act(found: Map, what: str, attempt: int) -> None:
    """One operation, perhaps late: it names an attempt."""
    present = found.state.streams.get(("$G", "S"))
    if what == "recovered":
        recovery = MapRecovery("r", "meta~1", "m", "meta", 0, 9, 9, 3, "", 0)
        found.state.recovered(recovery, found.index)
    elif what == "put":
        found.do(put_stream("$G", "S", f"S.$G.S.{found.index}", CONFIG, MEMBERS))
    elif present is not None:
        way = present.migration
        bodies = {
            "migrate": lambda: migrate_stream(present, TO_GREEN),
            "hand": lambda: hand_stream(present, way) if way else delete_stream(replace(present, group="x")),
            "unhand": lambda: unhand_stream(present, TO_GREEN.id, attempt),
            "open": lambda: far_stream(present, TO_GREEN.id, attempt, "d", 5),
            "clean": lambda: clean_stream(present, TO_GREEN.id, attempt, "d", 5),
            "discard": lambda: discard_stream(present, TO_GREEN.id, attempt),
            "unmigrate": lambda: unmigrate_stream(present, TO_GREEN.id),
            "delete": lambda: delete_stream(present),
        }
        body = bodies[what]()
        found.do(body)
        now = found.state.streams.get(("$G", "S"))
        if what != "migrate" and now is not None and now.migration == way:
            return
        # Whoever got no answer asks again: that changes nothing.
        again = found.state.streams.get(("$G", "S"))
        found.do(body)
        assert found.state.streams.get(("$G", "S")) == again


@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(1, 3)), max_size=30))
def test_whatever_comes_in_whatever_order_a_stream_has_one_owner_and_no_number_twice(
    acts: list[tuple[str, int]],
) -> None:
    """SF-19, SF-20: what is green's stays green's, attempts only rise, and every attempt has a group of its own."""
    found = blue()
    groups: dict[str, tuple[str, int]] = {}
    for what, attempt in acts:
        before = found.state.streams.get(("$G", "S"))
        act(found, what, attempt)
        after = found.state.streams.get(("$G", "S"))
        if before is not None and after is not None and before.far_world and what != "delete":
            assert (after.far_world, after.group) == (before.far_world, before.group)
        if after is None:
            continue
        if before is not None and is_same_stream(before.group, after.group):
            assert after.attempts >= before.attempts
        for group in (after.group, *after.other_groups):
            assert found.state.by_group(group) == after
        if after.migration is not None:
            key = after.migration.source, after.migration.attempt
            assert groups.setdefault(after.migration.next_group, key) == key


def test_a_final_migration_that_has_only_a_farewell_left_keeps_no_other_one_away() -> None:
    """Its green is silent for good, and a stream that was deleted on the way is still to be told."""
    final = replace(TO_GREEN, final=True, dropped=(("G", 1),))
    way = StreamMigration(TO_GREEN.id, 1, StreamStage.OPEN, GREEN, "S.a", "S.b")
    assert final.bars("", [way])
    assert not final.bars("", [replace(way, stage=StreamStage.CLEANED)])
    assert TO_GREEN.bars("", [replace(way, stage=StreamStage.CLEANED)]), "the next streams go with it"
