"""A replica's side of the comparison, when its log does not stand still."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from supercluster.broker.jetstream.links.comparison_frames import Answered, HashesAsked, HashesTold
from supercluster.broker.jetstream.moves.range_hasher import HOLD_MS, RangeHasher
from supercluster.broker.jetstream.state.carried import Carried
from supercluster.broker.jetstream.state.gaps import Gaps
from supercluster.broker.raft.entry import Entry, EntryKind, make_entry

ENTRIES = 8
EACH = 4000
ASK = HashesAsked("g", "m", 1, ENTRIES, 1, 0)


class Log:
    """Entries of 4,000 messages, read one by one; the head can be dropped."""

    def __init__(self) -> None:
        self.base = 0

    def entries(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        if first <= self.base or first > last:
            return []
        seq = 1 + (first - 1) * EACH
        return [
            make_entry(
                index=first,
                term=1,
                kind=EntryKind.BATCH,
                time_ns=first,
                first_seq=seq,
                count=EACH,
                payload=b"x",
            )
        ]

    def index_of_seq(self, seq: int) -> int | None:
        index = 1 + (seq - 1) // EACH
        return index if index > self.base else None


@pytest.mark.covers("SF-6", "MV-9")
def test_who_asks_again_after_the_head_was_dropped_hears_where_the_copy_begins() -> None:
    """Nobody asked for longer than the head is held (a cut): it goes in the middle of the work, which then would wait for
    ever for entries that are gone."""
    log, told = Log(), list[HashesTold]()
    auditor = RangeHasher(log)  # type: ignore[arg-type]  # As much of a log as is read.
    state: Any = SimpleNamespace(first_seq=1, last_seq=ENTRIES * EACH, gaps=Gaps(), carried=Carried())
    auditor.ask(ASK, told.append, 0)
    auditor.advance(state, ENTRIES, 0)
    assert auditor.keep_from_index(HOLD_MS - 1) == 2
    assert auditor.keep_from_index(HOLD_MS) is None
    log.base, state.first_seq = 5, 5 * EACH + 1
    auditor.ask(ASK, told.append, HOLD_MS)
    auditor.advance(state, ENTRIES, HOLD_MS)
    assert [(found.status, found.first_seq) for found in told] == [(Answered.LACKS_HEAD, 5 * EACH + 1)]
    assert auditor.deadline_ms(ENTRIES) is None, "nothing is left to be done"


def test_a_copy_that_stands_still_is_told_to_its_end() -> None:
    told: list[HashesTold] = []
    auditor = RangeHasher(Log())  # type: ignore[arg-type]  # As much of a log as is read.
    state: Any = SimpleNamespace(first_seq=1, last_seq=ENTRIES * EACH, gaps=Gaps(), carried=Carried())
    auditor.ask(ASK, told.append, 0)
    for now_ms in range(ENTRIES):
        auditor.advance(state, ENTRIES, now_ms)
    (found,) = told
    assert found.status is Answered.END
    assert [part.count for part in found.ranges] == [3 * EACH, 2 * EACH, 3 * EACH]


@pytest.mark.covers("MV-9")
def test_an_ask_of_an_earlier_comparison_does_not_take_the_work_from_a_later_one() -> None:
    """Of an earlier leader, or of this one's comparison before; the first comparison of its next move has a smaller number
    again, and a later mark."""
    told = list[HashesTold]()
    auditor = RangeHasher(Log())  # type: ignore[arg-type]  # As much of a log as is read.
    state: Any = SimpleNamespace(first_seq=1, last_seq=ENTRIES * EACH, gaps=Gaps(), carried=Carried())
    term = 7 << 16
    auditor.ask(replace(ASK, number=term + 3), told.append, 0)
    auditor.ask(replace(ASK, number=term + 2, mark=ENTRIES - 1), told.append, 0)
    auditor.ask(replace(ASK, number=(6 << 16) + 9, mark=ENTRIES + 5), told.append, 0)
    for now_ms in range(ENTRIES):
        auditor.advance(state, ENTRIES, now_ms)
    assert [(found.number, found.status) for found in told] == [(term + 3, Answered.END)]
    auditor.ask(replace(ASK, number=term + 2, mark=ENTRIES + 1), told.append, ENTRIES)
    for now_ms in range(ENTRIES, 2 * ENTRIES + 1):
        auditor.advance(state, ENTRIES + 1, now_ms)
    assert [found.number for found in told] == [term + 3, term + 2]
