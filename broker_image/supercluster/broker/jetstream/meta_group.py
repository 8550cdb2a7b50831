"""The meta group's replica on one broker, and what its leader decides: creating, changing and deleting streams.

The leader judges a request against the state at the end of its log, as a stream's leader does. A change is answered
when it is committed and every broker in contact has the new map of streams (SF-14), within a bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config import StreamConfig, check_create, check_mechanisms, check_update
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.filters import overlaps
from supercluster.broker.jetstream.group import Group, GroupHost
from supercluster.broker.jetstream.meta import (
    PREFERRED_LEADER_KEY,
    RESOURCE_KEY,
    Assignment,
    MetaState,
    delete_stream,
    end_move,
    put_broker,
    put_stream,
    renew_stream,
)
from supercluster.broker.jetstream.move_record import MoveEnd
from supercluster.broker.jetstream.sections import Section, section
from supercluster.broker.ports import ClientInfo, StreamLog
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.config import ReadState
from supercluster.broker.raft.entry import Entry
from supercluster.broker.raft.node import Raft

META_GROUP = "meta"

# A change is answered after this long even if a broker in contact has not said that it has the map: such a broker is
# on its way out of contact, and reads the map before it captures again. So it is longer than the silence after which a
# link is given up (2 s between clusters, `net/mesh.py`), and shorter than clients wait (5 s).
MAP_WAIT_MS = 3000
# Requests that may wait for a turn; more are refused at once.
REQUESTS_MAX = 1024
# A broker that lost its copy says so every second; who has not said it for so long may have been given one again.
LOST_REPORT_MS = 3000


class MetaHost(GroupHost, Protocol):
    """What the meta group needs from its broker besides a group's host."""

    def map_changed(self, groups: list[str]) -> None:
        """Entries were applied: open, change or remove these groups, and the capture map."""
        ...

    def brokers_in_contact(self) -> dict[str, tuple[str, str]]:
        """Own node and linked ones: node → (cluster, incarnation)."""
        ...

    def map_index_of(self, node: str) -> int:
        """The meta index whose map that broker has said to have."""
        ...

    def map_was_read(self) -> None:
        """Everything that was committed when the read was asked for is applied here."""
        ...

    def map_read_failed(self) -> None:
        """Nobody could confirm the read: ask again later."""
        ...

    def meta_leader_heard(self, *, heard: bool) -> None:
        """This replica hears a leader, again or another one; or none any more."""
        ...

    def meta_leadership_lost(self) -> None:
        """This replica does not lead any more: its map may not be the newest one."""
        ...

    def new_token(self) -> str:
        """A random name part."""
        ...


@dataclass(frozen=True, slots=True)
class Decided:
    """What a request about a stream came to: the group, and the configuration version that it made."""

    assignment: Assignment
    version: int


Respond = Callable[[Decided | ApiError | None], None]
"""Answers a request; None: this leader fell, the next one has to be asked."""


@dataclass(slots=True)
class _Waiting:
    """A change that is appended and not answered."""

    index: int
    assignment: Assignment
    respond: Respond
    give_up_ms: int
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """What a client or the operator asks: `verb` is create, update or delete."""

    verb: str
    info: ClientInfo
    name: str
    config: StreamConfig | None
    respond: Respond


class _NotAppendedError(Exception):
    """Raft did not take an entry: this replica hands over, or its disk has no room."""


