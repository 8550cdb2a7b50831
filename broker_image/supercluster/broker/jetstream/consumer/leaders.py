"""The consumers of one stream on its leader: which have waiting requests, which to pump next, and their
output.

All of it is volatile: it begins when a leader serves and ends when the leader is deposed. A consumer is
pumped after an event that concerns it. One whose clients read too slowly is held back for a while instead of
being tried in each turn (MV-11).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from supercluster.broker.jetstream.consumer import advisories
from supercluster.broker.jetstream.consumer.advisories import Advisories
from supercluster.broker.jetstream.consumer.commit_gate import CommitGate
from supercluster.broker.jetstream.consumer.leader import ConsumerLeader
from supercluster.broker.jetstream.consumer.pending_counts import PendingCounts
from supercluster.broker.jetstream.consumer.pull import SERVER_SHUTDOWN, Delivery, GiveBack
from supercluster.broker.jetstream.consumer.push import PushTarget, parse_flow_subject
from supercluster.broker.jetstream.consumer.ready_set import ReadySet
from supercluster.broker.jetstream.consumer.uncertain_deliveries import UncertainDeliveries
from supercluster.broker.jetstream.encoding.ack_subjects import Ack, parse_ack_subject
from supercluster.broker.jetstream.encoding.codec import text
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.links.frames import Frame, Request, encode_request
from supercluster.broker.jetstream.publish.host import StreamHost
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.publish.proposal import Append, Done, Proposal
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.state.stream_reader import StreamReader
from supercluster.broker.jetstream.turn.slices import SLICE_UNITS, Job, at_once
from supercluster.broker.ports import ClientInfo
from supercluster.broker.protocol.headers import no_responders

# A client with so many unsent bytes is delivered nothing more to its pull requests, and asked about again after this.
UNSENT_BYTES_MAX = 4 * 1024 * 1024
UNSENT_CHECK_MS = 5
# While the disk has hardly any room, nothing is handed out; this is how often to look again.
SCARCE_CHECK_MS = 1000
# To begin a consumer takes so many microseconds, and a part of one for each message that it waits for.
CONSUMER_UNITS = 50
ROWS_PER_UNIT = 4
PULL_UNITS = 80
"""To give a request back."""


@dataclass(frozen=True, slots=True)
class DueConsumers:
    """What a tick found."""

    any_due: bool
    inactive: tuple[str, ...]
    """Ephemeral consumers whose time without a request is over: they are to be deleted."""


class ConsumerLeaders:
    def __init__(self, group: str, account: str, stream: str, host: StreamHost) -> None:
        self._group = group
        self._account = account
        self._stream = stream
        self._host = host
        self._leaders: dict[str, ConsumerLeader] = {}
        self._ready = ReadySet()
        self._given: dict[int, list[str]] = {}
        """Sequence → consumers that wait for its acknowledgement and may have been given it by other filters than they
        have now: it is not by its subject that they are found when it goes."""
        self._pump: dict[str, None] = {}
        self._served_in = -1
        """The newest turn in which consumers of this stream had something: one has in each, whatever the others take."""
        self._uncounted: dict[str, None] = {}
        """Those for whom it is not known how many messages are left."""
        self._counting: Job | None = None
        self._counts: PendingCounts | None = None
        self._unserved: list[str] = []
        """Those of `_pump` that this turn had no time for."""
        self._held_back: dict[str, None] = {}
        self._held_back_until_ms = 0
        self._handing_out = CommitGate(self._deliver)
        self.in_doubt = UncertainDeliveries(self._deliver, self._has_interest)
        self.advisories = Advisories(account, stream, host)
        self.is_shut_down = False
        self._is_open = False

    def get(self, name: str) -> ConsumerLeader | None:
        """The named consumer's leader, while this broker leads the stream."""
        return self._leaders.get(name)

    # ---- beginning and end ----------------------------------------------------------------------------------------

    def opening(self, state: StreamState, now_ns: int) -> Job:
        """A job: this replica is about to serve."""
        self.forget()
        units = 0
        for name in list(state.consumers):
            consumer = state.consumers[name]
            self._begin(name, consumer, now_ns)
            self._leaders[name].pause_news(now_ns)  # It was told when it was new.
            if consumer.config.filter_subjects:
                self._note_given(name)  # Which filters it had, under another leader, nobody knows.
                self._uncounted[name] = None
            units += CONSUMER_UNITS + len(consumer.pending) // ROWS_PER_UNIT
            if units >= SLICE_UNITS:
                yield units
                units = 0
        self._is_open = True

    def open(self, state: StreamState, now_ns: int) -> None:
        """This replica serves."""
        if not self._is_open:
            at_once(self.opening(state, now_ns))

    def _begin(self, name: str, consumer: ConsumerState, now_ns: int) -> None:
        leader = self._leaders[name] = ConsumerLeader(self._stream, consumer, now_ns)
        self._ready.put(name, consumer.config.filter_subjects)
        self._listen(name, leader)
        self._pump[name] = None
        self._note(name, leader)

    def _note(self, name: str, leader: ConsumerLeader) -> None:
        """Something happened to the consumer: does it wait, and until when has it nothing to do?"""
        self._ready.note(
            name,
            waits=leader.is_ready,
            holds=bool(leader.state.pending),
            deadline_ns=leader.next_deadline_ns(),
        )

    def _note_given(self, name: str) -> None:
        for seq in self._leaders[name].state.pending:
            names = self._given.setdefault(seq, [])
            if name not in names:
                names.append(name)

    def close(self, reason: str) -> None:
        """The stream is deleted: end every waiting request with a 409."""
        self._handing_out.take_back()
        for name, leader in self._leaders.items():
            self._deliver(leader.close(409, reason))
            self.advisories.notify(name, advisories.action("delete"))
        self.forget()

    def shut_down(self) -> None:
        """This broker stops and nobody else can lead the stream: waiting requests end, and no more are taken."""
        self.is_shut_down = True
        for leader in self._leaders.values():
            self._deliver(leader.end_requests(*SERVER_SHUTDOWN))

    def give_back(self, applied_index: int) -> Job:
        """Another replica leads. A job that sends the requests which wait to whoever asked, for the next leader; those whose
        deliveries are in doubt are settled now."""
        now_ns, held = self._host.clock.now_ns(), list(self._handing_out.leave())
        self.in_doubt.keep(held, applied_index)
        for leader in dict.fromkeys(each.leader for each in held):
            self._deliver(leader.give_back(now_ns, self.in_doubt))
        left = list(self._leaders.values())
        self.forget()
        return self._giving_back(left)

    def _giving_back(self, leaders: list[ConsumerLeader]) -> Job:
        left, units = iter(leaders), 0
        try:
            for leader in left:
                units += CONSUMER_UNITS + PULL_UNITS * leader.num_waiting
                self._deliver(leader.give_back(self._host.clock.now_ns()))
                if units >= SLICE_UNITS:
                    yield units
                    units = 0
        finally:
            # The group goes: there are no slices for it any more.
            for leader in left:
                self._deliver(leader.give_back(self._host.clock.now_ns()))

    def forget(self) -> None:
        """Nobody is served any more."""
        for name, leader in self._leaders.items():
            self._listen_no_more(name, leader.target)
        self._leaders = {}
        self._is_open = False
        self._ready = ReadySet()
        self._given = {}
        self._pump.clear()
        self._unserved.clear()
        self._uncounted.clear()
        counting, self._counting, self._counts = self._counting, None, None
        if counting is not None:
            counting.close()
        self._held_back.clear()

    def follow(self, state: StreamState, changed: Iterable[str], now_ns: int) -> None:
        """These consumers came, changed or went by the entry that was just applied."""
        for name in changed:
            consumer, leader = state.consumers.get(name), self._leaders.get(name)
            if consumer is None:
                self._end(name)
                continue
            if leader is not None and leader.state.created_ns != consumer.created_ns:
                self._end(name)  # It went and came again in one entry.
                leader = None
            if leader is None:
                self._begin(name, consumer, now_ns)
                self.advisories.notify(name, advisories.action("create"))
            elif leader.state.config != consumer.config:
                before = leader.target
                if leader.state.config.filter_subjects != consumer.config.filter_subjects:
                    self._note_given(name)
                leader.update_config(consumer, now_ns)
                self._ready.put(name, consumer.config.filter_subjects)
                self._note(name, leader)
                if leader.target is not before:
                    self._listen_no_more(name, before)
                    self._listen(name, leader)
            self._pump[name] = None
            self._tell_pause(name, now_ns)

    def _end(self, name: str) -> None:
        gone = self._leaders.pop(name, None)
        if gone is None:
            return
        self._ready.drop(name)
        self._listen_no_more(name, gone.target)
        self._handing_out.take_back(gone)
        self._deliver(gone.close(409, "Consumer Deleted"))
        self.advisories.notify(name, advisories.action("delete"))

    def _listen(self, name: str, leader: ConsumerLeader) -> None:
        """A push consumer delivers while somebody listens."""
        if leader.target is not None:
            watch = self._host.interests.watch
            watch(self._account, leader.target.inbox, (self._group, name), lambda: self._look(name))
            self._look(name)

    def _listen_no_more(self, name: str, target: PushTarget | None) -> None:
        if target is not None:
            self._host.interests.forget(self._account, target.inbox, (self._group, name))

    def _look(self, name: str) -> None:
        """Does anybody listen where this push consumer delivers to?"""
        leader = self._leaders.get(name)
        target = leader.target if leader is not None else None
        if leader is None or target is None:
            return
        is_bound = self._host.network.has_interest(self._account, target.inbox, target.queue)
        if leader.bind(self._host.clock.now_ns(), is_bound=is_bound):
            self._pump[name] = None
            self._note(name, leader)
            self._host.touch(self._group)

    def _tell_pause(self, name: str, now_ns: int) -> None:
        leader = self._leaders[name]
        news = leader.pause_news(now_ns)
        if news is not None:
            told = advisories.paused(leader.state.config.pause_until_ns, is_paused=news)
            self.advisories.notify(name, told)

    def _tell_pins(self, name: str, leader: ConsumerLeader) -> None:
        for pin_id, why in leader.priority.take_news():
            group = leader.state.config.priority_groups[0]
            told = advisories.pinned(group, pin_id) if pin_id else advisories.unpinned(group, why)
            self.advisories.notify(name, told)

    def unpin(self, name: str) -> None:
        """The next client that asks is pinned."""
        leader = self._leaders.get(name)
        if leader is not None:
            leader.priority.unpin("admin")
            self._tell_pins(name, leader)
            self._pump[name] = None

    def reset(self, name: str, seq: int, last_seq: int, done: Done) -> bool:
        """Begin again at a sequence, 0: at the first that is not acknowledged. `last_seq`: the stream's. `done` gets it when that is committed. False:
        there is no such consumer."""
        leader = self._leaders.get(name)
        if leader is None:
            return False
        found = seq or leader.state.ack_floor_sseq + 1
        leader.reset(
            found,
            self._host.clock.now_ns(),
            last_seq,
            lambda result: done(found if result is not None else None),
        )
        self._pump[name] = None
        return True

    def rewind(self, state: StreamState, uncommitted: Mapping[str, Sequence[bytes]]) -> None:
        """A proposal was not appended: back to what the log holds."""
        self._handing_out.not_proposed()
        for name, leader in self._leaders.items():
            leader.rewind(state.consumers[name], uncommitted.get(name, ()), last_seq=state.last_seq)
            self._note(name, leader)

    def removed(self, seq: int, subject: bytes, *, is_first: bool) -> None:
        """The stream lost one message, its first or another: whom that concerns is told."""
        if self._counts is not None:
            self._counts.removed(seq, subject)
        if self._given or self._ready.any_holds:
            for name in self._ready.holding(subject) | dict.fromkeys(self._given.pop(seq, ())):
                leader = self._leaders.get(name)  # One that was given it may be gone by now.
                if leader is not None and leader.on_removed(seq):
                    self._pump[name] = None
        if not is_first:
            # What went from the stream's head is found by every count itself.
            for name in self._ready.concerned(subject):
                self._leaders[name].uncount(seq, subject)

    # ---- what comes in --------------------------------------------------------------------------------------------

    def acknowledge(self, node: str, acks: list[Ack]) -> None:
        """Acknowledgements of a broker's clients."""
        now_ns = self._host.clock.now_ns()
        for subject, reply, payload in acks:
            flow = parse_flow_subject(subject)
            if flow is not None:
                self._flow(flow[1], subject)
                continue
            found = parse_ack_subject(subject)
            leader = self._leaders.get(found.consumer) if found is not None else None
            if found is None or leader is None or not leader.state.config.needs_ack:
                if reply:  # As if nobody listened, as NATS has it.
                    self._host.network.publish(self._account, reply, b"", no_responders(subject), b"")
                continue
            asks = payload.startswith(b"+NXT")
            back = partial(self._pull_back, node, found.consumer, reply) if asks else None
            said = leader.on_ack(
                found.stream_seq,
                payload,
                reply,
                now_ns,
                self._has_interest,
                found.consumer_seq,
                back,
            )
            self._deliver(said)
            self._pump[found.consumer] = None

    def _pull_back(self, node: str, name: str, reply: bytes, left: bytes) -> None:
        """What an acknowledgement asked for as well is for the next leader."""
        asked = b"$JS.API.CONSUMER.MSG.NEXT.%s.%s" % (self._stream.encode(), name.encode())
        info = ClientInfo(self._account, "", is_operator=False)
        request = Request("", 0, self._group, info, asked, reply, b"", left)
        self._host.post(node, Frame.PULL_BACK, encode_request(request))

    def _flow(self, name: str, subject: bytes) -> None:
        """The client of a push consumer has caught up with a flow control request."""
        leader = self._leaders.get(name)
        if leader is not None and leader.on_flow(subject):
            self._pump[name] = None

    def pull(self, name: str, request: Request, payload: bytes, give_back: GiveBack | None) -> bool:
        """A pull request; False when there is no such consumer."""
        leader = self._leaders.get(name)
        if leader is None:
            return False
        now_ns = self._host.clock.now_ns()
        self._deliver(leader.on_pull(payload, request.reply, now_ns, self._has_interest, give_back))
        self._pump[name] = None
        self._note(name, leader)
        return True

    # ---- what goes out --------------------------------------------------------------------------------------------

    def put(self, turn: LeaderTurn) -> None:
        """What changed for consumers in this turn."""
        turn.proposal = self.put_ops(turn.proposal, turn.append)

    def put_ops(self, proposal: Proposal, append: Append) -> Proposal:
        """The same, outside of the turn. Entries that are full are appended on the way; returns the one that is not."""
        for name in self._pump:
            leader = self._leaders.get(name)
            while leader is not None and (outbox := leader.take_ops()) is not None:
                proposal.replies += outbox.replies
                proposal.noted += outbox.dones
                proposal.noted += [partial(self._told, name, told) for told in outbox.told]
                if outbox.ops:
                    proposal.add(Section.CONSUMER_OPS, [text(name), outbox.ops])
                if proposal.is_full:
                    if not append(proposal):
                        return Proposal()  # All of this turn is void.
                    proposal = proposal.next()
        return proposal

    def _told(self, name: str, told: advisories.Told, result: int | None) -> None:
        if result is not None:
            self.advisories.notify(name, told)

    def stored(self, subjects: Collection[bytes] | None) -> None:
        """Messages of these subjects were stored; None: of any. Who waits for them is served in the next pump."""
        found = self._ready.all_waiting() if subjects is None else self._ready.waiting_for(subjects)
        self._pump.update(dict.fromkeys(found))

    def pump(self, source: StreamReader, *, is_scarce: bool = False) -> bool:
        """Serve those that something happened to; `pumped` or `rewind` follows. False when there are none. `is_scarce`: there
        is no room to note what is handed out, so that requests wait, or end in their time."""
        if not self._pump or self._handing_out.is_full:
            return False
        now_ns = self._host.clock.now_ns()
        share = self._host.turn_share
        if share.is_used_up and self._served_in == share.turn:
            self._host.touch_next(self._group)
            return False
        self._served_in = share.turn
        left = iter(list(self._pump))
        for name in left:
            waiting = self._leaders.get(name)
            if waiting is not None and waiting.is_held_back(self._has_room):
                self._held_back[name] = None
                self._held_back_until_ms = self._host.clock.monotonic_ms() + UNSENT_CHECK_MS
            elif waiting is not None:
                looked_at = waiting.looked_at + source.looked_at
                deliveries = waiting.pump(source, now_ns, self._has_interest, serves=not is_scarce)
                share.take(*waiting.handed_out, waiting.looked_at + source.looked_at - looked_at)
                if waiting.awaits_count:
                    self._uncounted[name] = None
                self._handing_out.add(waiting, deliveries)
                self._tell_pins(name, waiting)
                if is_scarce and waiting.is_ready:
                    self._held_back[name] = None
                    self._held_back_until_ms = self._host.clock.monotonic_ms() + SCARCE_CHECK_MS
                self._note(name, waiting)
            if share.is_used_up:
                break
        self._unserved = list(left)
        return True

    # ---- counting -------------------------------------------------------------------------------------------------

    def want_counts(self, names: Iterable[str]) -> None:
        """What is left for these consumers is to be counted."""
        self._uncounted.update(dict.fromkeys(names))

    @property
    def is_counting(self) -> bool:
        """Is a job at it?"""
        return self._counting is not None

    @property
    def has_uncounted(self) -> bool:
        return bool(self._uncounted)

    def count(self, source: StreamReader) -> Job:
        """Count for all that wait for it, as often as there are some; they are served then."""
        job = self._counting = self._count(source)
        return job

    def _count(self, source: StreamReader) -> Job:
        while self._uncounted:
            names, self._uncounted = self._uncounted, {}
            leaders = {name: leader for name in names if (leader := self._leaders.get(name)) is not None}
            wanted = [count for leader in leaders.values() if (count := leader.to_count()) is not None]
            counts = self._counts = PendingCounts(source.state, wanted)
            emptied = source.state.emptied
            yield from counts.run()
            self._counts = None
            for count in wanted if source.state.emptied == emptied else ():
                leader = leaders[count.name]
                if self._leaders.get(count.name) is leader:
                    leader.counted(count, counts.up_to, source.first_seq)
            self._pump.update({name: None for name in leaders if name in self._leaders})
            self._host.touch(self._group)
        self._counting = None

    def committed(self, index: int) -> bool:
        """Entries up to `index` are applied: what they say was delivered is. False: this process stood still before it learned
        so, and others may lead (SF-2, SF-29); `leads_surely` is to follow."""
        return self._handing_out.is_empty or self._handing_out.committed(index, self._behind_ms())

    def leads_surely(self, index: int) -> None:
        """The leadership is confirmed, behind a stall; entries up to `index` are applied."""
        self._handing_out.leads_surely(index, self._behind_ms())

    def _behind_ms(self) -> int:
        """How far own time is behind the machine's."""
        clock = self._host.clock
        return clock.machine_ms() - clock.monotonic_ms()

    def pumped(self, index: int, term: int) -> bool:
        """The pump's operations are in the log, up to the entry at `index`. True: some consumers have more, and are to be pumped in
        the next turn."""
        self._handing_out.proposed(index, term, self._host.clock.machine_ms(), self._behind_ms())
        unserved, self._unserved = dict.fromkeys(self._unserved), []
        self._pump = unserved | {
            name: None
            for name in self._pump
            if name not in unserved
            and name in self._leaders
            and self._leaders[name].has_more
            and name not in self._held_back
        }
        return bool(self._pump)

    def _deliver(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self._host.network.deliver(self._account, delivery.inbox, delivery.items)

    def _has_room(self, inbox: bytes) -> bool:
        return self._host.network.pending_bytes(self._account, inbox) <= UNSENT_BYTES_MAX

    def _has_interest(self, inbox: bytes) -> bool:
        return self._host.network.has_interest(self._account, inbox)

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, now_ns: int) -> DueConsumers:
        """Whom time has something for."""
        any_due, inactive = False, []
        if self._handing_out.is_full:
            return DueConsumers(False, ())
        if self._held_back and now_ms >= self._held_back_until_ms:
            any_due = True
            self._pump.update(self._held_back)
            self._held_back.clear()
        for name in self._ready.due(now_ns):
            any_due = True
            self._pump[name] = None
            self._tell_pause(name, now_ns)
            if self._leaders[name].is_inactive(now_ns, self._has_interest):
                inactive.append(name)
        return DueConsumers(any_due, tuple(inactive))

    def deadlines_ms(self, now_ms: int, now_ns: int) -> list[int]:
        """When `tick` has something to do, per cause."""
        if self._handing_out.is_full:
            return []
        deadlines = [self._held_back_until_ms] if self._held_back else []
        at_ns = self._ready.next_ns()
        if at_ns is not None:
            deadlines.append(now_ms + max(0, -(-(at_ns - now_ns) // 1_000_000)))
        return deadlines
