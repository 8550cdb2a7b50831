"""A consumer's replicated state: its position in its stream, and the deliveries that wait for an
acknowledgement.

It changes only by operations from the stream's own log (`state/consumer_ops.py`), so it moves with its stream
and can never run ahead of it (MV-10): sequences beyond the stream's last one are refused, and the floor only
rises. `apply` is a function of state and operations alone (SF-13).
"""

from __future__ import annotations

import json
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice, repeat, takewhile

from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.state.consumer_ops import Op, OpKind, decode_ops
from supercluster.broker.jetstream.subjects.filters import Predicate, compile_filters

_VERSION = 1
_NUMBERS = struct.Struct("<8Q")
_SIZE = struct.Struct("<I")
NEVER_NS = 2**63
"""The delay of a message whose deliveries are used up: it is due this much behind the time that it was given up, which is
never. It is an ordinary deadline to brokers of versions before that know nothing of it, so that theirs is the same state."""


class ConsumerState:
    """One consumer's state. The leader works on a `copy` that is ahead by what is not committed yet."""

    __slots__ = (
        "_wanted",
        "ack_floor_cseq",
        "ack_floor_sseq",
        "config",
        "created_ns",
        "delivered_cseq",
        "delivered_sseq",
        "deliveries",
        "exhausted",
        "last_ack_ns",
        "last_delivered_ns",
        "last_seqs",
        "name",
        "pending",
        "start_seq",
    )

    def __init__(
        self,
        *,
        name: str,
        config: ConsumerConfig,
        created_ns: int,
        start_seq: int,
        last_seqs: Sequence[int] = (),
        stream_last_seq: int | None = None,
    ) -> None:
        """`start_seq` is the first sequence that may be delivered; with `last_seqs` (deliver_policy
        last_per_subject) only these are delivered up to their last, and everything behind it. `stream_last_seq`, the
        stream's last sequence, keeps a consumer that starts in the future from standing ahead of its stream (MV-10).
        """
        self.name = name
        self.config = config
        self.created_ns = created_ns
        self.start_seq = max(start_seq, 1)
        self.delivered_cseq = 0
        self.delivered_sseq = self.start_seq - 1
        if stream_last_seq is not None:
            self.delivered_sseq = min(self.delivered_sseq, stream_last_seq)
        self.ack_floor_cseq = 0
        self.ack_floor_sseq = self.delivered_sseq
        self.last_delivered_ns = 0
        self.last_ack_ns = 0
        # stream sequence → (consumer sequence of its first delivery, when it is due again); keys rise.
        self.pending: dict[int, tuple[int, int]] = {}
        # stream sequence → deliveries, only where there was more than one.
        self.deliveries: dict[int, int] = {}
        # Of those pending, what was delivered max_deliver times: it waits for its acknowledgement alone.
        self.exhausted: set[int] = set()
        self.last_seqs: tuple[int, ...] = tuple(last_seqs)
        self._wanted: Predicate | None = compile_filters(config.filter_subjects)

    # ---- asking ---------------------------------------------------------------------------------------------------

    @property
    def num_ack_pending(self) -> int:
        return len(self.pending) - len(self.exhausted)

    @property
    def num_redelivered(self) -> int:
        return len(self.deliveries)

    @property
    def next_sseq(self) -> int:
        """The first stream sequence that may be delivered next."""
        return max(self.delivered_sseq + 1, self.start_seq)

    def matches(self, subject: bytes) -> bool:
        """Is `subject` one that the consumer's filters let through?"""
        return self._wanted is None or self._wanted(subject)

    def wants(self, seq: int, subject: bytes) -> bool:
        """Will the message still be delivered, or does it wait for its acknowledgement (interest retention)?"""
        if seq in self.pending:
            return True
        return seq >= self.next_sseq and self.matches(subject)

    # ---- changing -------------------------------------------------------------------------------------------------

    def update_config(self, config: ConsumerConfig) -> None:
        """Take a changed configuration; deadlines that run already are the leader's to move (`consumer/ack_wait_changes.py`)."""
        self.config = config
        self._wanted = compile_filters(config.filter_subjects)

    def apply(self, ops: bytes | memoryview, *, last_seq: int) -> list[int]:
        """Apply a leader's operations. `last_seq` is the stream's.

        Returns:
            The stream sequences that this consumer is through with, for interest and work-queue retention.

        Raises:
            OpsError: not what a leader wrote.
        """
        settled: list[int] = []
        for op in decode_ops(ops):
            settled += self.apply_op(op, last_seq=last_seq)
        return settled

    def apply_op(self, op: Op, *, last_seq: int) -> Sequence[int]:
        """Apply one operation; returns the sequences it settled."""
        kind = op.kind
        if kind == OpKind.DELIVERED:
            return self._delivered(op, last_seq)
        if kind == OpKind.ACK:
            return self._settle(op)
        if kind == OpKind.ACK_ALL:
            return self._settle_all(op)
        if kind == OpKind.TERM:
            return self._settle(op)
        if kind == OpKind.EXHAUSTED:
            self._settle(op)
        elif kind == OpKind.REDELIVERED:
            self._redelivered(op)
        elif kind == OpKind.NAK:
            self._wait_until(op, op.time_ns + op.delay_ns)
        elif kind == OpKind.PROGRESS:
            for seq in op.seqs:
                self._wait_until(
                    Op(op.kind, (seq,)), op.time_ns + self.config.wait_ns(self.deliveries.get(seq, 1))
                )
        else:
            self._reset(op.seqs[0], last_seq)
        return ()

    def _delivered(self, op: Op, last_seq: int) -> Sequence[int]:
        seqs = op.seqs
        if seqs[-1] > last_seq:
            seqs = [seq for seq in seqs if seq <= last_seq]
        numbers = range(self.delivered_cseq + 1, self.delivered_cseq + 1 + len(seqs))
        self.delivered_cseq += len(seqs)
        self.last_delivered_ns = max(self.last_delivered_ns, op.time_ns)
        purged = bisect_right(seqs, self.delivered_sseq) if seqs and seqs[0] <= self.delivered_sseq else 0
        if purged:
            # A purge came between: those messages took their numbers, but there is nothing to acknowledge.
            seqs, numbers = seqs[purged:], numbers[purged:]
        if seqs:
            self.delivered_sseq = seqs[-1]
            if self.last_seqs and self.delivered_sseq >= self.last_seqs[-1]:
                self.last_seqs = ()
        if not self.config.needs_ack:
            self.ack_floor_cseq, self.ack_floor_sseq = self.delivered_cseq, self.delivered_sseq
            return seqs
        due_ns = op.time_ns + self.config.wait_ns(1)
        self.pending.update(zip(seqs, zip(numbers, repeat(due_ns)), strict=False))
        self._raise_floor()
        return ()

    def _redelivered(self, op: Op) -> None:
        self.delivered_cseq += len(op.seqs)
        self.last_delivered_ns = max(self.last_delivered_ns, op.time_ns)
        pending, deliveries, wait_ns = self.pending, self.deliveries, self.config.wait_ns
        for seq in op.seqs:
            waiting = pending.get(seq)
            if waiting is not None:
                times = deliveries[seq] = deliveries.get(seq, 1) + 1
                pending[seq] = (waiting[0], op.time_ns + wait_ns(times))
                self.exhausted.discard(seq)
        self._raise_floor()

    def _wait_until(self, op: Op, due_ns: int) -> None:
        pending = self.pending
        for seq in op.seqs:
            waiting = pending.get(seq)
            if waiting is not None:
                pending[seq] = (waiting[0], due_ns)
                if due_ns >= NEVER_NS:
                    self.exhausted.add(seq)
                else:
                    self.exhausted.discard(seq)

    def _settle(self, op: Op) -> list[int]:
        pending, deliveries = self.pending, self.deliveries
        settled = [seq for seq in op.seqs if pending.pop(seq, None) is not None]
        if deliveries:
            for seq in settled:
                deliveries.pop(seq, None)
        if self.exhausted:
            self.exhausted.difference_update(settled)
        if op.kind != OpKind.EXHAUSTED:
            self.last_ack_ns = max(self.last_ack_ns, op.time_ns)
        self._raise_floor()
        return settled

    def settled_already(self, op: Op) -> None:
        """The leader took these out of `pending` one by one: note the rest of what an acknowledgement does."""
        self.last_ack_ns = max(self.last_ack_ns, op.time_ns)
        self._raise_floor()

    def _settle_all(self, op: Op) -> list[int]:
        settled: list[int] = []
        for seq in self.pending:
            if seq > op.seqs[0]:
                break
            settled.append(seq)
        return self._settle(Op(op.kind, settled, op.time_ns))

    def _reset(self, seq: int, last_seq: int) -> None:
        """Start again at `seq`: consumer sequences begin anew, stream positions go where they are told."""
        self.pending.clear()
        self.deliveries.clear()
        self.exhausted.clear()
        self.last_seqs = ()
        self.start_seq = max(seq, 1)
        self.delivered_sseq = min(self.start_seq - 1, last_seq)
        self.delivered_cseq = self.ack_floor_cseq = 0
        self.ack_floor_sseq = self.delivered_sseq
        self.last_delivered_ns = self.last_ack_ns = 0

    def _raise_floor(self) -> None:
        if self.pending:
            oldest = next(iter(self.pending))
            cseq, sseq = self.pending[oldest][0] - 1, oldest - 1
        else:
            cseq, sseq = self.delivered_cseq, self.delivered_sseq
        self.ack_floor_cseq = max(self.ack_floor_cseq, cseq)
        self.ack_floor_sseq = max(self.ack_floor_sseq, sseq)

    def forget(self, seq: int) -> None:
        """A pending message is not pending any more. What that does to the floor is for the caller to note."""
        del self.pending[seq]
        self.deliveries.pop(seq, None)
        self.exhausted.discard(seq)

    def drop_below(self, first_seq: int) -> None:
        """The stream removed everything before `first_seq` (purge, limits): nothing of it is pending any more, and
        the position is at least there. Called by the state machine of the stream, on every replica."""
        before = len(self.pending)
        if before and next(reversed(self.pending)) < first_seq:
            for held in (self.pending, self.deliveries, self.exhausted):
                held.clear()
        else:
            for seq in list(takewhile(first_seq.__gt__, self.pending)):
                self.forget(seq)
        if len(self.pending) == before and self.delivered_sseq >= first_seq - 1:
            return
        self.delivered_sseq = max(self.delivered_sseq, first_seq - 1)
        self._raise_floor()

    def drop_gone(self, gone: Iterable[int]) -> None:
        """The stream removed these messages, whose deliveries are pending: they are not any more."""
        raised = False
        for seq in gone:
            raised = True
            self.forget(seq)
        if raised:
            self._raise_floor()

    def last_seqs_at(self, seq: int) -> int:
        """The place in `last_seqs` of the first that is neither delivered nor before `seq`."""
        return bisect_right(self.last_seqs, max(self.delivered_sseq, seq - 1))

    def remaining_last_seqs(self) -> Sequence[int]:
        """Of `last_seqs`, those that are not delivered yet."""
        return self.last_seqs[bisect_right(self.last_seqs, self.delivered_sseq) :]

    # ---- snapshots ------------------------------------------------------------------------------------------------

    def copy(self) -> ConsumerState:
        """An independent copy: the leader's working state, ahead of the committed one."""
        other = object.__new__(ConsumerState)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other.pending = dict(self.pending)
        other.deliveries = dict(self.deliveries)
        other.exhausted = set(self.exhausted)
        return other

    @property
    def rows(self) -> int:
        """The longest of the columns that `snapshot` has."""
        return max(len(self.pending), len(self.deliveries), len(self.last_seqs))

    def snapshot(self, first: int = 0, end: int | None = None) -> bytes:
        """The state as bytes; equal states give equal bytes. Of its columns only the
        rows from `first` to before `end`: `go_on_with` puts such parts together."""
        config = json.dumps(self.config.to_json(), sort_keys=True, separators=(",", ":")).encode()
        numbers = _NUMBERS.pack(
            self.created_ns,
            self.start_seq,
            self.delivered_cseq,
            self.delivered_sseq,
            self.ack_floor_cseq,
            self.ack_floor_sseq,
            self.last_delivered_ns,
            self.last_ack_ns,
        )
        pending = list(islice(self.pending.items(), first, end))
        waiting = [item[1] for item in pending]
        deliveries = list(islice(self.deliveries.items(), first, end))
        columns = (
            *([item[0] for item in pending], [each[0] for each in waiting], [each[1] for each in waiting]),
            *([item[0] for item in deliveries], [item[1] for item in deliveries]),
            self.last_seqs[first:end],
        )
        blobs = [self.name.encode(), config, *(array("Q", column).tobytes() for column in columns)]
        head = bytes((_VERSION,)) + numbers
        return head + b"".join(_SIZE.pack(len(item)) + item for item in blobs)

    def go_on_with(self, more: ConsumerState) -> None:
        """Add the rows of the next part of the same state."""
        self.pending.update(more.pending)
        self.deliveries.update(more.deliveries)
        self.exhausted.update(more.exhausted)
        self.last_seqs += more.last_seqs

    @classmethod
    def restore(cls, data: bytes | memoryview) -> ConsumerState:
        """The state that `snapshot` wrote.

        Raises:
            ValueError: another version, or cut off.
        """
        view = memoryview(data)
        if len(view) < 1 + _NUMBERS.size or view[0] != _VERSION:
            raise ValueError(
                f"consumer snapshot of {len(view)} bytes is cut off or not of version {_VERSION}"
            )
        numbers = _NUMBERS.unpack_from(view, 1)
        blobs = _split(view[1 + _NUMBERS.size :])
        if len(blobs) != 8:
            raise ValueError(f"consumer snapshot has {len(blobs)} parts, 8 were expected")
        name = str(blobs[0], "utf-8")
        config = ConsumerConfig.from_json(json.loads(bytes(blobs[1])))
        state = cls(name=name, config=config, created_ns=numbers[0], start_seq=numbers[1])
        state.delivered_cseq, state.delivered_sseq, state.ack_floor_cseq, state.ack_floor_sseq = numbers[2:6]
        state.last_delivered_ns, state.last_ack_ns = numbers[6:8]
        sseqs, cseqs, dues, redelivered, times, last_seqs = (array("Q", bytes(blob)) for blob in blobs[2:])
        state.pending = dict(zip(sseqs, zip(cseqs, dues, strict=True), strict=True))
        state.deliveries = dict(zip(redelivered, times, strict=True))
        state.exhausted = {seq for seq, due_ns in zip(sseqs, dues, strict=True) if due_ns >= NEVER_NS}
        state.last_seqs = tuple(last_seqs)
        return state


def _split(view: memoryview) -> list[memoryview]:
    """The parts of a snapshot, each with its length in front."""
    parts: list[memoryview] = []
    at = 0
    while at < len(view):
        (size,) = _SIZE.unpack_from(view, at) if len(view) - at >= _SIZE.size else (len(view),)
        at += _SIZE.size
        if at + size > len(view):
            raise ValueError(f"consumer snapshot is cut off at {at} of {len(view)} bytes")
        parts.append(view[at : at + size])
        at += size
    return parts
