"""Builds a stream's backup from the entries of its log that can still be read. Pure:
`runtime/salvage_command.py` reads the files.

A message is included if its record is intact and no readable entry removed it: the newest intact checkpoint
counts, and after it single deletions, expiries and purges of the whole stream. Other removals after that
checkpoint (acknowledgements, limits, purges by subject) are not applied, so removed messages may come back.
Messages at the end of the log may never have been acknowledged. A stream with limits enforces them again when
it is restored.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from supercluster.broker.archive.entries import END, Entry, packed
from supercluster.broker.jetstream.backup import archive_format
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.encoding.sections import Section, sections
from supercluster.broker.jetstream.encoding.timestamps import format_time
from supercluster.broker.jetstream.state import snapshot
from supercluster.broker.jetstream.state.log_reader import carried_runs, decode_stored
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.turn.slices import at_once
from supercluster.broker.raft.entry import Entry as LogEntry
from supercluster.broker.raft.entry import EntryKind

# Without a configuration that can be read, subjects of messages up to so many are listed.
_SUBJECTS_MAX = 100
_UNKNOWN_NAME = "SALVAGED"


class NothingToSalvageError(Exception):
    """No stream's configuration and no message can be read."""


@dataclass(slots=True)
class Salvage:
    """What is to be in the backup."""

    config: StreamConfig | None = None
    state: StreamState | None = None
    """Of the newest checkpoint that is whole."""
    first_seq: int = 0
    last_seq: int = 0
    messages: int = 0
    times_ns: tuple[int, int] = 0, 0
    notes: list[str] = field(default_factory=list)
    missing_seqs: list[tuple[int, int]] = field(default_factory=list)
    """Stretches of sequences that stood in entries which no file has. Some of them may have been removed before."""
    _rows: list[tuple[int, int, int]] = field(default_factory=list)
    """(first sequence, count, entry's index), in rising order of sequences."""
    _carried: dict[int, int] = field(default_factory=dict)
    """Sequence → the entry that has it once more, of messages that no row has."""
    _removed: set[int] = field(default_factory=set)
    _begins_at: int = 1
    _subjects: set[bytes] = field(default_factory=set)

    def takes(self, seq: int) -> bool:
        """Does nothing say that the message was removed?"""
        if seq < self._begins_at or seq in self._removed:
            return False
        state = self.state
        return state is None or seq > state.last_seq or (seq >= state.first_seq and seq not in state.deleted)

    def about(self) -> dict[str, Any]:
        """What stands beside an archive, as clients write it."""
        config = self.config.to_json() if self.config is not None else None
        subjects = sorted(subject.decode("utf-8", "replace") for subject in self._subjects)
        return {
            "config": config or {"name": _UNKNOWN_NAME, "subjects": subjects},
            "state": self._told() | {"consumer_count": len(self._consumers())},
        }

    def _told(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "first_seq": self.first_seq,
            "last_seq": self.last_seq,
            "first_ts": format_time(self.times_ns[0]),
            "last_ts": format_time(self.times_ns[1]),
        }

    def _consumers(self) -> list[bytes]:
        if self.state is None:
            return []
        return [
            archive_format.consumer_entry(found, self.last_seq, self.times_ns[1])
            for found in self.state.consumers.values()
        ]

    def archive(self, entry: Callable[[int], LogEntry]) -> Iterator[bytes]:
        """The archive, in pieces of one frame."""
        consumers = self._consumers()
        told = self._told() | {"consumer_count": len(consumers)}
        head = [archive_format.state_entry(told, self.times_ns[1]), *consumers]
        return packed(self._entries(head, entry))

    def _entries(self, head: list[bytes], entry: Callable[[int], LogEntry]) -> Iterator[bytes]:
        yield from head
        for found in self.stored(entry):
            yield found.encode()
        yield END.encode()

    def stored(self, entry: Callable[[int], LogEntry]) -> Iterator[Entry]:
        """The messages, in rising order of sequences."""
        places = sorted([*self._rows, *((seq, 0, index) for seq, index in self._carried.items())])
        last, decoded_index, runs = 0, 0, []
        for first, count, index in places:
            if index != decoded_index:
                read = entry(index)
                runs, decoded_index = [decode_stored(read), *carried_runs(read)], index
            for seq in range(first, first + max(count, 1)):
                run = next((run for run in runs if run.first_seq <= seq < run.first_seq + run.count), None)
                if seq > last and run is not None and self.takes(seq):
                    message = run.message(seq)
                    last = seq
                    yield Entry(message.subject, message.time_ns, seq, message.header, message.payload)


