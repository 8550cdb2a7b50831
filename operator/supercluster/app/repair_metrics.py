"""Metrics of lost replicas, and of copies on leaving brokers, for /metrics (`docs/metrics.md`).

Current numbers are counted from the objects in Kubernetes; ended repairs are counted since the process began.
"""

from __future__ import annotations

from collections import Counter

from prometheus_client.core import Metric

from supercluster.api import Cluster, Condition, StreamMove, SuperCluster
from supercluster.api.conditions import ConditionType, Reason
from supercluster.app.metrics import counter, gauge
from supercluster.reconcilers.handlers.repair_counts import DONE, FAILED, RepairCounts
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.planners.move.views import is_ended, is_in_flight, is_repair

WAITING, RUNNING = "waiting", "running"
_WHOLE = "super_cluster"
_WAITS_FOR_A_PERSON = frozenset({Reason.ROLLOUT_STOPPED, Reason.AWAITING_RESTART})


def repair_families(cache: ObjectCache, counts: RepairCounts) -> list[Metric]:
    """Of each SuperCluster."""
    below, states = dict[str, int](), Counter[tuple[str, str]]()
    leaving, drains = dict[str, int](), Counter[tuple[str, str]]()
    names = [(key.namespace, key.name) for key in cache.all_keys() if key.kind == "SuperCluster"]
    for namespace, name in sorted(names):
        whole, label = cache.model(SuperCluster, namespace, name), f"{namespace}/{name}"
        told = whole.status.repair if whole is not None else None
        below[label] = told.below_minimum if told is not None else 0
        states[label, WAITING] = told.waiting_for_budget if told is not None else 0
        states[label, RUNNING] = drains[label, WAITING] = drains[label, RUNNING] = 0
        going = whole.status.leaving if whole is not None else None
        leaving[label] = going.streams if going is not None else 0
        for move in cache.of_super_cluster(StreamMove, namespace, name):
            state = RUNNING if is_in_flight(move.status) else WAITING
            if move.spec.drains and not is_ended(move):
                drains[label, state] += 1
            elif is_repair(move) and not is_ended(move):
                states[label, state] += 1
    ended = {(each, outcome): counts.ended[each, outcome] for each in below for outcome in (DONE, FAILED)}
    copied = {each: counts.copied_bytes[each] for each in below}
    blocked = {f"{namespace}/{name}": _blocked(cache, namespace, name) for namespace, name in sorted(names)}
    return [
        gauge(
            "supercluster_streams_below_minimum",
            "Streams with fewer usable replicas than they must have.",
            below,
            _WHOLE,
        ),
        gauge(
            "supercluster_repairs",
            "Repairs that are due or under way: they wait for their place, or run.",
            states,
            _WHOLE,
            "state",
        ),
        counter(
            "supercluster_repairs_ended_total", "Those that have ended, by outcome.", ended, _WHOLE, "outcome"
        ),
        counter(
            "supercluster_repair_copied_bytes_total",
            "Bytes that those copied which have ended.",
            copied,
            _WHOLE,
        ),
        gauge(
            "supercluster_streams_on_leaving_brokers",
            "Streams with copies on brokers that go for good.",
            leaving,
            _WHOLE,
        ),
        gauge(
            "supercluster_drain_moves",
            "StreamMoves that take copies off them and have not ended.",
            drains,
            _WHOLE,
            "state",
        ),
        gauge(
            "supercluster_blocked",
            "SuperClusters and Clusters with something that waits for a person.",
            blocked,
            _WHOLE,
        ),
    ]


def _blocked(cache: ObjectCache, namespace: str, name: str) -> int:
    """What does not go on without a person: drains and roll-outs that are held up or were stopped, restarts to be approved."""
    whole = cache.model(SuperCluster, namespace, name)
    told = [each.status.conditions for each in cache.of_super_cluster(Cluster, namespace, name)]
    if whole is not None:
        told.append(whole.status.conditions)
    return sum(any(map(_is_blocked, conditions)) for conditions in told)


def _is_blocked(condition: Condition) -> bool:
    if condition.type == ConditionType.SYNCED:
        return condition.status == "False" and condition.reason in _WAITS_FOR_A_PERSON
    return (condition.type, condition.status) == (ConditionType.BLOCKED, "True")
