"""The meta group's replica on one broker. It takes requests about streams, and answers them when all brokers
in contact have the new map.

The leader judges a request (`meta_leader/decisions.py`) against the state at the end of its log, as a
stream's leader does. It answers when the change is committed and every broker in contact has the new map of
streams (SF-14), within a bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from itertools import count

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.move_record import MoveEnd
from supercluster.broker.jetstream.meta.operations import end_move, put_broker
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.account_requests import AccountRequests
from supercluster.broker.jetstream.meta_leader.broker_requests import BrokerRequests
from supercluster.broker.jetstream.meta_leader.candidates import Candidates
from supercluster.broker.jetstream.meta_leader.decisions import StreamDecisions
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.map_waits import MapWaits
from supercluster.broker.jetstream.meta_leader.memory_loss import MemoryLoss
from supercluster.broker.jetstream.meta_leader.migrations import Migrations
from supercluster.broker.jetstream.meta_leader.recoveries import Recoveries
from supercluster.broker.jetstream.meta_leader.stream_request import (
    Asked,
    Decided,
    FactsNeededError,
    Fallen,
    NotAppendedError,
    StreamRequest,
)
from supercluster.broker.jetstream.meta_leader.upkeep import Upkeep
from supercluster.broker.jetstream.placement.dry_run import MovePlan
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts
from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.turn.slices import Job
from supercluster.broker.jetstream.turn.state_view import WholeState
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.config import ReadState
from supercluster.broker.raft.entry import Entry
from supercluster.broker.raft.node import RaftNode

# Requests that may wait for a turn; more are refused at once.
REQUESTS_MAX = 1024


class MetaReplica(Replica):
    host: MetaHost
    recovers_at_once = True
    takes_learners = True

    def __init__(
        self,
        member: str,
        log: StreamLog,
        raft: RaftNode,
        host: MetaHost,
        *,
        name: str = META_GROUP,
        shown: MetaState | None = None,
    ) -> None:
        """`name` has the lineage; `shown` is the map of an older one, which stands until this one's was read."""
        super().__init__(name, member, log, raft, host)
        self._state = MetaState()
        self._shown = shown
        self.tail = MapTail(name, raft, host, self.leader_time_ns)
        self.candidates = Candidates(self.tail, host)
        self.upkeep: Upkeep | None = None
        self._requests: deque[tuple[StreamRequest, Asked | None]] = deque()
        self._asking: dict[int, StreamRequest] = {}
        self._asked_numbers = count(1)
        self._ends: dict[str, MoveEnd] = {}
        self._waits = MapWaits(host)
        self._refused: deque[tuple[int, StreamRequest, ApiError]] = deque()
        """Refusals with the index of what they were judged by: told when that is committed, for it may never be."""
        self._touched: list[str] = []
        self._changed = False
        self.brokers = BrokerRequests(self.tail, host)
        self.accounts = AccountRequests(self.tail, host, lambda: self.state)
        self.recoveries = Recoveries(self.tail, host)
        self.migrations = Migrations(self.tail, host)
        self.memory_loss = MemoryLoss(self.tail, host)
        self._read: int | None = None
        """The read that counts: what was asked before says nothing about a later contact."""
        self._read_target: int | None = None
        self._heard_leader: str | None = None

    # ---- state machine --------------------------------------------------------------------------------------------

    @property
    def state(self) -> MetaState:
        return self._state if self._shown is None else self._shown

    @property
    def recover_command(self) -> str:
        return "supercluster recover meta"

    @property
    def replica(self) -> MetaState:
        return self._state

    @property
    def is_behind(self) -> bool:
        """Does this replica show the map of an older lineage, since it has not read its own (SF-9)?"""
        return self._shown is not None

    def _show_own(self) -> None:
        """This lineage's map is whole here: whatever the older one had is looked at by it."""
        if self._shown is not None:
            before, self._shown = self._shown, None
            groups = [found.group for state in (before, self._state) for found in state.streams.values()]
            self._touched = sorted({*self._touched, *groups})
            self._changed = True
            self._tell_changed()

    def _tell_changed(self) -> None:
        if self._changed and self._shown is None:
            touched, self._touched, self._changed = self._touched, [], False
            self.host.map_changed(touched)

    def apply_entry(self, entry: Entry) -> Job:
        self._touched += self._state.apply(entry)
        self._changed = True
        yield from ()

    def state_view(self) -> WholeState:
        return WholeState(self._state.snapshot())

    def restoring(self, data: memoryview) -> Generator[int, None, MetaState]:
        yield 0
        return MetaState.restore(bytes(data))

    def take_state(self, state: object) -> None:
        assert isinstance(state, MetaState)
        before = {found.group for found in self._state.streams.values()}
        self._state = state
        self._touched += sorted(before | {found.group for found in self._state.streams.values()})
        self._changed = True

    def let_go(self, state: object) -> None:
        """It is small."""

    def applied_time_ns(self) -> int:
        return self._state.time_ns

    def keep_from_index(self) -> int:
        return self.applied_index + 1  # Nothing is read from the log but to replay it.

    def holds_its_head(self) -> bool:
        return True

    def emptied_state(self, data: memoryview, *, for_member: bool) -> Generator[int, None, list[bytes]]:
        yield 0
        return [bytes(data)]

    # ---- leading --------------------------------------------------------------------------------------------------

    def start_serving(self, now_ms: int) -> None:
        self._show_own()
        end = MetaState.restore(self._state.snapshot())
        if self.log.last_index > self.applied_index:
            for entry in self.log.entries(self.applied_index + 1, self.log.last_index, 1 << 40):
                end.apply(entry)
        self.tail.begin(end)
        self.upkeep = Upkeep(self.tail, self.host, self.newcomers, self.brokers, self.candidates, now_ms)
        self.tail.touch()  # Brokers are recorded at once: the first record says which map this is (SF-26).

    def stop_serving(self) -> None:
        self.tail.clear()
        if self.upkeep is not None:
            self.upkeep.targets.close()
            self.upkeep = None
        self.candidates.forget_moves()
        self.memory_loss.clear()
        self._ends.clear()
        requests = [*self._asking.values(), *(request for request, _ in self._requests)]
        self._requests.clear()
        self._asking.clear()
        self.brokers.clear()
        self.accounts.clear()
        self.recoveries.clear()
        self.migrations.clear()
        refused, self._refused = self._refused, deque()
        for request in [*requests, *(request for _, request, _ in refused)]:
            request.respond(Fallen.NOT_BEGUN)
        self._waits.answer_applied(self.applied_index)
        self._waits.clear()
        self.host.meta_leadership_lost()

    def request(self, request: StreamRequest) -> None:
        """Queue a request for the next turn. The caller knows that this replica serves."""
        if len(self._requests) + len(self._asking) + len(self._refused) >= REQUESTS_MAX:
            request.respond(errors.error(10023))
            return
        self._requests.append((request, None))

    def refusal_of(self, request: StreamRequest) -> ApiError | None:
        try:
            StreamDecisions(self.tail, self.candidates, self.host, request, None).decide()
        except ApiError as refused:
            return refused
        return None

    def move_ended(self, end: MoveEnd) -> None:
        """A stream's leader says, again and again until the map shows it, how a move ended."""
        if self.serves and (len(self._ends) < REQUESTS_MAX or end.group in self._ends):
            self._ends[end.group] = end

    def copy_lost(self, node: str, group: str, member: str, now_ms: int) -> None:
        """A broker says, again and again, that its copy of a stream in memory is gone, or one that was to join."""
        if self.upkeep is not None:
            self.upkeep.targets.copy_lost(group, member)
            self.upkeep.followers.copy_lost(group, member)
        self.memory_loss.on_copy_lost(node, group, now_ms)

    def on_failed_copies(self, node: str, copies: Mapping[str, str], now_ms: int) -> None:
        if self.upkeep is not None:
            self.upkeep.copies.on_failed_copies(node, copies, now_ms)

    def why_failed(self, node: str, group: str) -> str:
        return self.upkeep.copies.why(node, group) if self.upkeep is not None else ""

    def rooms(self, storage: str) -> dict[str, int]:
        return self.candidates.rooms(storage) if self.serves else {}

    def propose_turn(self, now_ms: int) -> None:
        self.memory_loss.turn(now_ms)
        try:
            self._record_brokers()
            self._end_moves()
        except NotAppendedError:
            pass  # What is still so with the next turn is appended then.
        self.brokers.turn(now_ms)
        self.accounts.turn(now_ms)
        self.recoveries.turn()
        self.migrations.turn(now_ms)
        while self._requests:
            request, asked = self._requests.popleft()
            try:
                self._decide(request, asked, now_ms)
            except ApiError as refused:
                self._refused.append((self.tail.state.applied_index, request, refused))
            except NotAppendedError:
                request.respond(Fallen.NOT_BEGUN)
            except FactsNeededError as needed:
                self._ask(request, needed.assignment)
        self.newcomers.advance(now_ms)
        if self.upkeep is not None:
            self.upkeep.turn(now_ms)

    def _record_brokers(self) -> None:
        """Who came with which volume, which tags and which process."""
        for node, (cluster, incarnation) in sorted(self.host.brokers_in_contact().items()):
            tags, record = self.host.tags_of(node), self.tail.state.brokers.get(node)
            told, process = (cluster, incarnation, tags), self.host.process_count_of(node)
            is_same = record is not None and (record.cluster, record.incarnation, record.tags) == told
            if not is_same or process > self.tail.state.processes.get(node, 0):
                self.tail.propose(put_broker(node, *told, process=process))

    def _end_moves(self) -> None:
        for group, end in list(self._ends.items()):
            found = self.tail.state.by_group(group)
            if found is not None and found.move is not None and found.move.id == end.report.id:
                self.tail.propose(end_move(found, end))
            del self._ends[group]

    def _ask(self, request: StreamRequest, found: Assignment) -> None:
        """The decision waits for what the stream's leader says, within a bound that the host keeps."""
        number = next(self._asked_numbers)
        self._asking[number] = request

        def answered(facts: StreamFacts | None) -> None:
            waiting = self._asking.pop(number, None)
            if waiting is not None:
                self._requests.append((waiting, Asked(found.group, facts)))
                self.tail.touch()

        self.host.ask_stream(found, answered)

    def _decide(self, request: StreamRequest, asked: Asked | None, now_ms: int) -> None:
        present = self.tail.state.streams.get(request.key)
        decided = StreamDecisions(self.tail, self.candidates, self.host, request, asked).decide()
        if isinstance(decided, MovePlan):
            request.respond(decided)
            return
        if decided is not None:
            self.tail.need_level(request.verb, f"{request.verb} of stream {request.name}")
        index = self.tail.propose(decided).index if decided is not None else self.tail.state.applied_index
        found = self.tail.state.streams.get(request.key) or present
        assert found is not None
        if found.move is not None and (present is None or present.move is None):
            move = f"from {', '.join(found.move.origin)} to {', '.join(found.move.targets)}"
            self.host.event(found.group, "MoveStarted", f"stream {found.name} moves {move}")
        answer = Decided(found, found.version)
        self._waits.add(
            index, now_ms, lambda: request.respond(answer), lambda: request.respond(Fallen.UNDECIDED)
        )

    def after_turn(self, now_ms: int) -> None:
        self._tell_changed()
        self.brokers.after_turn(self.applied_index, now_ms)
        self.migrations.after_turn(self.applied_index, now_ms)
        self.recoveries.applied(self.applied_index, self.state)
        self._finish_read()
        if self._heard_leader != self.raft.leader:
            self._heard_leader = self.raft.leader
            self.host.meta_leader_heard(heard=self._heard_leader is not None)
        while self._refused and self._refused[0][0] <= self.applied_index:
            _, request, refusal = self._refused.popleft()
            request.respond(refusal)
        self._waits.after_turn(self.applied_index, now_ms)
        self.accounts.after_turn(self.applied_index, now_ms)

    def read_map(self, number: int) -> None:
        """Ask for what is committed now, under a number that was not used before (by former processes neither, whose
        answers may still come)."""
        self._read, self._read_target = number, None
        self.raft.read_index(number)

    def forget_read(self) -> None:
        self._read = self._read_target = None

    def reads_ready(self, reads: list[ReadState], failed: list[int]) -> None:
        """The map is read when everything up to the confirmed index is applied (SF-14)."""
        for read in reads:
            if read.context == self._read:
                self._read_target = read.index
        if self._read is not None and self._read in failed:
            self.forget_read()
            self.host.map_read_failed()
        self._finish_read()

    def _finish_read(self) -> None:
        if self._read_target is not None and self.applied_index >= self._read_target:
            self.forget_read()
            self._show_own()
            self.host.map_was_read()

    def tick(self, now_ms: int) -> bool:
        """Do what is due; True when a turn is needed."""
        due = super().tick(now_ms)
        return (
            due
            or any(now_ms >= at for at in self._upkeep_ms())
            or any(now_ms >= at for at in self._give_up_ms())
        )

    def _upkeep_ms(self) -> list[int]:
        upkeep_ms = self.upkeep.deadline_ms() if self.upkeep is not None else None
        return [at for at in (upkeep_ms, self.migrations.deadline_ms()) if at is not None]

    def _give_up_ms(self) -> list[int]:
        """When changes are answered at the latest."""
        applied = self.applied_index
        return [*self._waits.give_up_ms(applied), *self.accounts.give_up_ms(applied)]

    def deadline_ms(self) -> int | None:
        found = super().deadline_ms()
        due = [*self._give_up_ms(), *self._upkeep_ms()]
        return min([*due, *([found] if found is not None else [])], default=None)
