"""One stream in two super-clusters, without brokers: blue's three replicas, green's one, both maps, and frames that a test may lose."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from tests.broker.jetstream.publish.stream_story import block, message
from tests.broker.jetstream.stream.test_replica import ASSIGNMENT, NODES, ORIGIN, Broker, Replicas

from supercluster.broker.jetstream.encoding.codec import blob
from supercluster.broker.jetstream.links.frames import Forward, Frame
from supercluster.broker.jetstream.links.migration_frames import CutAsk, CutTold, Prepare, Prepared
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import Following, Green, Migration
from supercluster.broker.jetstream.meta.migration_changes import MIGRATION_CHANGES
from supercluster.broker.jetstream.meta.migration_steps import MigrationStep
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.state.cut import CutStage
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.migration.worlds import far_member, far_name
from supercluster.broker.raft.confchange import Membership, membership_of, node_of
from supercluster.broker.raft.config import RaftConfig
from supercluster.broker.raft.entry import EntryKind, make_entry
from supercluster.broker.raft.messages import Message
from supercluster.broker.raft.node import RaftNode
from supercluster.broker.storage.log.memory_log import MemoryLog

BLUE, GREEN = "1b3fa9c2", "9c21b3fa"
NEAR = "g@1"
FAR = far_member(NEAR, GREEN)
GREEN_NODE, BLUE_SESSION = far_name("g", GREEN), far_name(ORIGIN.node, BLUE)
STEP_MS = 10


def changed(found: Assignment, op: bytes) -> Assignment:
    told = json.loads(op)
    entry = make_entry(index=9, term=1, kind=EntryKind.BATCH, time_ns=0, first_seq=0, count=0, payload=b"")
    return MIGRATION_CHANGES[told["op"]](found, told, entry) or found


class GreenBroker(Broker):
    """Of the broker that holds green's copy. It begins as a learner that the group does not have yet."""

    def __init__(self, worlds: TwoWorlds) -> None:
        super().__init__(worlds, "a")
        self.node, self.world = "g", GREEN
        self.migration_step = worlds.green_step  # type: ignore[method-assign]

    def randrange(self, start: int, /) -> int:
        return 0

    def begin(
        self, assignment: Assignment, member: str, log: MemoryLog, membership: Membership, commit: int
    ) -> None:
        raft = RaftNode(
            RaftConfig(member),
            log,
            term=0,
            vote="",
            membership=membership,
            commit_index=commit,
            rng=self,
            now_ms=self.replicas.now_ms,
        )
        self.group = StreamReplica(assignment, member, log, raft, self)
        self.group.recover(commit)

    def follow(self, assignment: Assignment, following: Following) -> None:
        log, copy = MemoryLog(), replace(assignment, group=following.source, following=following)
        log.save_checkpoint(0, blob(Membership().encode()) + StreamReplica.blank_state(copy))
        self.begin(copy, FAR, log, Membership(), 0)

    def convert(self, assignment: Assignment) -> None:
        """As `jetstream/migration` wants it: behind HANDED, with green's members, in a group of green's own."""
        group, cut = self.group, self.group.state.cut
        assert group.applied_index == cut.handed_index
        log, own = group.log, membership_of([NEAR])
        assert isinstance(log, MemoryLog)
        group.checkpoint()
        log.commit_index = cut.handed_index
        log.truncate_after(cut.handed_index)
        log.append(
            [
                make_entry(
                    index=cut.handed_index + 1,
                    term=cut.handed_term + 1,
                    kind=EntryKind.CONFIG,
                    time_ns=group.state.leader_time_ns,
                    first_seq=0,
                    count=0,
                    payload=replace(own, index=cut.handed_index + 1).encode(),
                )
            ]
        )
        self.begin(assignment, NEAR, log, own, cut.handed_index)

    def far_nodes(self, world: str) -> list[str]:
        return [far_name(node, BLUE) for node in NODES] if world == BLUE else []

    def post(self, node: str, frame: int, body: list[bytes | memoryview]) -> bool:
        self.replicas.from_green(node, Frame(frame), b"".join(body))  # type: ignore[attr-defined]
        return super().post(node, frame, body)

    def brokers_in_contact(self) -> dict[str, tuple[str, str]]:
        return {"g": ("west", "1")}


