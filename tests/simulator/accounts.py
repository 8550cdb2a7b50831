"""A person who gives the streams' account limits, other ones, and takes them back, while streams come and go.

Judged by the ledger: no stream begins beyond the limit that stands in the log before it, and every broker that applied an entry
of the map has the same map. It has randomness of its own, so that seeds without it do what they did.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tests.simulator.publishers import ACCOUNT

if TYPE_CHECKING:
    from tests.simulator.world import World

# Of the seeds whose streams come and go.
PART = 0.6
# One stream is there all the time: with 1 no second one may come.
LIMITS = (1, 1, 2, 3)
# A call that is under way has ended after this, whatever became of its broker.
CALL_MS = 6000


class Limits:
    """See the module."""

    def __init__(self, world: World, *, streams_come_and_go: bool) -> None:
        self._world = world
        self._rng = random.Random(f"limits of accounts {world.seed}")
        self.is_there = streams_come_and_go and self._rng.random() < PART
        self._end_us = 0

    def start(self, end_ms: float) -> None:
        if self.is_there:
            self._end_us = int(end_ms * 1000)
            self._world.at(1000 + self._rng.random() * 2000, self._change)

    def _change(self) -> None:
        if self._world.now_us >= self._end_us:
            self._world.at(CALL_MS, self._withdraw)
            return
        if self._rng.random() < 0.2:
            self._call("DELETE", None)
        else:
            self._call("PUT", {"streamsMax": self._rng.choice(LIMITS)})
        self._world.at(300 + self._rng.random() * 3000, self._change)

    def _withdraw(self) -> None:
        """Until it is so: by then every stream has to come that is asked for."""
        if self.is_there:
            self._call("DELETE", None)
            self._world.at(700, self._withdraw)

    def _call(self, method: str, body: dict[str, Any] | None) -> None:
        node = self._rng.choice(self._world.names)
        core = self._world.nodes[node].awake
        if core is None or not core.accepts_clients:
            return
        is_last = self._world.now_us >= self._end_us

        def answered(status: int, told: Any) -> None:
            self._world.note(f"{method} of the account's limits {body}: {status}")
            if status == 200 and is_last:
                self.is_there = False

        core.calls.account(method, ACCOUNT, body, answered)
        self._world.want_turn(node)
