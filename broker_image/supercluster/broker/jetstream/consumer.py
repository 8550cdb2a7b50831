"""A consumer on its stream's leader: hands committed messages to waiting pull requests and takes acknowledgements.

What is here is volatile. Deliveries and acknowledgements are worked into a copy of the replicated state at once and
collected as operations, at most one batch a turn (`take_ops`), for the group to put into its next entry. A leader
that is deposed throws all of this away: what was not committed is delivered by the next one, and no acknowledgement
was confirmed before its operation was committed (SF-2). What `pump` returns is for `handing_out`: a delivery that
will be acknowledged leaves this broker behind its operation's commit, and is taken back when that never comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from supercluster.broker.jetstream.acks import AckKind, ack_prefix, parse_ack_payload, parse_nak_delay
from supercluster.broker.jetstream.consumer_ops import Op, OpKind, encode_ops
from supercluster.broker.jetstream.consumer_state import ConsumerState
from supercluster.broker.jetstream.feed import Feed
from supercluster.broker.jetstream.handout import cut_to_bytes, joined, new_replies, shown_items
from supercluster.broker.jetstream.message_source import MessageBatch, MessageSource
from supercluster.broker.jetstream.pull import (
    Delivery,
    GiveBack,
    HasInterest,
    HasRoom,
    Item,
    PullLine,
    PullRefusedError,
    Served,
    Waiting,
    check_pull,
    parse_pull,
    status,
)
from supercluster.broker.jetstream.redelivery import RedeliveryQueue

# One pump hands out at most this much, so that one consumer cannot hold up a turn of the loop.
PUMP_MESSAGES_MAX = 4096
PUMP_BYTES_MAX = 4 * 1024 * 1024


@dataclass(slots=True)
class Outbox:
    """What a turn left for the group: operations for the next entry, and replies (to `+ACK` requests) that may be
    sent once that entry is committed; with empty `ops`, once everything proposed before is."""

    ops: bytes
    replies: list[bytes] = field(default_factory=list)


class ConsumerLeader:
    """One consumer, on the leader of its stream's group. `state` is the replicated state as of the log's end."""

    def __init__(self, stream: str, committed: ConsumerState, now_ns: int) -> None:
        self.stream = stream
        self.state = committed.copy()
        self.active_ns = now_ns
        self._serves = True
        self.has_more = False
        """The last pump stopped at its bound, not for want of messages or requests: pump again in the next turn."""
        self._prefix = ack_prefix(stream, committed.name)
        self._line = PullLine(committed.config.max_waiting)
        self._feed = Feed(self.state)
        self._again = RedeliveryQueue(self.state)
        self._ops: list[Op] = []
        self._acks: list[int] = []
        self._acks_ns = 0
        self._replies: list[bytes] = []

    # ---- requests -------------------------------------------------------------------------------------------------

    @property
    def num_waiting(self) -> int:
        return len(self._line)

    def num_pending(self, source: MessageSource) -> int:
        """Messages that were never delivered yet."""
        self.on_purged(source.first_seq)
        return self._feed.pending(source)

    def on_pull(
        self,
        payload: bytes | memoryview,
        inbox: bytes,
        now_ns: int,
        has_interest: HasInterest,
        give_back: GiveBack | None = None,
    ) -> list[Delivery]:
        """Take a pull request; what it is answered at once is returned. `pump` serves it."""
        self.active_ns = now_ns
        if not inbox:
            return []
        try:
            spec = parse_pull(payload)
            check_pull(spec, self.state.config)
            return self._line.add(Waiting(inbox, spec, now_ns, give_back), now_ns, has_interest)
        except PullRefusedError as refused:
            return [Delivery(inbox, [status(inbox, refused.code, refused.text)])]

    def update_config(self, committed: ConsumerState) -> None:
        """The configuration was changed by a committed entry."""
        self.state.update_config(committed.config)
        self._feed.restart()

    def rewind(
        self, committed: ConsumerState, uncommitted_ops: Iterable[bytes] = (), *, last_seq: int
    ) -> None:
        """A proposal was not appended: go back to what the log holds (`uncommitted_ops`: this consumer's operations
        in the entries behind the committed state). Requests go on waiting; replies that were promised are not sent,
        and their clients repeat."""
        self.state = committed.copy()
        for ops in uncommitted_ops:
            self.state.apply(ops, last_seq=last_seq)
        self._feed = Feed(self.state)
        self._again = RedeliveryQueue(self.state)
        self._ops, self._acks, self._replies = [], [], []

    def take_back(self, delivery: Delivery) -> None:
        """It never left this broker: its requests wait as they did before. The state is the caller's to rewind."""
        self._line.take_back(delivery)

    def give_back(self, now_ns: int) -> list[Delivery]:
        """This leader is deposed: waiting requests go on with the next one."""
        return self._line.give_back(now_ns, 409, "Leadership Change")

    def close(self, code: int, text: str) -> list[Delivery]:
        """End every waiting request: 409 "Consumer Deleted", 409 "Server Shutdown"."""
        return self._line.clear(code, text)

    # ---- delivering -----------------------------------------------------------------------------------------------

    def is_held_back(self, has_room: HasRoom) -> bool:
        """Requests wait, and all of their clients take less than they are sent already (MV-11)."""
        return bool(self._line) and not self._line.front_has_room(has_room)

    def pump(
        self, source: MessageSource, now_ns: int, has_interest: HasInterest, *, serves: bool = True
    ) -> list[Delivery]:
        """Hand out what can be handed out now: redeliveries first, then new messages; then the statuses due. Not
        `serves`: nothing but the statuses."""
        self._serves = serves
        self._flush_acks()
        self.on_purged(source.first_seq)
        self._again.collect(now_ns)
        deliveries: list[Delivery] = []
        self.has_more = False
        if self._line:
            deliveries = self._line.sweep(now_ns, has_interest)
            if serves:
                self._serve(source, now_ns, deliveries)
            if not self.has_more:
                deliveries += self._line.end_one_shots()
            for request in self._line.beats_due(now_ns):
                deliveries.append(Delivery(request.inbox, [self._heartbeat(request.inbox)]))
        return deliveries

    def _serve(self, source: MessageSource, now_ns: int, deliveries: list[Delivery]) -> None:
        """Give each request in the line what it may have, until nothing is left or the pump's bound is reached."""
        count_left, bytes_left = PUMP_MESSAGES_MAX, PUMP_BYTES_MAX
        delivered: list[Sequence[int]] = []
        while self._line and count_left > 0 and bytes_left > 0:
            request = self._line.front()
            request_bytes = request.bytes_left
            count_max = min(request.left, count_left)
            items, size, ended = self._again_items(source, request, count_max, now_ns)
            if not items and not ended:
                count_max = min(count_max, self._room())
                items, size, ended = self._new_items(
                    source, request, count_max, bytes_left, delivered, now_ns
                )
                if not items and not ended:
                    self.has_more = not self._feed.scan_ended
                    break
            count_left -= len(items)
            bytes_left -= size
            is_over = ended is not None or request.left <= len(items)
            served = Served(request, len(items), request_bytes, is_over)
            self._account(request, len(items), now_ns)
            if ended is not None:
                items.append(ended)
                self._line.pop()
            elif request.left <= 0:
                self._line.pop()
            elif len(self._line) > 1:
                self._line.to_back()
            if deliveries and deliveries[-1].inbox is request.inbox:
                deliveries[-1].items += items
                deliveries[-1].served.append(served)
            else:
                deliveries.append(Delivery(request.inbox, items, [served]))
        else:
            self.has_more = bool(self._line)
        if delivered:
            self._ops.append(Op(OpKind.DELIVERED, joined(delivered), now_ns))

    def _account(self, request: Waiting, count: int, now_ns: int) -> None:
        if count:
            self.active_ns = now_ns
            request.left -= count
            request.served += count
            if request.heartbeat_every_ns:
                request.heartbeat_ns = now_ns + request.heartbeat_every_ns

    def _room(self) -> int:
        """How many more messages may wait for an acknowledgement."""
        config = self.state.config
        if not config.needs_ack or config.max_ack_pending <= 0:
            return PUMP_MESSAGES_MAX
        return config.max_ack_pending - len(self.state.pending)

    def _new_items(
        self,
        source: MessageSource,
        request: Waiting,
        count_max: int,
        bytes_max: int,
        delivered: list[Sequence[int]],
        now_ns: int,
    ) -> tuple[list[Item], int, Item | None]:
        """Messages that were never delivered. The third value ends the request, when a message is too large for it."""
        if count_max <= 0:
            self._feed.scan_ended = True
            return [], 0, None
        if request.bytes_left:
            bytes_max = min(bytes_max, request.bytes_left)
        batch = self._feed.next(source, count_max, bytes_max)
        if not batch:
            return [], 0, None
        state = self.state
        pending = max(self._feed.pending(source), len(batch))
        replies = new_replies(self._prefix, batch, state.delivered_cseq + 1, pending)
        items = shown_items(batch, replies, headers_only=state.config.headers_only)
        ended = None
        if request.bytes_left:
            ended = cut_to_bytes(request, items)
        if not items:
            return items, 0, ended
        seqs = batch.seqs[: len(items)]
        self._feed.took(seqs)
        state.apply_op(Op(OpKind.DELIVERED, seqs, now_ns), last_seq=source.last_seq)
        if state.config.needs_ack:
            self._again.add(now_ns + state.config.wait_ns(1), seqs)
        delivered.append(seqs)
        return items, sum(map(len, batch.payloads)), ended

    def _again_items(
        self, source: MessageSource, request: Waiting, count_max: int, now_ns: int
    ) -> tuple[list[Item], int, Item | None]:
        """Messages whose wait is over, or that were refused; those delivered often enough are given up."""
        items: list[Item] = []
        size = 0
        ended = None
        due, state = self._again, self.state
        given: list[int] = []
        while len(items) < count_max and size < PUMP_BYTES_MAX and ended is None:
            seq = due.peek(now_ns)
            if seq is None:
                break
            times = state.deliveries.get(seq, 1)
            if 0 < state.config.max_deliver <= times:
                self._note(Op(OpKind.EXHAUSTED, (seq,), now_ns), source.last_seq)
                due.pop()
                continue
            batch = source.read(seq, 1, 1)
            if not batch or batch.seqs[0] != seq:
                self._note(Op(OpKind.TERM, (seq,), now_ns), source.last_seq)
                due.pop()
                continue
            cseq = state.delivered_cseq + 1 + len(given)
            pending = self._feed.pending(source)
            reply = f"{self._prefix}{times + 1}.{seq}.{cseq}.{batch.times[0]}.{pending}".encode()
            found = shown_items(batch, [reply], headers_only=state.config.headers_only)
            if request.bytes_left:
                ended = cut_to_bytes(request, found)
            if found:
                due.pop()
                items += found
                size += len(batch.payloads[0])
                given.append(seq)
        if given:
            self._note(Op(OpKind.REDELIVERED, given, now_ns), source.last_seq)
            for seq in given:
                due.add(state.pending[seq][1], (seq,))
        return items, size, ended

    def _heartbeat(self, inbox: bytes) -> Item:
        state = self.state
        last = (("Nats-Last-Consumer", state.delivered_cseq), ("Nats-Last-Stream", state.delivered_sseq))
        return status(inbox, 100, "Idle Heartbeat", *last)

    # ---- acknowledgements -----------------------------------------------------------------------------------------

    def on_ack(
        self,
        stream_seq: int,
        payload: bytes | memoryview,
        reply: bytes,
        now_ns: int,
        has_interest: HasInterest,
    ) -> list[Delivery]:
        """Take an acknowledgement. A reply that was asked for waits in the outbox; what `+NXT` is answered at once
        (a refused request) is returned."""
        parsed = parse_ack_payload(payload)
        state = self.state
        if parsed is None or not state.config.needs_ack or not 0 < stream_seq <= state.delivered_sseq:
            return []
        kind, argument = parsed
        self.active_ns = now_ns
        if kind in (AckKind.ACK, AckKind.NEXT):
            self._acknowledge(stream_seq, now_ns)
        elif stream_seq in state.pending:
            self._other_ack(kind, stream_seq, argument, now_ns)
        if kind == AckKind.NEXT:
            return self.on_pull(argument, reply, now_ns, has_interest)
        if reply:
            self._replies.append(reply)
        return []

    def _acknowledge(self, seq: int, now_ns: int) -> None:
        state = self.state
        if state.config.ack_policy == "all":
            if seq > state.ack_floor_sseq:
                if self._ops and self._ops[-1].kind == OpKind.ACK_ALL:
                    self._ops.pop()  # The later one says what the earlier one did, and more.
                self._note(Op(OpKind.ACK_ALL, (seq,), now_ns), state.delivered_sseq)
        elif seq in state.pending:
            # The floor is found once for all acknowledgements of a turn, in `_flush_acks`.
            del state.pending[seq]
            state.deliveries.pop(seq, None)
            self._acks.append(seq)
            self._acks_ns = now_ns

    def _other_ack(self, kind: AckKind, seq: int, argument: bytes, now_ns: int) -> None:
        last = self.state.delivered_sseq
        if kind == AckKind.TERM:
            self._note(Op(OpKind.TERM, (seq,), now_ns), last)
            return
        if kind == AckKind.NAK:
            self._note(Op(OpKind.NAK, (seq,), now_ns, parse_nak_delay(argument)), last)
        else:
            self._note(Op(OpKind.PROGRESS, (seq,), now_ns), last)
        self._again.add(self.state.pending[seq][1], (seq,))

    def _note(self, op: Op, last_seq: int) -> None:
        """Work an operation into the state and keep it for the entry, behind the acknowledgements before it."""
        self._flush_acks()
        self.state.apply_op(op, last_seq=last_seq)
        self._ops.append(op)

    def _flush_acks(self) -> None:
        if self._acks:
            op = Op(OpKind.ACK, sorted(self._acks), self._acks_ns)
            self._acks = []
            self.state.settled_already(op)
            self._ops.append(op)

    def take_ops(self) -> Outbox | None:
        """What has to be replicated since the last call; None when nothing has."""
        self._flush_acks()
        if not self._ops and not self._replies:
            return None
        outbox = Outbox(encode_ops(self._ops), self._replies)
        self._ops, self._replies = [], []
        return outbox

    # ---- changes of the stream ------------------------------------------------------------------------------------

    def on_removed(self, seq: int, subject: bytes) -> None:
        """The stream removed one message (limits, delete, another consumer's acknowledgement). Where its delivery is
        not committed yet, the operation says behind it that nothing is pending."""
        if seq in self.state.pending:
            self._note(Op(OpKind.TERM, (seq,)), self.state.delivered_sseq)
        self._feed.removed(seq, subject)

    def on_purged(self, first_seq: int) -> None:
        """The stream begins at `first_seq` now. Cheap when nothing of this consumer's was before it; `pump` and
        `num_pending` see to it by themselves."""
        self.state.drop_below(first_seq)

    # ---- time -----------------------------------------------------------------------------------------------------

    def next_deadline_ns(self) -> int | None:
        """When `pump` or `is_inactive` has to be asked again, even if nothing happens until then."""
        deadlines = [self._line.deadline_ns(), self._inactive_at_ns()]
        if self._line and self._serves:
            deadlines.append(self._again.next_due_ns())
        return min((d for d in deadlines if d is not None), default=None)

    def _inactive_at_ns(self) -> int | None:
        threshold_ns = self.state.config.inactive_threshold_ns
        return self.active_ns + threshold_ns if threshold_ns else None

    def is_inactive(self, now_ns: int, has_interest: HasInterest) -> bool:
        """Nobody used the consumer for its inactive_threshold: the group deletes it by an entry. After a True it is
        asked for again only when another threshold is over, so that one entry is proposed at a time."""
        threshold_ns = self.state.config.inactive_threshold_ns
        if not threshold_ns or now_ns < self.active_ns + threshold_ns:
            return False
        self.active_ns = now_ns
        return not any(has_interest(request.inbox) for request in self._line)


__all__ = ["ConsumerLeader", "Delivery", "MessageBatch", "MessageSource", "Outbox"]
