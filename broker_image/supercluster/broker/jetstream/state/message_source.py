"""The interface by which consumers read a stream: batches of its committed messages."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True)
class MessageBatch:
    """Stored messages as parallel lists, in rising order of sequence."""

    seqs: Sequence[int]
    subjects: Sequence[bytes]
    headers: Sequence[bytes]
    payloads: Sequence[bytes | memoryview]
    times: Sequence[int]
    """Leader time of each message's entry, Unix nanoseconds."""

    def __len__(self) -> int:
        return len(self.seqs)

    def sizes(self) -> list[int]:
        """Bytes of each message."""
        parts = zip(self.subjects, self.headers, self.payloads, strict=True)
        return [len(subject) + len(header) + len(payload) for subject, header, payload in parts]

    def first(self, count: int) -> MessageBatch:
        """The first so many of them."""
        if count >= len(self):
            return self
        return MessageBatch(
            self.seqs[:count],
            self.subjects[:count],
            self.headers[:count],
            self.payloads[:count],
            self.times[:count],
        )


class MessageSource(Protocol):
    """A stream's committed messages, as its consumers read them."""

    @property
    def first_seq(self) -> int: ...

    @property
    def last_seq(self) -> int: ...

    @property
    def keeps_until_acknowledged(self) -> bool:
        """Does a message stay until its consumers acknowledged it (work queues, interest)?"""

    def read(self, from_seq: int, count_max: int, bytes_max: int) -> MessageBatch:
        """Stored messages from `from_seq` on, without those that were removed; empty only when there are none. May
        end early (at an entry's end, say), but holds at least one message whatever `bytes_max` is."""

    def skip(self, fits: Callable[[bytes], bool], from_seq: int, count_max: int) -> tuple[int, int]:
        """The first message from `from_seq` on whose subject fits, or where to look on, which may be behind the last; and how
        many did not fit, at most `count_max`."""

    def next_matching(self, filters: Sequence[str], from_seq: int) -> int | None:
        """A sequence of at least `from_seq` before which no message matches (`SubjectIndex.next_matching`); None when
        no message from there on matches."""

    def count_at_once(self, filters: Sequence[str], after_seq: int) -> int | None:
        """`pending_count`, None where that takes long."""

    def gone_from(self, seq: int) -> Sequence[tuple[int, bytes]] | None:
        """Sequence and subject of the messages from `seq` on that were removed from the stream's beginning; None where that is
        not known any more."""

    def counted(self, filters: Sequence[str], after_seq: int) -> Generator[int, None, int]:
        """`pending_count` in slices."""

    def pending_count(self, filters: Sequence[str], after_seq: int) -> int:
        """How many stored messages behind `after_seq` match (all, without filters)."""
