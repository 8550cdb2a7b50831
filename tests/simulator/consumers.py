"""A durable pull consumer and its client, which forgets, refuses and confirms messages, at once or late.

What it gets is committed and what is stored under that sequence; in the end it got every message; and one whose
acknowledgement was confirmed (double ack) never comes again (SF-2). Where messages stay until they are acknowledged, its
deliveries are used up soon, and it often says so only when they are (`retention`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.simulator.ledger import History
from tests.simulator.world import World

from supercluster.broker.ports import ClientInfo

INFO = ClientInfo("$G", "sim", False)
DELIVERIES_MAX = 2
ACK_WAIT_MS = 2000
AGAIN_MS = 1000
Request = Callable[[str, str, Any, Callable[[dict[str, Any]], None]], None]


class SimConsumer:
    """See the module."""

    def __init__(
        self, world: World, stream: str, request: Request, history: Callable[[], History | None]
    ) -> None:
        self.world = world
        self.rng = world.rng
        self.delivered: dict[int, bytes] = {}
        self.confirmed: set[int] = set()
        self._stream = stream
        self._request = request
        self._history = history
        self._replies = 0
        self.refuses_all = False
        """Is every message refused, and wanted again at once?"""

    def start(self, is_quiet: Callable[[], bool]) -> None:
        world, stream = self.world, self._stream
        inbox = b"_I.consumer"
        world.on_inbox(inbox, self._deliver)
        config = {"durable_name": "worker", "ack_policy": "explicit", "ack_wait": ACK_WAIT_MS * 1_000_000}
        if self._is_slow:
            config["max_deliver"] = DELIVERIES_MAX

        def create() -> None:
            subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.worker"
            body = {"stream_name": stream, "config": config}
            self._request(self.rng.choice(world.names), subject, body, made)

        def made(answer: dict[str, Any]) -> None:
            if "error" in answer:  # Of two super-clusters, the other one may have been asked.
                world.at(AGAIN_MS, create)

        def pull() -> None:
            node = self._broker()
            core = world.nodes[node].awake
            if core is not None and core.accepts_clients and not is_quiet():
                batch = self.rng.choice((2, 10, 50, 150))
                body = json.dumps({"batch": batch, "expires": 900_000_000}).encode()
                core.on_api(INFO, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.worker".encode(), inbox, b"", body)
                world.want_turn(node)
            world.at(50 if world.sought else 800, pull)

        for at_ms in (2500, 4000, 8000, 12000, 22000):
            world.at(at_ms, create)
        world.at(3000, pull)

    @property
    def _is_slow(self) -> bool:
        return self.world.ledger.retention.kind != "limits"

    def _broker(self) -> str:
        """Where the client is connected now."""
        if self.world.sought and self.rng.random() < 0.5:
            return self.world.sought
        return self.rng.choice(self.world.names)

    def _deliver(self, items: Sequence[Any]) -> None:
        history = self._history()
        for _, reply, _, payload in items:
            if not reply:
                continue
            seq = int(reply.split(b".")[5])
            if history is None or history.message_at.get(seq) != bytes(payload):
                raise self.world.ledger.broken(
                    f"RP-1: {bytes(payload)!r} was delivered as {seq} and is not committed"
                )
            if seq in self.confirmed:
                raise self.world.ledger.broken(
                    f"SF-2: message {seq} comes again, though its acknowledgement was confirmed"
                )
            self.delivered[seq] = bytes(payload)
            self._answer(seq, reply)

    def _answer(self, seq: int, reply: bytes) -> None:
        """Mostly acknowledge; sometimes wait for the confirmation, sometimes refuse, sometimes say nothing."""
        fate = self.rng.random()
        if self.refuses_all:
            self._say(0.34, seq, reply)
            return
        if fate >= 0.85:
            return
        late_ms = self.rng.random() * 900 if self.rng.random() < 0.2 else 0.0
        if late_ms and self._is_slow:
            late_ms *= 3 * DELIVERIES_MAX * ACK_WAIT_MS / 900
        if late_ms:
            self.world.at(late_ms, lambda: self._say(fate, seq, reply))
        else:
            self._say(fate, seq, reply)

    def _say(self, fate: float, seq: int, reply: bytes) -> None:
        node = self._broker()
        core = self.world.nodes[node].awake
        if core is None or not core.accepts_clients:
            return
        confirm, verdict = b"", b"+ACK"
        if fate < 0.3:
            self._replies += 1
            confirm = b"_D.%d" % self._replies
            self.world.on_reply(confirm, lambda header, body: self._confirmed(seq, header))
        elif fate < 0.35:
            verdict = b"-NAK"
        if verdict == b"+ACK":
            self.world.ledger.retention.said.add(seq)
        core.on_api(INFO, reply, confirm, b"", verdict)
        self.world.want_turn(node)

    def _confirmed(self, seq: int, header: bytes) -> None:
        if not header:
            self.confirmed.add(seq)
