"""Entries of one message each, as tests of a log append them."""

from __future__ import annotations

from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.entry import Entry, EntryKind, make_entry
from supercluster.broker.storage.log.log import FileLog


def batch(index: int, term: int = 1) -> Entry:
    """Its message has the entry's number; the record is 148 bytes long."""
    return make_entry(
        index=index,
        term=term,
        kind=EntryKind.BATCH,
        time_ns=index,
        first_seq=index,
        count=1,
        payload=bytes([index % 251]) * 100,
    )


def owing(log: StreamLog) -> None:
    """As behind the second message of an interval: a policy that confirms what is written does so from here on."""
    assert isinstance(log, FileLog)
    log._save_hard(owes=True)


def fill(log: FileLog, count: int, term: int = 1) -> None:
    """Append so many, one after the other."""
    for index in range(log.last_index + 1, log.last_index + 1 + count):
        log.append([batch(index, term)])
