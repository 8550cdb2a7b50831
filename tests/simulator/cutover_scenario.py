"""One seeded run of two super-clusters whose streams go from blue to green: clients on both sides, and weather within and between.

In the end the stream is green's, every promise of a single cluster holds over the two, and what was published last, through blue
and through green, is there. Then the migration is finalized, blue's copies go, and a late client finds nothing of blue's own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.simulator.cut_oracle import CutOracle
from tests.simulator.cutover_clients import CutoverPublishers, Knocker, Reader
from tests.simulator.cutover_operator import Operator
from tests.simulator.cutover_plan import BLUE, GREEN, CutoverPlan, draw_cutover
from tests.simulator.cutover_weather import CutoverWeather
from tests.simulator.cutover_world import CutoverWorld
from tests.simulator.ledger import MAIN, History
from tests.simulator.plan import Plan
from tests.simulator.publishers import ACCOUNT
from tests.simulator.scenario import WEATHER_PART, Scenario
from tests.simulator.weather import Weather
from tests.simulator.world import World

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.stream.replica import StreamReplica

LATE_CLIENT_MS = 10_000
# What was called off is back so much later at most, in fair weather, and the next migration begins.
AFTER_ABORT_S = 10.0
# How long blue may take to clean up behind the last word, once nothing is in the way.
CLEAN_MS = 40_000


class CutoverScenario(Scenario):
    """See the module."""

    plan: CutoverPlan
    world: CutoverWorld
    publishers: CutoverPublishers

    def __init__(self, seed: int, *, seconds: float = 30.0) -> None:
        super().__init__(seed, seconds=seconds)
        self.seconds += AFTER_ABORT_S * len(self.plan.aborts_after_ms)
        world = self.world
        for ledger in world.ledgers[1:]:
            ledger.share_streams(world.ledger)  # What the plan has made of the ledger since.
        self.publishers = CutoverPublishers(world, self.plan, lambda: self._is_quiet, self.cuts)
        self.publishers.slowness = max(self.seconds / 60, 1.0)
        self.operator = Operator(world, self.plan, self.cuts)
        self.knocker = Knocker(world, self.cuts)
        self.reader = Reader(world, MAIN, self.request, self.cuts)
        self.world.ledger.retention.group = self._group_now

    def _draw(self, rng: random.Random) -> Plan:
        return draw_cutover(rng)

    def _changes_fsync(self, seed: int) -> bool:
        return False

    def _has_copies(self, seed: int) -> bool:
        return False

    def _new_world(self, seed: int, rng: random.Random) -> World:
        world = CutoverWorld(seed, self.plan, rng)
        self.cuts = CutOracle(world)
        world.after_turn = self._after_turn  # type: ignore[method-assign]
        return world

    def _after_turn(self, node: str, core: BrokerCore) -> None:
        self.cuts.after_turn(node, core.groups)
        if self.world.side_of[node] == BLUE:
            self.cuts.kept(node, core)

    def _new_weather(self) -> Weather:
        return CutoverWeather(self.world, self.plan, self._step_down, self.cuts)

    @property
    def _is_quiet(self) -> bool:
        around_ms = self.world.now_us / 1000 - self.plan.starts_ms
        return self.weather.is_quiet or (self.plan.is_idle and -1000 < around_ms < 4000)

    # ---- the run --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """All of it; raises `InvariantBrokenError` when a promise does not hold."""
        world = self.world
        for name in world.names:
            world.at(self.rng.random() * 300, partial(world.start, name))
        world.at(700, self._create_main)
        weather_end_ms = self.seconds * 1000 * WEATHER_PART
        self.weather.start(weather_end_ms)
        self.publishers.start(weather_end_ms, MAIN, "")
        self.consumer.start(lambda: self._is_quiet)
        self.operator.start()
        self.knocker.start()
        self.reader.start()
        if self.plan.removes:
            world.at(3000, self._remove_something)
        world.run(weather_end_ms)
        self.weather.clear()
        world.run(self.seconds * 1000)
        world.run_until(self._is_under_way, 1000 * AFTER_ABORT_S * len(self.plan.aborts_after_ms))
        self._settle()
        self._check_end()
        self._clean_up()

    def _is_under_way(self) -> bool:
        """Does the last migration run, or is none needed any more?"""
        return self.operator.starts > len(self.plan.aborts_after_ms) or self.publishers.is_open

    def _anywhere(self, subject: str, body: Any, done: Callable[[dict[str, Any]], None]) -> None:
        names = self.world.names if self.publishers.is_open else self.world.brokers(BLUE)
        self.request(self.rng.choice(names), f"$JS.API.STREAM.{subject}", body, done)

    def _group_of_main(self) -> str:
        """Blue's, until green's is open."""
        if not self.group:
            for core in self.world.cores(BLUE):
                found = core.meta.state.streams.get((ACCOUNT, MAIN)) if core.meta is not None else None
                if found is not None:
                    self.group = found.group
        return self._group_now()

    def _group_now(self) -> str:
        stream = self.cuts.of(self.group) if self.group else None
        return stream.group_now if stream is not None else self.group

    def _history(self) -> History | None:
        return self.world.ledger.groups.get(self._group_of_main())

    # ---- the end --------------------------------------------------------------------------------------------------

    def _unsettled(self) -> str:
        """What there is still to do; "" when everything has come to rest."""
        stream, history = self.cuts.of(self.group) if self.group else None, self._history()
        if stream is None or history is None:
            return "the stream was never created"
        unfinished = self.publishers.unfinished()
        if unfinished:
            return unfinished
        if not stream.opened:
            return f"green has not opened the stream: {self._stage()}"
        for name, node in self.world.nodes.items():
            if node.core is None:
                return f"{name} is down"
            for window in node.core.ingest.windows.values():
                if window.unconfirmed:
                    return f"{name} holds {window.unconfirmed} unconfirmed messages of {window.stream}"
        for core in self.world.cores(BLUE):
            found = core.meta.state.streams.get((ACCOUNT, MAIN)) if core.meta is not None else None
            if found is None or found.group != stream.heir:
                return f"the map of {core.key} has {found and found.group}, {stream.heir} is open"  # type: ignore[attr-defined]
        replicas = 0
        for key in self.world.brokers(GREEN):
            core_ = self.world.nodes[key].core
            group = core_.groups.get(stream.heir) if core_ is not None else None
            if group is None:
                continue
            replicas += 1
            if group.failed is not None:
                return f"{key} failed: {group.failed}"
            if group.applied_index != history.last_index:
                return f"{key} applied {group.applied_index} of {history.last_index}"
            if group.member not in group.raft.membership.voters:
                return f"{key} is {group.member}, voters are {group.raft.membership.voters}"
        if replicas != self.plan.replicas:
            return f"{MAIN} has {replicas} replicas instead of {self.plan.replicas}"
        if self.plan.keeps_all and self.plan.kind == "limits":
            lacking = history.message_at.keys() - self.consumer.delivered.keys()
            if lacking:
                return f"the consumer lacks {len(lacking)} of {len(history.message_at)} messages, {min(lacking)} first"
        return ""

    def _stage(self) -> str:
        for core in self.world.cores(BLUE):
            if core.meta is not None and core.meta.serves:
                found = core.meta.state.streams.get((ACCOUNT, MAIN))
                return f"{found.migration if found is not None else 'no stream'}, of {core.meta.state.migrations}"
        return "blue's map has no leader"

    def _replica(self, key: str) -> StreamReplica | None:
        core = self.world.nodes[key].core
        group = core.groups.get(self._group_now()) if core is not None else None
        return group if isinstance(group, StreamReplica) else None

    # ---- behind the last word -----------------------------------------------------------------------------------------

    def _clean_up(self) -> None:
        """FINALIZE: blue's copies go. Then a client that comes late to blue gets green's stream."""
        world = self.world
        self.operator.finalize()
        if not world.run_until(self._is_clean, CLEAN_MS):
            raise world.ledger.broken(f"BG-8: not clean {CLEAN_MS} ms after the last word: {self._dirt()}")
        self._late_client()
        self.publishers.check(MAIN)

    def _is_clean(self) -> bool:
        return self.world.steps % 64 == 0 and not self._dirt()

    def _dirt(self) -> str:
        if not self.operator.is_finalized:
            return "nobody took the last word"
        for key in self.world.brokers(BLUE):
            core = self.world.nodes[key].core
            if core is not None and self.group in core.store.registered():
                return f"{key} holds a copy of {self.group}"
        return ""

    def _late_client(self) -> None:
        """BG-8: it creates what it believes to be its stream on blue, and publishes there."""
        world, answers = self.world, list[dict[str, Any]]()
        history = self._history()
        assert history is not None
        # Expired messages leave markers, so green's stream may grow while it is asked.
        last_before = history.last_seq

        def create() -> None:
            if not answers:
                node = self.rng.choice(world.brokers(BLUE))
                config = self.plan.config(MAIN, "orders.>")
                self.request(node, f"$JS.API.STREAM.CREATE.{MAIN}", config, answers.append)
                world.at(1000, create)

        create()
        if not world.run_until(lambda: bool(answers), LATE_CLIENT_MS):
            raise world.ledger.broken("BG-8: who creates the stream's name on blue gets no answer")
        world.note(f"a late client is told {answers[0]}")
        last = answers[0].get("state", {}).get("last_seq", -1)
        if last < last_before:
            raise world.ledger.broken(
                f"BG-8: who creates the stream's name on blue is told {answers[0]}; green had {last_before}"
            )
        for core in world.cores(BLUE):
            group = self._own_group(core)
            if group != self._group_now():
                raise world.ledger.broken(
                    f"BG-8: {MAIN} is {group} on blue after all, and {self._group_now()}"
                )

    @staticmethod
    def _own_group(core: BrokerCore) -> str:
        found = core.meta.state.streams.get((ACCOUNT, MAIN)) if core.meta is not None else None
        return found.group if found is not None else ""
