"""One stream's replica on one broker; on the leader also the judge of publishes and the consumers' volatile sides.

Per turn the leader appends what came in as few entries: openings of sessions, blocks of messages in the order of their
arrival, commands, and one batch of operations per consumer. What waits for an entry (API answers, double acks) is
answered when the entry is applied, or not at all when the leader is deposed: then the asker repeats.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from supercluster.broker.jetstream import stream_api
from supercluster.broker.jetstream.acks import parse_ack_subject
from supercluster.broker.jetstream.config import StreamConfig
from supercluster.broker.jetstream.consumer import ConsumerLeader, Delivery
from supercluster.broker.jetstream.frames import Frame, Request, encode_numbered
from supercluster.broker.jetstream.group import Group, GroupHost
from supercluster.broker.jetstream.judge import Answer, Forward, Judge
from supercluster.broker.jetstream.meta import PREFERRED_LEADER_KEY, Assignment
from supercluster.broker.jetstream.sections import (
    Section,
    SessionKey,
    VerdictRun,
    encode_messages,
    encode_session,
    section,
    sections,
)
from supercluster.broker.jetstream.source import StreamSource
from supercluster.broker.jetstream.stream import Applied, StreamState
from supercluster.broker.jetstream.wire import Reader, WireError, text, u64
from supercluster.broker.ports import Network, StreamLog
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.entry import Entry, EntryKind
from supercluster.broker.raft.node import Raft

# A client with so many unsent bytes is delivered nothing more to its pull requests, and asked about again after this.
UNSENT_BYTES_MAX = 4 * 1024 * 1024
UNSENT_CHECK_MS = 5

# An entry is closed when its payload has grown past this; the turn goes on with another one.
ENTRY_BYTES_MAX = 2 * 1024 * 1024
# Forwards that wait for a turn. A window resends what was dropped here.
FORWARDS_MAX = 8192
COMMANDS_MAX = 4096
# Expiry by age is looked at this often: an entry per message would be busier than publishing.
EXPIRY_CHECK_MS = 250
# As many messages go with one entry, so that a broker that was away for long does not stand still over it.
EXPIRY_MESSAGES_MAX = 20_000
EXPIRY_MORE_MS = 20
# Appended and not committed bytes at which the leader takes no more: its followers are too slow, and windows hold.
UNCOMMITTED_BYTES_MAX = 64 * 1024 * 1024

# Retention moves the stream's first message all the time; whole segments become free far less often.
HEAD_CHECK_MS = 2000
PREFERRED_CHECK_MS = 2000

Done = Callable[[int | None], None]
"""Called with a command's result when its entry is applied; None when this replica ceased to lead before."""


class StreamHost(GroupHost, Protocol):
    """What a stream group needs from its broker besides a group's host."""

    @property
    def network(self) -> Network: ...

    def new_token(self) -> str: ...

    def brokers_in_contact(self) -> dict[str, tuple[str, str]]: ...

    def post(self, node: str, frame: int, body: list[bytes | memoryview]) -> bool: ...

    def verdicts(self, group: str, key: SessionKey, runs: list[VerdictRun], *, appended: bool) -> None: ...


@dataclass(slots=True)
class _Command:
    kind: int
    body: list[bytes | memoryview]
    done: Done


@dataclass(slots=True)
class _Proposal:
    """The entry that is being put together."""

    payload: list[bytes | memoryview] = field(default_factory=list)
    size: int = 0
    first_seq: int = 0
    count: int = 0
    commands: list[Done] = field(default_factory=list)
    replies: list[bytes] = field(default_factory=list)
    early: list[tuple[SessionKey, VerdictRun]] = field(default_factory=list)

    def add(self, kind: int, body: list[bytes | memoryview]) -> None:
        found = section(kind, body)
        self.payload += found
        self.size += sum(map(len, found))


