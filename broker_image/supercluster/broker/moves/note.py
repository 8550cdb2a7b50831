"""The note that a moving stream's leaders leave for their successors in the stream's log, and the data of the
final report.

The note is replicated state: a complete one replaces the one before. A new leader continues from it, so that
the final report covers the whole move, and the tail is compared from where the first comparison ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Note:
    move_id: str
    mark: bool = False
    """Every replica keeps the hash of its state as of this entry, for the comparison."""
    difference: str = ""
    """Copies differ: the move turns back, whoever leads."""
    ranges: int = 0
    """Complete ranges that compared equal, in order."""
    chain: str = ""
    """Hash over the hashes of those ranges, hexadecimal."""
    sequences: int = 0
    """Sequences in those ranges, removed ones included."""
    first_seq: int = 0
    next_range: int = 0
    """Number of the first range that was not complete."""
    last_seq: int = 0
    """The last one that was compared."""
    results: Mapping[str, str] = field(default_factory=dict)
    """Member → `equal`, or what differs."""
    bytes_copied: int = 0
    """Bytes sent to copies that join, by earlier leaders."""
    stage_ms: Mapping[str, int] = field(default_factory=dict)
    """Stage → milliseconds, under earlier leaders."""
    at_ns: int = 0
    """Leader time of the note: where it was left joint, the time until the next leader serves is the hand-over's."""
    end_sequences: int = 0
    """At the end of the comparison after the hand-over: sequences in the last range, as far as it went. They are not among
    `sequences`: a leader that comes later compares that range anew."""
    end_chain: str = ""
    """The chain with that range; empty while there is none."""
    live_messages: int = 0
    """Messages that the stream held at the mark of the newest comparison: the replicas' states, which have this count, were
    compared there."""
    turned_back: bool = False
    """The move ends as cancelled, whatever a later leader's record of it says: it may not have heard of the cancel."""

    @property
    def audited(self) -> tuple[int, int, str]:
        """(ranges, sequences, chain) of all that compared equal, for the report."""
        if self.end_chain:
            return self.ranges + 1, self.sequences + self.end_sequences, self.end_chain
        return self.ranges, self.sequences, self.chain

    def plain(self) -> Note:
        """What is to be kept of it, without the mark that it set."""
        return replace(self, mark=False)

    def encode(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["results"], fields["stage_ms"] = dict(self.results), dict(self.stage_ms)
        return json.dumps(fields, sort_keys=True).encode()

    @staticmethod
    def decode(data: bytes | memoryview) -> Note:
        """Fields that this version does not know are passed over: a note may come from a newer broker."""
        fields: dict[str, Any] = json.loads(bytes(data))
        return Note(**{name: fields[name] for name in Note.__slots__ if name in fields})


def note_of(data: bytes, move_id: str) -> Note:
    """The note that the state holds, if it is about this move; else an empty one."""
    if data:
        found = Note.decode(data)
        if found.move_id == move_id:
            return found
    return Note(move_id)


class StageClock:
    """How long each stage has taken under this leader."""

    def __init__(self, before: Mapping[str, int], now_ms: int) -> None:
        self._spent_ms = dict(before)
        self._stage = ""
        self._since_ms = now_ms

    def enter(self, stage: str, now_ms: int) -> bool:
        """The stage is this now. True when it was another one."""
        if stage == self._stage:
            return False
        self._settle(now_ms)
        self._stage = stage
        return True

    def _settle(self, now_ms: int) -> None:
        if self._stage:
            self._spent_ms[self._stage] = self._spent_ms.get(self._stage, 0) + now_ms - self._since_ms
        self._since_ms = now_ms

    def spent_ms(self, now_ms: int) -> dict[str, int]:
        self._settle(now_ms)
        return dict(self._spent_ms)
