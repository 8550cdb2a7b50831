"""Who moves streams and changes their count of replicas while the weather is bad: an operator's calls and any client's, and
cancels at random points.

Also whoever looks: STREAM.INFO at random brokers, whose members must be those in force.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulator.move_oracle import MoveOracle
from tests.simulator.publishers import ACCOUNT
from tests.simulator.super_world import SuperWorld

from supercluster.broker.raft.confchange import node_of

Ask = Callable[[str, Any, Callable[[dict[str, Any]], None]], None]
# What may be said to a move, its cancel or a removed peer: no suitable peers, no leader, in progress, nothing runs, …
REFUSALS = {10005, 10008, 10023, 10040, 10059, 10075, 10118, 10124, 10129}
MOVE_AND_SCALE = 10123
REPLICAS_MAX = 5
SCALES_PART = 0.35


class Movers:
    """See the module."""

    def __init__(self, world: SuperWorld, oracle: MoveOracle, stream: str, ask: Ask) -> None:
        self._world = world
        self._plan = world.plan
        self._rng = world.rng
        self._oracle = oracle
        self._stream = stream
        self._ask = ask
        self._until_us = 0
        oracle.on_turn = self._at_a_turn

    def start(self, end_ms: float) -> None:
        """Moves from now on, the last one just before the end; looks until the run is over."""
        self._until_us = int(end_ms * 1000)
        self._world.at(2500 + self._rng.random() * 2500, self._act)
        self._world.at(1500, self._look)

    def _act(self) -> None:
        rng, world = self._rng, self._world
        if world.now_us >= self._until_us:
            return
        if self._oracle.assignment is not None:
            kind = rng.random()
            if self._plan.scales and rng.random() < SCALES_PART:
                self._scale()
            elif kind < 0.45:
                self._update()
            elif kind < 0.8:
                self._call()
            elif kind < 0.95:
                self._remove_peer()
            else:
                self._cancel()
            if rng.random() < self._plan.cancels:
                world.at(rng.choice((200, 1500)) * rng.random(), self._cancel)
        world.at(700 + rng.random() * 3500, self._act)

    def _elsewhere(self) -> str:
        """A cluster; mostly not the one where the stream is."""
        found = self._oracle.assignment
        here = found.config.placement.cluster if found is not None else ""
        others = [name for name in self._plan.clusters if name != here]
        return self._rng.choice(others if self._rng.random() < 0.9 else list(self._plan.clusters))

    def _count(self) -> int:
        """The count of replicas that is configured, as far as anybody has applied it."""
        found = self._oracle.assignment
        return found.config.num_replicas if found is not None else self._plan.replicas

    def _answered(self, what: str, also: int = 0) -> Callable[[dict[str, Any]], None]:
        def answered(answer: dict[str, Any]) -> None:
            error = answer.get("error")
            self._world.note(f"{what}: {error or 'taken'}")
            code = error["err_code"] if isinstance(error, dict) else answer.get("err_code")
            if error and code not in REFUSALS and code != also:
                raise self._world.ledger.broken(f"{what} was refused: {answer}")

        return answered

    def _update(self) -> None:
        """Any client's STREAM.UPDATE."""
        cluster = self._elsewhere()
        config = {
            **self._plan.config(self._stream, "orders.>"),
            "placement": {"cluster": cluster},
            "num_replicas": self._count(),
        }
        # Another count may have been configured a moment ago.
        also = MOVE_AND_SCALE if self._plan.scales else 0
        self._ask(
            f"$JS.API.STREAM.UPDATE.{self._stream}", config, self._answered(f"update to {cluster}", also)
        )

    def _scale(self) -> None:
        """Another count of replicas, by any client's STREAM.UPDATE or the operator's call."""
        found = self._oracle.assignment
        assert found is not None
        counts = [n for n in range(self._plan.replicas, REPLICAS_MAX + 1) if n != self._count()]
        wanted = self._rng.choice(counts)
        if self._rng.random() < 0.5:
            self._operate("POST", {"replicas": wanted, "bytesPerS": self._rng.choice((0, 100_000))})
            return
        config = found.config.to_json() | {"num_replicas": wanted}
        answered = self._answered(f"update to {wanted} replicas", MOVE_AND_SCALE)
        self._ask(f"$JS.API.STREAM.UPDATE.{self._stream}", config, answered)

    def _call(self) -> None:
        """The operator's call, with a limit to the bytes per second or without one."""
        body = {
            "placement": {"cluster": self._elsewhere()},
            "bytesPerS": self._rng.choice((0, 20_000, 100_000)),
        }
        self._operate("POST", body)

    def _operate(self, method: str, body: Any) -> None:
        node = self._rng.choice(self._world.names)
        core = self._world.nodes[node].core
        if core is None or not core.accepts_clients:
            return
        answered = self._answered(f"{method} {body} at {node}")
        core.calls.move(method, ACCOUNT, self._stream, body, lambda status, found: answered(found))
        self._world.want_turn(node)

    def _remove_peer(self) -> None:
        found = self._oracle.assignment
        if found is not None:
            peer = self._rng.choice([node_of(member) for member in found.members])
            subject = f"$JS.API.STREAM.PEER.REMOVE.{self._stream}"
            self._ask(subject, {"peer": peer}, self._answered(f"peer {peer} removed"))

    def _cancel(self) -> None:
        found = self._oracle.assignment
        if self._world.now_us >= self._until_us or found is None or found.move is None:
            return
        if self._rng.random() < 0.5:
            self._operate("DELETE", None)
        else:
            subject = f"$JS.API.ACCOUNT.STREAM.CANCEL_MOVE.{ACCOUNT}.{self._stream}"
            self._ask(subject, None, self._answered("cancel"))

    def _at_a_turn(self) -> None:
        """The membership just became joint, or is not any more: where a cancel comes last in time, or too late."""
        if self._rng.random() < self._plan.cancels:
            self._world.at(self._rng.choice((0.1, 20)) * self._rng.random(), self._cancel)

    def _look(self) -> None:
        asked_us = self._world.now_us
        if self._oracle.assignment is not None:
            self._ask(
                f"$JS.API.STREAM.INFO.{self._stream}",
                None,
                lambda answer: self._oracle.told(answer, asked_us),
            )
        self._world.at(300 + self._rng.random() * 800, self._look)
