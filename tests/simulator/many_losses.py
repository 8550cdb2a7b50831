"""Many streams on simulated brokers that lose one of them for good, repaired by the operator's own planner within its budget (MR-4).

The brokers are the real cores, the calls are those that a StreamMove makes, and the planner decides at every look who comes next.
Time is simulated: what is held against each other is how long publishers wait for answers before the loss and during the repairs,
as far as the protocol makes them wait; a simulated broker computes in no time. `python -m tests.simulator.many_losses` does it for
400 streams, which takes some minutes; to make thousands of them takes most of the time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tests.simulator.publishers import ACCOUNT, SimPublisher
from tests.simulator.world import Node as SimNode
from tests.simulator.world import World

from supercluster.api.replica_policy import RepairRules
from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.ports import ClientInfo
from supercluster.broker.raft.confchange import node_of
from supercluster.reconcilers.planners.replica.repairs import RunningRepair, StreamState, plan_repairs
from supercluster.reconcilers.planners.replica.rules import Rule
from supercluster.reconcilers.planners.strategies import BUILT_IN, Node

LOST = "n4"
REPAIRS_MAX, PER_NODE_MAX = 4, 2
INTERVAL_S, CHECK_S = 12, 10
LOOK_MS = 100.0
CREATED_AT_ONCE = 50
POLICY = "p"


class BigWorld(World):
    """With thousands of groups nothing looks at all of them at every turn; entries are checked as they are applied."""

    def _after(self, node: SimNode) -> None:
        if node.core is None:
            return
        if node.core.has_work:
            self.want_turn(node.name)
        self._arm(node)


@dataclass(slots=True)
class Found:
    hit: int = 0
    waits_ms: list[tuple[float, float]] = field(default_factory=list)
    """(when it was sent, until its answer), both in ms."""
    lost_ms: float = 0.0
    began_ms: float = 0.0
    ended_ms: float = 0.0
    most: int = 0
    most_on_node: int = 0
    running_ms: float = 0.0
    """Sum over time of the repairs that ran."""

    def waits(self, since_ms: float, until_ms: float) -> list[float]:
        return sorted(wait for sent, wait in self.waits_ms if since_ms <= sent < until_ms)

    @property
    def before(self) -> list[float]:
        return self.waits(0.0, self.lost_ms)

    @property
    def during(self) -> list[float]:
        return self.waits(self.began_ms, self.ended_ms)


class ManyLosses:
    """See the module."""

    def __init__(
        self,
        streams: int,
        rate: float,
        seed: int = 1,
        *,
        big: bool = False,
        interval_s: int = INTERVAL_S,
        check_s: int = CHECK_S,
    ) -> None:
        self.interval_s = interval_s
        self.lost = LOST
        self.zones: dict[str, str] = {}
        self.by_person: set[str] = set()
        """Streams to which a person has replicas added or removed."""
        self.world = (BigWorld if big else World)(seed, nodes=5)
        self.streams, self.gap_ms, self.found = streams, 1000.0 / rate, Found()
        self._asked = self._sent = 0
        self._publishers = [
            SimPublisher(f"p{number}", "acked", f"M{number}", "", 1 << 30, 1.0) for number in range(streams)
        ]
        rules = {"failureRecoveryInterval": f"{interval_s}s", "checkInterval": f"{check_s}s"}
        budget = {"concurrentMax": REPAIRS_MAX, "concurrentPerNodeMax": PER_NODE_MAX}
        parsed = RepairRules.model_validate({**rules, "budget": budget})
        self._rule = Rule(3, parsed, "ReplicaPolicy p", "it says so", POLICY)
        self._joining: dict[str, frozenset[str]] = {}
        self.tries = 0
        for name in self.world.names:
            self.world.start(name)
        assert self.until(lambda: all(core.accepts_clients for core in self.cores), 10_000)
        for first in range(0, streams, CREATED_AT_ONCE):
            self._create(range(first, min(streams, first + CREATED_AT_ONCE)))

    # ---- the brokers ----------------------------------------------------------------------------------------------

    @property
    def cores(self) -> list[BrokerCore]:
        return [node.core for node in self.world.nodes.values() if node.core is not None]

    @property
    def assignments(self) -> dict[str, Assignment]:
        meta = self.cores[0].meta
        assert meta is not None
        return {name: found for (_, name), found in meta.state.streams.items()}

    @property
    def now_ms(self) -> float:
        return self.world.now_us / 1000

    def until(self, condition: Callable[[], bool], timeout_ms: float) -> bool:
        """Looks only now and then: with thousands of streams a condition costs more than an event."""
        end_ms = self.now_ms + timeout_ms
        while not condition() and self.now_ms < end_ms:
            self.world.steps = 0
            self.world.run(self.now_ms + LOOK_MS)
        return condition()

    def _create(self, numbers: range) -> None:
        waiting = set(numbers)
        info = ClientInfo(ACCOUNT, "operator", is_operator=True)
        for number in numbers:
            config = {"name": f"M{number}", "subjects": [f"m.{number}"], "num_replicas": 3, "storage": "file"}
            reply = b"_C.%d" % number
            self.world.on_reply(reply, partial(self._created, waiting, number))
            call = b"$JS.API.STREAM.CREATE.M%d" % number
            self.cores[0].on_api(info, call, reply, b"", json.dumps(config).encode())
        self.world.want_turn("n0")
        assert self.until(lambda: not waiting, 60_000), sorted(waiting)

    @staticmethod
    def _created(waiting: set[int], number: int, header: bytes, payload: bytes) -> None:
        assert "error" not in json.loads(payload), payload
        waiting.discard(number)

    # ---- the publishers -------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """One message to one stream after the other, at a pace that no answer changes."""
        publisher = self._publishers[self._sent % self.streams]
        staying = [name for name in self.world.names if name != self.lost and self.world.nodes[name].core]
        node = staying[self._sent // self.streams % len(staying)]
        self._sent += 1
        core = self.world.nodes[node].core
        assert core is not None
        window = core.capture(ACCOUNT, b"m." + publisher.stream[1:].encode())
        assert window is not None
        reply, sent_ms = b"_A.%d" % self._sent, self.now_ms
        self.world.on_reply(reply, partial(self._answered, sent_ms))
        publisher.sent += 1
        # A connection for each broker: order is promised within one.
        payload = b"%s/%s:%d" % (publisher.name.encode(), node.encode(), publisher.sent)
        assert window.take(publisher, b"m." + publisher.stream[1:].encode(), reply, b"", payload)
        self.world.want_turn(node)
        self.world.at(self.gap_ms, self.publish)

    def _answered(self, sent_ms: float, header: bytes, payload: bytes) -> None:
        assert b'"error"' not in payload, payload
        self.found.waits_ms.append((sent_ms, self.now_ms - sent_ms))

    # ---- the operator ---------------------------------------------------------------------------------------------

    def lose(self) -> None:
        self.found.hit = len(self.held())
        self.found.lost_ms = self.now_ms
        self.world.stop(self.lost, power=True)
        self.world.lose_volume(self.lost)

    def held(self) -> list[str]:
        """Streams that have a replica on the lost broker."""
        return [name for name, each in self.assignments.items() if self.lost in map(node_of, each.members)]

    def look(self) -> None:
        """What runs is within the budget; who comes next is begun."""
        leader = next((core for core in self.cores if core.meta is not None and core.meta.serves), None)
        if leader is None or leader.meta is None:
            return
        state, now_ns = leader.meta.state, leader.clock.now_ns()
        moving = {name for name, each in self.assignments.items() if each.move is not None}
        self._joining = {
            name: nodes
            for name, nodes in self._joining.items()
            if name in moving or self.lost in map(node_of, self.assignments[name].members)
        }
        self._check(moving)
        self.found.running_ms += LOOK_MS * len(moving)
        nodes = {
            name: Node(
                name,
                "sim",
                copies=sum(name in map(node_of, each.members) for each in self.assignments.values()),
                zone=self.zones.get(name, ""),
                in_contact=name == leader.node or name in leader.peers.brokers_in_contact(),
                away_since=_time(state.away[name]) if name in state.away else None,
                leaves=name in state.leaving,
            )
            for name in state.brokers
        }
        serving = {
            group.id
            for core in self.cores
            for group in core.groups.values()
            if group.serves and core is not None
        }
        streams = [
            StreamState(
                name,
                tuple(map(node_of, each.members)),
                "somebody" if each.group in serving else "",
                self._rule,
                is_moving=name in self._joining or each.move is not None,
                count=3,
            )
            for name, each in self.assignments.items()
        ]
        running = [RunningRepair(name, POLICY, joining) for name, joining in self._joining.items()]
        for repair in plan_repairs(nodes, streams, running, BUILT_IN, _time(now_ns)).repairs:
            self.tries += 1
            self.found.began_ms = self.found.began_ms or self.now_ms
            held = frozenset(map(node_of, self.assignments[repair.stream].members))
            self._joining[repair.stream] = repair.joining - held
            body: dict[str, Any] = {"replace": list(repair.replaced), "nodes": list(repair.nodes)}
            body |= {"awayMs": self.interval_s * 1000, "id": f"repair-{self.tries}"}
            leader.calls.move("POST", ACCOUNT, repair.stream, body, partial(self._started, repair.stream))
            self.world.want_turn(leader.node)

    def _started(self, stream: str, status: int, told: Any) -> None:
        if status != 202:
            self._joining.pop(stream, None)  # It is planned anew at the next look.
        self._check({name for name, each in self.assignments.items() if each.move is not None})

    def _check(self, moving: set[str]) -> None:
        found = self.found
        joining = Counter(node for name in moving for node in self._joining.get(name, ()))
        assert moving <= self._joining.keys() | self.by_person, "nobody else moves streams"
        assert len(moving) <= REPAIRS_MAX, moving
        assert max(joining.values(), default=0) <= PER_NODE_MAX, joining
        found.most = max(found.most, len(moving))
        found.most_on_node = max(found.most_on_node, *joining.values(), 0)

    def run(self, quiet_ms: float, most_ms: float) -> Found:
        """A quiet time, the loss, and all repairs."""
        self.publish()
        self.until(lambda: False, quiet_ms)
        self.lose()
        end_ms = self.now_ms + most_ms
        while self.now_ms < end_ms and (self.held() or self._joining):
            self.until(lambda: False, LOOK_MS)
            self.look()
        assert not self.held(), f"{len(self.held())} streams are not whole after {most_ms:.0f} ms"
        self.found.ended_ms = self.now_ms
        return self.found


def _time(ns: int) -> datetime:
    return datetime.fromtimestamp(ns / 1e9, UTC)


def at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.many_losses", description=__doc__)
    parser.add_argument("--streams", type=int, default=400)
    parser.add_argument("--rate", type=float, default=150.0, help="messages a second, all streams together")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    world = ManyLosses(given.streams, given.rate, given.seed, big=given.streams > 300)
    print(f"{given.streams} streams are made ({time.monotonic() - began:.0f} s)", flush=True)
    found = world.run(15_000, 3_600_000)
    span_s = (found.ended_ms - found.began_ms) / 1000
    print(
        f"{found.hit} of {given.streams} streams lost a replica; all whole {span_s:.1f} s after the first repair began"
    )
    print(
        f"repairs at once: {found.running_ms / 1000 / span_s:.2f}, most {found.most}; on one broker {found.most_on_node}"
    )
    for name, waits in (("before", found.before), ("during", found.during)):
        told = ", ".join(f"p{100 * share:g} {at(waits, share):.1f}" for share in (0.5, 0.99, 0.999))
        print(f"answers {name}: {len(waits)}, after ms: {told}, most {waits[-1]:.1f}")
    print(f"{time.monotonic() - began:.0f} s of real time")


if __name__ == "__main__":
    main()
