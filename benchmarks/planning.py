"""How long the planner of repairs takes for 10,000 streams on 30 brokers of which one is lost, and that it does nothing where
nothing is wrong."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from benchmarks.client import BenchError
from benchmarks.table import Row, Target

from supercluster.api.replica_policy import RepairRules
from supercluster.reconcilers.planners.replica.repairs import RepairPlan, StreamState, plan_repairs
from supercluster.reconcilers.planners.replica.rules import Rule
from supercluster.reconcilers.planners.strategies import BUILT_IN, Node

STREAMS, BROKERS = 10_000, 30
BUDGET = {"concurrentMax": 64, "concurrentPerNodeMax": 8}
LOST = "b07"


def world() -> tuple[dict[str, Node], list[StreamState]]:
    """Everything is well: brokers in three zones, streams with three replicas each, spread evenly."""
    names = [f"b{number:02d}" for number in range(BROKERS)]
    nodes = {name: Node(name, "east", zone=f"z{number % 3}") for number, name in enumerate(names)}
    rules = RepairRules.model_validate({"budget": BUDGET, "checkInterval": "1s"})
    rule = Rule(3, rules, "ReplicaPolicy all", "it is the only one", "all")
    streams = [
        StreamState(
            f"s{n}", tuple(names[(n + step) % BROKERS] for step in (0, 7, 14)), names[n % BROKERS], rule
        )
        for n in range(STREAMS)
    ]
    return nodes, streams


def run(runs: int) -> list[Row]:
    """Rows of the table.

    Raises:
        BenchError: the plan is not what it has to be.
    """
    name = f"plan of repairs, {STREAMS:,d} streams on {BROKERS} brokers"
    first = Row(f"{name}, one of which is lost", "s", Target(1.0, at_least=False))
    well = Row(f"{name}, all of them well", "s", Target(1.0, at_least=False))
    steps = Row(f"{name}, all of them well: repairs planned", "repairs", Target(0, at_least=False))
    steps.by_worst = True
    now = datetime(2026, 1, 1, tzinfo=UTC)
    nodes, streams = world()
    lost = {
        **nodes,
        LOST: replace(nodes[LOST], away_since=now - timedelta(seconds=90), in_contact=False),
    }
    hit = sum(LOST in stream.members for stream in streams)
    for _ in range(runs):
        began = time.perf_counter()
        found = plan_repairs(lost, streams, (), BUILT_IN, now)
        first.ours.append(time.perf_counter() - began)
        if len(found.repairs) != BUDGET["concurrentMax"] or len(found.below) != hit:
            raise BenchError(
                f"{len(found.repairs)} repairs are planned, and {len(found.below)} of {hit} streams named"
            )
        began = time.perf_counter()
        nothing = plan_repairs(nodes, streams, (), BUILT_IN, now)
        well.ours.append(time.perf_counter() - began)
        steps.ours.append(len(nothing.repairs))
        if nothing != RepairPlan():
            raise BenchError(f"where all is well, the plan is {nothing}")
    return [first, well, steps]
