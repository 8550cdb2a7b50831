"""The entry that a stream's leader builds in a turn, and the commands that wait to become part of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from supercluster.broker.jetstream.encoding.ack_subjects import Ack
from supercluster.broker.jetstream.encoding.sections import (
    Block,
    Section,
    SessionKey,
    VerdictRun,
    encode_block,
    section,
)
from supercluster.broker.jetstream.publish.log_tail import LogTail

# An entry is closed when its payload has grown past this; the turn goes on with another one.
ENTRY_BYTES_MAX = 2 * 1024 * 1024

Done = Callable[[int | None], None]
"""Called with a command's result when its entry is applied; None when this replica ceased to lead before."""

Append = Callable[["Proposal"], bool]
"""Appends an entry. False: it was not taken, and what was judged with it is void."""


@dataclass(slots=True)
class Proposal:
    """The entry that is being put together."""

    payload: list[bytes | memoryview] = field(default_factory=list)
    size: int = 0
    first_seq: int = 0
    count: int = 0
    commands: list[Done] = field(default_factory=list)
    replies: list[bytes] = field(default_factory=list)
    noted: list[Done] = field(default_factory=list)
    """Called with 1 when the entry is applied, with None as commands are."""
    acks: list[tuple[str, list[Ack]]] = field(default_factory=list)
    """Whose acknowledgements are in it, or are repeated by it: broker, and what that sent."""
    early: list[tuple[SessionKey, VerdictRun]] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Has the entry grown past what one should carry?"""
        return self.size > ENTRY_BYTES_MAX

    def next(self) -> Proposal:
        """The one behind this one. Acknowledgements are repeated while any of their entries is in doubt."""
        return Proposal(acks=self.acks)

    def add(self, kind: int, body: list[bytes | memoryview]) -> None:
        found = section(kind, body)
        self.payload += found
        self.size += sum(map(len, found))

    def add_own(self, end: LogTail, parts: Sequence[bytes]) -> None:
        """Messages that the leader itself writes: a flat list of subject, header, payload per message."""
        first_seq = end.next_seq
        end.note_own(parts)
        self.put_own(parts, first_seq)

    def put_own(self, parts: Sequence[bytes], first_seq: int) -> None:
        """The same of messages that are noted at the log's end already."""
        if parts:
            self.count_from(first_seq, len(parts) // 3)
            self.add(Section.OWN_MESSAGES, [encode_block(parts)])

    def put_block(self, block: Block, first_seq: int) -> None:
        """The same of messages that are encoded already."""
        self.count_from(first_seq, block.count)
        self.add(Section.OWN_MESSAGES, block.encode())

    def count_from(self, first_seq: int, count: int) -> None:
        """`count` messages from `first_seq` on are in the entry, behind those that it has already."""
        if self.count == 0:
            self.first_seq = first_seq
        self.count += count
