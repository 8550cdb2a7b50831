"""Two super-clusters in one thread, on virtual time, for stories about cutovers: fair weather, and faults that a story names.

It is the simulator's world of both (`tests.simulator.cutover_world`): its ledger and its oracle check every invariant meanwhile.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.broker.moves.world import Load
from tests.simulator.consumers import INFO
from tests.simulator.cut_oracle import CutOracle, Stream
from tests.simulator.cutover_plan import BLUE, GREEN, CutoverPlan
from tests.simulator.cutover_world import IDENTITY, CutoverWorld
from tests.simulator.ledger import MAIN
from tests.simulator.world import Node

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.migration_frames import CutAsk, Wants
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.stream.replica import StreamReplica

ACCOUNT = "$G"


class _Even(random.Random):
    """Delays are all the same, so a story stays as it is when a frame more or less is sent."""

    def random(self) -> float:
        return 0.5


class TwoWorlds(CutoverWorld):
    """See the module."""

    def __init__(self, seed: int = 1, *, equal_names: bool = False, far_ms: float = 2.0) -> None:
        plan = CutoverPlan(
            *(3, 3, 3, "always", "file", -1, -1, False, 0, 0, False, False, False, False, ()),
            equal_names=equal_names,
            far_ms=far_ms,
        )
        super().__init__(seed, plan, _Even(seed))
        self.cuts = CutOracle(self)
        self.loads: list[Load] = []
        self.on_event: Callable[[str, str, str, str], None] = lambda node, group, reason, text: None
        self._replies = 0

    def begin(self) -> None:
        """Start every broker, and wait until both maps were read by all."""
        for key in self.names:
            self.start(key)
        assert self.run_until(self._is_ready, 10_000), "the super-clusters did not begin"
        self.run_ms(50)

    def _is_ready(self) -> bool:
        cores = [node.core for node in self.nodes.values()]
        is_led = all(self.map_leader(side) is not None for side in (BLUE, GREEN))
        return is_led and all(core is not None and core.map.is_fresh for core in cores)

    def run_ms(self, ms: float) -> None:
        self.run(self.now_us / 1000 + ms)

    def after_turn(self, node: str, core: BrokerCore) -> None:
        self.cuts.after_turn(node, core.groups)

    def _new_core(self, node: Node) -> BrokerCore:
        core = super()._new_core(node)
        event, serving = core.env.event, core.host.serving

        def told(group: str, reason: str, text: str) -> None:
            event(group, reason, text)
            self.on_event(node.name, group, reason, text)

        def serves(group: str) -> None:
            replica = core.groups[group]
            if isinstance(replica, StreamReplica):
                self.on_event(node.name, group, "Leads", f"term {replica.raft.term}")
            serving(group)

        core.env.event = told
        core.host.serving = serves  # type: ignore[method-assign]
        return core

    # ---- looking ------------------------------------------------------------------------------------------------------

    def map_leader(self, side: str) -> BrokerCore | None:
        return next((core for core in self.cores(side) if core.meta is not None and core.meta.serves), None)

    def assignment(self, side: str) -> Assignment | None:
        leader = self.map_leader(side)
        meta = leader.meta if leader is not None else None
        return meta.state.streams.get((ACCOUNT, MAIN)) if meta is not None else None

    def stream(self) -> Stream:
        return next(iter(self.cuts.streams.values()))

    def copies(self) -> dict[str, StreamReplica]:
        """Broker → its open copy of the stream."""
        found: dict[str, StreamReplica] = {}
        for key, node in self.nodes.items():
            for group in node.core.groups.values() if node.core is not None else ():
                if isinstance(group, StreamReplica) and group.assignment.name == MAIN:
                    found[key] = group
        return found

    def leader_key(self) -> str:
        """Who leads the stream, on whichever side it is."""
        serving = {key: group for key, group in self.copies().items() if group.serves}
        now = {key: group for key, group in serving.items() if group.id == self.stream().group_now}
        return max(now or serving, key=lambda key: serving[key].raft.term, default="")

    def map_leader_key(self, side: str) -> str:
        leader = self.map_leader(side)
        return next((key for key, node in self.nodes.items() if node.core is leader), "")

    # ---- acting -------------------------------------------------------------------------------------------------------

    def api(self, key: str, subject: str, body: Any, timeout_ms: float = 12_000) -> dict[str, Any] | None:
        """Call the JetStream API at a broker. None: no answer in that time."""
        core = self.nodes[key].core
        assert core is not None
        self._replies += 1
        reply = b"_R.%d" % self._replies
        answers: list[dict[str, Any]] = []
        self.on_reply(reply, lambda header, payload: answers.append(json.loads(payload) if payload else {}))
        raw = json.dumps(body).encode() if body is not None else b""
        core.on_api(INFO, subject.encode(), reply, b"", raw)
        self.want_turn(key)
        self.run_until(lambda: bool(answers), timeout_ms)
        return answers[0] if answers else None

    def propose(self, operation: bytes) -> None:
        """Into blue's map, unasked."""
        key = self.map_leader_key(BLUE)
        core = self.nodes[key].core
        assert core is not None
        assert core.meta is not None
        core.meta.tail.propose(operation)
        core.copies.touch(core.meta.id)
        self.want_turn(key)

    def operator(self, act: str, id_: str = "m1", body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """A call of the operator at a broker of blue that is up."""
        key = next(key for key in self.brokers(BLUE) if self.nodes[key].up)
        core = self.nodes[key].core
        assert core is not None
        answers: list[tuple[int, Any]] = []
        core.calls.migration(act, id_, body, lambda status, told: answers.append((status, told)))
        self.want_turn(key)
        assert self.run_until(lambda: bool(answers), 12_000), f"{act} was not answered"
        return answers[0]

    def migrate(self, id_: str = "m1", account: str = "") -> tuple[int, Any]:
        addresses = [f"{key}:7422" for key in self.brokers(GREEN)]
        green = {"identity": IDENTITY[GREEN], "name": GREEN, "addresses": addresses}
        return self.operator("start", id_, {"id": id_, "account": account, "green": green})

    def refuses_once(self) -> None:
        """Blue wants the attempt back as soon as green's group has a leader."""

        def ask(key: str, core: BrokerCore, group: str) -> None:
            if group in self.stream().heirs:
                self.on_serving = lambda key, core, group: None
                asked = CutAsk(group, self.stream().heirs[group], Wants.REFUSE)
                blue = self.called(key, self.brokers(BLUE)[0])
                core.on_frame(blue, Frame.CUT_ASK, memoryview(b"".join(asked.encode())))

        self.on_serving = ask

    def load(self, key: str, kind: str, gap_ms: float = 20.0) -> Load:
        found = Load(self, key, kind, gap_ms, f"p{len(self.loads)}{kind}")
        self.loads.append(found)
        self.nodes[key].on_down.append(partial(_broker_gone, found))
        self.at(0.5 * gap_ms, found.publish)
        return found

    # ---- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Everybody stops publishing; everything comes to rest, and what was taken is stored once."""
        for load in self.loads:
            load.runs = False
        assert self.run_until(lambda: self.steps % 16 == 0 and not self._unrest(), 30_000), self._unrest()
        for load in self.loads:
            for number in range(load.sent):
                stored = load.payload(number) in self.ledger.stored
                assert stored or number in load.may_be_lost, f"{load.payload(number)!r} is lost"
            assert not load.errors, load.errors[:3]

    def _unrest(self) -> str:
        for load in self.loads:
            if load.kind != "plain" and load.waiting:
                return f"{load.name} waits for {len(load.waiting)} answers"
        for key, node in self.nodes.items():
            for window in node.core.ingest.windows.values() if node.core is not None else ():
                if window.unconfirmed:
                    return f"{key} holds {window.unconfirmed} messages"
        return ""


def _broker_gone(load: Load) -> None:
    if load.kind != "retry":
        load.may_be_lost.update(load.waiting)
        load.waiting.clear()
    load.paused = False
