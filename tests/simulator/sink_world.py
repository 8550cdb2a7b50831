"""Queries that write to a stream on four brokers, which are killed, lose power, stand still, hand the stream over and exchange its
copies, also in the middle of a release. The stream keeps few messages, so that its log is dropped behind them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any
from zlib import crc32

from tests.simulator.publishers import ACCOUNT
from tests.simulator.spark_query import Abort, Actor, Answer, Request, SparkQuery
from tests.simulator.world import World

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.sink.records import Commit, StageRequest
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import ClientInfo
from supercluster.broker.raft.confchange import node_of

OPERATOR = ClientInfo(ACCOUNT, "operator", is_operator=True)
STREAM = {"name": "S", "subjects": ["s.>"], "num_replicas": 3, "storage": "file", "max_msgs": 60}
CODES = range(errors.SINK_REFUSED, errors.SINK_BUSY + 1)
CALM_MS = 25_000
END_MS = 120_000
TIMEOUT_MS = 7_000
LOOK_MS = 5


class SinkWorld:
    """See the module."""

    def __init__(self, seed: int, *, queries: int = 2, rows: int = 150) -> None:
        self.world = World(seed, nodes=4)
        self.rng = Random(seed)
        self._replies = 0
        self.payloads: list[bytes] = []
        """All that the stream ever had, in order."""
        self.acts: dict[str, int] = {}
        self.in_release: dict[str, int] = {}
        """How often each befell a stream that was releasing."""
        for name in self.world.names:
            self.world.start(name)
        assert self.world.run_until(lambda: all(core.accepts_clients for core in self.cores), 5000)
        self.asks("STREAM.CREATE.S", json.dumps(STREAM).encode())
        self.queries = [
            SparkQuery(f"q{n}", rows, self.rng, self._spawn, batch_rows=30) for n in range(queries)
        ]
        self._waits_for_release = False
        """Does the next trouble come in the middle of a release?"""

    @property
    def cores(self) -> list[BrokerCore]:
        return [node.core for node in self.world.nodes.values() if node.core is not None]

    def copies(self) -> dict[str, StreamReplica]:
        return {
            core.node: group
            for core in self.cores
            for group in core.groups.values()
            if isinstance(group, StreamReplica) and group.failed is None
        }

    @property
    def leader(self) -> StreamReplica | None:
        return next((group for group in self.copies().values() if group.serves), None)

    def asks(self, call: str, payload: bytes) -> None:
        """Ask until somebody did it."""
        answers: list[dict[str, Any]] = []

        def again() -> None:
            self.ask(call, payload, lambda answer: answers.append(answer) if answer else again())

        again()
        assert self.world.run_until(lambda: bool(answers), 60_000)
        assert "error" not in answers[0], answers

    # ---- clients --------------------------------------------------------------------------------------------------

    def ask(self, call: str, payload: bytes, then: Callable[[dict[str, Any] | None], None]) -> None:
        """Any broker is asked, once. None: no answer, in time or at all."""
        self._replies += 1
        reply = b"_R.%d" % self._replies
        core = self.rng.choice(self.cores)
        is_open = [True]

        def answered(header: bytes, raw: bytes) -> None:
            if is_open.pop() if is_open else False:
                found = json.loads(raw) if raw else None
                then(None if found is None or found.get("error", {}).get("code") == 503 else found)

        self.world.on_reply(reply, answered)
        self.world.at(TIMEOUT_MS, lambda: answered(b"", b""))
        core.on_api(OPERATOR, b"$JS.API." + call.encode(), reply, b"", payload)
        self.world.want_turn(core.node)

    def _spawn(self, actor: Actor) -> None:
        self.world.at(self.rng.random() * 10, lambda: self._go_on(actor, None, is_new=True))

    def _go_on(self, actor: Actor, answer: Answer | None, *, is_new: bool = False) -> None:
        try:
            request = next(actor) if is_new else actor.send(answer)
        except StopIteration:
            return
        wait_ms = self.rng.random() * self.rng.choice((2, 2, 20, 200))
        if request is None:
            self.world.at(wait_ms, lambda: self._go_on(actor, None))
            return
        call, payload = _written(request)

        def then(found: dict[str, Any] | None) -> None:
            self.world.at(wait_ms, lambda: self._go_on(actor, self._told(found)))

        self.ask(call, payload, then)
        if self.rng.random() < 0.03:
            late = partial(self.ask, call, payload, lambda found: None)
            self.world.at(self.rng.random() * 5000, late)

    def _told(self, found: dict[str, Any] | None) -> Answer | None:
        if found is None or self.rng.random() < 0.03:
            return None
        if "error" in found:
            code = found["error"]["err_code"]
            assert code in CODES, found
            return Answer(code)
        return Answer(0, found.get("rows", 0), found.get("released", 0))

    # ---- trouble --------------------------------------------------------------------------------------------------

    def _act(self) -> None:
        world, rng = self.world, self.rng
        self._waits_for_release = False
        down = [name for name, node in world.nodes.items() if not node.up]
        calm = world.now_us >= CALM_MS * 1000
        leader = self.leader
        if down:
            world.start(down[0])
        elif calm:
            return
        elif self._is_sound and leader is not None:
            kind = rng.choice(("kill", "power", "still", "stepdown", "move"))
            target = rng.choice([leader.host.node, leader.host.node, *self.copies()])
            self.acts[kind] = self.acts.get(kind, 0) + 1
            self.in_release[kind] = self.in_release.get(kind, 0) + bool(leader.state.sink.unreleased)
            if kind in ("kill", "power"):
                world.stop(target, power=kind == "power")
            elif kind == "still":
                world.stand_still(target, rng.choice((300, 2500)))
            elif kind == "stepdown":
                self.ask("STREAM.LEADER.STEPDOWN.S", b"", lambda found: None)
            else:
                self.ask("STREAM.PEER.REMOVE.S", json.dumps({"peer": target}).encode(), lambda found: None)
        world.at(rng.choice((50, 400, 1500)) * (0.5 + rng.random()), self._act_soon)

    def _act_soon(self) -> None:
        """Now, or in the middle of a release."""
        calm = self.world.now_us >= CALM_MS * 1000
        if not calm and self.rng.random() < 0.7 and all(node.up for node in self.world.nodes.values()):
            self._waits_for_release = True
        else:
            self._act()

    @property
    def _is_sound(self) -> bool:
        """May one go without leaving the others without a leader?"""
        copies, leader = self.copies(), self.leader
        if leader is None or any(node.stands_still for node in self.world.nodes.values()):
            return False
        members = {node_of(member) for member in leader.raft.membership.all_voters}
        return members <= set(copies) and not any(copies[name].raft.doubtful for name in members)

    # ---- looking --------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Note what was released since."""
        for copy in self.copies().values():
            state = copy.state
            assert state.first_seq <= len(self.payloads) + 1, "nobody looked for too long"
            for seq in range(len(self.payloads) + 1, state.last_seq + 1):
                message = state.message(seq)
                assert message is not None
                self.payloads.append(message.payload)
        self.world.at(LOOK_MS, self._look)
        leader = self.leader
        if leader is None or not self._waits_for_release:
            return
        if any(writer.released for writer in leader.state.sink.unreleased.values()):
            self._act()

    @property
    def is_done(self) -> bool:
        return all(query.is_done for query in self.queries)

    def run(self, *, trouble: bool = True) -> None:
        """Until the queries are done, and all copies are the same."""
        for query in self.queries:
            query.start()
        self._look()
        if trouble:
            self.world.at(500, self._act)
        self.world.at(CALM_MS, self._calm)
        assert self.world.run_until(lambda: self.is_done, END_MS), "the queries do not end"
        self._calm()
        assert self.world.run_until(self._is_level, 60_000), "the copies do not come to be the same"
        self._look()
        for query in self.queries:
            query.check(self.payloads)

    def _calm(self) -> None:
        for query in self.queries:
            query.calm = True
        for name in self.world.names:
            self.world.start(name)

    def _is_level(self) -> bool:
        leader = self.leader
        if leader is None or leader.assignment.move is not None or leader.state.sink.unreleased:
            return False
        copies = self.copies()
        members = [copies.get(node_of(member)) for member in leader.raft.membership.all_voters]
        ends = {(copy.applied_index, copy.state.sink.encode()) for copy in members if copy is not None}
        return None not in members and len(ends) == 1


def _written(request: Request) -> tuple[str, bytes]:
    """The call and its payload."""
    body: dict[str, Any] = {"writer": request.batch.writer, "batch": request.batch.number}
    match request:
        case StageRequest():
            body |= {"token": request.token, "block": request.number, "crc": crc32(request.block)}
            return "SINK.STAGE.S", json.dumps(body).encode() + b"\n" + bytes(request.block)
        case Commit():
            parts = [{"token": part.token, "rows": part.rows, "crc": part.crc} for part in request.parts]
            body |= {"offsets_hash": request.offsets_hash, "parts": parts}
            body |= {"run": request.run, "write": request.write}
            return "SINK.COMMIT.S", json.dumps(body).encode()
        case Abort():
            return "SINK.ABORT.S", json.dumps({**body, "tokens": request.tokens}).encode()
