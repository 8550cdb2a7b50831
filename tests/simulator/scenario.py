"""One seeded run: a cluster, a stream, publishers and a consumer, and weather that ends.

Three kinds of publishers, as SF-2 tells them apart: *plain* ones on one broker, whose messages must be stored once if
that broker stayed up while it held them; *acknowledged* ones, whose acknowledged messages must be stored; *retrying*
ones with a Nats-Msg-Id, which go to another broker when they get no answer, and must end with every message stored once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.simulator.world import Faults, World

from supercluster.broker.jetstream.stream import StreamState
from supercluster.broker.jetstream.stream_group import StreamGroup
from supercluster.broker.ports import ClientInfo

STREAM = "ORDERS"
ACCOUNT = "$G"
INFO = ClientInfo(ACCOUNT, "sim", False)
RETRY_MS = 700.0


@dataclass(slots=True)
class SimPublisher:
    """A client connection: `ports.Publisher`, and the messages it wants to send."""

    world: World
    name: str
    kind: str
    node: str
    total: int
    gap_ms: float
    sent: int = 0
    paused: bool = False
    answered: set[int] = field(default_factory=set)
    may_be_lost: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    taken: dict[int, str] = field(default_factory=dict)
    waiting: dict[int, tuple[str, int]] = field(default_factory=dict)
    connections: int = 0
    payloads: dict[int, bytes] = field(default_factory=dict)

    def pause(self, stream: str) -> None:
        self.paused = True

    def resume(self, stream: str) -> None:
        self.paused = False

    def error(self, text: str) -> None:
        # The -ERR does not say which message: any that is not stored in the end may be one of them.
        self.refused.add(-1)

    def payload(self, number: int) -> bytes:
        """Unique; order is promised for what stands before the colon: one connection (SF-3)."""
        known = self.payloads.get(number)
        if known is None:
            # A retrying publisher's repeats may go through several brokers: each message is its own order.
            connection = number if self.kind == "retry" else self.connections
            known = self.payloads[number] = b"%s/%d:%d" % (self.name.encode(), connection, number)
        return known

    def connect(self, node: str) -> None:
        self.node = node
        self.connections += 1


class Scenario:
    """See the module."""

    def __init__(self, seed: int, *, seconds: float = 30.0) -> None:
        self.world = World(seed, nodes=3)
        self.rng = self.world.rng
        self.seconds = seconds
        self.calm = False
        self.group = ""
        self.publishers: list[SimPublisher] = []
        self.replicas = self.rng.choice((3, 3, 3, 1))
        self.fsync = self.rng.choice(("always", "interval", "interval"))
        self.max_msgs = self.rng.choice((-1, -1, 40))
        self._requests = 0

    # ---- the run --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """All of it; raises `InvariantBrokenError` when a promise does not hold."""
        world, rng = self.world, self.rng
        for name in world.names:
            world.at(rng.random() * 300, partial(world.start, name))
        self._create_stream()
        self._draw_weather()
        fault_end_ms = self.seconds * 1000 * 0.7
        self._schedule_faults(fault_end_ms)
        self._start_publishers(fault_end_ms)
        self._start_consumer()
        world.run(fault_end_ms)
        self._heal()
        world.run(self.seconds * 1000)
        if not world.run_until(self._settled, 40_000):
            raise world.ledger.broken(f"liveness: not settled 40 s after the last fault: {self._unsettled()}")
        self._check_end()

    def _draw_weather(self) -> None:
        rng = self.rng
        if rng.random() < 0.5:
            self.world.faults = Faults(
                loss=rng.choice((0.0, 0.005, 0.03)),
                repeat=rng.choice((0.0, 0.01)),
                reorder=rng.choice((0.0, 0.02, 0.1)),
                delay_max_ms=rng.choice((1.0, 5.0, 30.0)),
            )

    def _schedule_faults(self, end_ms: float) -> None:
        at_ms = 1500 + self.rng.random() * 1500
        while at_ms < end_ms - 1000:
            self.world.at(at_ms, self._fault)
            at_ms += 400 + self.rng.random() * 4000

    def _fault(self) -> None:
        world, rng = self.world, self.rng
        up = [name for name in world.names if world.nodes[name].up]
        kind = rng.random()
        if kind < 0.45 and len(up) >= 2:
            victim = self._leader_or(rng.choice(up))
            power = rng.random() < 0.35 and self._may_lose_power(victim)
            world.stop(victim, power=power)
            world.at(50 + rng.random() * 3000, lambda: world.start(victim))
        elif kind < 0.7:
            one = rng.choice(world.names)
            others = [name for name in world.names if name != one]
            for other in others if rng.random() < 0.6 else others[:1]:
                world.cut(one, other)
            world.note(f"{one} is cut off")
            world.at(200 + rng.random() * 3000, world.mend)
        elif kind < 0.85:
            one, other = rng.sample(world.names, 2)
            world.reset(one, other)
        elif kind < 0.93:
            slow = world.nodes[rng.choice(world.names)]
            slow.slow_until_us = world.now_us + int(rng.random() * 2_000_000)
        else:
            self._step_down()

    def _may_lose_power(self, victim: str) -> bool:
        """SF-1: without fsync on every append, what a majority loses at once may be gone. So the power fails where it
        may take nothing that was promised: one replica of three, while the two others have everything."""
        if self.fsync == "always":
            return True
        if self.replicas == 1 or not self.group:
            return False
        history = self.world.ledger.groups.get(self.group)
        for name, node in self.world.nodes.items():
            if name == victim:
                continue
            group = node.core.groups.get(self.group) if node.core is not None else None
            if group is None or history is None or group.raft.doubtful or group.failed is not None:
                return False
            if group.applied_index < max(history.records, default=0) or not group.raft.membership.is_voter(
                group.member
            ):
                return False
        return True

    def _leader_or(self, other: str) -> str:
        """The stream's leader, half of the time: that is where it hurts."""
        for name, node in self.world.nodes.items():
            group = node.core.groups.get(self.group) if node.core is not None else None
            if group is not None and group.serves and self.rng.random() < 0.6:
                return name
        return other

    def _heal(self) -> None:
        world = self.world
        world.note("the weather clears")
        self.calm = True
        world.faults = Faults(delay_max_ms=1.0)
        world.mend()
        for name in world.names:
            world.nodes[name].slow_until_us = 0
            world.start(name)

    # ---- requests -------------------------------------------------------------------------------------------------

    def request(self, node: str, subject: str, body: Any, done: Callable[[dict[str, Any]], None]) -> None:
        """Call the JetStream API at a broker, if it is up."""
        core = self.world.nodes[node].core
        if core is None or not core.accepts_clients:
            return
        self._requests += 1
        reply = b"_R.%d" % self._requests
        self.world.on_reply(reply, lambda header, payload: done(json.loads(payload) if payload else {}))
        core.on_api(
            INFO, subject.encode(), reply, b"", json.dumps(body).encode() if body is not None else b""
        )
        self.world.want_turn(node)

    def _create_stream(self) -> None:
        config = {
            "name": STREAM,
            "subjects": ["orders.>"],
            "num_replicas": self.replicas,
            "storage": "file",
            "max_msgs": self.max_msgs,
            "metadata": {"supercluster.dev/fsync": self.fsync},
        }

        def created(answer: dict[str, Any]) -> None:
            if "error" in answer:
                self.world.note(f"create: {answer['error']}")

        def attempt() -> None:
            if not self._find_group():
                self.request(
                    self.rng.choice(self.world.names), f"$JS.API.STREAM.CREATE.{STREAM}", config, created
                )
                self.world.at(500, attempt)

        self.world.at(700, attempt)

    def _find_group(self) -> bool:
        for node in self.world.nodes.values():
            if node.core is not None and node.core.meta is not None:
                found = node.core.meta.state.streams.get((ACCOUNT, STREAM))
                if found is not None:
                    self.group = found.group
                    return True
        return bool(self.group)

    def _step_down(self) -> None:
        node = self.rng.choice(self.world.names)
        self.request(node, f"$JS.API.STREAM.LEADER.STEPDOWN.{STREAM}", None, lambda answer: None)

    # ---- publishers -----------------------------------------------------------------------------------------------

    def _start_publishers(self, end_ms: float) -> None:
        for kind in ("plain", "plain", "acked", "retry"):
            name = f"p{len(self.publishers)}{kind}"
            gap_ms = self.rng.choice((20.0, 60.0, 150.0))
            total = int(min(end_ms / gap_ms, 300))
            publisher = SimPublisher(self.world, name, kind, self.rng.choice(self.world.names), total, gap_ms)
            self.publishers.append(publisher)
            self.world.at(1200 + self.rng.random() * 500, partial(self._publish, publisher))
        for name, node in self.world.nodes.items():
            node.on_down.append(partial(self._broker_gone, name))

    def _publish(self, publisher: SimPublisher) -> None:
        world = self.world
        burst = self.rng.randrange(8) + 1
        if publisher.kind == "retry":
            burst = 0 if publisher.waiting else 1  # One at a time, so that a repeat never overtakes (SF-3).
        for _ in range(burst):
            if publisher.sent < publisher.total and not publisher.paused:
                if self._offer(publisher, publisher.node, publisher.sent):
                    publisher.sent += 1
                else:
                    break
        if publisher.sent < publisher.total or publisher.waiting:
            world.at(publisher.gap_ms * (0.5 + self.rng.random()), lambda: self._publish(publisher))

    def _offer(self, publisher: SimPublisher, node: str, number: int) -> bool:
        """Give a message to a broker. False when it does not take it now."""
        core = self.world.nodes[node].core
        if core is None or not core.accepts_clients:
            publisher.connect(self.rng.choice(self.world.names))  # The client reconnects elsewhere.
            return False
        subject = b"orders.%d" % (number % 5)
        window = core.capture(ACCOUNT, subject)
        if window is None:
            return False
        payload = publisher.payload(number)
        reply = b""
        header = b""
        if publisher.kind != "plain":
            self._requests += 1
            reply = b"_A.%d" % self._requests
        if publisher.kind == "retry":
            header = b"NATS/1.0\r\nNats-Msg-Id: %s\r\n\r\n" % payload
        if not window.take(publisher, subject, reply, header, payload):
            return False
        if reply:
            self.world.on_reply(reply, lambda head, body: self._answered(publisher, number, head, body))
        publisher.taken[number] = node
        if publisher.kind == "retry":
            publisher.waiting[number] = (node, self.world.now_us)
            self.world.at(RETRY_MS, lambda: self._retry(publisher, number))
        self.world.want_turn(node)
        return True

    def _answered(self, publisher: SimPublisher, number: int, header: bytes, payload: bytes) -> None:
        publisher.waiting.pop(number, None) if publisher.kind == "retry" and payload else None
        if not payload:
            publisher.refused.add(number)
            return
        answer = json.loads(payload)
        if "error" in answer:
            raise self.world.ledger.broken(f"{publisher.name} was refused: {answer}")
        publisher.answered.add(number)
        self._find_group()
        self.world.ledger.acknowledged(
            self.group, publisher.payload(number), answer["seq"], duplicate="duplicate" in answer
        )

    def _retry(self, publisher: SimPublisher, number: int) -> None:
        """No answer: the same message again, to whatever broker is there."""
        if number in publisher.answered:
            publisher.waiting.pop(number, None)
            return
        node = self.rng.choice(self.world.names)
        if not self._offer(publisher, node, number):
            self.world.at(RETRY_MS, lambda: self._retry(publisher, number))

    def _broker_gone(self, name: str) -> None:
        """What only this broker had read may be gone with it (SF-2)."""
        for publisher in self.publishers:
            for number, node in publisher.taken.items():
                if node == name:
                    publisher.may_be_lost.add(number)
            if publisher.node == name:
                publisher.paused = False
                publisher.connections += 1

    # ---- a consumer -----------------------------------------------------------------------------------------------

    def _start_consumer(self) -> None:
        self.delivered: dict[int, bytes] = {}
        inbox = b"_I.consumer"
        self.world.on_inbox(inbox, self._deliver)
        config = {"durable_name": "worker", "ack_policy": "explicit", "ack_wait": 2_000_000_000}

        def create() -> None:
            node = self.rng.choice(self.world.names)
            body = {"stream_name": STREAM, "config": config}
            self.request(node, f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.worker", body, lambda answer: None)

        def pull() -> None:
            node = self.rng.choice(self.world.names)
            core = self.world.nodes[node].core
            if core is not None and self.group:
                body = json.dumps({"batch": 50, "expires": 900_000_000}).encode()
                core.on_api(INFO, f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.worker".encode(), inbox, b"", body)
                self.world.want_turn(node)
            self.world.at(1000, pull)

        for at_ms in (2500, 4000, 8000, 12000):
            self.world.at(at_ms, create)
        self.world.at(3000, pull)

    def _deliver(self, items: Sequence[Any]) -> None:
        history = self.world.ledger.groups.get(self.group)
        for _, reply, _, payload in items:
            if not reply:
                continue
            seq = int(reply.split(b".")[5])
            if history is None or history.message_at.get(seq) != bytes(payload):
                raise self.world.ledger.broken(
                    f"RP-1: {bytes(payload)!r} was delivered as {seq} and is not committed"
                )
            self.delivered[seq] = bytes(payload)
            if self.rng.random() < 0.8:
                node = self.rng.choice(self.world.names)
                core = self.world.nodes[node].core
                if core is not None:
                    core.on_api(INFO, reply, b"", b"", b"+ACK")
                    self.world.want_turn(node)

    # ---- the end --------------------------------------------------------------------------------------------------

    def _unsettled(self) -> str:
        world = self.world
        if not self._find_group():
            return "the stream was never created"
        history = world.ledger.groups.get(self.group)
        if history is None:
            return "the stream's group never started"
        for publisher in self.publishers:
            if publisher.sent < publisher.total or publisher.waiting:
                return f"{publisher.name} has sent {publisher.sent} of {publisher.total}, waits for {publisher.waiting}"
        for name, node in world.nodes.items():
            core = node.core
            if core is None:
                return f"{name} is down"
            window = core.ingest.windows.get(self.group)
            if window is not None and window.unconfirmed:
                return f"{name} holds {window.unconfirmed} unconfirmed messages"
            group = core.groups.get(self.group)
            if group is None:
                continue
            if group.failed is not None:
                return f"{name} failed: {group.failed}"
            if group.applied_index != max(history.records):
                return f"{name} applied {group.applied_index} of {max(history.records)}"
            if group.member not in group.raft.membership.voters:
                return f"{name} is {group.member}, voters are {group.raft.membership.voters}"
        if self.max_msgs < 0 and len(self.delivered) < len(history.message_at):
            return f"the consumer has {len(self.delivered)} of {len(history.message_at)} messages"
        return ""

    def _settled(self) -> bool:
        # Looked at often: the cheap signs come first.
        if self.world.steps % 64:
            return False
        return not self._unsettled()

    def _check_end(self) -> None:
        world = self.world
        history = world.ledger.groups[self.group]
        for publisher in self.publishers:
            for number in range(publisher.sent):
                payload = publisher.payload(number)
                if payload in history.seq_of:
                    continue
                if number in publisher.answered:
                    raise world.ledger.broken(f"SF-1: {payload!r} was acknowledged and is gone")
                if number in publisher.may_be_lost and publisher.kind != "retry":
                    continue
                if publisher.refused:
                    continue
                raise world.ledger.broken(
                    f"invariant 2: {payload!r} was taken by {publisher.taken[number]} and is gone"
                )
        views: dict[str, dict[str, Any]] = {}
        for name, node in world.nodes.items():
            group = node.core.groups.get(self.group) if node.core is not None else None
            if isinstance(group, StreamGroup):
                views[name] = _view(group.state)
        first, *others = views
        for other in others:
            differing = [key for key, value in views[first].items() if views[other][key] != value]
            if differing:
                key = differing[0]
                raise world.ledger.broken(
                    f"replicas differ at the end in {key}: {first} {views[first][key]!r}, {other} {views[other][key]!r}"
                )


def _view(state: StreamState) -> dict[str, Any]:
    """What replicas must agree on. (The subject index also holds hints, which depend on how it came about.)"""
    return {
        "bounds": (state.first_seq, state.last_seq, state.messages, state.bytes, state.applied_index),
        "times": (state.created_ns, state.leader_time_ns, state.last_time_ns),
        "deleted": sorted(state.deleted),
        "subjects": {
            name: (count, state.subjects.last_seq(name.encode()))
            for name, count in state.subjects.subjects().items()
        },
        "message ids": state.message_ids,
        "sessions": state.sessions.encode(),
        "consumers": {name: consumer.snapshot() for name, consumer in state.consumers.items()},
        "config": (state.config, state.config_version),
    }
