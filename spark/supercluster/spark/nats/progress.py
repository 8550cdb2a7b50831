"""The rest of a range that a reader still wants, and the judgement on deliveries. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from supercluster.spark.wire import Message, Record, delivery

if TYPE_CHECKING:
    from supercluster.spark.nats.frames import Frames

BATCH_MESSAGES = 1_000
BATCH_MESSAGES_MAX = 5_000
BATCH_BYTES = 1_048_576


@dataclass(slots=True)
class RangeProgress:
    """What is still wanted of a range; one per reader."""

    next_sequence: int
    last_sequence: int
    """Inclusive."""
    consumer_sequence: int = 0
    outstanding: int = 0
    """Messages asked for and not yet delivered."""
    hole: bool = False
    asks_for_end: bool = False
    watches_head: bool = False
    """Has somebody to ask why sequences are missing?"""
    batch_messages: int = BATCH_MESSAGES
    """How many are asked for at once. Twice as many may be on their way."""
    passed_over: int | None = None
    """The first of the sequences that were passed over since somebody last asked."""

    @property
    def finished(self) -> bool:
        return self.next_sequence > self.last_sequence

    @property
    def settled(self) -> bool:
        """Finished, and nothing is missing without a reason."""
        return self.finished and self.passed_over is None

    def renewed(self) -> None:
        """A new consumer starts at the next wanted sequence."""
        self.consumer_sequence = 0
        self.outstanding = 0
        self.hole = False
        self.asks_for_end = False

    def wanted(self) -> int:
        """How many messages to ask for now; 0 while enough is on its way."""
        left = self.last_sequence - self.next_sequence + 1 - self.outstanding
        if self.outstanding > self.batch_messages or left <= 0:
            return 0
        return min(self.batch_messages, left)

    def take(self, message: Message) -> Record | None:
        """Judge one delivery: the record when it is wanted, None when it is dropped. Sets `hole` and `asks_for_end`."""
        place = delivery(message[2])
        if place.consumer_sequence != self.consumer_sequence + 1:
            self.hole = True
            return None
        self.consumer_sequence = place.consumer_sequence
        self.outstanding -= 1
        if place.sequence < self.next_sequence:
            return None
        if place.sequence > self.next_sequence:
            self._pass_over()
        if place.sequence > self.last_sequence:
            self.next_sequence = self.last_sequence + 1
            return None
        self.next_sequence = place.sequence + 1
        if place.pending == 0 and not self.finished:
            self.asks_for_end = True
        return place.sequence, place.time_ns, message[1], message[3], message[4]

    def take_all(self, frames: Frames) -> bool:
        """Take deliveries that are all wanted, without a hole in the consumer's count. False: `take` has to judge each of them,
        and nothing has changed."""
        span = frames.span()
        if span is None or not frames.counts_on_from(self.consumer_sequence + 1):
            return False
        first, last, missing = span
        if first < self.next_sequence or last > self.last_sequence:
            return False
        if first == self.next_sequence and missing is not None:
            self.next_sequence = missing
        if first > self.next_sequence or missing is not None:
            self._pass_over()
        self.consumer_sequence += frames.rows
        self.outstanding -= frames.rows
        self.next_sequence = last + 1
        if frames.pending == 0 and not self.finished:
            self.asks_for_end = True
        fitting = frames.rows * BATCH_BYTES // max(1, len(frames.source))
        self.batch_messages = min(BATCH_MESSAGES_MAX, max(BATCH_MESSAGES, fitting))
        return True

    def nothing_follows(self) -> None:
        """The leader has nothing more of the range."""
        self._pass_over()
        self.next_sequence = self.last_sequence + 1

    def _pass_over(self) -> None:
        if self.watches_head and self.passed_over is None:
            self.passed_over = self.next_sequence
