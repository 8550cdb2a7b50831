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
    "blink": 4.0,
    "power": 3.0,
    "reset": 2.0,
    "slow": 1.5,
    "stand_down": 1.5,
    "crash_in_write": 2.0,
    "lag_and_lose": 2.0,
    "volume": 1.0,
    "damage": 1.0,
    "copy": 0.7,
    "full_disk": 0.7,
    "disk_errors": 0.7,
    "sync_errors": 2.0,
    "black_hole": 0.7,
    "lull": 0.7,
    "blackout": 0.7,
}
ALWAYS = ("kill", "cut")
# Moments at which something may strike, and in how many of the runs: see `moments`.
MOMENTS = {"vote": 1.0, "birth": 0.3, "hand_over": 0.5, "deletion": 0.5}


@dataclass(slots=True)
class Plan:
    """See the module."""

    nodes: int
    meta_voters: int
    replicas: int
    fsync: str
    storage: str
    max_msgs: int
    max_bytes: int
    refuses_when_full: bool
    """A full stream refuses new messages, instead of removing old ones."""
    max_age_ms: int
    per_subject: int
    side_stream: bool
    creators: bool
    removes: bool
    fills: bool
    """Are all disks filled up when the weather is over? (see `room`)"""
    moments: tuple[str, ...]
    faults: dict[str, float] = field(default_factory=dict)

    @property
    def keeps_all(self) -> bool:
        """Does retention (or a person) remove nothing?"""
        limited = self.max_msgs >= 0 or self.max_bytes >= 0 or self.max_age_ms or self.per_subject
        return not (limited or self.removes or self.fills)

    @property
    def retention(self) -> str:
        """In some of the runs in which nothing else removes messages, they go when they were acknowledged."""
        if not self.keeps_all or self.creators:
            return "limits"
        return ("limits", "workqueue", "interest")[len(self.faults) % 3]

    @property
    def has_ttls(self) -> bool:
        """Do messages have a time to live of their own, and subjects that are empty since a marker?"""
        return self.max_age_ms > 0

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
            "retention": self.retention,
            "compression": "s2" if self.side_stream else "none",
            "max_msgs": self.max_msgs,
            "max_bytes": self.max_bytes,
            "discard": "new" if self.refuses_when_full else "old",
            "max_age": self.max_age_ms * 1_000_000,
            "max_msgs_per_subject": self.per_subject or -1,
            "duplicate_window": min(self.max_age_ms or 120_000, 120_000) * 1_000_000,
            **({"allow_msg_ttl": True, "subject_delete_marker_ttl": 10**9} if self.has_ttls else {}),
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
    for kind in (
        ("full_disk", "disk_errors", "sync_errors", "crash_in_write", "damage", "copy") if memory else ()
    ):
        kinds.pop(kind, None)
    if fsync != "always":
        kinds.pop("blackout", None)
    limits = rng.choice(("none", "none", "none", "count", "bytes", "age", "subject", "full"))
    by_bytes = limits == "bytes" or (limits == "full" and rng.random() < 0.5)
    few = 600 if limits == "full" else 40
    return Plan(
        nodes=nodes,
        meta_voters=meta_voters,
        replicas=replicas,
        fsync=fsync,
        storage="memory" if memory else "file",
        max_msgs=few if limits in ("count", "full") and not by_bytes else -1,
        max_bytes=50 * few if by_bytes else -1,
        refuses_when_full=limits == "full",
        max_age_ms=3000 if limits == "age" else 0,
        per_subject=5 if limits == "subject" else 0,
        side_stream=rng.random() < 0.4,
        creators=rng.random() < 0.5,
        removes=rng.random() < 0.2,
        fills=limits == "none" and not memory and rng.random() < 0.25,
        moments=tuple(moment for moment, part in MOMENTS.items() if rng.random() < part),
        faults=kinds,
    )
