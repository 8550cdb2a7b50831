"""The count of ended repairs and their copied bytes since this process began.

StreamMoves of ended repairs are kept for a while only, so counting them would lose the older ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from supercluster.reconcilers.ports import mapping

DONE, FAILED = "done", "failed"
OUTCOMES = {"Succeeded": DONE, "Failed": FAILED, "Cancelled": FAILED}
"""By the phase of a StreamMove."""


@dataclass(slots=True)
class RepairCounts:
    """By super-cluster, as namespace/name."""

    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(super-cluster, outcome) → repairs."""
    copied_bytes: Counter[str] = field(default_factory=Counter)

    def note(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """An object before and after its status was written: each end is written once."""
        spec = mapping(after.get("spec"))
        outcome = OUTCOMES.get(_phase(after))
        if after.get("kind") != "StreamMove" or "repair" not in spec or spec.get("drains") or outcome is None:
            return
        if _phase(before) in OUTCOMES:
            return
        whose = f"{mapping(after.get('metadata')).get('namespace')}/{spec.get('superCluster')}"
        self.ended[whose, outcome] += 1
        self.copied_bytes[whose] += int(mapping(after.get("status")).get("bytesCopied") or 0)


def _phase(body: Mapping[str, Any]) -> str:
    return str(mapping(body.get("status")).get("phase") or "")