class BlueBroker(Broker):
    def __init__(self, worlds: TwoWorlds, node: str) -> None:
        super().__init__(worlds, node)
        self.world = BLUE
        self.migration_step = worlds.blue_step  # type: ignore[method-assign]
        self.migration = lambda migration_id: worlds.migration  # type: ignore[method-assign]

    def far_nodes(self, world: str) -> list[str]:
        linked = self.replicas.is_linked  # type: ignore[attr-defined]
        return [GREEN_NODE] if world == GREEN and linked else []

    def post(self, node: str, frame: int, body: list[bytes | memoryview]) -> bool:
        if node == GREEN_NODE:
            self.replicas.from_blue(self.node, Frame(frame), b"".join(body))  # type: ignore[attr-defined]
        return super().post(node, frame, body)


class TwoWorlds(Replicas):
    def __init__(self, assignment: Assignment = ASSIGNMENT) -> None:
        self.is_linked = True
        self.keeps_green: Callable[[Frame], bool] = lambda frame: True
        """Which frames of green's arrive."""
        self.cuts_link_when: Callable[[], bool] = lambda: False
        """Looked at before anything is sent."""
        self.closed_ms: int | None = None
        """When blue's leader had FENCED in its log."""
        self.refusal = ""
        """Green's answer to every PREPARE."""
        self.prepares: list[Prepare] = []
        self.is_green_silent = False
        """Is no PREPARE answered?"""
        """Those that green got."""
        self.migration = Migration("m", Green("green"), GREEN)
        self.steps: list[str] = []
        self.map_answers = self.converts = True
        self.blue_map = assignment
        self.green_map: Assignment | None = None
        super().__init__(assignment)
        self.brokers = {node: BlueBroker(self, node) for node in NODES}
        self.green: GreenBroker | None = None

    # ---- the maps -------------------------------------------------------------------------------------------------

    def assign(self) -> None:
        """The map of blue is applied everywhere in blue."""
        for broker in self.brokers.values():
            if self.blue_map.group == broker.group.id:
                broker.group.copy.set_assignment(self.blue_map)

    def begin_migration(self) -> None:
        op = {"op": "migrate", "id": "m", "world": GREEN}
        self.blue_map = changed(self.blue_map, json.dumps(op).encode())
        self.assign()

    def blue_step(self, step: MigrationStep) -> None:
        self.steps.append(str(step.kind))
        if self.map_answers and self.blue_map.group == step.group:
            entry = make_entry(
                index=9, term=1, kind=EntryKind.BATCH, time_ns=0, first_seq=0, count=0, payload=b""
            )
            body = step.operation(self.blue_map, entry)
            if body is not None:
                self.blue_map = changed(self.blue_map, body)

    def green_step(self, step: MigrationStep) -> None:
        self.steps.append(str(step.kind))
        assert self.green_map is not None
        assert step.config is not None
        if self.map_answers:
            self.green_map = replace(self.green_map, following=None)

    # ---- frames ---------------------------------------------------------------------------------------------------

    def from_blue(self, node: str, frame: Frame, body: bytes) -> None:
        if not self.is_linked:
            return
        if frame is Frame.PREPARE:
            asked = Prepare.decode(body)
            self.prepares.append(asked)
            if self.is_green_silent:
                return
            if self.refusal:
                no = Prepared(asked.group, asked.attempt, asked.version, refusal=self.refusal)
                self.brokers[node].group.copy.migration.on_prepared(no)
                return
            following = Following(asked.migration, asked.attempt, asked.group, asked.world, (FAR,))
            self.green_map = replace(
                ASSIGNMENT, group=asked.next_group, members=(NEAR,), config=asked.config, following=following
            )
            if self.green is None:
                self.green = GreenBroker(self)
                self.green.follow(self.green_map, following)
            elif self.green.group.id == following.source:
                copy = replace(self.green_map, group=following.source)
                self.green.group.copy.set_assignment(copy)
            told = Prepared(asked.group, asked.attempt, asked.version, (FAR,))
            self.brokers[node].group.copy.migration.on_prepared(told)
            self.brokers[node].group.join_requested(FAR)
        elif frame is Frame.CUT_ASK and self.green is not None:
            ask = CutAsk.decode(body)
            if self.green.group.serves and ask.group == self.green.group.id:
                self.green.group.copy.migration.on_asked(far_name(node, BLUE), ask)

    def from_green(self, node: str, frame: Frame, body: bytes) -> None:
        if self.is_linked and self.keeps_green(frame) and frame is Frame.CUT_TOLD:
            told = CutTold.decode(body)
            broker = self.brokers[node.partition("%")[0]]
            if broker.group.serves and told.group == broker.group.id:
                broker.group.copy.migration.on_told(told)

    def send(self, message: Message) -> None:
        leaders = [found.group for found in self.brokers.values() if found.group.serves]
        if self.closed_ms is None and any(found.copy.appender.is_closed for found in leaders):
            self.closed_ms = self.now_ms
        self.is_linked &= not self.cuts_link_when()
        ends = {node_of(message.frm), node_of(message.to)}
        if GREEN_NODE in ends and not self.is_linked:
            return
        super().send(message)

    # ---- time -----------------------------------------------------------------------------------------------------

    @property
    def groups(self) -> list[Replica]:
        blue = [b.group for n, b in self.brokers.items() if n not in self.lost]
        return [*blue, *([self.green.group] if self.green is not None else [])]

    def settle(self, ms: int = 0) -> None:
        for _ in range(ms // STEP_MS + 1):
            self._step()
            self.now_ms += STEP_MS if ms else 0

    def _step(self) -> None:
        """What a step of a leader makes of a map is applied at the end, so the leader's next one is in the next."""
        for group in self.groups:
            group.tick(self.now_ms)
        self._turn()
        while self.queue:
            queue, self.queue = self.queue, []
            for sent in queue:
                for group in self.groups:
                    if group.member == sent.to:
                        group.raft.step(sent, self.now_ms)
            self._turn()
        self.assign()
        self._follow_green()

    def _turn(self) -> None:
        for group in self.groups:
            group.turn(self.now_ms)

    def _follow_green(self) -> None:
        if self.green is None or self.green_map is None:
            return
        if self.converts and self.green.group.is_at_its_end:
            self.green.convert(self.green_map)
        elif self.green.group.id == self.green_map.group:
            self.green.group.copy.set_assignment(self.green_map)

    def until(self, is_so: Callable[[], bool], ms: int = 5000) -> int:
        """Let time pass until it is so. Returns for how long."""
        begun_ms = self.now_ms
        while not is_so():
            assert self.now_ms - begun_ms < ms, f"not within {ms} ms; steps {self.steps}"
            self._step()
            self.now_ms += STEP_MS
        return self.now_ms - begun_ms

    # ---- what tests look at ---------------------------------------------------------------------------------------

    @property
    def stage(self) -> CutStage:
        return self.leader().group.state.cut.stage

    def publish(self, first: int, *payloads: bytes) -> None:
        forward = Forward(
            ORIGIN, first, 0, ASSIGNMENT.version, block(*(message(payload=p) for p in payloads))
        )
        self.leader().group.copy.inbox.offer(forward, early=False)


def started(assignment: Assignment = ASSIGNMENT) -> TwoWorlds:
    """Blue has a leader, and a session is open."""
    worlds = TwoWorlds(assignment)
    worlds.settle(2000)
    leader = worlds.leader()
    leader.group.copy.inbox.open_session(ORIGIN)
    worlds.settle()
    leader.posts.clear()
    return worlds
