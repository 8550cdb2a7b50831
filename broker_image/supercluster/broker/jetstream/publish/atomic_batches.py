"""Atomic batches (allow_atomic): a leader holds the messages until the last one of their batch, and stores
them as a whole.

Held messages are not in the log: they are lost with their leader, and the client gets an error when it
continues the batch (as with NATS). A stored batch is one run of sequences in one entry, so neither a change
of leader nor a move can split it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from supercluster.broker.bounds import whole_number
from supercluster.broker.jetstream.config.limits import MS_NS, NO_SERVER_LIMITS, BatchRoom, ServerLimits
from supercluster.broker.protocol.headers import header_value

BATCH_ID, BATCH_SEQUENCE, BATCH_COMMIT = b"Nats-Batch-Id", b"Nats-Batch-Sequence", b"Nats-Batch-Commit"
DISABLED, NO_SEQUENCE, INCOMPLETE, UNSUPPORTED_HEADER = 10174, 10175, 10176, 10177
INVALID_ID, TOO_LARGE, INVALID_COMMIT, DUPLICATE_ID, TOO_MANY = 10179, 10199, 10200, 10201, 10210
ERRORS = frozenset(
    (DISABLED, NO_SEQUENCE, INCOMPLETE, UNSUPPORTED_HEADER, INVALID_ID, TOO_LARGE, INVALID_COMMIT, TOO_MANY)
)
# NATS's own limits.
ID_CHARS_MAX = 64
MESSAGES_MAX = 1000
BATCHES_MAX, BATCHES_TOTAL_MAX = 50, 1000
IDLE_MS_MAX = 10_000
# A batch becomes one entry of the log; and what is held takes memory of the leader's.
BATCH_BYTES_MAX = 8 * 1024 * 1024
HELD_BYTES_MAX = 64 * 1024 * 1024


class BatchError(Exception):
    """What is wrong, as NATS's err_code, with what its text names."""

    def __init__(self, code: int, text: bytes = b"") -> None:
        super().__init__(f"batch: err_code {code} {text!r}")
        self.code = code
        self.text = text


@dataclass(slots=True)
class Candidate:
    """A message that is judged. What is stored of it may differ from what was sent."""

    subject: bytes
    header: bytes
    payload: bytes
    said: bytes = b""
    """What its acknowledgement says besides."""

    @property
    def size_bytes(self) -> int:
        return len(self.subject) + len(self.header) + len(self.payload)


@dataclass(slots=True)
class Batch:
    """What is held of a batch."""

    id: bytes
    touched_ns: int
    messages: list[Candidate] = field(default_factory=list)
    size_bytes: int = 0


def batch_room(limits: Callable[[], ServerLimits] = lambda: NO_SERVER_LIMITS) -> BatchRoom:
    """Of one broker, for the streams that it leads."""
    return BatchRoom(BATCHES_MAX, BATCHES_TOTAL_MAX, IDLE_MS_MAX, limits)


class Batches:
    """The batches that one stream's leader holds."""

    def __init__(self) -> None:
        self.room = batch_room()
        """Of the broker, as soon as it is one's."""
        self._held: dict[bytes, Batch] = {}
        self.bytes = 0
        """Of all that is held."""
        self.abandoned: list[tuple[bytes, str]] = []
        """Batches that are not held any more and were not committed, each with NATS's word for why; taken by `take_abandoned`."""

    def __len__(self) -> int:
        return len(self._held)

    def add(self, message: Candidate, now_ns: int, *, allowed: bool) -> Batch | None:
        """Hold a message that has a batch's id. The batch, with all of its messages, when this one commits it.

        Raises:
            BatchError: the message cannot be a part of its batch, which is dropped where the message should have been.
        """
        batch_id = header_value(message.header, BATCH_ID) or b""
        if not allowed:
            self._abandon(batch_id, "unsupported")
            raise BatchError(DISABLED)
        if len(batch_id) > ID_CHARS_MAX:
            raise BatchError(INVALID_ID)
        sequence = header_value(message.header, BATCH_SEQUENCE) or b""
        number = whole_number(sequence)
        if number is None:
            raise BatchError(NO_SEQUENCE)
        commit = header_value(message.header, BATCH_COMMIT)
        if commit is not None and commit not in (b"1", b"eob"):
            self._abandon(batch_id, "unsupported")
            raise BatchError(INVALID_COMMIT)
        is_marker = commit == b"eob"
        most = self.room.limits.batch_messages_max or MESSAGES_MAX
        if number > most + is_marker:
            self._abandon(batch_id, "large")
            raise BatchError(TOO_LARGE, b"%d" % most)
        batch = self._find(batch_id, number, now_ns, is_marker=is_marker)
        if not is_marker:
            self._hold(batch, message, now_ns)
        if commit is not None:
            self._drop(batch_id)
            return batch
        return None

    def _find(self, batch_id: bytes, number: int, now_ns: int, *, is_marker: bool) -> Batch:
        self.sweep(now_ns)
        batch = self._held.get(batch_id)
        if batch is None and number == 1 and not is_marker:
            if not self.room.has_room(self):
                raise BatchError(TOO_MANY)
            batch = self._held[batch_id] = Batch(batch_id, now_ns)
        if batch is None or number != len(batch.messages) + 1:
            self._abandon(batch_id, "incomplete")
            raise BatchError(INCOMPLETE)
        return batch

    def _hold(self, batch: Batch, message: Candidate, now_ns: int) -> None:
        if batch.size_bytes + message.size_bytes > BATCH_BYTES_MAX:
            self._abandon(batch.id, "large")
            raise BatchError(TOO_LARGE, b"%d bytes" % BATCH_BYTES_MAX)
        if self.bytes + message.size_bytes > HELD_BYTES_MAX:
            self._abandon(batch.id, "large")
            raise BatchError(TOO_MANY)
        batch.messages.append(message)
        batch.touched_ns = now_ns
        batch.size_bytes += message.size_bytes
        self.bytes += message.size_bytes

    def _abandon(self, batch_id: bytes, reason: str) -> None:
        if batch_id in self._held:
            self._drop(batch_id)
            self.abandoned.append((batch_id, reason))

    def _drop(self, batch_id: bytes) -> None:
        gone = self._held.pop(batch_id, None)
        if gone is not None:
            self.bytes -= gone.size_bytes

    def sweep(self, now_ns: int) -> None:
        """Drop batches whose client has gone silent."""
        for batch in [b for b in self._held.values() if b.touched_ns <= now_ns - self._idle_ns]:
            self._abandon(batch.id, "timeout")

    def end_all(self) -> None:
        """The stream is fenced: what its clients go on with finds no batch."""
        for batch_id in list(self._held):
            self._abandon(batch_id, "incomplete")

    def take_abandoned(self) -> list[tuple[bytes, str]]:
        """Those since the last call."""
        found, self.abandoned = self.abandoned, []
        return found

    def next_ns(self) -> int | None:
        """When the next one is to be dropped."""
        return min((batch.touched_ns + self._idle_ns for batch in self._held.values()), default=None)

    @property
    def _idle_ns(self) -> int:
        return self.room.idle_ms * MS_NS
