"""What a seed stands for where a stream goes from one super-cluster (blue) to another (green).

No power failure may take what was confirmed here: every append is synced. What is lost otherwise is the other scenarios' matter.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.simulator.plan import Plan

BLUE, GREEN = "blue", "green"
FAULTS = {
    "kill": 4.0,
    "cut": 3.0,
    "blink": 2.0,
    "power": 2.0,
    "reset": 1.0,
    "slow": 1.0,
    "stand_down": 1.5,
    "crash_in_write": 1.5,
    "black_hole": 1.0,
    "blackout": 0.5,
    "cut_worlds": 3.0,
    "one_way": 2.0,
    "map_leader": 1.5,
    "side_down": 0.7,
}
ALWAYS = ("kill", "cut_worlds")
LIMITS = ("none", "none", "none", "count", "subject", "age")
MAX_AGE_MS = 3000


@dataclass(slots=True)
class CutoverPlan(Plan):
    """See the module."""

    kind: str = "limits"
    """The stream's retention."""
    equal_names: bool = False
    """Have the brokers of both sides the same names?"""
    far_ms: float = 1.0
    """How long a frame between the super-clusters takes beyond what it takes within one."""
    starts_ms: float = 5000.0
    """When the migration is asked for."""
    aborts_after_ms: tuple[float, ...] = ()
    """How long after each start it is aborted; it is started once more than that."""
    strikes: float = 0.0
    """In what part of the moments of a cut something strikes."""
    refuses: bool = False
    """Is green asked to refuse, as by an abort, in the moment in which it could open the first time?"""
    is_idle: bool = False
    """Does nobody publish while the stream goes over?"""

    @property
    def retention(self) -> str:
        return self.kind

    def config(self, name: str, subject: str) -> dict[str, Any]:
        return Plan.config(self, name, subject)


@dataclass(frozen=True, slots=True)
class Sides:
    """The brokers of both: what the world calls each, and what it calls itself."""

    equal_names: bool
    count: int = 3
    side_of: dict[str, str] = field(default_factory=dict)
    own_name: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for side in (BLUE, GREEN):
            for number in range(self.count):
                key = f"{side}-{number}"
                self.side_of[key] = side
                self.own_name[key] = f"nats-{number}" if self.equal_names else key


def draw_cutover(rng: random.Random) -> CutoverPlan:
    """The plan of a seed."""
    limits = rng.choice(LIMITS)
    kind = "workqueue" if limits == "none" and rng.random() < 0.3 else "limits"
    removes = kind == "limits" and rng.random() < 0.2
    aborts = rng.choice((0, 0, 0, 1, 1, 2))
    return CutoverPlan(
        nodes=3,
        meta_voters=3,
        replicas=rng.choice((3, 3, 3, 3, 1)),
        fsync="always",
        storage="file",
        max_msgs=40 if limits == "count" else -1,
        max_bytes=-1,
        refuses_when_full=False,
        max_age_ms=MAX_AGE_MS if limits == "age" else 0,
        per_subject=5 if limits == "subject" else 0,
        side_stream=False,
        creators=kind == "limits" and limits == "none" and rng.random() < 0.5,
        removes=removes,
        fills=False,
        moments=tuple(moment for moment in ("vote", "hand_over") if rng.random() < 0.4),
        faults={name: weight for name, weight in FAULTS.items() if name in ALWAYS or rng.random() < 0.5},
        kind=kind,
        equal_names=rng.random() < 0.4,
        far_ms=rng.choice((0.2, 2.0, 10.0, 40.0)),
        starts_ms=3500 + rng.random() * 6000,
        aborts_after_ms=tuple(
            rng.choice((50.0, 400.0, 1500.0)) * (0.5 + rng.random()) for _ in range(aborts)
        ),
        strikes=rng.choice((0.0, 0.2, 0.5)),
        refuses=rng.random() < 0.25,
        is_idle=rng.random() < 0.1,
    )
