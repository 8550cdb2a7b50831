"""Fast batches (allow_batched): a publisher gets an acknowledgement for every so many messages instead of one
for each.

The reply subject holds all parameters, `<inbox>.<id>.<flow>.<ok|fail>.<sequence>.<operation>.$FI`. The broker
that receives the messages holds the batch: its window keeps their order and ensures that each is stored once,
across changes of leader. If the broker is lost the batch is lost, and the client gets an error for an unknown
batch. A batch with `fail` must stop at a refused message, so none of its messages is taken while the verdict
on an earlier one is open.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto

from supercluster.broker.bounds import SEQ_MAX, whole_number
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.limits import NO_SERVER_LIMITS, BatchRoom, ServerLimits
from supercluster.broker.jetstream.encoding.sections import Exceptional
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.publish.settlement import Outcome
from supercluster.broker.ports import Publisher

SUFFIX = b".$FI"
DISABLED, INVALID_PATTERN, INVALID_ID, UNKNOWN_ID, TOO_MANY = 10205, 10206, 10207, 10208, 10211
ID_CHARS_MAX = 64
BATCHES_MAX, BATCHES_TOTAL_MAX = 1000, 50_000
FLOW_DEFAULT, FLOW_MAX = 10, 500
IDLE_MS_MAX = 10_000


class Operation(IntEnum):
    START = 0
    APPEND = 1
    COMMIT = 2
    END = 3
    """Commits, and is not stored itself."""
    PING = 4


class Fate(Enum):
    """What becomes of a message that a client sent."""

    TAKE = auto()
    WAIT = auto()
    """Not yet: its publisher is paused."""
    DROP = auto()
    """It is not to be stored, and was answered."""


@dataclass(frozen=True, slots=True)
class Said:
    """A reply subject that was read."""

    key: bytes
    """Inbox and id: the batch."""
    id: bytes
    flow: int
    must_not_fail: bool
    sequence: int
    operation: Operation


@dataclass(slots=True)
class FastBatch:
    id: bytes
    must_not_fail: bool
    flow: int
    touched_ms: int
    expected: int = 1
    """The next sequence of the client's."""
    settled: int = 0
    """The last one that is stored, or was before."""
    acked: int = 0
    stream_seq: int = 0
    outstanding: int = 0
    doubtful: int = 0
    """The last one on its way that may be refused; 0: none is."""
    end: bytes = b""
    """The reply subject that gets the last word, when all that was taken is settled."""
    waiting: dict[int, Publisher] = field(default_factory=dict)


def read(reply: bytes) -> Said | None:
    """The reply subject's parts; None when it follows no such pattern."""
    tokens = reply.split(b".")
    if len(tokens) < 7:
        return None
    name, flow, mode, sequence, operation = tokens[-6:-1]
    if mode not in (b"ok", b"fail") or operation not in (b"0", b"1", b"2", b"3", b"4"):
        return None
    number, kind = whole_number(sequence, SEQ_MAX), Operation(int(operation))
    if not number:
        return None
    if kind is Operation.START and number != 1:
        return None
    if number == 1 and kind in (Operation.APPEND, Operation.END):
        return None
    flow_of = min(whole_number(flow) or 0, FLOW_MAX) or FLOW_DEFAULT
    return Said(b".".join(tokens[:-5]), name, flow_of, mode == b"fail", number, kind)


def fast_batch_room(limits: Callable[[], ServerLimits] = lambda: NO_SERVER_LIMITS) -> BatchRoom:
    """Of one broker, for the streams whose messages it takes."""
    return BatchRoom(BATCHES_MAX, BATCHES_TOTAL_MAX, IDLE_MS_MAX, limits)


