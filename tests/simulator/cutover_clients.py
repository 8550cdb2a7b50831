"""Clients of both super-clusters while a stream goes from blue to green.

Some publishers stay connected to blue's brokers for good. Others go over to green once everything that they had sent was answered:
what they send there has to come behind (SF-3). One knocks at green before it is time; what it is refused must never be stored.
A reader asks both sides how far the stream is: a leader that is cut off may answer for a while by what it had, blue for ever by
nothing that green has gone beyond (rule 15).
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.simulator.cut_oracle import CutOracle
from tests.simulator.cutover_plan import BLUE, GREEN, CutoverPlan
from tests.simulator.cutover_world import CutoverWorld
from tests.simulator.publishers import ACCOUNT, Publishers, SimPublisher

Request = Callable[[str, str, Any, Callable[[dict[str, Any]], None]], None]
LOOK_MS = 60.0
KNOCK_MS = 400.0
REPEATED_PART = 0.3
REPEATED_MS_MAX = 4000.0
READ_MS = 90.0
# A leader that nobody hears any more answers for less than this of its own time (docs/adr/own-time.md).
STALE_MS = 5000.0


class CutoverPublishers(Publishers):
    """See the module."""

    world: CutoverWorld
    plan: CutoverPlan

    def __init__(
        self, world: CutoverWorld, plan: CutoverPlan, is_quiet: Callable[[], bool], oracle: CutOracle
    ) -> None:
        super().__init__(world, plan, is_quiet)
        self._cuts = oracle
        self._gone_over: set[str] = set()
        self._repeats = random.Random(f"repeats {world.seed}")
        self._side = {False: world.brokers(BLUE), True: world.brokers(GREEN)}

    def _kinds(self, main: str, side: str) -> list[tuple[str, str]]:
        kinds = [("plain", main), ("acked", main), ("retry", main), ("acked", main), ("acked", main)]
        return kinds + [("creator", main), ("creator", main)] * self.plan.creators

    def start(self, end_ms: float, main: str, side: str) -> None:
        super().start(end_ms, main, side)
        self._goers = [found for found in self.all if found.kind == "acked"][1:]
        self.world.at(LOOK_MS, self._look)

    @property
    def is_open(self) -> bool:
        """Does a client that asks green's brokers find the stream?"""
        return any(found.opened for found in self._cuts.streams.values())

    def choose(self, publisher: SimPublisher | None) -> str:
        if publisher is not None and publisher.kind in ("retry", "creator") and self.is_open:
            return self.rng.choice(self.world.names)  # Such a client knows the addresses of both.
        return self.rng.choice(self._side[publisher is not None and publisher.name in self._gone_over])

    def _answered(self, publisher: SimPublisher, number: int, node: str, payload: bytes) -> None:
        """Some of what has a Nats-Msg-Id is sent once more, as by a client that gave its answer up. A broker of green that has not read
        that the stream is open refuses what it is given (rule 2)."""
        if not payload and self.world.side_of[node] == GREEN and not self.is_open_at(node):
            if publisher.kind != "retry":
                self.world.ledger.told_refused(publisher.payload(number))
            return
        is_first = number not in publisher.answered
        super()._answered(publisher, number, node, payload)
        is_taken = is_first and number in publisher.answered and publisher.kind == "retry"
        if is_taken and self._repeats.random() < REPEATED_PART:
            late_ms = 200 + self._repeats.random() * REPEATED_MS_MAX
            self.world.at(late_ms, partial(self._repeat, publisher, number))

    def _repeat(self, publisher: SimPublisher, number: int) -> None:
        self._offer(publisher, self.choose(publisher), number)

    def _look(self) -> None:
        """Who is to go over does so with nothing unanswered."""
        self.world.at(LOOK_MS, self._look)
        if not self.is_open:
            return
        for publisher in self._goers:
            settled = len(publisher.answered | publisher.refused | publisher.may_be_lost)
            if publisher.name in self._gone_over or settled < publisher.sent or self.rng.random() < 0.8:
                continue
            self._gone_over.add(publisher.name)
            publisher.node = self.choose(publisher)  # No other connection by the ledger: the order goes on.
            publisher.paused = False
            self.world.note(f"{publisher.name} goes over to {publisher.node} with message {publisher.sent}")

    def _uncaptured(self, node: str, stream: str) -> None:
        if self.world.side_of[node] == BLUE or self.is_open_at(node):
            super()._uncaptured(node, stream)

    def is_open_at(self, node: str) -> bool:
        """Does this broker of green know that the stream is an ordinary one?"""
        core = self.world.nodes[node].core
        found = core.meta.state.streams.values() if core is not None and core.meta is not None else ()
        return any(one.following is None for one in found)


