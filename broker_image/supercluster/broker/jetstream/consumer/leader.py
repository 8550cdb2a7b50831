"""A consumer on its stream's leader: it delivers committed messages to pull requests or to the deliver
subject, and takes acknowledgements.

Its state is volatile, including the operations that it collects for the group's next entry
(`consumer/working_state.py`). A deposed leader discards all of it: the next leader delivers messages whose
delivery was not committed, and no acknowledgement is confirmed before its operation is committed (SF-2).
`pump` returns deliveries for `commit_gate.py`: one that needs an acknowledgement leaves this broker after its
operation is committed, even if that happens under the next leader (`uncertain_deliveries.py`), and is taken
back if that never happens.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from functools import partial

from supercluster.broker.jetstream.consumer.delivery_format import joined
from supercluster.broker.jetstream.consumer.pending_counts import PendingCount
from supercluster.broker.jetstream.consumer.priority_groups import Priority, check_priority
from supercluster.broker.jetstream.consumer.pull import (
    Asker,
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
    check_time,
    parse_pull,
    status,
)
from supercluster.broker.jetstream.consumer.push import PushTarget
from supercluster.broker.jetstream.consumer.working_state import (
    AGAIN_MAX,
    AGAIN_MESSAGES,
    PUMP_BYTES_MAX,
    PUMP_MESSAGES_MAX,
    Found,
    Outbox,
    WorkingState,
)
from supercluster.broker.jetstream.encoding.ack_subjects import AckKind, parse_ack_payload
from supercluster.broker.jetstream.publish.proposal import Done
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.consumer_ops import Op, OpKind
from supercluster.broker.jetstream.state.message_source import MessageSource


class ConsumerLeader:
    """One consumer, on the leader of its stream's group. `state` is the replicated state as of the log's end."""

    def __init__(self, stream: str, committed: ConsumerState, now_ns: int) -> None:
        self.stream = stream
        self._work = WorkingState(stream, committed, now_ns)
        self.active_ns = now_ns
        self._serves = True
        self.has_more = False
        """The last pump stopped at its bound, not for want of messages or requests: pump again in the next turn."""
        self._line = PullLine(committed.config.max_waiting)
        self.target = _target(stream, committed)
        """Where a push consumer delivers to."""
        self.priority = Priority(committed.name, committed.config)
        self._was_paused = False
        self.handed_out = (0, 0)
        """Messages and bytes of the last pump."""
        self.awaits_count = False
        """The last pump handed out nothing, since what is left is to be counted before."""

    @property
    def state(self) -> ConsumerState:
        """Ahead of the committed one by what was worked in."""
        return self._work.state

    # ---- requests -------------------------------------------------------------------------------------------------

    @property
    def num_waiting(self) -> int:
        return len(self._line)

    def count_up(self, source: MessageSource) -> bool:
        """Is it known how many messages were never delivered yet?"""
        self._work.purged(source.first_seq)
        return self._work.feed.count_up(source)

    def to_count(self) -> PendingCount | None:
        """What is to be counted for it."""
        after = self._work.feed.counts_from
        return (
            PendingCount(self.state.name, self.state.config.filter_subjects, after)
            if after is not None
            else None
        )

    def counted(self, count: PendingCount, up_to: int, first_seq: int) -> None:
        if count.filters == self.state.config.filter_subjects:
            self._work.feed.counted(count.found, count.after, up_to, first_seq)

    def num_pending(self, source: MessageSource) -> int:
        """Messages that were never delivered yet."""
        self._work.purged(source.first_seq)
        return self._work.feed.pending(source)

    @property
    def looked_at(self) -> int:
        """Messages that were looked at for its filters, since it was begun."""
        return self._work.feed.looked_at

    @property
    def is_ready(self) -> bool:
        """Would a message that is stored now be handed out?"""
        return bool(self._line) or self._line.any_absent or self.is_bound

    @property
    def is_bound(self) -> bool:
        """Does somebody listen where this push consumer delivers to?"""
        return self.target is not None and self.target.is_bound

    def bind(self, now_ns: int, *, is_bound: bool) -> bool:
        """Somebody listens where this push consumer delivers to, or nobody does. True when that is new."""
        target = self.target
        if target is None or target.is_bound == is_bound:
            return False
        self.active_ns = now_ns
        target.bind(now_ns, is_bound=is_bound)
        return True

    def on_flow(self, subject: bytes) -> bool:
        """The client of a push consumer has what it was asked about. False: it was not asked that."""
        flow = self.target.flow if self.target is not None else None
        return flow is not None and flow.answered(subject)

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
            if self.target is not None:
                raise PullRefusedError(409, "Consumer is push based")
            spec = parse_pull(payload)
            check_pull(spec, self.state.config)
            check_priority(spec, self.state.config)
            check_time(spec)
            self.priority.admit(spec, now_ns)
            return self._line.add(Waiting(inbox, spec, now_ns, give_back), now_ns, has_interest)
        except PullRefusedError as refused:
            return [Delivery(inbox, [status(inbox, refused.code, refused.text, *refused.headers)])]

    def update_config(self, committed: ConsumerState, now_ns: int) -> None:
        """The configuration was changed by a committed entry."""
        before = self.state.config
        self._work.update_config(committed, now_ns)
        now = committed.config
        self.priority.adapt(now)
        if (before.deliver_subject, before.deliver_group) != (now.deliver_subject, now.deliver_group):
            self.target = _target(self.stream, committed)

    def rewind(
        self, committed: ConsumerState, uncommitted_ops: Iterable[bytes] = (), *, last_seq: int
    ) -> None:
        """A proposal was not appended: go back to what the log holds (`uncommitted_ops`: this consumer's operations
        in the entries behind the committed state). Requests go on waiting; replies that were promised are not sent,
        and their clients repeat."""
        self._work.rewind(committed, uncommitted_ops, last_seq)

    def take_back(self, delivery: Delivery) -> None:
        """It never left this broker: its requests wait as they did before. The state is the caller's to rewind."""
        if self.target is not None:
            self.target.take_back(delivery)
        else:
            self._line.take_back(delivery)

    def give_back(self, now_ns: int, in_doubt: Container[Waiting] = ()) -> list[Delivery]:
        """This leader is deposed: waiting requests go on with the next one, but for those whose deliveries are in doubt."""
        self._work.give_back()
        return self._line.give_back(now_ns, in_doubt)

    def close(self, code: int, text: str) -> list[Delivery]:
        """End every waiting request: 409 "Consumer Deleted"."""
        self._work.give_back()
        return self._line.clear(code, text)

    def end_requests(self, code: int, text: str) -> list[Delivery]:
        """End every waiting request, while the consumer goes on: 409 "Server Shutdown"."""
        return self._line.end_all(code, text)

    # ---- delivering -----------------------------------------------------------------------------------------------

    def is_held_back(self, has_room: HasRoom) -> bool:
        """Requests wait, and all of their clients take less than they are sent already (MV-11)."""
        if self.target is not None:
            return self.target.is_bound and not has_room(self.target.inbox)
        return bool(self._line) and not self._line.front_has_room(has_room)

    def pump(
        self, source: MessageSource, now_ns: int, has_interest: HasInterest, *, serves: bool = True
    ) -> list[Delivery]:
        """Hand out what can be handed out now: redeliveries first, then new messages; then the statuses due. Not
        `serves`: nothing but the statuses."""
        serves = serves and not self.is_paused(now_ns)
        self.awaits_count = serves and self.is_ready and not self._work.feed.count_up(source)
        serves = self._serves = serves and not self.awaits_count
        self.priority.expire(now_ns)
        work = self._work
        work.feed.refill()
        work.flush_acks()
        work.purged(source.first_seq)
        work.again.collect(now_ns)
        work.again_left = AGAIN_MAX
        deliveries: list[Delivery] = []
        self.has_more = False
        self.handed_out = (0, 0)
        if self.target is not None and self.target.is_bound:
            self._push(self.target, source, now_ns, deliveries)
        elif self._line or self._line.any_absent:
            deliveries = self._line.sweep(now_ns, has_interest)
            if serves:
                self._serve(source, now_ns, deliveries)
            if not self.has_more and not self.awaits_count:
                deliveries += self._line.end_one_shots()
            for request in self._line.beats_due(now_ns):
                deliveries.append(Delivery(request.inbox, [self._heartbeat(request.inbox)]))
        return deliveries

    def _serve(self, source: MessageSource, now_ns: int, deliveries: list[Delivery]) -> None:
        """Give each request in the line what it may have, until nothing is left or the pump's bound is reached."""
        count_left, bytes_left = PUMP_MESSAGES_MAX, PUMP_BYTES_MAX
        delivered: list[Sequence[int]] = []
        while count_left > 0 and bytes_left > 0:
            request = self._next_request(source, deliveries)
            if request is None:
                break
            request_bytes = request.bytes_left
            count_max = min(request.left, count_left)
            items, size, ended = self._find(source, request, count_max, bytes_left, delivered, now_ns)
            if not items and not ended:
                break
            count_left -= len(items)
            bytes_left -= size
            is_over = ended is not None or request.left <= len(items)
            served = Served(request, len(items), request_bytes, is_over)
            self._account(request, len(items), now_ns)
            if items:
                items = self.priority.served(request, items, self.state.delivered_cseq, now_ns)
            if ended is not None:
                items.append(ended)
                self._line.pop()
            elif request.left <= 0:
                self._line.pop()
                if request.bytes_left:
                    # Who asked for bytes does not count messages.
                    items.append(request.ended(409, "Batch Completed"))
            elif len(self._line) > 1:
                self._line.to_back()
            if deliveries and deliveries[-1].inbox is request.inbox:
                deliveries[-1].items += items
                deliveries[-1].served.append(served)
            else:
                deliveries.append(Delivery(request.inbox, items, [served]))
        else:
            self.has_more = bool(self._line)
        self.handed_out = (self._messages_of(PUMP_MESSAGES_MAX - count_left), PUMP_BYTES_MAX - bytes_left)
        if delivered:
            self._work.delivered(joined(delivered), now_ns)

    def _messages_of(self, count: int) -> int:
        """What that many messages count for, some of which were handed out before."""
        return count + (AGAIN_MAX - self._work.again_left) * (AGAIN_MESSAGES - 1)

    def _next_request(self, source: MessageSource, said: list[Delivery]) -> Waiting | None:
        """Whose turn it is."""
        if self.priority.is_plain:
            return self._line.front() if self._line else None
        pending = partial(self._work.feed.pending, source)
        return self.priority.next(self._line, pending, self.state.num_ack_pending, said)

    def _find(
        self,
        source: MessageSource,
        asker: Asker,
        count_max: int,
        bytes_max: int,
        delivered: list[Sequence[int]],
        now_ns: int,
    ) -> Found:
        """What there is to hand out: first what was handed out before. Nothing: `has_more` says whether to look again."""
        work = self._work
        found = work.again_items(source, asker, count_max, now_ns)
        if found[0] or found[2]:
            return found
        if not work.again_left:
            self.has_more = True  # What was handed out before comes first.
            return found
        found = work.new_items(source, asker, min(count_max, work.room()), bytes_max, delivered, now_ns)
        if not found[0] and not found[2]:
            self.has_more = not work.feed.scan_ended
        return found

    def _push(
        self, target: PushTarget, source: MessageSource, now_ns: int, deliveries: list[Delivery]
    ) -> None:
        """Send what there is to who listens, and a heartbeat where nothing was sent for long enough."""
        count_left, bytes_left = PUMP_MESSAGES_MAX, PUMP_BYTES_MAX
        delivered: list[Sequence[int]] = []
        sent: list[Item] = []
        served: list[Served] = []
        while self._serves and target.room_bytes:
            if count_left <= 0 or bytes_left <= 0:
                self.has_more = True
                break
            bytes_max = min(bytes_left, target.room_bytes)
            items, size, _ = self._find(source, target, count_left, bytes_max, delivered, now_ns)
            if not items:
                break
            count_left -= len(items)
            bytes_left -= size
            sent += target.sent(items, self.state.delivered_cseq)
            served.append(Served(None, len(items), 0, is_over=False))
        self.handed_out = (self._messages_of(PUMP_MESSAGES_MAX - count_left), PUMP_BYTES_MAX - bytes_left)
        if delivered:
            self._work.delivered(joined(delivered), now_ns)
        if sent:
            self.active_ns = now_ns
            target.put_off_heartbeat(now_ns)
            deliveries.append(Delivery(target.inbox, sent, served))
        beat = target.heartbeat(now_ns, self.state.delivered_cseq, self.state.delivered_sseq)
        if beat is not None:
            deliveries.append(beat)

    def _account(self, request: Waiting, count: int, now_ns: int) -> None:
        if count:
            self.active_ns = now_ns
            request.left -= count
            request.served += count
            if request.heartbeat_every_ns:
                request.heartbeat_ns = now_ns + request.heartbeat_every_ns

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
        consumer_seq: int = 0,
        give_back: GiveBack | None = None,
    ) -> list[Delivery]:
        """Take an acknowledgement. A reply that was asked for waits in the outbox; what `+NXT` is answered at once
        (a refused request) is returned."""
        parsed = parse_ack_payload(payload)
        state = self.state
        if parsed is None and reply:
            # Nothing that is promised: it says only that the consumer is there, as NATS has it.
            self._work.replies.append(reply)
        if parsed is None or not state.config.needs_ack or not 0 < stream_seq <= state.delivered_sseq:
            return []
        kind, argument = parsed
        self.active_ns = now_ns
        if kind in (AckKind.ACK, AckKind.NEXT):
            self._work.acknowledge(stream_seq, consumer_seq, now_ns)
        elif stream_seq in state.pending:
            self._work.other_ack(kind, stream_seq, consumer_seq, argument, now_ns)
        if kind == AckKind.NEXT:
            return self.on_pull(argument, reply, now_ns, has_interest, give_back)
        if reply:
            self._work.replies.append(reply)
        return []

    def take_ops(self) -> Outbox | None:
        """What has to be replicated, as much as one section carries; None when nothing has."""
        return self._work.take_ops()

    # ---- changes of the stream ------------------------------------------------------------------------------------

    def on_removed(self, seq: int) -> bool:
        """The stream removed one message (limits, delete, another consumer's acknowledgement). Where its delivery is not
        committed yet, the operation says behind it that nothing is pending. False: it was not pending here."""
        if seq not in self.state.pending:
            return False
        self._work.note(Op(OpKind.TERM, (seq,)), self.state.delivered_sseq)
        return True

    def uncount(self, seq: int, subject: bytes) -> None:
        """A message is gone that may have been counted among those to come."""
        self._work.feed.removed(seq, subject)

    def pins(self) -> list[tuple[str, str, int]]:
        """The priority group, its pinned client and since when: NATS has one pin per consumer and shows the first group."""
        groups = self.state.config.priority_groups
        return [(groups[0], self.priority.pin_id, self.priority.pinned_ns)] if groups else []

    def reset(self, seq: int, now_ns: int, last_seq: int, done: Done) -> None:
        """Begin again at a sequence; `done` hears when that is committed."""
        self._work.reset(seq, now_ns, last_seq, done)

    # ---- time -----------------------------------------------------------------------------------------------------

    def is_paused(self, now_ns: int) -> bool:
        return now_ns < self.state.config.pause_until_ns

    def pause_news(self, now_ns: int) -> bool | None:
        """Was the consumer paused since the last call (True), or does it go on since (False)?"""
        is_paused = self.is_paused(now_ns)
        if is_paused == self._was_paused:
            return None
        self._was_paused = is_paused
        return is_paused

    def next_deadline_ns(self) -> int | None:
        """When `pump` or `is_inactive` has to be asked again, even if nothing happens until then."""
        deadlines = [self._line.deadline_ns(), self._inactive_at_ns(), self.priority.until_ns]
        if self._was_paused:
            deadlines.append(self.state.config.pause_until_ns)
        target = self.target
        if target is not None and target.is_bound:
            deadlines.append(target.heartbeat_ns or None)
        is_asked = bool(self._line) or self.is_bound
        if is_asked and self._serves and (target is None or target.room_bytes):
            deadlines += (self._work.again.next_due_ns(), self._work.rate_limit.next_ns)
        return min((d for d in deadlines if d is not None), default=None)

    def _inactive_at_ns(self) -> int | None:
        threshold_ns = self.state.config.inactive_threshold_ns
        if not threshold_ns or self.is_bound:
            return None
        return self.active_ns + threshold_ns

    def is_inactive(self, now_ns: int, has_interest: HasInterest) -> bool:
        """Nobody used the consumer for its inactive_threshold: the group deletes it by an entry. After a True it is
        asked for again only when another threshold is over, so that one entry is proposed at a time."""
        at_ns = self._inactive_at_ns()
        if at_ns is None or now_ns < at_ns:
            return False
        self.active_ns = now_ns
        return not any(has_interest(request.inbox) for request in self._line)


def _target(stream: str, committed: ConsumerState) -> PushTarget | None:
    config = committed.config
    return PushTarget(stream, committed.name, config) if config.is_push else None
