"""The audit tells lost, expired, deleted and late numbers apart, whatever blocks the stream is read in, with bounded state."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from supercluster.spark.pipelines.audit import audit
from supercluster.spark.pipelines.audit.audit import Audit, Finding
from supercluster.spark.pipelines.audit.gatherer import Gatherer
from supercluster.spark.pipelines.audit.pipeline import AuditParameters, AuditWork
from supercluster.spark.pipelines.fields import FieldSource, values_of
from supercluster.spark.pipelines.parameters import read_parameters
from supercluster.spark.wire import Record

SECOND_NS = 1_000_000_000
SOURCES = (FieldSource.parse("header:From"), FieldSource.parse("subject:2"), FieldSource.parse("json:meta.n"))
Told = tuple[str, str, int, int, int]
"""(kind, publisher, first, last, count)."""


def message(sequence: int, publisher: str, number: int, run: str = "1") -> Record:
    header = f"NATS/1.0\r\nFrom: {publisher}\r\n\r\n".encode()
    return (
        sequence,
        sequence * SECOND_NS,
        f"s.{run}".encode(),
        header,
        json.dumps({"meta": {"n": number}}).encode(),
    )


class Story:
    """A stream, as what it holds, and the audit of it in blocks."""

    def __init__(self, **options: int) -> None:
        self.findings: list[Finding] = []
        self.options = {"settle_ns": 0, **options}
        self.audit = self._new()

    def _new(self) -> Audit:
        return Audit("S", self.findings.append, **self.options)

    def read(self, records: Sequence[Record], first: int, last: int, *, begins_at: int = 1) -> Story:
        gatherer = Gatherer(first, SOURCES)
        gatherer.take(record for record in records if first <= record[0] <= last)
        self.audit.take(gatherer.finish(last, begins_at))
        return self

    def kill(self) -> Story:
        """Go on in another process from what was kept."""
        kept = json.loads(json.dumps(self.audit.to_json()))
        self.audit = self._new()
        self.audit.restore(kept)
        return self

    def settle(self, now_s: int = 1_000) -> Story:
        self.audit.settle(now_s * SECOND_NS)
        return self

    def told(self) -> list[Told]:
        return [(each.kind, each.publisher, each.first, each.last, each.count) for each in self.findings]


def stored(*what: tuple[int, str, int]) -> list[Record]:
    return [message(*each) for each in what]


@pytest.mark.covers("SP-4")
def test_a_number_with_no_place_in_the_stream_is_lost_and_one_with_a_hole_is_deleted() -> None:
    records = stored((1, "a", 1), (2, "b", 1), (3, "a", 3), (5, "b", 3), (6, "a", 4))
    assert Story().read(records, 1, 6).settle().told() == [("lost", "a", 2, 2, 1), ("deleted", "b", 2, 2, 1)]


def test_a_lost_number_0_has_its_publisher() -> None:
    story = Story(first_number=0).read(stored((1, "a", 1)), 1, 1).settle()
    assert story.findings[0].line() == (
        "lost: stream S, publisher 'a', run '1', numbers 0 to 0 (1), between sequences 0 and 1"
    )


def test_more_missing_numbers_than_holes_are_lost_for_the_rest() -> None:
    records = stored((1, "a", 1), (3, "a", 5))
    assert Story().read(records, 1, 3).settle().told() == [("deleted", "a", 2, 4, 1), ("lost", "a", 2, 4, 2)]


def test_gaps_of_two_publishers_over_one_hole_are_more_than_it_can_hold() -> None:
    records = stored((1, "a", 1), (2, "b", 1), (4, "a", 3), (5, "b", 3))
    story = Story().read(records, 1, 5).settle()
    assert story.told() == [("deleted", "a", 2, 2, 1), ("deleted", "b", 2, 2, 1)]
    story.audit.close()
    assert story.told()[2:] == [("lost", "", 0, 0, 1)]


def test_an_audit_without_an_end_sums_up_once_all_that_is_stored_was_read() -> None:
    lines: list[str] = []
    given = {"streams": "S", "number": "json:meta.n", "publisher": "header:From", "settleSeconds": 0}
    work = AuditWork("S", read_parameters(AuditParameters, given), lines.append)
    gatherer = Gatherer(1, work.core.sources)
    gatherer.take(stored((1, "a", 1), (2, "b", 1), (4, "a", 3), (5, "b", 3)))
    work.fold(0, [gatherer.finish(5, 1)], None)
    assert len(lines) == 2, "what was not read yet may be late numbers"
    assert work.fold(0, [], 1_000 * SECOND_NS)
    assert lines[2:] == [
        "lost: stream S, 1 numbers of unknown publishers: more of them count as expired or deleted than sequences are missing"
    ]
    assert not work.fold(0, [], 1_001 * SECOND_NS)


def test_what_retention_removed_is_expired_and_no_more_than_that() -> None:
    story = Story()
    story.audit.skip(2)
    assert story.read(stored((3, "a", 3), (4, "b", 4)), 3, 4, begins_at=3).settle().told() == [
        ("expired", "a", 1, 2, 2),
        ("expired", "b", 1, 3, 2),
        ("lost", "b", 1, 3, 1),
    ]


def test_the_claims_of_all_publishers_are_no_more_than_expired_sequences() -> None:
    story = after_expired(100, *((101 + each, f"p{each}", 101) for each in range(10)))
    assert story.audit.counts == {"expired": 1_000, "lost": 900}
    # Reported once.
    story.kill().audit.close()
    assert story.audit.counts == {"expired": 1_000, "lost": 900}


def test_a_deleted_sequence_has_room_only_for_numbers_that_can_have_had_it() -> None:
    # 5 is missing. Neither a's 1 and 2 nor b's can have been there,
    assert after_expired(2, (3, "a", 3), (4, "b", 3), (6, "c", 1)).audit.counts == {"expired": 4, "lost": 2}
    # b's 1 can,
    assert after_expired(2, (3, "a", 3), (4, "a", 4), (6, "b", 2)).audit.counts == {"expired": 3}
    # but not c's 1 and 2 as well.
    story = after_expired(2, (3, "a", 3), (5, "b", 2), (6, "c", 3))
    assert story.audit.counts == {"expired": 5, "lost": 2}


def after_expired(expired: int, *what: tuple[int, str, int]) -> Story:
    """A whole audit of messages behind sequences that retention removed."""
    story = Story()
    story.audit.skip(expired)
    story.read(stored(*what), expired + 1, what[-1][0], begins_at=expired + 1).settle().audit.close()
    return story


def test_a_number_that_came_late_leaves_its_place_to_another_one() -> None:
    records = stored((1, "a", 1), (2, "b", 1), (4, "a", 3), (5, "b", 3), (6, "a", 2))
    story = Story().read(records, 1, 5).settle().read(records, 6, 6)
    story.audit.close()
    assert story.audit.counts == {"deleted": 2, "late": 1}


@pytest.mark.parametrize("late", [*itertools.permutations((2, 3, 4)), (2,), (3,), (4,)])
def test_a_lost_number_that_came_late_hides_no_other_loss(late: Sequence[int]) -> None:
    """It had claimed no place that another one could have."""
    story = Story().read(stored((1, "a", 1), (2, "a", 5)), 1, 2).settle()
    for sequence, number in enumerate(late, 3):
        story.kill().read(stored((sequence, "a", number)), sequence, sequence)
    story.audit.close()
    assert story.audit.counts == {"lost": 3, "late": len(late)}
    records = stored((11, "b", 1), (12, "c", 1), (14, "b", 3), (15, "c", 3))
    story.read(records, 11, 15).settle().audit.close()
    assert story.audit.counts == {"lost": 4, "late": len(late), "deleted": 2}


def test_a_late_number_of_those_that_the_sum_reported_hides_no_other_loss() -> None:
    story = Story().read(stored((1, "a", 1), (2, "b", 1), (4, "a", 3), (5, "b", 3)), 1, 5).settle()
    story.audit.close()
    assert story.audit.counts == {"deleted": 2, "lost": 1}
    # So it was b's number that had the place.
    story.kill().read(stored((6, "a", 2)), 6, 6).kill().audit.close()
    assert story.audit.counts == {"deleted": 2, "lost": 1, "late": 1}
    story.read(stored((7, "c", 1), (8, "d", 1), (10, "c", 3), (11, "d", 3)), 7, 11).settle().audit.close()
    assert story.audit.counts == {"deleted": 4, "lost": 2, "late": 1}
    story.kill().audit.close()
    assert story.audit.counts == {"deleted": 4, "lost": 2, "late": 1}


def test_late_numbers_of_a_gap_leave_the_places_that_they_had_beside_the_lost() -> None:
    # One of a's 2 to 4 can have been deleted, and two are lost. All come, and b's 2 takes the place.
    records = stored((1, "a", 1), (2, "b", 1), (4, "a", 5), (5, "b", 3))
    story = Story().read(records, 1, 5).settle()
    assert story.audit.counts == {"deleted": 2, "lost": 2}
    for sequence, number in ((6, 3), (7, 2), (8, 4)):
        story.kill().read(stored((sequence, "a", number)), sequence, sequence)
    story.audit.close()
    assert story.audit.counts == {"deleted": 2, "lost": 2, "late": 3}


def test_a_head_that_passes_while_a_block_is_read_is_expiry_and_a_hole_behind_it_is_deletion() -> None:
    records = stored((1, "a", 1), (5, "a", 5), (7, "a", 7))
    story = Story().read(records, 1, 8, begins_at=5)
    assert story.settle().told() == [("expired", "a", 2, 4, 3), ("deleted", "a", 6, 6, 1)]
    inside_a_hole = Story().read(stored((1, "a", 1), (5, "a", 5)), 1, 5, begins_at=3)
    assert inside_a_hole.settle().told() == [("expired", "a", 2, 4, 1), ("deleted", "a", 2, 4, 2)]


def test_a_gap_is_not_yet_there_until_it_is_old_and_a_number_that_fills_it_is_reordered_then_or_late() -> (
    None
):
    records = stored((1, "a", 1), (2, "a", 4), (3, "a", 3), (4, "a", 2))
    story = Story(settle_ns=10 * SECOND_NS).read(records, 1, 2).settle(11)
    story.audit.close()
    assert story.told() == [("not yet there", "a", 2, 3, 2)]
    story.kill().read(records, 3, 3).settle(12)
    assert story.told()[1:] == [("reordered", "a", 3, 3, 1), ("lost", "a", 2, 2, 1)]
    assert story.kill().read(records, 4, 4).settle().told()[3:] == [("late", "a", 2, 2, 1)]


def test_repeats_are_found_beside_gaps_and_runs_begin_anew() -> None:
    records = [
        *stored((1, "a", 1), (2, "a", 2), (3, "a", 4)),
        *stored((4, "a", 1), (5, "a", 2), (6, "a", 3), (7, "a", 4), (8, "a", 5)),
        message(9, "a", 1, run="2"),
    ]
    assert Story().read(records, 1, 9).settle().told() == [
        ("repeated", "a", 1, 2, 2),
        ("reordered", "a", 3, 3, 1),
        ("repeated", "a", 4, 4, 1),
    ]


def test_messages_without_the_fields_are_counted_with_their_range() -> None:
    bad = (2, 2, b"s.1", b"", b"{}"), (3, 3, b"s.1", b"NATS/1.0\r\nFrom: a\r\n\r\n", b'{"meta": {"n": "x"}}')
    assert Story().read([message(1, "a", 1), *bad], 1, 3).told() == [("unreadable", "", 2, 3, 2)]


@pytest.mark.parametrize("payload", [b'{"meta": {"n": "%s"}}' % (b"1" * 5_000), b"[" * 100_000])
def test_a_message_that_python_cannot_read_stops_no_audit(payload: bytes) -> None:
    """Each next driver would end at the same message."""
    bad = (2, 2, b"s.1", b"NATS/1.0\r\nFrom: a\r\n\r\n", payload)
    assert Story().read([message(1, "a", 1), bad], 1, 2).told() == [("unreadable", "", 2, 2, 1)]


def test_zeros_before_a_number_do_not_count() -> None:
    padded = (2, 2, b"s.1", b"NATS/1.0\r\nFrom: a\r\n\r\n", b'{"meta": {"n": "%030d"}}' % 2)
    assert Story().read([message(1, "a", 1), padded], 1, 2).told() == []


def test_the_state_is_bounded_and_says_what_it_cannot_judge() -> None:
    story = Story(runs_max=2)
    story.read(stored((1, "a", 1), (2, "b", 1), (3, "c", 1), (4, "a", 2)), 1, 4)
    assert len(story.audit.to_json()["runs"]) == 2
    story.read(stored((5, "b", 2)), 5, 5)
    assert story.told() == [("unjudged", "b", 1, 1, 1)]
    every_other = stored(*((number, "a", 2 * number) for number in range(1, 1_001)))
    gaps = Story().read(every_other, 1, 1_000)
    assert len(gaps.audit.to_json()["runs"][0][2]["gaps"]) == audit.GAPS_MAX
    assert gaps.settle().audit.counts == {"lost": 1_000}
    assert gaps.read(stored((1_001, "a", 1)), 1_001, 1_001).told()[-1] == ("unjudged", "a", 1, 1, 1)


@pytest.mark.parametrize("seed", range(40))
def test_blocks_and_restarts_change_nothing(seed: int) -> None:
    """What was done to the stream is found, and found alike in one block and in many."""
    chance = random.Random(seed)
    numbers = dict.fromkeys("abc", 0)
    expected: Counter[str] = Counter()
    records: list[Record] = []
    sequence = 0
    for _ in range(400):
        name = chance.choice("abc")
        numbers[name] += 1
        fate = chance.random()
        if fate < 0.03:
            expected["lost"] += 1
            continue
        sequence += 1
        records.append(message(sequence, name, numbers[name]))
        if fate > 0.97:
            sequence += 1
            records.append(message(sequence, name, numbers[name]))
            expected["repeated"] += 1
    for name in numbers:
        # Behind a last number nothing shows that there were more.
        numbers[name] += 1
        sequence += 1
        records.append(message(sequence, name, numbers[name]))
    whole = Story().read(records, 1, sequence).settle()
    assert whole.audit.counts == expected
    cuts = sorted({0, sequence, *(chance.randrange(sequence) for _ in range(9))})
    cut = Story()
    for low, high in itertools.pairwise(cuts):
        cut.read(records, low + 1, high).kill()
    cut.settle()
    assert spread(cut) == spread(whole)


def spread(story: Story) -> Counter[tuple[str, str, int]]:
    return Counter(
        (each.kind, each.publisher, number)
        for each in story.findings
        for number in range(each.first, each.last + 1)
    )


@pytest.mark.parametrize("text", ["json", "json:", "header", "subject:0", "subject:x", "body:a", 7, None])
def test_a_field_that_names_no_place_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="give json:PATH"):
        FieldSource.parse(text)


def test_fields_are_found_or_none() -> None:
    sources = [
        FieldSource.parse(each)
        for each in ("json:a.b", "json:a", "header:X", "header:Y", "subject:2", "subject:3")
    ]
    record = (1, 1, b"s.t", b"NATS/1.0\r\nX: 1\r\nX: 2\r\n\r\n", b'{"a": {"b": "c"}}')
    assert values_of([*sources, None], record) == ["c", None, "1", None, "t", None, ""]
    assert values_of([FieldSource.parse("json:a")], (1, 1, b"s", b"", b"\xff")) == [None]
    assert values_of([FieldSource.parse("json:a")], (1, 1, b"s", b"", b'{"a": true}')) == [None]
