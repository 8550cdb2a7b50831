"""A super-cluster in one thread, on virtual time, for tests of moves: publishers under way, and named faults.

It is the simulator's world (`tests.simulator.world`), so its ledger checks every invariant while a test runs; but the
weather is fair, and what goes wrong is what the test says.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tests.simulator.consumers import INFO
from tests.simulator.super_world import DamagedLog
from tests.simulator.world import World

from supercluster.broker.jetstream.config.core_settings import CoreSettings
from supercluster.broker.jetstream.config.stream import Placement
from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.operations import cancel_move, replace_target, start_move
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import Channel, ClientInfo
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.errors import DiskError

STREAM = "ORDERS"
ACCOUNT = "$G"
META = "meta-0"


@dataclass
class Load:
    """A publisher at one broker: its messages, and what became of them."""

    world: World
    node: str
    kind: str
    gap_ms: float
    name: str
    sent: int = 0
    paused: bool = False
    runs: bool = True
    waiting: dict[int, int] = field(default_factory=dict)
    """number → when it was sent (µs)"""
    acked: set[int] = field(default_factory=set)
    may_be_lost: set[int] = field(default_factory=set)
    """Without an answer when its broker died (SF-2)."""
    ack_times_us: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def pause(self, stream: str) -> None:
        self.paused = True

    def resume(self, stream: str) -> None:
        self.paused = False

    def error(self, text: str) -> None:
        self.errors.append(text)

    def payload(self, number: int) -> bytes:
        connection = number if self.kind == "retry" else 0
        return b"%s/%d:%d" % (self.name.encode(), connection, number)

    def publish(self) -> None:
        if not self.runs:
            return
        core = self.world.nodes[self.node].core
        if core is not None and core.accepts_clients and not self.paused:
            self._offer(core, self.sent)
        self.world.at(self.gap_ms, self.publish)

    def _offer(self, core: BrokerCore, number: int) -> None:
        window = core.capture(ACCOUNT, b"orders." + self.name.encode())
        if window is None:
            return
        reply = b"" if self.kind == "plain" else b"_A.%s.%d" % (self.name.encode(), number)
        header = b""
        if self.kind == "retry":
            header = b"NATS/1.0\r\nNats-Msg-Id: %s-%d\r\n\r\n" % (self.name.encode(), number)
        if not window.take(self, b"orders." + self.name.encode(), reply, header, self.payload(number)):
            return
        self.sent = max(self.sent, number + 1)
        self.waiting[number] = self.world.now_us
        if reply:
            self.world.on_reply(reply, lambda head, body: self._acked(number, body))
        self.world.want_turn(self.node)
        if self.kind == "retry":
            self.world.at(1000, partial(self._again, number))

    def _again(self, number: int) -> None:
        if number not in self.waiting:
            return
        ups = [name for name in self.world.beside(self.node) if self.world.nodes[name].up]
        core = self.world.nodes[ups[number % len(ups)]].core if ups else None
        if core is not None and core.accepts_clients:
            self._offer(core, number)
        else:
            self.world.at(1000, partial(self._again, number))

    def _acked(self, number: int, body: bytes) -> None:
        answer = json.loads(body) if body else {"error": "no responders"}
        if "error" in answer:
            self.errors.append(str(answer))
            return
        self.waiting.pop(number, None)
        self.acked.add(number)
        self.ack_times_us.append(self.world.now_us)
        self.world.ledger.acknowledged(STREAM, self.payload(number), int(answer["seq"]))

    def longest_gap_ms(self, from_us: int) -> float:
        """The longest time without an acknowledgement."""
        times = [at for at in self.ack_times_us if at >= from_us]
        return max((b - a for a, b in itertools.pairwise(times)), default=0) / 1000


class _Even(random.Random):
    """Delays are all the same: so a story stays as it is when a frame more or less is sent. What is drawn at a broker's
    start (identities, the seed of its elections) comes from the seed."""

    def random(self) -> float:
        return 0.5


class MoveWorld(World):
    """See the module. Every cluster is `<name>-0` …; the meta group lives on brokers of its own, unless told otherwise."""

    def __init__(self, seed: int = 1, *, founders: tuple[str, ...] = (META,), **clusters: int) -> None:
        shape = {f"{name}-{number}": name for name, count in clusters.items() for number in range(count)}
        shape.setdefault(META, "meta")
        super().__init__(seed, rng=_Even(seed), clusters=shape, founders=founders)
        self.loads: list[Load] = []
        self.events: list[tuple[str, str, str]] = []
        """(node, reason, text)"""
        self.answers: list[dict[str, Any]] = []
        self.on_event: Callable[[str, str, str, str], None] = lambda node, group, reason, text: None
        self.deaf: set[str] = set()
        """Brokers that no MOVE_END reaches."""
        self._replies = 0
        self._tokens = 0

    def begin(self) -> None:
        """Start every broker, and wait until the meta group leads and every map was read."""
        for name in self.names:
            self.start(name)
        assert self.run_until(self._is_ready, 10_000), "the super-cluster did not begin"
        self.run_ms(50)

    def _is_ready(self) -> bool:
        cores = [node.core for node in self.nodes.values()]
        return self.meta_leader() is not None and all(
            core is not None and core.map.is_fresh for core in cores
        )

    def _settings(self, name: str) -> CoreSettings:
        """Windows wait as long as a broker's do, not as short as in bad weather: no cut here is to cost a message."""
        return replace(super()._settings(name), window_wait_ms=10_000)

    def _new_core(self, node: Any) -> BrokerCore:
        core = super()._new_core(node)
        event = core.env.event

        def told(group: str, reason: str, text: str) -> None:
            event(group, reason, text)
            self.events.append((node.name, reason, text))
            self.on_event(node.name, group, reason, text)

        core.env.event = told
        serving = core.host.serving

        def serves(group: str) -> None:
            replica = core.groups[group]
            if isinstance(replica, StreamReplica):
                told(group, "Leads", f"{replica.member} leads in term {replica.raft.term}")
            serving(group)

        core.host.serving = serves  # type: ignore[method-assign]
        return core

    def run_ms(self, ms: float) -> None:
        self.run(self.now_us / 1000 + ms)

    def send(
        self, frm: str, to: str, frame_type: int, body: bytes, channel: Channel = Channel.CONTROL
    ) -> bool:
        if to in self.deaf and frame_type == Frame.MOVE_END:
            return True
        return super().send(frm, to, frame_type, body, channel)

    # ---- looking --------------------------------------------------------------------------------------------------

    def meta_leader(self) -> BrokerCore | None:
        return next(
            (
                n.core
                for n in self.nodes.values()
                if n.core is not None and n.core.meta and n.core.meta.serves
            ),
            None,
        )

    def assignment(self) -> Assignment:
        leader = self.meta_leader()
        assert leader is not None
        assert leader.meta is not None
        return leader.meta.state.streams[ACCOUNT, STREAM]

    def groups(self) -> dict[str, StreamReplica]:
        """node → its replica."""
        found: dict[str, StreamReplica] = {}
        for name, node in self.nodes.items():
            for group in node.core.groups.values() if node.core is not None else ():
                if isinstance(group, StreamReplica) and group.assignment.name == STREAM:
                    found[name] = group
        return found

    def leader(self) -> StreamReplica | None:
        serving = [group for group in self.groups().values() if group.serves]
        return max(serving, key=lambda group: group.raft.term, default=None)

    def leader_node(self) -> str:
        leader = self.leader()
        return node_of(leader.member) if leader is not None else ""

    def stage(self) -> str:
        """Where the move is: its stage, or how it ended."""
        if self.meta_leader() is None:
            return "unknown"
        found = self.assignment()
        if found.move is None:
            return f"ended {found.last_move.outcome}" if found.last_move is not None else "none"
        leader = self.leader()
        return (
            str(leader.move.mover.step.stage)
            if leader is not None and leader.move.mover is not None
            else "unknown"
        )

    # ---- acting ---------------------------------------------------------------------------------------------------

    def api(self, node: str, subject: str, body: Any, info: ClientInfo = INFO) -> dict[str, Any]:
        """Call the JetStream API at a broker, and wait for the answer."""
        core = self.nodes[node].core
        assert core is not None
        self._replies += 1
        reply = b"_R.%d" % self._replies
        answers: list[dict[str, Any]] = []
        self.on_reply(reply, lambda header, payload: answers.append(json.loads(payload)))
        raw = json.dumps(body).encode() if body is not None else b""
        core.on_api(info, subject.encode(), reply, b"", raw)
        self.want_turn(node)
        assert self.run_until(lambda: bool(answers), 12_000), f"{subject} was not answered"
        return answers[0]

    def create(self, cluster: str, replicas: int = 3, **config: Any) -> None:
        whole = {"name": STREAM, "subjects": ["orders.>"], "num_replicas": replicas, **config}
        whole["placement"] = {"cluster": cluster}
        answer = self.api(f"{cluster}-0", f"$JS.API.STREAM.CREATE.{STREAM}", whole)
        assert "error" not in answer, answer

    def load(self, node: str, kind: str = "plain", gap_ms: float = 5.0) -> Load:
        found = Load(self, node, kind, gap_ms, f"p{len(self.loads)}{kind}")
        self.loads.append(found)
        self.nodes[node].on_down.append(partial(self._broker_gone, found))
        self.at(self.rng.random() * gap_ms, found.publish)
        return found

    @staticmethod
    def _broker_gone(load: Load) -> None:
        if load.kind != "retry":
            load.may_be_lost.update(load.waiting)
            load.waiting.clear()
        load.paused = False

    def target(self, node: str) -> str:
        """A new copy on a broker, as the meta group names it."""
        self._tokens += 1
        return f"{node}@{self.nodes[node].store.incarnation}.{self._tokens:04x}"

    def _propose(self, body: bytes) -> None:
        leader = self.meta_leader()
        assert leader is not None
        assert leader.meta is not None
        leader.meta.tail.propose(body)
        leader.copies.touch("meta")
        self.want_turn(leader.node)

    def move(self, nodes: Sequence[str], bytes_per_s: int = 0) -> None:
        """Record a move to these brokers, as many replicas as there are of them; those that hold the stream keep their
        copies."""
        found = self.assignment()
        held = {node_of(member): member for member in found.members}
        targets = tuple(held.get(node) or self.target(node) for node in nodes)
        clusters = {self.cluster_of[node] for node in nodes}
        placement = Placement(clusters.pop() if len(clusters) == 1 else "")
        config = replace(found.config, placement=placement, num_replicas=len(nodes))
        self._tokens += 1
        self._propose(start_move(found, config, f"m{self._tokens}", targets, found.members, bytes_per_s))

    def scale(self, replicas: int, **placement: str) -> dict[str, Any]:
        """Ask for another count of replicas; with a placement, for what is refused."""
        config = self.assignment().config.to_json() | {"num_replicas": replicas}
        if placement:
            config["placement"] = placement
        return self.api(self.leader_node() or META, f"$JS.API.STREAM.UPDATE.{STREAM}", config)

    def cancel(self) -> None:
        found = self.assignment()
        assert found.move is not None
        self._propose(cancel_move(found, found.move.id))

    def set_pace(self, bytes_per_s: int) -> None:
        """The operator calls with the same id and another limit."""
        found = self.assignment()
        assert found.move is not None
        body = {
            "placement": found.config.placement.to_json(),
            "bytesPerS": bytes_per_s,
            "id": found.move.id,
        }
        status, told = self.call(lambda core, then: core.calls.move("POST", ACCOUNT, STREAM, body, then))
        assert status < 300, told

    def call(self, ask: Callable[[BrokerCore, Callable[[int, Any], None]], None]) -> tuple[int, Any]:
        """A call of the admin API at a broker of the meta group: status and body."""
        core = self.nodes[META].core
        assert core is not None
        answers: list[tuple[int, Any]] = []
        ask(core, lambda status, told: answers.append((status, told)))
        self.want_turn(META)
        assert self.run_until(lambda: bool(answers), 12_000), "the call was not answered"
        return answers[0]

    def replace(self, old: str, new: str) -> None:
        """Another broker joins in place of one that is gone."""
        found = self.assignment()
        assert found.move is not None
        gone = next(target for target in found.move.targets if node_of(target) == old)
        self._propose(replace_target(found, found.move.id, gone, self.target(new)))

    def until(self, stage: str, timeout_ms: float = 15_000) -> None:
        assert self.run_until(lambda: self.stage() == stage, timeout_ms), (
            f"the move is {self.stage()} and not {stage} after {timeout_ms} ms"
        )

    def damage(self, node: str) -> None:
        """From now on a broker reads other bytes than it was sent, and their checksums fit: what only a comparison of
        copies can find."""
        auditor = self.groups()[node].copy.range_hasher
        auditor._log = DamagedLog(auditor._log)  # type: ignore[assignment]

    def forget_move(self) -> None:
        """The map is as if the move had never begun: the one that knew of it is gone, as behind a forced recovery."""
        maps = [
            node.core.meta
            for node in self.nodes.values()
            if node.core is not None and node.core.meta is not None
        ]
        assert self.run_until(lambda: len({meta.applied_index for meta in maps}) == 1, 5000), (
            "no map is behind"
        )
        for node in self.nodes.values():
            meta = node.core.meta if node.core is not None else None
            if meta is None:
                continue
            for state in (meta.state, *([meta.tail.state] if meta.serves else ())):
                found = state.streams.get((ACCOUNT, STREAM))
                if found is not None and found.move is not None:
                    config = replace(found.config, placement=found.move.origin_placement)
                    state.streams[ACCOUNT, STREAM] = replace(found, config=config, move=None)
                    state.moving.discard((ACCOUNT, STREAM))
        for node in self.nodes.values():
            if node.core is not None and node.core.meta is not None:
                node.core.host.map_changed([self.assignment().group])
                self.want_turn(node.name)

    def break_disk(self, node: str, *, copies: int = 1) -> None:
        """As soon as a broker's copy is open, the disk takes nothing more of it, and it leaves its group; the broker stays
        linked. So it goes with the next copies of the stream there, and with this one when it is opened anew."""
        left = [copies]

        def fail(replica: StreamReplica) -> None:
            left[0] -= 1
            replica.fail(DiskError("input/output error", replica.id))

        assert self.run_until(lambda: node in self.groups(), 5000), f"{node} opens no copy"
        fail(self.groups()[node])
        core = self.nodes[node].core
        assert core is not None
        add_group = core.copies.add

        def added(replica: Replica) -> None:
            add_group(replica)
            if isinstance(replica, StreamReplica) and left[0] > 0:
                fail(replica)

        core.copies.add = added  # type: ignore[method-assign]

    def cut_clusters(self, one: str, other: str) -> None:
        for here in self.names:
            for there in self.names:
                if self.cluster_of[here] == one and self.cluster_of[there] == other:
                    self.cut(here, there)

    def finish(self) -> None:
        """Everybody stops publishing; everything comes to rest, and every promise is checked."""
        for load in self.loads:
            load.runs = False
        assert self.run_until(self._is_at_rest, 30_000), self._unrest()
        for load in self.loads:
            for number in range(load.sent):
                stored = load.payload(number) in self.ledger.stored
                assert stored or number in load.may_be_lost, f"{load.payload(number)!r} is lost"
            assert not load.errors, load.errors[:3]
        self._check_stored()

    def _check_stored(self) -> None:
        """What was stored at any time is in the stream now, but for what its purges and limits took."""
        leader = self.leader()
        assert leader is not None
        stored = {
            seq: payload for payload, (group_id, seq) in self.ledger.stored.items() if group_id == leader.id
        }
        assert len(stored) == len(self.ledger.stored), "the stream began anew, without what it had"
        state = leader.state
        for seq in range(max(state.first_seq, 1), state.last_seq + 1):
            message = state.message(seq)
            assert message is not None, f"message {seq} is not in the leader's log"
            assert message.payload == stored.pop(seq), f"message {seq} is another one"
        assert all(seq < state.first_seq for seq in stored), f"messages {sorted(stored)[-3:]} are gone"

    def _is_at_rest(self) -> bool:
        return self.steps % 16 == 0 and not self._unrest()

    def _unrest(self) -> str:
        for load in self.loads:
            if load.kind != "plain" and load.waiting:
                return f"{load.name} waits for {len(load.waiting)} answers"
        for name, node in self.nodes.items():
            for window in node.core.ingest.windows.values() if node.core is not None else ():
                if window.unconfirmed:
                    return f"{name} holds {window.unconfirmed} messages"
        leader = self.leader()
        if leader is None:
            return "nobody leads"
        groups = self.groups()
        for member in leader.raft.membership.members:
            group = groups.get(node_of(member))
            if self.nodes[node_of(member)].up and (
                group is None or group.applied_index < leader.log.last_index
            ):
                return f"{member} has not applied everything"
        return ""
