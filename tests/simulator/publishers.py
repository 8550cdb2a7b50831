"""Clients that publish, each with the promise that it was made (SF-2).

*Plain* ones stay on one broker: their messages must be stored once if that broker stayed up while it held them.
*Acknowledged* ones: what was acknowledged must be stored. *Retrying* ones repeat with a Nats-Msg-Id, at any broker,
until they get an answer: every message must be stored once. *Creators* race to be the first on a key: one may win.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.simulator.plan import Plan
from tests.simulator.world import WINDOW_WAIT_MS, World

RETRY_MS = 700.0
LEFT_MAX = 150
GAPS_MS = (30.0, 80.0, 200.0)
ACCOUNT = "$G"
# err_codes that a publisher may be told without anything being wrong: no room on the disk, a lost race, a full stream.
# Seconds that messages live, where a plan has such: shorter and longer than the stream's max_age.
TTLS = (b"1", b"never", b"2s", b"7", b"1")
NO_ROOM, NOT_FIRST, STREAM_FULL = 10023, 10071, 10077
# What a plain publisher reads of a message that waited too long.
NO_LEADER = "has had no leader for too long"


@dataclass(slots=True)
class SimPublisher:
    """A client connection: `ports.Publisher`, and the messages it wants to send."""

    name: str
    kind: str
    stream: str
    node: str
    total: int
    gap_ms: float
    sent: int = 0
    paused: bool = False
    answered: set[int] = field(default_factory=set)
    may_be_lost: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    on_given_up: Callable[[str], None] = lambda node: None
    taken: dict[int, str] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    connections: int = 0
    brokers: set[str] = field(default_factory=set)
    payloads: dict[int, bytes] = field(default_factory=dict)

    def pause(self, stream: str) -> None:
        self.paused = True

    def resume(self, stream: str) -> None:
        self.paused = False

    def error(self, text: str) -> None:
        # The -ERR does not say which message: any that is not stored in the end may be one of them.
        self.refused.add(-1)
        if NO_LEADER in text and self.brokers == {self.node}:  # Else it does not say which broker gives up.
            self.on_given_up(self.node)

    def payload(self, number: int) -> bytes:
        """Unique; order is promised for what stands before the colon: one connection (SF-3)."""
        known = self.payloads.get(number)
        if known is None:
            # Messages of retrying publishers and of creators go through several brokers: each is its own order.
            connection = self.connections if self.kind in ("plain", "acked") else number
            known = self.payloads[number] = b"%s/%d:%d" % (self.name.encode(), connection, number)
        return known

    def connect(self, node: str) -> None:
        self.node = node
        self.connections += 1
        self.paused = False


class Publishers:
    """All of a run's publishers."""

    def __init__(self, world: World, plan: Plan, is_quiet: Callable[[], bool]) -> None:
        self.world = world
        self.plan = plan
        self.rng = world.rng
        self.all: list[SimPublisher] = []
        self.known_streams: set[str] = set()
        """Streams whose creation was answered, and which nobody deletes."""
        self.slowness = 1.0
        """How much longer than usual they wait from one message to the next."""
        self._is_quiet = is_quiet
        self._replies = 0

    def start(self, end_ms: float, main: str, side: str) -> None:
        for number, (kind, stream) in enumerate(self._kinds(main, side)):
            gap_ms = 400.0 if kind == "creator" else self.rng.choice(GAPS_MS) * self.slowness
            publisher = SimPublisher(
                f"p{number}{kind}",
                kind,
                stream,
                self.choose(None),
                int(min((end_ms - 2500) / gap_ms, 300)),
                gap_ms,
            )
            publisher.on_given_up = partial(self._given_up, stream)
            self.all.append(publisher)
            begin_ms = 1700.0 if kind == "creator" else 1200 + self.rng.random() * 500
            self.world.at(begin_ms, partial(self._publish, publisher))
        for name, node in self.world.nodes.items():
            node.on_down.append(partial(self._broker_gone, name))

    def _kinds(self, main: str, side: str) -> list[tuple[str, str]]:
        kinds = [("plain", main), ("plain", main), ("acked", main), ("retry", main)]
        if self.plan.creators:
            kinds += [("creator", main), ("creator", main)]
        if self.plan.side_stream:
            kinds += [("plain", side), ("acked", side)]
        return kinds

    def choose(self, publisher: SimPublisher | None) -> str:
        """A broker that a client connects to."""
        return self.rng.choice(self.world.names)

    # ---- sending --------------------------------------------------------------------------------------------------

    def _publish(self, publisher: SimPublisher) -> None:
        burst = self.rng.randrange(8) + 1
        if publisher.kind == "retry":
            burst = 0 if publisher.waiting else 1  # One at a time, so that a repeat never overtakes (SF-3).
        elif publisher.kind == "creator":
            burst = 1
            publisher.connect(self.choose(publisher))
        if self._is_quiet():
            burst = 0
        for _ in range(burst):
            if publisher.sent < publisher.total and not publisher.paused:
                if self._offer(publisher, publisher.node, publisher.sent):
                    publisher.sent += 1
                elif publisher.kind == "creator":
                    publisher.sent += 1  # The race for this key goes on without it.
                else:
                    break
        if publisher.sent < publisher.total or publisher.waiting:
            # Creators race: both at the same moments.
            factor = 1.0 if publisher.kind == "creator" else 0.5 + self.rng.random()
            self.world.at(publisher.gap_ms * factor, lambda: self._publish(publisher))

    def _offer(self, publisher: SimPublisher, node: str, number: int) -> bool:
        """Give a message to a broker. False when it does not take it now."""
        core = self.world.nodes[node].awake
        if self.world.nodes[node].stands_still and publisher.kind in ("plain", "acked"):
            return False  # The client is still connected: what it writes waits in the socket.
        if core is None or not core.accepts_clients:
            publisher.connect(self.choose(publisher))  # The client reconnects elsewhere.
            return False
        kind = publisher.kind
        if kind == "creator":
            subject = b"orders.key.%d" % number
        else:
            subject = b"%s.%d" % (publisher.stream.lower().encode(), number % 5)
        window = core.capture(ACCOUNT, subject)
        if window is None:
            self._uncaptured(node, publisher.stream)
            return False
        payload = publisher.payload(number)
        header = reply = b""
        if kind != "plain":
            self._replies += 1
            reply = b"_A.%d" % self._replies
        if kind == "retry":
            header = b"NATS/1.0\r\nNats-Msg-Id: %s\r\n\r\n" % payload
        elif kind == "creator":
            header = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\n\r\n"
        if self.plan.has_ttls and number % 3 == 0:
            ttl = TTLS[number // 3 % len(TTLS)]
            header = (header[:-2] or b"NATS/1.0\r\n") + b"Nats-TTL: %s\r\n\r\n" % ttl
        if reply:
            self.world.on_reply(reply, lambda head, body: self._answered(publisher, number, node, body))
        if not window.take(publisher, subject, reply, header, payload):
            return False
        publisher.taken[number] = node
        publisher.brokers.add(node)
        if kind == "retry":
            publisher.waiting.add(number)
            self.world.at(RETRY_MS, lambda: self._retry(publisher, number))
        self.world.want_turn(node)
        return True

    def _uncaptured(self, node: str, stream: str) -> None:
        """SF-14: a broker that lets clients in has read the map, or waited its time for it."""
        core = self.world.nodes[node].awake
        assert core is not None
        if stream in self.known_streams and (
            core.map.is_fresh or core.clock.monotonic_ms() < core.map_reader.deadline_unread_ms
        ):
            raise self.world.ledger.broken(f"SF-14: {node} takes clients and does not know stream {stream}")

    # ---- answers --------------------------------------------------------------------------------------------------

    def _answered(self, publisher: SimPublisher, number: int, node: str, payload: bytes) -> None:
        """What the broker `node` says of a message that it took."""
        if not payload:
            publisher.refused.add(number)
            self._given_up(publisher.stream, node)
            return
        answer = json.loads(payload)
        if "error" in answer:
            self._told_no(publisher, number, answer["error"])
            return
        publisher.waiting.discard(number)
        publisher.answered.add(number)
        self.world.ledger.acknowledged(publisher.stream, publisher.payload(number), answer["seq"])

    def _given_up(self, stream: str, name: str) -> None:
        """SF-29: a broker that stood still hears from the others before it gives up what it took."""
        woke_ms = (self.world.now_us - self.world.nodes[name].woke_us) // 1000
        if woke_ms < 0.9 * WINDOW_WAIT_MS and stream in self.known_streams:
            raise self.world.ledger.broken(
                f"SF-29: {name} gave something up {woke_ms} ms after it stood still"
            )

    def _told_no(self, publisher: SimPublisher, number: int, error: dict[str, object]) -> None:
        ledger = self.world.ledger
        if publisher.kind == "creator" and error["err_code"] == NOT_FIRST:
            ledger.told_refused(publisher.payload(number))
        elif error["err_code"] == NO_ROOM and "full_disk" in self.plan.faults:
            publisher.refused.add(number)
        elif error["err_code"] == STREAM_FULL and self.plan.refuses_when_full:
            publisher.waiting.discard(number)
            publisher.refused.add(number)
            if (
                publisher.kind != "retry"
            ):  # Another try, on its way through another broker, may meet with room.
                ledger.told_refused(publisher.payload(number))
        else:
            raise ledger.broken(f"{publisher.name} was refused: {error}")

    def _retry(self, publisher: SimPublisher, number: int) -> None:
        """No answer: the same message again, to whatever broker is there."""
        if number in publisher.waiting and not self._offer(publisher, self.choose(publisher), number):
            self.world.at(RETRY_MS, lambda: self._retry(publisher, number))

    def _broker_gone(self, name: str) -> None:
        """What only this broker had read may be gone with it (SF-2)."""
        for publisher in self.all:
            for number, node in publisher.taken.items():
                if node == name:
                    publisher.may_be_lost.add(number)
            if publisher.node == name:
                publisher.paused = False
                publisher.connections += 1

    # ---- the end --------------------------------------------------------------------------------------------------

    def weather_is_over(self) -> None:
        """One that the weather let send little sends no more than it can in the time that a run has to settle (seed 5046 before the
        rare faults): with one message at a time, each takes up to 160 ms."""
        for publisher in self.all:
            publisher.total = min(publisher.total, publisher.sent + LEFT_MAX)

    def unfinished(self) -> str:
        for publisher in self.all:
            if publisher.sent < publisher.total or publisher.waiting:
                waits = sorted(publisher.waiting)
                return f"{publisher.name} has sent {publisher.sent} of {publisher.total}, waits for {waits}"
        return ""

    def check(self, stream: str) -> None:
        """Every message of `stream` that was promised is stored (SF-1, SF-2)."""
        stored, broken = self.world.ledger.stored, self.world.ledger.broken
        for publisher in self.all:
            if publisher.stream != stream:
                continue
            for number in publisher.taken:
                payload = publisher.payload(number)
                if payload in stored or payload in self.world.ledger.refused:
                    continue
                if payload in self.world.ledger.recoveries.lost:  # As was announced (SF-9).
                    continue
                if number in publisher.answered:
                    raise broken(f"SF-1: {payload!r} was acknowledged and is gone")
                if (publisher.kind != "retry" and number in publisher.may_be_lost) or publisher.refused:
                    continue
                raise broken(f"invariant 2: {payload!r} was taken by {publisher.taken[number]} and is gone")
