"""A log that followed another super-cluster's group and goes on as green's: what converts, and what its log begins with (SF-4, SF-20)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.jetstream.encoding.sections import Section, section
from supercluster.broker.jetstream.recovery.conversion import (
    Begun,
    begin_group,
    begun_at_end,
    members_of,
    why_not,
)
from supercluster.broker.jetstream.state.cut import Cut, CutStage, Handed
from supercluster.broker.raft.confchange import Membership
from supercluster.broker.raft.entry import Entry, EntryKind, make_entry
from supercluster.broker.storage.log.memory_log import MemoryLog

FAR = ("g-0%94ee94ee@a.1", "g-1%94ee94ee@b.1")
NEAR = ("g-0@a.1", "g-1@b.1")
FENCED, HANDED, TERM = 3, 4, 7
CUT = Cut(
    CutStage.HANDED,
    *("m1", 2, "94ee94ee", FAR),
    digest=b"d",
    last_seq=9,
    fenced_index=FENCED,
    handed_index=HANDED,
    handed_term=TERM,
)


def entry(index: int, term: int = TERM, kind: int = EntryKind.BATCH, payload: bytes = b"") -> Entry:
    return make_entry(index=index, term=term, kind=kind, time_ns=index * 1000, payload=payload)


def followed(behind: int = 0, term_behind: int = TERM, attempt: int = 2) -> MemoryLog:
    """A log of blue's group up to HANDED, and so many of Raft's own entries behind it."""
    log = MemoryLog()
    handed = b"".join(bytes(part) for part in section(Section.HANDED, [Handed(attempt, b"d").encode()]))
    log.append([*map(entry, range(1, HANDED)), entry(HANDED, payload=handed)])
    log.append([entry(HANDED + n, term_behind, EntryKind.NOOP) for n in range(1, behind + 1)])
    return log


def ends(log: MemoryLog) -> list[bytes]:
    return [bytes(found.record) for found in log.entries(1, log.last_index, 1 << 20)]


@given(st.integers(0, 3), st.integers(TERM, TERM + 3), st.integers(0, TERM + 5))
def test_all_copies_go_on_with_the_same_log_whatever_they_had_behind_handed(
    behind: int, term_behind: int, voted_term: int
) -> None:
    log, other = followed(behind, term_behind), followed()
    log.save_vote(voted_term, "")
    begin_group(log, CUT)
    begin_group(other, CUT)
    assert ends(log) == ends(other)
    first = log.entry(log.last_index)
    assert first is not None
    assert (first.index, first.term, first.time_ns) == (HANDED + 1, TERM + 1, HANDED * 1000)
    assert Membership.decode(first.payload).voters == NEAR
    assert log.load_vote() == (max(voted_term, TERM + 1), ""), "no term is begun that this copy knows of"
    before = ends(log)
    begin_group(log, CUT)
    assert ends(log) == before, "what is done is done once"
    assert begun_at_end(log) == Begun(2, NEAR)


def test_a_log_that_merely_follows_was_not_converted() -> None:
    assert begun_at_end(MemoryLog()) is None
    assert begun_at_end(followed()) is None
    assert begun_at_end(followed(behind=1, term_behind=TERM + 1)) is None
    log = followed()
    log.append([entry(HANDED + 1, TERM + 1, EntryKind.CONFIG, Membership(voters=("b-0@c",)).encode())])
    assert begun_at_end(log) is None, "blue's own membership is not green's first entry"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"stage": CutStage.FENCED}, "HANDED of that attempt"),
        ({"attempt": 1}, "HANDED of that attempt"),
        ({"migration": "m0"}, "HANDED of that attempt"),
        ({"members": FAR[1:]}, "other copies"),
        ({"handed_index": HANDED - 1}, "behind HANDED"),
        ({"handed_term": TERM + 1}, "does not have HANDED"),
    ],
)
def test_only_the_cut_converts(change: dict[str, Any], word: str) -> None:
    cut, log = replace(CUT, **change), followed()
    assert word in why_not(cut, "m1", 2, FAR[0], HANDED, log)
    assert why_not(CUT, "m1", 2, FAR[0], HANDED, log) == ""


def test_a_copy_that_got_a_later_state_never_converts() -> None:
    """What is in blue's log behind HANDED is in its state; the others do not have it."""
    log = MemoryLog()
    log.reset(HANDED + 2, TERM)
    assert "behind HANDED" in why_not(CUT, "m1", 2, FAR[0], HANDED + 2, log)
    assert "does not have HANDED" in why_not(CUT, "m1", 2, FAR[0], HANDED, log)


def test_greens_members_are_those_that_blues_log_names() -> None:
    """The map may name others by now; with them two logs would begin differently at one index and term."""
    assert members_of(CUT) == NEAR