class Knocker:
    """Publishes at green before it is open."""

    def __init__(self, world: CutoverWorld, oracle: CutOracle) -> None:
        self._world = world
        self._cuts = oracle
        self.sent = 0
        self.refused = 0
        self.paused = False

    def pause(self, stream: str) -> None:
        self.paused = True

    def resume(self, stream: str) -> None:
        self.paused = False

    def error(self, text: str) -> None:
        """It waits for an answer of each."""

    def start(self) -> None:
        self._world.at(KNOCK_MS, self._knock)

    def _knock(self) -> None:
        world = self._world
        world.at(KNOCK_MS, self._knock)
        if any(found.opened for found in self._cuts.streams.values()) or self.paused:
            return
        node = world.rng.choice(world.brokers(GREEN))
        core = world.nodes[node].awake
        if core is None or not core.accepts_clients or core.meta is None:
            return
        subject = b"orders.1"
        window = core.capture(ACCOUNT, subject)
        follows = any(found.following is not None for found in core.meta.state.streams.values())
        if window is None:
            if follows and core.map.is_fresh:
                raise world.ledger.broken(
                    f"SF-19: a publish passes {node} uncaptured, while green's copy follows"
                )
            return
        number, reply = self.sent, b"_K.%d" % self.sent
        payload = b"knocks/%d:%d" % (number, number)
        world.on_reply(reply, lambda header, body: self._answered(payload, body))
        if window.take(self, subject, reply, b"", payload):
            self.sent += 1
            world.want_turn(node)
        else:
            world.forget_reply(reply)

    def _answered(self, payload: bytes, body: bytes) -> None:
        answer = json.loads(body) if body else {}
        if "seq" in answer:
            self._world.ledger.acknowledged(answer["stream"], payload, answer["seq"])
        else:
            self.refused += 1
            self._world.ledger.told_refused(payload)


class Reader:
    """Asks how far the stream is."""

    def __init__(self, world: CutoverWorld, stream: str, request: Request, oracle: CutOracle) -> None:
        self._world = world
        self._stream = stream
        self._request = request
        self._cuts = oracle
        self.answers = 0
        self._ran_ms = dict.fromkeys(world.names, 0.0)
        """How long each broker did not stand still: only that time tells a leader that it was deposed."""
        self._acked: deque[tuple[dict[str, float], int]] = deque([(self._ran_ms, 0)])
        """How long each had run when what was the last acknowledged message."""

    def start(self) -> None:
        self._world.at(READ_MS, self._read)

    def _least(self) -> int:
        """What nobody may have missed any more."""
        nodes = self._world.nodes
        self._ran_ms = {
            name: ran_ms + READ_MS * (not nodes[name].stands_still) for name, ran_ms in self._ran_ms.items()
        }
        self._acked.append((self._ran_ms, max(self._world.ledger.acked.values(), default=0)))
        while len(self._acked) > 1 and self._is_old(self._acked[1][0]):
            self._acked.popleft()
        return self._acked[0][1] if self._is_old(self._acked[0][0]) else 0

    def _is_old(self, then_ms: dict[str, float]) -> bool:
        return all(ran_ms - then_ms[name] >= STALE_MS for name, ran_ms in self._ran_ms.items())

    def _read(self) -> None:
        world = self._world
        world.at(READ_MS, self._read)
        is_open = any(found.opened for found in self._cuts.streams.values())
        node = world.rng.choice(world.names if is_open else world.brokers(BLUE))
        least = self._least()

        def told(answer: dict[str, Any]) -> None:
            last = answer.get("state", {}).get("last_seq")
            if last is None:
                return
            self.answers += 1
            if last < least:
                raise world.ledger.broken(
                    f"rule 15: {node} tells {last} as the last message of {self._stream}; {least} was acknowledged {STALE_MS} ms of its own time before"
                )

        self._request(node, f"$JS.API.STREAM.INFO.{self._stream}", None, told)