class MetaGroup(Group):
    """See the module."""

    host: MetaHost
    takes_learners = True

    def __init__(self, member: str, log: StreamLog, raft: Raft, host: MetaHost) -> None:
        super().__init__(META_GROUP, member, log, raft, host)
        self.state = MetaState()
        self._end: MetaState | None = None
        self._requests: deque[StreamRequest] = deque()
        self._waiting: list[_Waiting] = []
        self._touched: list[str] = []
        self._changed = False
        self._read: int | None = None
        """The read that counts: what was asked before says nothing about a later contact."""
        self._read_target: int | None = None
        self._heard_leader: str | None = None
        self._lost: dict[str, dict[str, int]] = {}
        self._ends: dict[str, MoveEnd] = {}

    # ---- state machine --------------------------------------------------------------------------------------------

    def apply_entry(self, entry: Entry) -> None:
        self._touched += self.state.apply(entry)
        self._changed = True

    def state_bytes(self) -> bytes:
        return self.state.snapshot()

    def restore_state(self, data: memoryview) -> None:
        before = {found.group for found in self.state.streams.values()}
        self.state = MetaState.restore(bytes(data))
        self._touched += sorted(before | {found.group for found in self.state.streams.values()})
        self._changed = True

    def applied_time_ns(self) -> int:
        return self.state.time_ns

    def keep_from_index(self) -> int:
        return self.applied_index + 1  # Nothing is read from the log but to replay it.

    def holds_its_head(self) -> bool:
        return True

    def emptied_state(self, data: memoryview) -> bytes:
        return bytes(data)

    # ---- leading --------------------------------------------------------------------------------------------------

    def start_serving(self, now_ms: int) -> None:
        self._end = MetaState.restore(self.state.snapshot())
        if self.log.last_index > self.applied_index:
            for entry in self.log.entries(self.applied_index + 1, self.log.last_index, 1 << 40):
                self._end.apply(entry)

    def stop_serving(self) -> None:
        self._end = None
        self._lost.clear()
        requests, self._requests = self._requests, deque()
        waiting, self._waiting = self._waiting, []
        for request in requests:
            request.respond(None)
        for found in waiting:
            found.respond(None)
        self.host.meta_leadership_lost()

    def request(self, request: StreamRequest) -> None:
        """Queue a request for the next turn. The caller knows that this replica serves."""
        if len(self._requests) >= REQUESTS_MAX:
            request.respond(errors.error(10023))
            return
        self._requests.append(request)

    def move_ended(self, end: MoveEnd) -> None:
        """A stream's leader says, again and again until the map shows it, how a move ended."""
        if self.serves and (len(self._ends) < REQUESTS_MAX or end.group in self._ends):
            self._ends[end.group] = end

    def copy_lost(self, node: str, group: str, now_ms: int) -> None:
        """A broker says, again and again, that its copy of a stream in memory is gone."""
        if len(self._lost) < REQUESTS_MAX or group in self._lost:
            self._lost.setdefault(group, {})[node] = now_ms

    def _renew_lost(self, now_ms: int) -> None:
        """Begin a stream in memory anew when all of its members say that their copy is gone: only then there is
        nothing left that could be lost by it, and nobody who could ever lead (SF-4)."""
        assert self._end is not None
        for group, reports in list(self._lost.items()):
            found = self._end.by_group(group)
            reports = {node: at for node, at in reports.items() if now_ms - at < LOST_REPORT_MS}
            if found is None or found.config.storage != "memory" or not reports:
                del self._lost[group]
                continue
            self._lost[group] = reports
            nodes = [node_of(member) for member in found.members]
            records = [
                self._end.brokers[node] for node in nodes if node in reports and node in self._end.brokers
            ]
            if len(records) < len(nodes):
                continue
            token = self.host.new_token()
            members = tuple(f"{r.node}@{r.incarnation}.{self.host.new_token()}" for r in records)
            try:
                self.propose(renew_stream(found, f"S.{found.account}.{found.name}.{token}", members))
            except _NotAppendedError:
                return
            del self._lost[group]
            self.host.event(
                group,
                "MemoryLost",
                f"all copies of stream {found.name} were in memory and are gone: it begins anew",
            )

    def propose_turn(self, now_ms: int) -> None:
        assert self._end is not None
        self._renew_lost(now_ms)
        for group, end in list(self._ends.items()):
            found = self._end.by_group(group)
            if found is not None and found.move is not None and found.move.id == end.report.id:
                self.propose(end_move(found, end))
            del self._ends[group]
        for node, (cluster, incarnation) in sorted(self.host.brokers_in_contact().items()):
            record = self._end.brokers.get(node)
            if record is None or record.incarnation != incarnation or record.cluster != cluster:
                try:
                    self.propose(put_broker(node, cluster, incarnation))
                except _NotAppendedError:
                    break
        while self._requests:
            request = self._requests.popleft()
            try:
                self._decide(request, now_ms)
            except ApiError as refused:
                request.respond(refused)
            except _NotAppendedError:
                request.respond(None)
        self.check_members(now_ms)

    def propose(self, body: bytes) -> Entry:
        entry = self.raft.propose(b"".join(section(Section.META, [body])), time_ns=self.leader_time_ns())
        if entry is None:
            raise _NotAppendedError
        assert self._end is not None
        self._end.apply(entry)
        return entry

    def _decide(self, request: StreamRequest, now_ms: int) -> None:
        assert self._end is not None
        account = request.info.account
        present = self._end.streams.get((account, request.name))
        differs = present is not None and (request.verb != "create" or request.config != present.config)
        if present is not None and differs and present.declared_by and not request.info.is_operator:
            raise errors.declared_stream(
                present.name, present.declared_by, _changed(present.config, request.config)
            )
        claimed = dict(request.config.metadata).get(RESOURCE_KEY) if request.config is not None else None
        if claimed and not request.info.is_operator and (present is None or claimed != present.declared_by):
            raise errors.claimed_stream(request.name, claimed)
        if request.verb == "create":
            body = self._create(request, present)
            if body is None:
                assert present is not None
                self._wait(present, self._end.applied_index, request, now_ms)
                return
        elif present is None:
            raise errors.error(10059)
        elif request.verb == "update":
            assert request.config is not None
            check_update(present.config, request.config)
            check_mechanisms(present.config, request.config)
            self._check_overlap(account, request.config)
            if request.config == present.config:
                self._wait(present, self._end.applied_index, request, now_ms)
                return
            body = put_stream(account, request.name, present.group, request.config, present.members)
        else:
            body = delete_stream(present)
        entry = self.propose(body)
        found = self._end.streams.get((account, request.name)) or present
        assert found is not None
        self._wait(found, entry.index, request, now_ms)

    def _create(self, request: StreamRequest, present: Assignment | None) -> bytes | None:
        """The operation that creates the stream; None when an equal one is there."""
        config = request.config
        assert config is not None
        if present is not None:
            if present.config == config:
                return None
            raise errors.error(10058)
        check_create(config)
        self._check_overlap(request.info.account, config)
        members = self._place(config)
        group = f"S.{request.info.account}.{request.name}.{self.host.new_token()}"
        return put_stream(request.info.account, request.name, group, config, members)

    def _check_overlap(self, account: str, config: StreamConfig) -> None:
        assert self._end is not None
        for other in self._end.of_account(account):
            if other.name != config.name and any(
                overlaps(mine, theirs) for mine in config.subjects for theirs in other.config.subjects
            ):
                raise errors.error(10065)

    def _place(self, config: StreamConfig) -> tuple[str, ...]:
        """Members for a new stream: brokers in contact of the wanted cluster, the least loaded first."""
        assert self._end is not None
        contact = self.host.brokers_in_contact()
        placement = config.placement
        known = [record for record in self._end.brokers.values() if record.node in contact]
        fit = [r for r in known if not placement.cluster or r.cluster == placement.cluster]
        if placement.tags:
            raise no_suitable_peers(f"no broker has the tags {', '.join(placement.tags)}")
        if len(fit) < config.num_replicas:
            if len(known) == 1 and config.num_replicas > 1 and len(self.raft.membership.voters) == 1:
                raise errors.error(10074)
            where = f"cluster {placement.cluster!r}" if placement.cluster else "the cluster"
            names = ", ".join(sorted(r.node for r in fit)) or "none"
            raise no_suitable_peers(
                f"{config.num_replicas} replicas wanted, {where} has {len(fit)} brokers in contact: {names}"
            )
        load = {r.node: 0 for r in fit}
        for found in self._end.streams.values():
            for member in found.members:
                node = member.partition("@")[0]
                if node in load:
                    load[node] += 1
        preferred = dict(config.metadata).get(PREFERRED_LEADER_KEY) or placement.preferred
        fit.sort(key=lambda r: (r.node != preferred, load[r.node], r.node))
        suffix = f".{self.host.new_token()}" if config.storage == "memory" else ""
        return tuple(f"{r.node}@{r.incarnation}{suffix}" for r in fit[: config.num_replicas])

    def _wait(self, assignment: Assignment, index: int, request: StreamRequest, now_ms: int) -> None:
        nodes = frozenset(self.host.brokers_in_contact())
        self._waiting.append(_Waiting(index, assignment, request.respond, now_ms + MAP_WAIT_MS, nodes))

    def after_turn(self, now_ms: int) -> None:
        if self._changed:
            touched, self._touched, self._changed = self._touched, [], False
            self.host.map_changed(touched)
        self._finish_read()
        if self._heard_leader != self.raft.leader:
            self._heard_leader = self.raft.leader
            self.host.meta_leader_heard(heard=self._heard_leader is not None)
        if not self._waiting:
            return
        still: list[_Waiting] = []
        contact = self.host.brokers_in_contact()
        for found in self._waiting:
            done = self.applied_index >= found.index and (
                now_ms >= found.give_up_ms
                or all(self.host.map_index_of(node) >= found.index for node in found.nodes if node in contact)
            )
            if done:
                found.respond(Decided(found.assignment, found.assignment.version))
            else:
                still.append(found)
        self._waiting = still

    def read_map(self, number: int) -> None:
        """Ask for what is committed now, under a number that was not used before (by former processes neither, whose
        answers may still come)."""
        self._read, self._read_target = number, None
        self.raft.read_index(number)

    def forget_read(self) -> None:
        """Contact was lost: what a read under way will say may be older than the next contact."""
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
            self.host.map_was_read()

    def tick(self, now_ms: int) -> bool:
        """Do what is due; True when a turn is needed."""
        due = super().tick(now_ms)
        return due or any(now_ms >= found.give_up_ms for found in self._waiting)

    def deadline_ms(self) -> int | None:
        found = super().deadline_ms()
        due = [waiting.give_up_ms for waiting in self._waiting]
        return min([*due, *([found] if found is not None else [])], default=None)


def no_suitable_peers(why: str) -> ApiError:
    """NATS's 10005, with what was looked at."""
    refusal = errors.error(10005)
    return ApiError(refusal.code, refusal.err_code, f"{refusal.description}: {why}")


def _changed(present: StreamConfig, wanted: StreamConfig | None) -> str:
    """The names of the fields that a refused request wanted to change, for the answer."""
    if wanted is None:
        return "the stream itself"
    before: dict[str, Any] = present.to_json()
    after: dict[str, Any] = wanted.to_json()
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return ", ".join(names)
