"""The times at which lost replicas are checked besides the regular interval. Pure.

The end of a recovery interval is no event in Kubernetes, and each stream has its own moment in the check
interval that follows. Checking continuously while a broker is away would cost a list of all streams each
time, for as long as it is not repaired.
"""

from __future__ import annotations

from datetime import timedelta

from supercluster.api import SuperCluster
from supercluster.api.units import duration_ns
from supercluster.reconcilers.planners.replica.repair_moves import RepairObserved

REGULAR_LOOK = timedelta(seconds=5)
"""How far apart regular looks are: so long before a moment, and so long after it, it may not be missed."""


def is_due_soon(desired: SuperCluster, observed: RepairObserved | None) -> bool:
    """May a replica become due for replacement before the next regular look?"""
    if observed is None:
        return False
    rules = (desired.spec.repair, *(policy.spec for policy in observed.policies))
    times = {node.away_since for node in observed.nodes.values() if node.away_since is not None}
    times |= {since for copies in observed.unusable.values() for since in copies.values()}
    ages = [observed.now - since for since in times]
    return any(
        _duration(each.failure_recovery_interval) - REGULAR_LOOK
        <= age
        <= _duration(each.failure_recovery_interval) + _duration(each.check_interval) + REGULAR_LOOK
        for each in rules
        for age in ages
    )


def _duration(text: str) -> timedelta:
    return timedelta(microseconds=duration_ns(text) // 1000)
