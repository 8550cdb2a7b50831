"""A memory log answers as a file log does: the stream above them cannot tell which one it has."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.storage.entries import owing
from tests.broker.storage.lives import Stop, open_log
from tests.simulator.disk import SimDisk
from tests.support.tiers import examples

from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.entry import Entry, EntryKind, make_entry
from supercluster.broker.storage.log.memory_log import MemoryLog
from supercluster.broker.storage.log.options import LogOptions

OPTIONS = LogOptions(segment_bytes=700, cache_bytes=300)


class Pair:
    """The same acts on both."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.logs: tuple[StreamLog, StreamLog] = (
            open_log(SimDisk(random.Random(seed)), "groups/g", OPTIONS, Stop.KILLED)[0],
            MemoryLog(OPTIONS),
        )
        owing(self.logs[0])
        self.term = 1
        self.commit = 0
        self.next_seq = 1

    def entries(self) -> list[Entry]:
        first = self.logs[0].last_index + 1
        made = []
        for index in range(first, first + self.rng.randint(1, 4)):
            messages = self.rng.choice((0, 1, 4))
            made.append(
                make_entry(
                    index=index,
                    term=self.term,
                    kind=EntryKind.BATCH if messages else EntryKind.NOOP,
                    time_ns=index,
                    first_seq=self.next_seq if messages else 0,
                    count=messages,
                    payload=bytes(self.rng.randint(0, 150)),
                )
            )
            self.next_seq += messages
        return made

    def step(self) -> None:
        rng, log = self.rng, self.logs[0]
        what = rng.choice(("append", "append", "append", "commit", "truncate", "drop", "vote"))
        if what == "append":
            made = self.entries()
            for each in self.logs:
                each.append(made)
        elif what == "commit":
            self.commit = rng.randint(self.commit, log.last_index)
            for each in self.logs:
                each.note_commit(self.commit)
            for index in range(log.base_index, self.commit + 1):
                if log.checkpoint_at(index):
                    for each in self.logs:
                        each.save_checkpoint(index, b"at %d" % index)
        elif what == "truncate":
            self.term += 1
            index = rng.randint(self.commit, log.last_index)
            for each in self.logs:
                each.truncate_after(index)
        elif what == "drop":
            keep_from = rng.randint(0, self.commit + 1)
            assert self.logs[0].drop_head(keep_from) == self.logs[1].drop_head(keep_from)
        else:
            for each in self.logs:
                each.save_vote(self.term, "n@x")

    def view(self, log: StreamLog) -> list[object]:
        """All that a log says."""
        bounds = range(log.base_index, log.last_index + 2)
        return [
            (log.base_index, log.base_term, log.last_index, log.last_term, log.persisted_index),
            [log.term(index) for index in bounds],
            [log.entry(index) for index in bounds],
            log.entries(log.base_index + 1, log.last_index, 500),
            log.entries(log.base_index + 1, log.last_index, 1 << 30),
            [log.index_of_seq(seq) for seq in range(self.next_seq + 2)],
            [log.checkpoint_at(index) for index in bounds],
            (log.load_checkpoint(), log.base_state(), log.load_vote()),
        ]


@pytest.mark.covers("RP-4")
@settings(max_examples=examples(40, 120), deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 50))
def test_a_memory_log_and_a_file_log_say_the_same(seed: int, steps: int) -> None:
    pair = Pair(seed)
    for _ in range(steps):
        pair.step()
        assert pair.view(pair.logs[1]) == pair.view(pair.logs[0])
    for log in pair.logs:
        log.install_base(1000, 9, b"snapshot")
    assert pair.view(pair.logs[1]) == pair.view(pair.logs[0])


def test_memberships_are_found_among_all_entries() -> None:
    logs: tuple[StreamLog, StreamLog] = (
        open_log(SimDisk(random.Random(1)), "groups/g", OPTIONS, Stop.KILLED)[0],
        MemoryLog(OPTIONS),
    )
    kinds = [EntryKind.CONFIG if index in (3, 4, 19, 31) else EntryKind.NOOP for index in range(1, 40)]
    made = [
        make_entry(index=index, term=1, kind=kind, time_ns=index, payload=bytes(index * 7 % 90))
        for index, kind in enumerate(kinds, 1)
    ]
    for log in logs:
        for entry in made:
            log.append([entry])
        for first, last, found in [(1, 39, [3, 4, 19, 31]), (4, 30, [4, 19]), (20, 30, []), (31, 99, [31])]:
            assert [entry.index for entry in log.memberships(first, last)] == found
