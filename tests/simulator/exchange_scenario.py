"""One seeded run in which copies of a stream become of no use, or their brokers go away, for short and for long, and an operator asks
for exchanges all the time, of healthy copies as well (MR-2, MR-6).

The brokers judge last: what they exchange must really have been of no use for the interval that was asked for, as this scenario
sees it by itself; and what stays of no use has to be exchanged.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from tests.simulator.ledger import MAIN
from tests.simulator.plan import Plan
from tests.simulator.publishers import ACCOUNT
from tests.simulator.recover_scenario import RecoverScenario
from tests.simulator.scenario import SIDE
from tests.simulator.world import Faults

from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.raft.confchange import node_of

SECONDS_LEAST = 80.0
INTERVAL_MS = 10_000
# Clocks drift, and the scenario looks only now and then.
SLACK_MS = 1500
LOOK_MS = 250
# A copy that was open for so long without a pause is usable for everybody: it counts as such after 10 s, which are told 2 s later
# and written down a second after that.
WELL_MS = 16_000
# A copy is tried again some seconds after its disk is well.
PAUSE_MS = WELL_MS + 14_000
# Behind the interval: the copy's broker tells of it, the map notes it after 5 s, and somebody asks.
EXCHANGED_MS = 25_000
FOR_EVER = 1 << 30
ENDS_PART = 0.8


class ExchangeScenario(RecoverScenario):
    """See the module."""

    def __init__(self, seed: int, *, seconds: float = SECONDS_LEAST) -> None:
        super().__init__(seed, seconds=max(seconds, SECONDS_LEAST))
        self._bad_since: dict[str, float] = {}
        """Node → since when its copy has been of no use, but for moments."""
        self._well_since: dict[str, float] = {}
        self._troubled = ""
        self._how_it_is = ""
        self._asked = 0
        self._asks_from_ms = 0.0
        self.exchanged = 0

    def _draw(self, rng: random.Random) -> Plan:
        plan = super()._draw(rng)
        plan.fsync = "interval"
        return plan

    @property
    def _now_ms(self) -> float:
        return self.world.now_us / 1000

    @property
    def _is_over(self) -> bool:
        return self._now_ms >= self.seconds * 1000 * ENDS_PART

    def run(self) -> None:
        """All of it; raises `InvariantBrokenError` when a promise does not hold."""
        world, rng = self.world, self.rng
        for name in world.names:
            world.at(rng.random() * 300, partial(world.start, name))
        world.at(700, self._create_main)
        self.publishers.start(self.seconds * 1000 * ENDS_PART, MAIN, SIDE)
        if rng.random() < 0.5:
            world.faults = Faults(loss=0.01, repeat=0.01, reorder=0.02, delay_max_ms=8.0)
        world.at(2500, self._look)
        world.at(3000, self._operator)
        world.at(4000 + rng.random() * 8000, self._trouble)
        world.run(self.seconds * 1000 * ENDS_PART)
        self._heal()
        world.faults = Faults()
        world.run(self.seconds * 1000)
        self._settle()
        self._check_end()

    # ---- what happens to copies -----------------------------------------------------------------------------------

    def _members(self) -> list[str]:
        found = self._assignment()
        return [node_of(member) for member in found.members] if found is not None else []

    def _trouble(self) -> None:
        """One member's copy at a time: the others are a majority."""
        found = self._assignment()
        if (
            self._is_over
            or self._troubled
            or found is None
            or found.move is not None
            or len(found.members) != 3
        ):
            if not self._is_over:
                self.world.at(1000, self._trouble)
            return
        world, rng = self.world, self.rng
        node = rng.choice(self._members())
        self._troubled = node
        is_short = rng.random() < 0.5
        if rng.random() < 0.7:
            disk = world.nodes[node].store.disk
            notes = [path for path in disk.paths() if f"%2e{MAIN}%2e" in path and path.endswith("/notes")]
            disk.failing_writes_of = notes[0] if notes else "nothing"
            disk.failing_writes = FOR_EVER
            self._how_it_is = "its disk refuses"
        else:
            world.stop(node, power=False)
            self._how_it_is = "it is down"
        world.note(
            f"the copy on {node} is of no use ({self._how_it_is}), for {'short' if is_short else 'long'}"
        )
        if is_short:
            lasts_ms = 1000 + rng.random() * 8000
            world.at(lasts_ms, partial(self._heal, node))
            if rng.random() < 0.6:
                # Nobody asks before the copy has been usable again for long.
                self._asks_from_ms = self._now_ms + lasts_ms + PAUSE_MS

    def _heal(self, node: str = "") -> None:
        if node and node != self._troubled:
            return
        if self._troubled:
            self.world.nodes[self._troubled].store.disk.failing_writes = 0
            self.world.start(self._troubled)
            self.world.note(f"{self._troubled} is well again")
        self._troubled = ""
        self.world.at(4000 + self.rng.random() * 16_000, self._trouble)

    # ---- what this scenario knows -----------------------------------------------------------------------------------

    def _is_well(self, node: str, group_id: str) -> bool:
        core = self.world.nodes[node].core
        group = core.groups.get(group_id) if core is not None else None
        return isinstance(group, StreamReplica) and group.failed is None

    def _look(self) -> None:
        if self._is_over:
            return
        self.world.at(LOOK_MS, self._look)
        found, now_ms = self._assignment(), self._now_ms
        if found is None:
            return
        members = self._members()
        for node in members:
            if not self._is_well(node, found.group):
                self._well_since.pop(node, None)
                self._bad_since.setdefault(node, now_ms)
            elif now_ms - self._well_since.setdefault(node, now_ms) >= WELL_MS:
                self._bad_since.pop(node, None)
        for node in self._bad_since.keys() - set(members):
            self._bad_since.pop(node)
            self._well_since.pop(node, None)
        node = self._troubled
        if node and node not in members and found.move is None:
            self.exchanged += 1
            self._heal()
        elif node in self._bad_since and found.move is None:
            bad_ms = now_ms - max(self._bad_since[node], self._asks_from_ms)
            if bad_ms > INTERVAL_MS + EXCHANGED_MS:
                raise self.world.ledger.broken(
                    f"MR-2: the copy on {node} has been of no use for {bad_ms:.0f} ms ({self._how_it_is}), and is a member still"
                )

    # ---- the operator ---------------------------------------------------------------------------------------------

    def _operator(self) -> None:
        """Asks for what is due and for what is not: the brokers judge last."""
        if self._is_over:
            return
        self.world.at(400 + self.rng.random() * 600, self._operator)
        members, there = self._members(), self._cores()
        if not members or not there or self._now_ms < self._asks_from_ms:
            return
        node = (
            self._troubled
            if self._troubled in members and self.rng.random() < 0.7
            else self.rng.choice(members)
        )
        core = self.rng.choice(there)
        self._asked += 1
        body = {"replace": [node], "awayMs": INTERVAL_MS, "id": f"repair-{self._asked}"}
        # The answer may come when the exchange is over and the node, no member any more, is well.
        since_ms = self._bad_since.get(node)

        def answered(status: int, told: Any) -> None:
            if status != 202:
                return
            self.world.note(f"{node} is exchanged")
            bad_ms = self._now_ms - (since_ms or self._bad_since.get(node, self._now_ms))
            if bad_ms + SLACK_MS < INTERVAL_MS:
                raise self.world.ledger.broken(
                    f"MR-2: the copy on {node} is exchanged, which has been of no use for {bad_ms:.0f} ms, of {INTERVAL_MS}"
                )

        core.calls.move("POST", ACCOUNT, MAIN, body, answered)
        self.world.want_turn(core.node)