def salvage(
    indexes: Iterable[int], entry: Callable[[int], LogEntry], checkpoints: dict[int, bytes]
) -> Salvage:
    """What the readable entries (rising indexes) and checkpoints hold.

    Raises:
        NothingToSalvageError: nothing of a stream.
    """
    found = Salvage()
    at = _take_checkpoint(found, checkpoints)
    config_version, carried, before = -1, dict[int, int](), 0
    for index in indexes:
        read = entry(index)
        if read.kind == EntryKind.BATCH:
            if read.count:
                _take_row(found, read, index, before)
            for kind, body in sections(read.payload):
                if kind == Section.CARRIED:
                    carried |= {
                        seq: index
                        for run in carried_runs(read)
                        for seq in range(run.first_seq, run.first_seq + run.count)
                    }
                elif kind == Section.CONFIG_PUT and index > at:
                    reader = Reader(body)
                    version, _ = reader.u64(), reader.u64()
                    if version >= config_version:
                        config_version = version
                        found.config = StreamConfig.from_json(json.loads(bytes(reader.rest())))
                elif index > at:
                    _take_removal(found, kind, Reader(body), index)
        before = index
    found._rows.sort()
    in_rows = _Covered(found._rows)
    found._carried = {seq: index for seq, index in carried.items() if seq not in in_rows}
    _count(found, entry)
    if found.config is None and not found.messages:
        raise NothingToSalvageError("no stream's configuration and no message can be read")
    return found


class _Covered:
    """Sequences that rows have."""

    def __init__(self, rows: list[tuple[int, int, int]]) -> None:
        self._firsts, self._ends = [row[0] for row in rows], [row[0] + row[1] for row in rows]

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self._firsts, seq) - 1
        return at >= 0 and seq < self._ends[at]


def _take_checkpoint(found: Salvage, checkpoints: dict[int, bytes]) -> int:
    """The index of the newest one that is a stream's state; 0: there is none."""
    for index in sorted(checkpoints, reverse=True):
        reader = Reader(checkpoints[index])
        try:
            reader.blob()
            state = at_once(snapshot.read(reader.rest(), None))  # type: ignore[arg-type]
        except (ValueError, KeyError) as error:
            found.notes.append(f"the checkpoint at entry {index} is no stream's state: {error}")
            continue
        if index:
            found.state = state.late[1] if state.late is not None else state
            found.config = found.state.config
            return index
    return 0


def _take_row(found: Salvage, read: LogEntry, index: int, before: int) -> None:
    rows = found._rows
    end = rows[-1][0] + rows[-1][1] if rows else found.state.first_seq if found.state is not None else 1
    if index != before + 1 and read.first_seq > end:
        found.missing_seqs.append((end, read.first_seq - 1))
    rows.append((read.first_seq, read.count, index))


def _take_removal(found: Salvage, kind: int, reader: Reader, index: int) -> None:
    if kind == Section.DELETE_MESSAGE:
        found._removed.add(reader.u64())
    elif kind == Section.EXPIRE:
        found._begins_at = max(found._begins_at, reader.u64() + 1)
    elif kind == Section.EXPIRE_MESSAGES:
        first, last, due = reader.u64(), reader.u64(), array("Q")
        due.frombytes(reader.rest())
        found._removed.update(due)
        if found.config is None or not found.config.allow_msg_ttl:
            found._removed.update(range(first, last + 1))
    elif kind == Section.PURGE:
        asked = json.loads(bytes(reader.rest()))
        if asked.get("filter") or asked.get("keep"):
            found.notes.append(f"entry {index} purges {json.dumps(asked)}, which is not carried out")
        elif asked.get("seq"):
            found._begins_at = max(found._begins_at, int(asked["seq"]))
        elif found._rows:
            found._begins_at = max(found._begins_at, found._rows[-1][0] + found._rows[-1][1])


def _count(found: Salvage, entry: Callable[[int], LogEntry]) -> None:
    state = found.state
    last_seq = max((first + count - 1 for first, count, _ in found._rows), default=0)
    found.last_seq = max(last_seq, max(found._carried, default=0), state.last_seq if state is not None else 0)
    first_time_ns = last_time_ns = 0
    for message in found.stored(entry):
        if not found.messages:
            found.first_seq, first_time_ns = message.seq, message.time_ns
        found.messages += 1
        last_time_ns = message.time_ns
        if found.config is None and len(found._subjects) < _SUBJECTS_MAX:
            found._subjects.add(message.name)
    found.times_ns = first_time_ns, last_time_ns
    if not found.messages:
        found.first_seq = found.last_seq + 1
