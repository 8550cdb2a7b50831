"""What a seed stands for: the cluster's shape, the streams' settings and the kinds of weather, drawn before the run.

Each seed allows only some kinds of faults, so that rare ones are not drowned by common ones.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

# Kinds of faults and how often they come, relative to each other.
FAULTS = {
    "kill": 6.0,
    "cut": 5.0,
    "power": 3.0,
    "reset": 2.0,
    "slow": 1.5,
    "stand_down": 1.5,
    "crash_in_write": 2.0,
    "lag_and_lose": 2.0,
    "volume": 1.0,
    "damage": 1.0,
    "full_disk": 0.7,
    "disk_errors": 0.7,
    "black_hole": 0.7,
    "lull": 0.7,
    "blackout": 0.7,
}
ALWAYS = ("kill", "cut")


@dataclass(slots=True)
class Plan:
    """See the module."""

    nodes: int
    meta_voters: int
    replicas: int
    fsync: str
    storage: str
    max_msgs: int
    max_age_ms: int
    per_subject: int
    side_stream: bool
    creators: bool
    removes: bool
    faults: dict[str, float] = field(default_factory=dict)

    @property
    def keeps_all(self) -> bool:
        """Does retention (or a person) remove nothing?"""
        return self.max_msgs < 0 and not self.max_age_ms and not self.per_subject and not self.removes

    @property
    def may_lose(self) -> int:
        """So many replicas may be unsure of their data at once without anything being lost."""
        return (min(self.replicas, self.meta_voters) - 1) // 2

    def config(self, name: str, subject: str) -> dict[str, Any]:
        """A stream's configuration."""
        return {
            "name": name,
            "subjects": [subject],
            "num_replicas": self.replicas,
            "storage": self.storage,
            "max_msgs": self.max_msgs,
            "max_age": self.max_age_ms * 1_000_000,
            "max_msgs_per_subject": self.per_subject or -1,
            "duplicate_window": min(self.max_age_ms or 120_000, 120_000) * 1_000_000,
            "metadata": {"supercluster.dev/fsync": self.fsync},
        }


def draw(rng: random.Random) -> Plan:
    """The plan of a seed."""
    nodes, meta_voters, replicas = rng.choice(
        ((3, 3, 3), (3, 3, 3), (3, 3, 3), (3, 3, 3), (3, 3, 1), (3, 3, 3), (3, 3, 3), (5, 3, 3), (5, 5, 5))
    )
    memory = replicas == 3 and rng.random() < 0.08
    fsync = "interval" if memory else rng.choice(("always", "interval", "interval"))
    kinds = {kind: weight for kind, weight in FAULTS.items() if kind in ALWAYS or rng.random() < 0.5}
    # What a failure of the disk would cost is more than one copy: a restart empties memory.
    for kind in ("full_disk", "disk_errors", "crash_in_write", "damage") if memory else ():
        kinds.pop(kind, None)
    if fsync != "always":
        kinds.pop("blackout", None)
    limits = rng.choice(("none", "none", "count", "age", "subject"))
    return Plan(
        nodes=nodes,
        meta_voters=meta_voters,
        replicas=replicas,
        fsync=fsync,
        storage="memory" if memory else "file",
        max_msgs=40 if limits == "count" else -1,
        max_age_ms=3000 if limits == "age" else 0,
        per_subject=5 if limits == "subject" else 0,
        side_stream=rng.random() < 0.4,
        creators=rng.random() < 0.5,
        removes=rng.random() < 0.2,
        faults=kinds,
    )
