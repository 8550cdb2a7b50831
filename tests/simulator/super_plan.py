"""What a seed stands for where there are several clusters: their sizes, and how streams are moved between them.

Everything else (limits, storage, kinds of faults) is drawn as for a single cluster, from the same generator.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import Any

from tests.simulator.plan import Plan, draw

SHAPES = ((3, 3), (3, 3), (3, 3, 3), (3, 3, 5))
CLUSTERS = ("east", "west", "north")
# Whole clusters that are cut off, relative to the faults of single brokers; and a target of a move that is struck.
CLUSTER_FAULTS = {"cut_cluster": 4.0, "target": 3.0}


@dataclass(slots=True)
class SuperPlan(Plan):
    """See the module."""

    shape: tuple[int, ...] = ()
    home: str = ""
    """The cluster that the stream is made in."""
    bad_copies: bool = False
    """May new copies read other bytes than they were sent?"""
    cancels: float = 0.3
    """Part of the moves that are cancelled at a random point."""
    grace_ms: int = 2000
    """How long copies of former members are kept."""
    scales: bool = False
    """Is the count of replicas changed as well? It never goes below `replicas`, which the weather counts on."""

    @property
    def cluster_of(self) -> dict[str, str]:
        """node → cluster."""
        return {
            f"{cluster}-{number}": cluster
            for cluster, count in zip(CLUSTERS, self.shape, strict=False)
            for number in range(count)
        }

    @property
    def clusters(self) -> tuple[str, ...]:
        return CLUSTERS[: len(self.shape)]

    def config(self, name: str, subject: str) -> dict[str, Any]:
        found = Plan.config(self, name, subject)
        return {**found, "placement": {"cluster": self.home}}


def draw_super(rng: random.Random) -> SuperPlan:
    """The plan of a seed."""
    base = draw(rng)
    shape = rng.choice(SHAPES)
    drawn: dict[str, Any] = {field.name: getattr(base, field.name) for field in fields(base)}
    drawn |= {"nodes": sum(shape), "meta_voters": shape[0], "replicas": min(base.replicas, 3)}
    drawn["faults"] = {**base.faults, **CLUSTER_FAULTS}
    if base.storage == "memory":
        drawn["faults"].pop(
            "target"
        )  # What a kill costs there is a copy; the weather of one cluster counts them.
    plan = SuperPlan(
        **drawn,
        shape=shape,
        home=rng.choice(CLUSTERS[: len(shape)]),
        cancels=rng.choice((0.0, 0.3, 0.6)),
        grace_ms=rng.choice((500, 2000, 4000)),
    )
    plan.bad_copies = plan.keeps_all and rng.random() < 0.25
    # Drawn beside the generator, so that the other seeds stay what they were.
    ahead = random.Random()
    ahead.setstate(rng.getstate())
    plan.scales = ahead.random() < 0.4
    if plan.scales and ahead.random() < 0.7:
        # Somewhere there has to be room for more replicas.
        plan.shape, plan.home = SHAPES[-1], CLUSTERS[2]
        plan.nodes = sum(plan.shape)
    return plan