class FastBatches:
    """One stream's fast batches at one broker. `answer` publishes a payload on a reply subject."""

    def __init__(
        self, stream: str, answer: Callable[[bytes, bytes], None], room: BatchRoom | None = None
    ) -> None:
        self._room = room or fast_batch_room()
        self._stream = stream
        self._answer = answer
        self._batches: dict[bytes, FastBatch] = {}
        self.allowed = False
        self.may_refuse = False
        """Is the stream one that refuses messages without headers, too?"""

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def is_busy(self) -> bool:
        """Is there any batch?"""
        return bool(self._batches)

    # ---- taking -----------------------------------------------------------------------------------------------------

    def judge(self, publisher: Publisher, reply: bytes, *, now_ms: int) -> Fate:
        """What is to become of the message with this reply subject. `taken` follows when it is taken."""
        said = read(reply) if self.allowed else None
        if said is None:
            return self._refuse(reply, INVALID_PATTERN if self.allowed else DISABLED)
        if len(said.id) > ID_CHARS_MAX:
            return self._refuse(reply, INVALID_ID)
        batch = self._batches.get(said.key)
        if batch is not None and self._is_silent(batch, now_ms):
            self._resume(self._batches.pop(said.key))
            batch = None
        if batch is not None and batch.end:
            return self._refuse(reply, UNKNOWN_ID)
        if batch is None:
            return self._begin(said, reply, now_ms)
        batch.touched_ms = now_ms
        if said.operation is Operation.PING:
            self._ack(reply, batch)
            return Fate.DROP
        if said.sequence != batch.expected:
            self._notify(reply, {"type": "gap", "last_seq": batch.expected, "seq": said.sequence})
            if batch.must_not_fail or said.sequence < batch.expected:
                self._end(said.key, batch, reply)
                return Fate.DROP
        if batch.must_not_fail and batch.doubtful and said.operation is not Operation.END:
            batch.waiting[id(publisher)] = publisher
            publisher.pause(self._stream)
            return Fate.WAIT
        if said.operation is Operation.END:
            batch.settled = (
                max(batch.settled, said.sequence - 1) if not batch.must_not_fail else batch.settled
            )
            self._end(said.key, batch, reply)
            return Fate.DROP
        return Fate.TAKE

    def _begin(self, said: Said, reply: bytes, now_ms: int) -> Fate:
        if said.operation not in (Operation.START, Operation.COMMIT) or said.sequence != 1:
            return self._refuse(reply, UNKNOWN_ID)
        if not self._room.has_room(self):
            self.sweep(now_ms)
            if not self._room.has_room(self):
                return self._refuse(reply, TOO_MANY)
        batch = self._batches[said.key] = FastBatch(said.id, said.must_not_fail, said.flow, now_ms)
        if said.operation is Operation.START:
            self._ack(reply, batch)
        return Fate.TAKE

    def taken(self, reply: bytes, *, has_header: bool) -> None:
        """The window has the message."""
        said = read(reply)
        batch = self._batches.get(said.key) if said is not None else None
        if said is None or batch is None:
            return
        batch.expected = said.sequence + 1
        batch.outstanding += 1
        if has_header or self.may_refuse:
            batch.doubtful = said.sequence
        if said.operation is Operation.COMMIT:
            batch.end = reply

    # ---- what became of them ----------------------------------------------------------------------------------------

    def settle(self, outcome: Outcome, word: Callable[[Exceptional], ApiError]) -> None:
        """Take out of the outcome what belongs to fast batches, and say what is to be said of it, in the clients' order."""
        found: list[tuple[Said, bytes, int, ApiError | None]] = []

        def note(reply: bytes, seq: int, refusal: ApiError | None = None) -> bool:
            said = read(reply) if reply.endswith(SUFFIX) else None
            if said is not None:
                found.append((said, reply, seq, refusal))
            return said is not None

        outcome.acks = [item for item in outcome.acks if not note(item[0], item[1])]
        outcome.worded = [item for item in outcome.worded if not note(item[0], item[1])]
        outcome.duplicates = [item for item in outcome.duplicates if not note(item[0], 0)]
        outcome.staged = [reply for reply in outcome.staged if not note(reply, 0)]
        outcome.refused = [item for item in outcome.refused if not note(item[0], 0, word(item[2]))]
        for said, reply, seq, refusal in sorted(found, key=lambda each: (each[0].key, each[0].sequence)):
            self._settled(said, reply, seq, refusal)

    def _settled(self, said: Said, reply: bytes, seq: int, refusal: ApiError | None) -> None:
        batch = self._batches.get(said.key)
        if batch is None:
            return
        batch.outstanding -= 1
        if said.sequence >= batch.doubtful:
            batch.doubtful = 0
        if refusal is None:
            batch.settled = said.sequence
            batch.stream_seq = max(batch.stream_seq, seq)
        else:
            self._notify(reply, {"type": "err", "seq": said.sequence, "error": refusal.to_json()})
            if batch.must_not_fail and not batch.end:
                batch.end = reply
        is_last = said.operation is Operation.COMMIT or refusal is not None
        if not is_last and batch.settled - batch.acked >= batch.flow:
            batch.acked = batch.settled
            self._ack(reply, batch)
        if batch.end and not batch.outstanding:
            self._end(said.key, batch, batch.end)
        else:
            self._resume(batch)

    def lost(self, reply: bytes) -> None:
        """A message was given up: the batch ends without a last word, and its client hears that nobody knows it."""
        said = read(reply)
        batch = self._batches.pop(said.key, None) if said is not None else None
        if batch is not None:
            self._resume(batch)

    def sweep(self, now_ms: int) -> None:
        """Forget batches whose client has gone silent."""
        silent = [key for key, batch in self._batches.items() if self._is_silent(batch, now_ms)]
        for key in silent:
            self._resume(self._batches.pop(key))

    def _is_silent(self, batch: FastBatch, now_ms: int) -> bool:
        return not batch.outstanding and batch.touched_ms <= now_ms - self._room.idle_ms

    # ---- saying -----------------------------------------------------------------------------------------------------

    def _end(self, key: bytes, batch: FastBatch, reply: bytes) -> None:
        batch.end = reply
        if batch.outstanding:
            return
        del self._batches[key]
        self._notify(
            reply,
            {
                "stream": self._stream,
                "seq": batch.stream_seq,
                "batch": batch.id.decode("utf-8", "replace"),
                "count": batch.settled,
            },
        )
        self._resume(batch)

    def _resume(self, batch: FastBatch) -> None:
        if batch.waiting and not batch.doubtful:
            waiting, batch.waiting = batch.waiting, {}
            for publisher in waiting.values():
                publisher.resume(self._stream)

    def _ack(self, reply: bytes, batch: FastBatch) -> None:
        self._notify(reply, {"type": "ack", "seq": batch.acked, "msgs": batch.flow})

    def _refuse(self, reply: bytes, code: int) -> Fate:
        error = errors.error(code).to_json()
        self._notify(reply, {"error": error, "stream": self._stream, "seq": 0})
        return Fate.DROP

    def _notify(self, reply: bytes, what: dict[str, object]) -> None:
        self._answer(reply, json.dumps(what, separators=(",", ":"), ensure_ascii=False).encode())