class StreamGroup(Group):
    """See the module."""

    host: StreamHost

    def __init__(
        self, assignment: Assignment, member: str, log: StreamLog, raft: Raft, host: StreamHost
    ) -> None:
        super().__init__(assignment.group, member, log, raft, host)
        self.assignment = assignment
        self.state = StreamState(assignment.config, assignment.created_ns, log)
        self.judge: Judge | None = None
        self.leaders: dict[str, ConsumerLeader] = {}
        self.source = StreamSource(self.state)
        self._forwards: deque[tuple[Forward, bool]] = deque()
        self._opens: list[SessionKey] = []
        self._commands: deque[_Command] = deque()
        self._waiting: deque[tuple[int, list[Done], list[bytes]]] = deque()
        self._verdicts: dict[SessionKey, list[VerdictRun]] = {}
        self._asked_again: dict[SessionKey, int] = {}
        self._pump: dict[str, None] = {}
        self._held_back: dict[str, None] = {}
        self._held_back_until_ms = 0
        self._version_waits: list[tuple[int, Callable[[], None], Callable[[], None]]] = []
        self._expiry_check_ms = 0
        self._config_sent = 0
        self._head_seq = 0
        self._head_check_ms = 0
        self._preferred_check_ms = 0

    @staticmethod
    def blank_state(assignment: Assignment) -> bytes:
        """The state before the first entry: that one brings the configuration, the same for every replica."""
        blank = StreamConfig(name=assignment.name, subjects=(assignment.name,))
        return StreamState(blank, 0, None).snapshot()  # type: ignore[arg-type]  # A snapshot does not read the log.

    # ---- state machine --------------------------------------------------------------------------------------------

    def apply_entry(self, entry: Entry) -> None:
        done = self.state.apply(entry)
        if self.serves:
            self._applied_as_leader(done)

    def state_bytes(self) -> bytes:
        return self.state.snapshot()

    def restore_state(self, data: memoryview) -> None:
        self.state = StreamState.restore(data, self.log)
        self.source = StreamSource(self.state)

    def applied_time_ns(self) -> int:
        return self.state.leader_time_ns

    def keep_from_index(self) -> int:
        """The entry of the oldest message; all applied ones may go when the stream is empty."""
        if not self.state.messages:
            return self.applied_index + 1
        return self.log.index_of_seq(self.state.first_seq) or 0

    def holds_its_head(self) -> bool:
        return not self.state.messages or self.log.index_of_seq(self.state.first_seq) is not None

    def emptied_state(self, data: memoryview) -> bytes:
        state = StreamState.restore(data, self.log)
        state.empty()
        return state.snapshot()

    def set_assignment(self, assignment: Assignment) -> None:
        """The meta group has a new configuration: the leader writes it into the stream's log."""
        self.assignment = assignment

    # ---- leading --------------------------------------------------------------------------------------------------

    def start_serving(self, now_ms: int) -> None:
        tail = self.log.last_index
        uncommitted = (
            self.log.entries(self.applied_index + 1, tail, 1 << 40) if tail > self.applied_index else []
        )
        self.judge = Judge(self.state, uncommitted)
        self._config_sent = self.state.config_version
        now_ns = self.host.clock.now_ns()
        self.leaders = {
            name: ConsumerLeader(self.assignment.name, consumer, now_ns)
            for name, consumer in self.state.consumers.items()
        }
        self.state.on_removed = self._removed

    def stop_serving(self) -> None:
        self.judge = None
        self.state.on_removed = None
        for leader in self.leaders.values():
            self._deliver(leader.close(409, "Leadership Change"))
        self.leaders = {}
        self._forwards.clear()
        self._asked_again.clear()
        self._opens.clear()
        self._verdicts.clear()
        self._pump.clear()
        self._held_back.clear()
        commands, self._commands = self._commands, deque()
        waiting, self._waiting = self._waiting, deque()
        waits, self._version_waits = self._version_waits, []
        for _, _, retry in waits:
            retry()
        for command in commands:
            command.done(None)
        for _, dones, _ in waiting:
            for done in dones:
                done(None)

    def stop(self) -> None:
        for leader in self.leaders.values():
            self._deliver(leader.close(409, "Consumer Deleted"))
        self.leaders = {}
        super().stop()

    # ---- what comes in --------------------------------------------------------------------------------------------

    def offer(self, forward: Forward, *, early: bool) -> None:
        """A block from a broker's window. Dropped when too much waits: the window repeats it."""
        if len(self._forwards) < FORWARDS_MAX:
            self._forwards.append((forward, early))

    def open_session(self, key: SessionKey) -> None:
        if len(self._opens) < FORWARDS_MAX:
            self._opens.append(key)

    def command(self, kind: int, body: list[bytes | memoryview], done: Done) -> None:
        """A change that an API request asks for."""
        if len(self._commands) >= COMMANDS_MAX:
            done(None)
            return
        self._commands.append(_Command(kind, body, done))

    def acknowledge(self, acks: list[tuple[bytes, bytes, bytes]]) -> None:
        """Consumer acknowledgements: (subject, reply, payload)."""
        now_ns = self.host.clock.now_ns()
        for subject, reply, payload in acks:
            found = parse_ack_subject(subject)
            leader = self.leaders.get(found.consumer) if found is not None else None
            if found is None or leader is None:
                continue
            self._deliver(leader.on_ack(found.stream_seq, payload, reply, now_ns, self._has_interest))
            self._pump[found.consumer] = None

    def new_consumer_name(self) -> str:
        """For an ephemeral consumer that its client left unnamed."""
        return self.host.new_token()

    def pull(self, name: str, request: Request, payload: bytes) -> bool:
        """A pull request; False when there is no such consumer."""
        leader = self.leaders.get(name)
        if leader is None:
            return False
        now_ns = self.host.clock.now_ns()
        self._deliver(leader.on_pull(payload, request.reply, now_ns, self._has_interest))
        self._pump[name] = None
        return True

    def request(
        self, request: Request, respond: Callable[[bytes | None], None], retry: Callable[[], None]
    ) -> None:
        """An API request about this stream. `retry` tells the asker to ask the next leader."""
        version = int(request.header) if request.header.isdigit() else 0
        if version > self.state.config_version:
            if len(self._version_waits) >= COMMANDS_MAX:
                retry()
                return
            self._version_waits.append(
                (version, lambda: stream_api.handle(self, request, respond, retry), retry)
            )
            return
        stream_api.handle(self, request, respond, retry)

    def _has_room(self, inbox: bytes) -> bool:
        return self.host.network.pending_bytes(self.assignment.account, inbox) <= UNSENT_BYTES_MAX

    def _has_interest(self, inbox: bytes) -> bool:
        return self.host.network.has_interest(self.assignment.account, inbox)

    # ---- proposing ------------------------------------------------------------------------------------------------

    def propose_turn(self, now_ms: int) -> None:
        judge = self.judge
        if judge is None:
            return
        proposal = _Proposal()
        if self.assignment.version > self._config_sent:
            self._config_sent = self.assignment.version
            config = json.dumps(self.assignment.config.to_json()).encode()
            proposal.add(
                Section.CONFIG_PUT, [u64(self.assignment.version) + u64(self.assignment.created_ns), config]
            )
            proposal.commands.append(lambda result: None)
            judge.configured(self.assignment.config)
        if self.state.config_version or self._config_sent:
            proposal = self._put_sessions(judge, proposal)
            proposal = self._put_messages(judge, proposal)
        while self._commands:
            command = self._commands.popleft()
            proposal.add(command.kind, command.body)
            proposal.commands.append(command.done)
        self._put_expiry(proposal, now_ms)
        self._put_consumer_ops(proposal)
        self._propose(proposal)
        self.check_members(now_ms)

    def _put_sessions(self, judge: Judge, proposal: _Proposal) -> _Proposal:
        opens, self._opens = self._opens, []
        for key in opens:
            if not judge.may_open(key):
                self.host.post(key.node, Frame.OPENED, encode_numbered(self.id, key, 0))
            elif self.state.sessions.current(key) is not None:
                self.host.post(key.node, Frame.OPENED, encode_numbered(self.id, key, 1))
            elif not judge.is_open(key):
                judge.opened(key)
                proposal.add(Section.SESSION_OPEN, [encode_session(key)])
        return proposal

    def _put_messages(self, judge: Judge, proposal: _Proposal) -> _Proposal:
        now_ns = self.leader_time_ns()
        while self._forwards:
            if judge.unapplied_bytes > UNCOMMITTED_BYTES_MAX:
                break  # What waits stays in line; the windows behind it fill up and publishers slow down (MV-11).
            forward, early = self._forwards.popleft()
            room = self.log.has_room(len(forward.block) + proposal.size, reserved=False)
            try:
                taken = judge.take(forward, now_ns, room=room)
            except WireError as error:
                self.host.event(self.id, "BadFrame", f"forward of {forward.session.node}: {error}")
                continue
            if taken.answer is not Answer.TAKEN:
                self._answer_forward(forward, taken.answer, taken.next_number)
                continue
            assert taken.section is not None
            self._asked_again.pop(forward.session, None)
            if proposal.count == 0:
                proposal.first_seq = taken.section.run.first_seq
            proposal.add(Section.MESSAGES, encode_messages(taken.section))
            proposal.count += taken.section.run.stored
            if early:
                proposal.early.append((forward.session, taken.section.run))
            if proposal.size > ENTRY_BYTES_MAX:
                self._propose(proposal)
                proposal = _Proposal()
                if self.judge is not judge:
                    break  # It was not appended, and judged anew: what waits is for the next turn.
        return proposal

    def _answer_forward(self, forward: Forward, answer: Answer, next_number: int) -> None:
        key = forward.session
        if answer is Answer.KNOWN:
            session = self.state.sessions.current(key)
            known = session.verdicts_from(forward.first_number) if session is not None else []
            if known:
                self.host.verdicts(self.id, key, known, appended=False)
        elif answer is Answer.AGAIN_FROM:
            # Once per gap: each block behind it that is on its way would have the whole window sent again. Should the
            # word be lost, the window repeats by itself.
            if self._asked_again.get(key) == next_number:
                return
            self._asked_again[key] = next_number
            self.host.post(key.node, Frame.AGAIN, encode_numbered(self.id, key, next_number))
        elif answer is Answer.OPEN_FIRST:
            self.host.post(key.node, Frame.AGAIN, encode_numbered(self.id, key, 0))
        else:
            self.host.post(key.node, Frame.OPENED, encode_numbered(self.id, key, 0))

    def _put_expiry(self, proposal: _Proposal, now_ms: int) -> None:
        """Messages older than max_age go by an entry, judged by leader time (SF-13)."""
        max_age_ns = self.state.config.max_age_ns
        if not max_age_ns or not self.state.messages or now_ms < self._expiry_check_ms:
            return
        self._expiry_check_ms = now_ms + EXPIRY_CHECK_MS
        horizon_ns = self.leader_time_ns() - max_age_ns
        last, seq = 0, self.state.first_seq
        seq_end = min(self.state.last_seq, seq + EXPIRY_MESSAGES_MAX)
        while seq <= seq_end:
            decoded = self.state.reader.entry_of(seq)
            if decoded is None or decoded.time_ns > horizon_ns:
                break
            last = min(decoded.first_seq + decoded.count - 1, self.state.last_seq)
            seq = last + 1
        if seq > seq_end and seq <= self.state.last_seq:
            self._expiry_check_ms = now_ms + EXPIRY_MORE_MS
        if last:
            proposal.add(Section.EXPIRE, [u64(last)])
            proposal.commands.append(lambda result: None)

    def _put_consumer_ops(self, proposal: _Proposal) -> None:
        for name in self._pump:
            leader = self.leaders.get(name)
            outbox = leader.take_ops() if leader is not None else None
            if outbox is None:
                continue
            proposal.replies += outbox.replies
            if outbox.ops:
                proposal.add(Section.CONSUMER_OPS, [text(name), outbox.ops])

    def _propose(self, proposal: _Proposal) -> None:
        if not proposal.payload:
            if proposal.replies:
                # Nothing new to replicate: these acknowledgements repeat what is in the log's uncommitted end.
                self._waiting.append((self.log.last_index, [], proposal.replies))
                self._answer_waiting(self.applied_index, [])
            return
        entry = self.raft.propose(
            b"".join(proposal.payload),
            time_ns=self.leader_time_ns(),
            first_seq=proposal.first_seq if proposal.count else 0,
            count=proposal.count,
        )
        if entry is None:
            # Not the leader any more, or handing over, or the disk is full: nothing was taken, everybody asks again.
            for done in proposal.commands:
                done(None)
            if self.judge is not None:
                self._rejudge()
            return
        assert self.judge is not None
        self.judge.appended(entry, len(entry.record))
        self._waiting.append((entry.index, proposal.commands, proposal.replies))
        for key, run in proposal.early:
            self.host.verdicts(self.id, key, [run], appended=True)

    def _rejudge(self) -> None:
        """A proposal was judged and not appended: judge anew from what the log really ends with."""
        first, last = self.applied_index + 1, self.log.last_index
        self._asked_again.clear()
        self.judge = Judge(self.state, self.log.entries(first, last, 1 << 40) if last >= first else [])
        self._config_sent = self.state.config_version
        ops = self._uncommitted_ops()
        for name, leader in self.leaders.items():
            leader.rewind(self.state.consumers[name], ops.get(name, ()), last_seq=self.state.last_seq)

    def _uncommitted_ops(self) -> dict[str, list[bytes]]:
        """Consumer operations that are in the log and not applied, by consumer."""
        found: dict[str, list[bytes]] = {}
        first, last = self.applied_index + 1, self.log.last_index
        for entry in self.log.entries(first, last, 1 << 40) if last >= first else []:
            if entry.kind == EntryKind.BATCH:
                for kind, body in sections(entry.payload):
                    if kind == Section.CONSUMER_OPS:
                        reader = Reader(body)
                        found.setdefault(reader.text(), []).append(bytes(reader.rest()))
        return found

    # ---- what was applied -----------------------------------------------------------------------------------------

    def _applied_as_leader(self, done: Applied) -> None:
        if self.judge is not None:
            self.judge.applied(done.index)
        for key, run in done.verdicts:
            self._verdicts.setdefault(key, []).append(run)
        for key in done.opened:
            self.host.post(key.node, Frame.OPENED, encode_numbered(self.id, key, 1))
        if done.consumers_changed:
            self._follow_consumers()
        self._answer_waiting(done.index, done.results)

    def _answer_waiting(self, index: int, results: list[int]) -> None:
        while self._waiting and self._waiting[0][0] <= index:
            _, dones, replies = self._waiting.popleft()
            for done, result in zip(dones, results, strict=False):
                done(result)
            for reply in replies:
                self.host.network.publish(self.assignment.account, reply, b"", b"", b"")

    def _follow_consumers(self) -> None:
        """Consumers came, changed or went by the entry that was just applied."""
        now_ns = self.host.clock.now_ns()
        for name, consumer in self.state.consumers.items():
            leader = self.leaders.get(name)
            if leader is None:
                self.leaders[name] = ConsumerLeader(self.assignment.name, consumer, now_ns)
            elif leader.state.config != consumer.config:
                leader.update_config(consumer)
            self._pump[name] = None
        for name in [name for name in self.leaders if name not in self.state.consumers]:
            self._deliver(self.leaders.pop(name).close(409, "Consumer Deleted"))

    def _removed(self, seq: int, subject: bytes) -> None:
        for name, leader in self.leaders.items():
            leader.on_removed(seq, subject)
            self._pump[name] = None

    def after_turn(self, now_ms: int) -> None:
        if not self.serves:
            return
        for key, runs in self._verdicts.items():
            self.host.verdicts(self.id, key, runs, appended=False)
        grown = bool(self._verdicts)
        self._verdicts.clear()
        self._wait_for_versions()
        self._pump_consumers(all_waiting=grown)

    def _wait_for_versions(self) -> None:
        if self._version_waits:
            ready = [run for version, run, _ in self._version_waits if version <= self.state.config_version]
            self._version_waits = [
                item for item in self._version_waits if item[0] > self.state.config_version
            ]
            for run in ready:
                run()

    # ---- consumers ------------------------------------------------------------------------------------------------

    def _pump_consumers(self, *, all_waiting: bool) -> None:
        """Hand out messages to those that wait; what that changes is proposed in the same turn."""
        if all_waiting:
            for name, leader in self.leaders.items():
                if leader.num_waiting:
                    self._pump[name] = None
        if not self._pump or self.raft.is_handing_over:
            return  # What is handed out is proposed in the same turn.
        now_ns = self.host.clock.now_ns()
        for name in list(self._pump):
            waiting = self.leaders.get(name)
            if waiting is not None and waiting.is_held_back(self._has_room):
                self._held_back[name] = None
                self._held_back_until_ms = self.host.clock.monotonic_ms() + UNSENT_CHECK_MS
            elif waiting is not None:
                self._deliver(waiting.pump(self.source, now_ns, self._has_interest))
        proposal = _Proposal()
        self._put_consumer_ops(proposal)
        self._propose(proposal)
        again = {
            name: None
            for name in self._pump
            if name in self.leaders and self.leaders[name].has_more and name not in self._held_back
        }
        self._pump = again
        if again or proposal.payload:
            self.host.touch(self.id)

    def _deliver(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self.host.network.deliver(self.assignment.account, delivery.inbox, delivery.items)

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> bool:
        """Do what is due; True when a turn is needed."""
        due = super().tick(now_ms)
        if (self.state.first_seq != self._head_seq or self._head_waits) and now_ms >= self._head_check_ms:
            self._head_seq, self._head_check_ms = self.state.first_seq, now_ms + HEAD_CHECK_MS
            self._head_is_due = due = True
        if not self.serves:
            return due
        if now_ms >= self._preferred_check_ms:
            self._preferred_check_ms = now_ms + PREFERRED_CHECK_MS
            due |= self._prefer_leader(now_ms)
        if self._held_back and now_ms >= self._held_back_until_ms:
            due = True
            self._pump.update(self._held_back)
            self._held_back.clear()
        now_ns = self.host.clock.now_ns()
        for name, leader in self.leaders.items():
            deadline_ns = leader.next_deadline_ns()
            if deadline_ns is not None and deadline_ns <= now_ns:
                due = True
                self._pump[name] = None
                if leader.is_inactive(now_ns, self._has_interest):
                    self.command(Section.CONSUMER_DELETE, [text(name)], lambda result: None)
        if self.state.config.max_age_ns and self.state.messages and now_ms >= self._expiry_check_ms:
            due = True
        return due

    def _prefer_leader(self, now_ms: int) -> bool:
        """Hand leadership to the preferred broker once it is there and has everything."""
        preferred = dict(self.assignment.config.metadata).get(PREFERRED_LEADER_KEY) or ""
        if not preferred or preferred == self.host.node or preferred not in self.host.brokers_in_contact():
            return False
        for voter in self.raft.membership.voters:
            progress = self.raft.progress.get(voter)
            if (
                node_of(voter) == preferred
                and progress is not None
                and progress.match >= self.raft.commit_index
            ):
                return self.raft.transfer_leadership(voter, now_ms)
        return False

    def deadline_ms(self) -> int | None:
        found = super().deadline_ms()
        if not self.serves or self.raft.is_handing_over:
            return found
        now_ms, now_ns = self.host.clock.monotonic_ms(), self.host.clock.now_ns()
        deadlines = [found] if found is not None else []
        if self._held_back:
            deadlines.append(self._held_back_until_ms)
        for leader in self.leaders.values():
            at_ns = leader.next_deadline_ns()
            if at_ns is not None:
                deadlines.append(now_ms + max(0, -(-(at_ns - now_ns) // 1_000_000)))
        if self.state.config.max_age_ns and self.state.messages:
            deadlines.append(self._next_expiry_ms(now_ms, now_ns))
        return min(deadlines, default=None)

    def _next_expiry_ms(self, now_ms: int, now_ns: int) -> int:
        left_ns = self.state.first_time_ns + self.state.config.max_age_ns - now_ns
        return max(self._expiry_check_ms, now_ms + max(0, -(-left_ns // 1_000_000)))
