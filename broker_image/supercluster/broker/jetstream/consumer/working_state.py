"""A consumer's state at the end of the log, ahead of the committed state, and the operations in between.

Deliveries and acknowledgements are applied at once to a copy of the replicated state. They are collected as
operations, at most one batch a turn (`take_ops`), for the group's next entry. A deposed leader discards all
of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from isal.isal_zlib import crc32

from supercluster.broker.jetstream.consumer.ack_wait_changes import moved_deadlines
from supercluster.broker.jetstream.consumer.advisories import (
    Told,
    acknowledged,
    max_deliver,
    naked,
    terminated,
)
from supercluster.broker.jetstream.consumer.cursor import Cursor
from supercluster.broker.jetstream.consumer.delivery_format import cut_to_bytes, new_replies, shown_items
from supercluster.broker.jetstream.consumer.pull import Asker, Item
from supercluster.broker.jetstream.consumer.rate_limit import RateLimit
from supercluster.broker.jetstream.consumer.redelivery import RedeliveryQueue
from supercluster.broker.jetstream.encoding.ack_subjects import AckKind, ack_prefix, parse_nak_delay
from supercluster.broker.jetstream.publish.proposal import Done
from supercluster.broker.jetstream.state.consumer import NEVER_NS, ConsumerState
from supercluster.broker.jetstream.state.consumer_ops import Op, OpKind, encode_ops, first_ops
from supercluster.broker.jetstream.state.message_source import MessageBatch, MessageSource

# One pump hands out at most this much, so that one consumer cannot hold up a turn of the loop.
PUMP_MESSAGES_MAX = 4096
PUMP_BYTES_MAX = 4 * 1024 * 1024
AGAIN_MAX = 256
"""Of redeliveries: each is read by itself."""
AGAIN_MESSAGES = 32
"""A redelivery takes as long as so many new messages."""
AGAIN_LEAST_NS = 10_000_000
"""A leader delivers nothing again sooner, however short `ack_wait` is; nats-server waits for 1 ms."""

Found = tuple[list[Item], int, Item | None]
"""Messages, their bytes, and the status that ends the request when one was too large for it."""


@dataclass(slots=True)
class Outbox:
    """What a turn left for the group: operations for the next entry, and replies (to `+ACK` requests) that may be
    sent once that entry is committed; with empty `ops`, once everything proposed before is."""

    ops: bytes
    replies: list[bytes] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    """What is to be told of the operations, once they are committed."""
    dones: list[Done] = field(default_factory=list)
    """Who waits for the operations: called with 1 then, with None when this leader is deposed before."""


class WorkingState:
    def __init__(self, stream: str, committed: ConsumerState, now_ns: int) -> None:
        self.state = committed.copy()
        self.feed = Cursor(self.state)
        self.again = RedeliveryQueue(self.state)
        self.rate_limit = RateLimit(committed.config, now_ns)
        self.replies: list[bytes] = []
        self._told: list[Told] = []
        self._dones: list[Done] = []
        self._prefix = ack_prefix(stream, committed.name)
        self._ops: list[Op] = []
        self._acks: list[int] = []
        self._acks_ns = 0
        self.again_left = AGAIN_MAX
        """Redeliveries that this pump may still look at."""

    def rewind(self, committed: ConsumerState, uncommitted_ops: Iterable[bytes], last_seq: int) -> None:
        """A proposal was not appended: back to what the log holds."""
        self.state = committed.copy()
        for ops in uncommitted_ops:
            self.state.apply(ops, last_seq=last_seq)
        self._look_anew()
        self._ops, self._acks, self.replies, self._told = [], [], [], []
        self.give_back()

    def _look_anew(self) -> None:
        self.feed = Cursor(self.state)
        self.again = RedeliveryQueue(self.state)

    def give_back(self) -> None:
        """Who waits for an operation that was not proposed is to ask again."""
        dones, self._dones = self._dones, []
        for done in dones:
            done(None)

    def update_config(self, committed: ConsumerState, now_ns: int) -> None:
        """The configuration was changed by a committed entry."""
        before = self.state.config
        self.state.update_config(committed.config)
        moved = moved_deadlines(self.state, before, committed.config, now_ns)
        for op in moved:
            self.note(op, self.state.delivered_sseq)
        if moved:
            self.again = RedeliveryQueue(self.state)
        self.feed.restart()
        self.rate_limit.adapt(committed.config)

    def purged(self, first_seq: int) -> None:
        """The stream begins at `first_seq` now. Cheap when nothing of this consumer's was before it."""
        self.state.drop_below(first_seq)

    # ---- operations -----------------------------------------------------------------------------------------------

    def note(self, op: Op, last_seq: int) -> None:
        """Work an operation into the state and keep it for the entry, behind the acknowledgements before it."""
        self.flush_acks()
        self.state.apply_op(op, last_seq=last_seq)
        self._ops.append(op)

    def reset(self, seq: int, now_ns: int, last_seq: int, done: Done) -> None:
        """Start again at a sequence; what was noted before goes before it."""
        self.note(Op(OpKind.RESET, (seq,), now_ns), last_seq)
        self._dones.append(done)
        self._look_anew()

    def delivered(self, seqs: Sequence[int], now_ns: int) -> None:
        """These were handed out for the first time, and are worked in already."""
        self._ops.append(Op(OpKind.DELIVERED, seqs, now_ns))

    def flush_acks(self) -> None:
        """One operation for all acknowledgements since the last one."""
        if self._acks:
            op = Op(OpKind.ACK, sorted(self._acks), self._acks_ns)
            self._acks = []
            self.state.settled_already(op)
            self._ops.append(op)

    def take_ops(self) -> Outbox | None:
        """What has to be replicated since the last call, as much as one section carries; None when nothing has. Who waits for any of
        it hears with the last part."""
        self.flush_acks()
        if not self._ops and not self.replies:
            return None
        ops, self._ops = first_ops(self._ops)
        outbox = Outbox(encode_ops(ops))
        if not self._ops:
            outbox.replies, outbox.told, outbox.dones = self.replies, self._told, self._dones
            self.replies, self._told, self._dones = [], [], []
        return outbox

    # ---- acknowledgements -----------------------------------------------------------------------------------------

    def acknowledge(self, seq: int, cseq: int, now_ns: int) -> None:
        """A message is done with, by `ack_policy: all` with all before it. `cseq`: as the acknowledgement's subject has it."""
        state = self.state
        percent = state.config.sampled_percent
        if percent and seq in state.pending and _is_sampled(state.name, cseq, percent):
            times = state.deliveries.get(seq, 1)
            given_ns = state.pending[seq][1] - state.config.wait_ns(times)
            self._told.append(acknowledged(cseq, seq, max(0, now_ns - given_ns), times))
        if state.config.ack_policy == "all":
            if seq > state.ack_floor_sseq:
                if self._ops and self._ops[-1].kind == OpKind.ACK_ALL:
                    self._ops.pop()  # The later one says what the earlier one did, and more.
                self.note(Op(OpKind.ACK_ALL, (seq,), now_ns), state.delivered_sseq)
        elif seq in state.pending:
            # The floor is found once for all acknowledgements of a turn, in `flush_acks`.
            state.forget(seq)
            self._acks.append(seq)
            self._acks_ns = now_ns

    def other_ack(self, kind: AckKind, seq: int, cseq: int, argument: bytes, now_ns: int) -> None:
        """-NAK, +WPI or +TERM of a pending message."""
        last, times = self.state.delivered_sseq, self.state.deliveries.get(seq, 1)
        if kind == AckKind.TERM:
            self._told.append(terminated(cseq, seq, times, argument.decode("utf-8", "replace")))
            # By `ack_policy: all` it says of those before it what an acknowledgement says.
            kind_of = OpKind.ACK_ALL if self.state.config.ack_policy == "all" else OpKind.TERM
            self.note(Op(kind_of, (seq,), now_ns), last)
            return
        if seq in self.state.exhausted:
            return
        if kind == AckKind.NAK:
            self._told.append(naked(cseq, seq, times))
            self.note(Op(OpKind.NAK, (seq,), now_ns, parse_nak_delay(argument)), last)
        else:
            self.note(Op(OpKind.PROGRESS, (seq,), now_ns), last)
        self.again.add(self.state.pending[seq][1], (seq,))

    # ---- finding what to hand out ---------------------------------------------------------------------------------

    def room(self) -> int:
        """How many more messages may wait for an acknowledgement."""
        config = self.state.config
        if not config.needs_ack or config.max_ack_pending <= 0:
            return PUMP_MESSAGES_MAX
        return config.max_ack_pending - self.state.num_ack_pending

    def new_items(
        self,
        source: MessageSource,
        asker: Asker,
        count_max: int,
        bytes_max: int,
        delivered: list[Sequence[int]],
        now_ns: int,
    ) -> Found:
        """Messages that were never delivered."""
        if count_max <= 0:
            self.feed.scan_ended = True
            return [], 0, None
        if asker.bytes_left:
            bytes_max = min(bytes_max, asker.bytes_left)
        batch = self._next_batch(source, count_max, bytes_max, now_ns)
        if not batch:
            return [], 0, None
        state = self.state
        pending = max(self.feed.pending(source), len(batch))
        replies = new_replies(self._prefix, batch, state.delivered_cseq + 1, pending)
        items = shown_items(batch, replies, headers_only=state.config.headers_only)
        ended = None
        if asker.bytes_left:
            ended = cut_to_bytes(asker, items)
        if not items:
            return items, 0, ended
        seqs = batch.seqs[: len(items)]
        self.feed.took(seqs)
        state.apply_op(Op(OpKind.DELIVERED, seqs, now_ns), last_seq=source.last_seq)
        if state.config.needs_ack:
            self.again.add(now_ns + max(state.config.wait_ns(1), AGAIN_LEAST_NS), seqs)
        delivered.append(seqs)
        return items, sum(map(len, batch.payloads)), ended

    def _next_batch(
        self, source: MessageSource, count_max: int, bytes_max: int, now_ns: int
    ) -> MessageBatch | None:
        batch = self.feed.next(source, count_max, bytes_max)
        if self.rate_limit.is_free:
            return batch
        if not batch:
            if self.feed.scan_ended:
                self.rate_limit.caught_up()
            return None
        count = self.rate_limit.allowed(batch.times, batch.sizes(), now_ns)
        return batch.first(count) if count else None

    def again_items(self, source: MessageSource, asker: Asker, count_max: int, now_ns: int) -> Found:
        """Messages whose wait is over, or that were refused; those delivered often enough are given up."""
        items: list[Item] = []
        size = 0
        ended = None
        due, state = self.again, self.state
        given: list[int] = []
        while len(items) < count_max and size < PUMP_BYTES_MAX and ended is None and self.again_left > 0:
            seq = due.peek(now_ns)
            if seq is None:
                break
            self.again_left -= 1
            times = state.deliveries.get(seq, 1)
            if 0 < state.config.max_deliver <= times:
                self.note(_given_up(seq, now_ns, source), source.last_seq)
                self._told.append(max_deliver(seq, times))
                due.pop()
                continue
            batch = source.read(seq, 1, 1)
            if not batch or batch.seqs[0] != seq:
                self.note(Op(OpKind.TERM, (seq,), now_ns), source.last_seq)
                due.pop()
                continue
            cseq = state.delivered_cseq + 1 + len(given)
            pending = self.feed.pending(source)
            reply = f"{self._prefix}{times + 1}.{seq}.{cseq}.{batch.times[0]}.{pending}".encode()
            found = shown_items(batch, [reply], headers_only=state.config.headers_only)
            if asker.bytes_left:
                ended = cut_to_bytes(asker, found)
            if found:
                due.pop()
                items += found
                size += len(batch.payloads[0])
                given.append(seq)
        if given:
            self.note(Op(OpKind.REDELIVERED, given, now_ns), source.last_seq)
            for seq in given:
                due.add(max(state.pending[seq][1], now_ns + AGAIN_LEAST_NS), (seq,))
        return items, size, ended


def _given_up(seq: int, now_ns: int, source: MessageSource) -> Op:
    """Its deliveries are used up. Where a message stays until it is acknowledged, who has it may still say so."""
    if source.keeps_until_acknowledged:
        return Op(OpKind.NAK, (seq,), now_ns, NEVER_NS)
    return Op(OpKind.EXHAUSTED, (seq,), now_ns)


def _is_sampled(name: str, cseq: int, percent: int) -> bool:
    """Of a hundred deliveries about `percent`, the same ones wherever it is asked."""
    return percent >= 100 or crc32(f"{name}.{cseq}".encode()) % 100 < percent
