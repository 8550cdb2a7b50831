"""Reads the records of a log in portions, for files that keep the end of a copy."""

from __future__ import annotations

from collections.abc import Iterator

from supercluster.broker.jetstream.replica.replica import APPLY_BYTES_MAX
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.errors import DiskError


def records_of(log: StreamLog, first: int, last: int) -> Iterator[bytes]:
    """The records of entries, a stretch at a time, however many there are.

    Raises:
        DiskError: one of them cannot be read.
    """
    while first <= last:
        entries = log.entries(first, last, APPLY_BYTES_MAX)
        if not entries:
            raise DiskError(f"entry {first} cannot be read", "the end of a copy")
        yield b"".join(entry.record for entry in entries)
        first = entries[-1].index + 1
