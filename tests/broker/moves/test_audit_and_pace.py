"""Hashes of ranges, their comparison, the pace of copying, and what a broker holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supercluster.broker.jetstream.config.stream import Placement, StreamConfig
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.move_record import Move, MoveReport, Outcome
from supercluster.broker.jetstream.node.copy_rules import Hold, copy_of
from supercluster.broker.moves.comparison import ASK_AGAIN_MS, Ask, Comparison
from supercluster.broker.moves.note import Note, StageClock, note_of
from supercluster.broker.moves.pace import Pace
from supercluster.broker.moves.range_hash import RANGE_SEQS, EntryHasher, RangeHash, range_of
from supercluster.broker.raft.entry import Entry, EntryKind, make_entry


def entries(*counts: int, first_seq: int = 1) -> list[Entry]:
    found: list[Entry] = []
    for index, count in enumerate(counts, 1):
        payload = b"%d of %d" % (count, first_seq)
        found.append(
            make_entry(
                index=index,
                term=1,
                kind=EntryKind.BATCH,
                time_ns=index,
                first_seq=first_seq if count else 0,
                count=count,
                payload=payload,
            )
        )
        first_seq += count
    return found


def hashes(found: list[Entry], floor: int = 1, first_range: int = 0) -> list[RangeHash]:
    hasher = EntryHasher(floor, first_range)
    return [*hasher.take(found), *hasher.finish()]


counts = st.lists(st.sampled_from([0, 1, 700, 4000, 9999, 25_000]), max_size=12)


@given(counts, st.integers(0, 12))
def test_hashes_do_not_depend_on_how_entries_are_handed_in(sizes: list[int], cut: int) -> None:
    found = entries(*sizes)
    hasher = EntryHasher(1, 0)
    pieces = [*hasher.take(found[:cut]), *hasher.take(found[cut:]), *hasher.finish()]
    assert pieces == hashes(found)
    assert sum(piece.count for piece in pieces) == sum(sizes)
    assert [piece.number for piece in pieces] == sorted({range_of(e.first_seq) for e in found if e.count})


@given(counts, st.integers(0, 8), st.sampled_from([1, 9_000, 10_001, 15_000, 30_001]))
@example([9999, 4000, 9999], 1, 10_001)
def test_a_comparison_that_goes_on_from_a_range_sees_the_same_hashes(
    sizes: list[int], first: int, floor: int
) -> None:
    """Wherever the floor is: an entry that began in the range before counts there, and only there."""
    found = entries(*sizes)
    assert hashes(found, floor, first) == [h for h in hashes(found, floor) if h.number >= first]


@pytest.mark.covers("SF-6")
@given(counts.filter(any), st.data())
def test_any_changed_byte_shows(sizes: list[int], data: st.DataObject) -> None:
    found = entries(*sizes)
    at = data.draw(st.sampled_from([at for at, entry in enumerate(found) if entry.count]))
    place = data.draw(st.integers(8, len(found[at].record) - 1))
    record = bytearray(found[at].record)
    record[place] ^= 1 << data.draw(st.integers(0, 7))
    other = [*found[:at], replace(found[at], record=bytes(record)), *found[at + 1 :]]
    differing = [a.differs_from(b) for a, b in zip(hashes(found), hashes(other), strict=True)]
    assert sum(map(bool, differing)) == 1


def compared(mine: list[RangeHash], theirs: list[RangeHash], page: int, state: bytes = b"s") -> Comparison:
    comparison = Comparison(1, 100, 1, 0)
    comparison.with_members(["m"])
    comparison.own(mine[:2])
    now_ms, at = 0, 0
    while (asks := comparison.asks(now_ms)) and now_ms < 1000:
        now_ms += 1
        (ask,) = asks
        told = theirs[at : at + page]
        at += len(told)
        comparison.answered("m", ask.from_range, told, is_end=at >= len(theirs), state=state)
        if at == len(told):
            comparison.own(mine[2:])
            comparison.own_end(b"s")
    return comparison


@given(counts, st.integers(1, 3))
def test_equal_copies_compare_equal_however_the_pages_fall(sizes: list[int], page: int) -> None:
    mine = hashes(entries(*sizes))
    comparison = compared(mine, mine, page)
    assert (comparison.equal, comparison.difference) == (frozenset({"m"}), "")


@pytest.mark.covers("SF-6", "MV-10")
def test_a_range_too_few_a_range_too_many_and_another_state_are_differences() -> None:
    mine = hashes(entries(*[5000] * 6))
    assert "number of ranges" in compared(mine, mine[:-1], 2).difference
    assert "number of ranges" in compared(mine[:-1], mine, 2).difference
    assert "state" in compared(mine, mine, 2, state=b"t").difference
    assert compared(mine, mine, 2, state=b"").mark_lost
    other = [mine[0], replace(mine[1], digest=b"x"), mine[2]]
    assert compared(mine, other, 2).difference.startswith("m differs in range 1 (hash")
    assert compared(mine, other, 2).differs == "m"


def test_an_unanswered_ask_is_repeated_and_a_late_answer_is_passed_over() -> None:
    comparison = Comparison(1, 100, 1, 0)
    comparison.with_members(["m"])
    assert comparison.asks(0) == [Ask("m", 0)]
    assert comparison.asks(ASK_AGAIN_MS - 1) == []
    assert comparison.asks(ASK_AGAIN_MS) == [Ask("m", 0)]
    comparison.answered("m", 5, [], is_end=True, state=b"s")
    comparison.answered("stranger", 0, [], is_end=True, state=b"s")
    comparison.own_end(b"s")
    assert comparison.equal == frozenset()


def test_a_head_that_was_dropped_starts_the_comparison_anew_from_there() -> None:
    comparison = Comparison(1, 100, 1, 0)
    comparison.with_members(["m"])
    comparison.lacks_head("m", 5001)
    assert comparison.floor_moved == 5001


@given(counts, st.integers(0, 6))
def test_the_chain_goes_on_where_an_earlier_comparison_ended(sizes: list[int], cut: int) -> None:
    mine = hashes(entries(*sizes))
    whole = Comparison(1, 100, 1, 0)
    whole.own(mine)
    first = Comparison(1, 50, 1, 0)
    first.own(mine[: cut + 1])
    ranges, chain, messages, growing = first.complete_ranges()
    second = Comparison(2, 100, 1, growing, chain=chain, ranges=ranges)
    second.own(mine[min(cut, max(len(mine) - 1, 0)) :])
    assert second.complete_ranges()[:2] == whole.complete_ranges()[:2]
    assert messages + second.complete_ranges()[2] == whole.complete_ranges()[2]
    assert RANGE_SEQS == 10_000


@pytest.mark.covers("MV-13")
@given(
    st.one_of(st.integers(1, 10), st.integers(1_000, 10**8)),
    st.lists(st.tuples(st.integers(1, 400_000), st.integers(0, 50)), max_size=60),
)
def test_the_pace_is_kept_over_any_time_and_never_stops_for_good(
    rate: int, sends: list[tuple[int, int]]
) -> None:
    pace, now_ms, sent, largest = Pace(rate, 0), 0, 0, 0
    for size, wait_ms in sends:
        now_ms += wait_ms
        if not pace.may_send(now_ms):
            now_ms = pace.next_ms(now_ms)
            assert pace.may_send(now_ms)
        pace.sent(size, now_ms)
        sent, largest = sent + size, max(largest, size)
        assert sent <= rate * now_ms / 1000 + max(1, rate / 5) + largest + 1


def test_the_smallest_pace_lets_one_message_go_and_says_when_the_next_one_may() -> None:
    pace = Pace(1, 0)
    assert pace.may_send(0)
    pace.sent(1000, 0)
    assert not pace.may_send(998_000)
    assert pace.next_ms(998_000) == 999_001
    assert pace.may_send(999_001)


def test_a_pace_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes_per_s is 0"):
        Pace(0, 0)


def test_a_note_survives_its_bytes_and_is_for_its_own_move_only() -> None:
    note = Note("m1", True, "differs", 3, "ab", 30_000, 1, 3, 30_500, {"a": "equal"}, 5, {"learning": 7})
    assert note_of(note.encode(), "m1") == note
    assert note.audited == (3, 30_000, "ab")
    assert replace(note, end_sequences=500, end_chain="cd").audited == (4, 30_500, "cd")
    assert note_of(note.encode(), "m2") == Note("m2")
    assert Note.decode(b'{"move_id": "m1", "of_tomorrow": 1}') == Note("m1")


def test_the_clock_of_stages_goes_on_from_the_leader_before() -> None:
    clock = StageClock({"learning": 100}, 0)
    assert clock.enter("learning", 10)
    assert not clock.enter("learning", 20)
    assert clock.enter("comparing", 30)
    assert clock.spent_ms(45) == {"learning": 120, "comparing": 15}


CONFIG = StreamConfig(name="S", subjects=("s",))
HELD = Assignment("$G", "S", "g", CONFIG, 1, ("a@1", "b@1"), 1_000)
MOVE = Move("m", ("b@1", "c@1.x"), ("a@1", "b@1"), Placement(), 2_000)


@pytest.mark.covers("SF-4", "SF-5")
def test_a_broker_holds_what_the_map_names_in_exactly_that_incarnation() -> None:
    moving = replace(HELD, move=MOVE)
    assert copy_of(HELD, "a@1", None, 0).hold is Hold.MEMBER
    assert copy_of(HELD, "a@2", "a@1", 0).hold is Hold.MEMBER, "a lost volume is repaired as ever"
    assert copy_of(moving, "c@1", None, 0).member == "c@1.x"
    assert copy_of(moving, "c@2", None, 0).hold is Hold.NOTHING
    assert copy_of(moving, "d@1", None, 0).hold is Hold.NOTHING


@pytest.mark.covers("SF-5", "MV-9")
def test_a_copy_of_before_the_move_gives_way_and_only_a_replaced_target_asks_its_own_log() -> None:
    """A member that was out of contact when it was voted out still finds itself a voter in its own log."""
    moving = replace(HELD, move=MOVE)
    found = copy_of(moving, "c@1", "c@1.old", 0)
    assert (found.hold, found.member) == (Hold.SUPERSEDED, "c@1.x")
    assert copy_of(moving, "d@1", "d@1.old", 0).hold is Hold.UNEXPLAINED, "the map remembers no move of it"
    again = replace(HELD, move=Move.from_json(MOVE.with_target("c@1.x", "c@1.y").to_json()))
    found = copy_of(again, "c@1", "c@1.x", 0)
    assert (found.hold, found.member) == (Hold.UNDECIDED, "c@1.y")
    assert copy_of(again, "c@1", "c@1.old", 0).hold is Hold.SUPERSEDED
    elsewhere = replace(HELD, move=MOVE.with_target("c@1.x", "d@1.y"))
    assert copy_of(elsewhere, "c@1", "c@1.x", 0).hold is Hold.UNDECIDED


@pytest.mark.covers("MV-7", "MV-9")
@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_replaced_target_that_comes_back_after_the_move_is_dropped_whatever_its_own_log_says(
    outcome: Outcome,
) -> None:
    """It still learns by its own log: nobody was there to tell it that it was taken out."""
    move = MOVE.with_target("c@1.x", "d@1.y")
    told = MoveReport("m", outcome)
    last = MoveReport.from_json(told.of_move(move, 5_000, None).to_json())
    ended = replace(HELD, members=move.targets if outcome is Outcome.DONE else HELD.members, last_move=last)
    assert copy_of(ended, "c@1", "c@1.x", 100).hold is Hold.DROPPED
    assert copy_of(ended, "c@1", "c@1.z", 100).hold is Hold.UNEXPLAINED
    assert copy_of(ended, "c@1", None, 100).hold is Hold.NOTHING


@pytest.mark.covers("SF-5", "MV-9")
def test_a_former_member_is_kept_for_its_time_and_a_cancelled_copy_is_not() -> None:
    done = MoveReport("m", Outcome.DONE, targets=MOVE.targets, origin=MOVE.origin, ended_ns=5_000)
    moved = replace(HELD, members=MOVE.targets, last_move=done)
    kept = copy_of(moved, "a@1", "a@1", 100)
    assert (kept.hold, kept.until_ns) == (Hold.RETIRED, 5_100)
    on = replace(moved, move=Move("n", ("b@1", "e@1.y"), MOVE.targets, Placement(), 5_050))
    assert copy_of(on, "a@1", "a@1", 100) == kept, "the next move does not cut its time short"
    assert copy_of(on, "e@1", "e@1.x", 100).hold is Hold.SUPERSEDED
    cancelled = replace(HELD, last_move=replace(done, outcome=Outcome.CANCELLED))
    assert copy_of(cancelled, "c@1", "c@1.x", 100).hold is Hold.DROPPED
    memory = replace(moved, config=replace(CONFIG, storage="memory"))
    assert copy_of(memory, "a@1", "a@1", 100).hold is Hold.DROPPED
