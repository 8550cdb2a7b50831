"""Figures about lost replicas, and copies on brokers that go, for /metrics (`docs/metrics.md`): what there is now, counted from what is in Kubernetes, and what has
ended since the process began."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from supercluster.api import Cluster, Condition, StreamMove, SuperCluster
from supercluster.api.conditions import ConditionType, Reason
from supercluster.reconcilers.handlers.repair_counts import DONE, FAILED, RepairCounts
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.planners.move.views import IN_FLIGHT, is_ended, is_repair

WAITING, RUNNING = "waiting", "running"
_WAITS_FOR_A_PERSON = frozenset({Reason.ROLLOUT_STOPPED, Reason.AWAITING_RESTART})


def repair_lines(cache: ObjectCache, counts: RepairCounts) -> list[str]:
    """Prometheus text."""
    below, states = dict[str, int](), Counter[tuple[str, str]]()
    leaving, drains = dict[str, int](), Counter[tuple[str, str]]()
    names = [(key.namespace, key.name) for key in cache.all_keys() if key.kind == "SuperCluster"]
    for namespace, name in sorted(names):
        whole, label = cache.model(SuperCluster, namespace, name), f"{namespace}/{name}"
        told = whole.status.repair if whole is not None else None
        below[label] = told.below_minimum if told is not None else 0
        states[label, WAITING] = told.waiting_for_budget if told is not None else 0
        going = whole.status.leaving if whole is not None else None
        leaving[label] = going.streams if going is not None else 0
        for move in cache.of_super_cluster(StreamMove, namespace, name):
            state = RUNNING if move.status.phase in IN_FLIGHT else WAITING
            if move.spec.drains and not is_ended(move):
                drains[label, state] += 1
            elif is_repair(move) and not is_ended(move):
                states[label, state] += 1
    lines = _head(
        "supercluster_streams_below_minimum",
        "gauge",
        "Streams with fewer usable replicas than they must have.",
    )
    lines += [f'supercluster_streams_below_minimum{{super_cluster="{each}"}} {below[each]}' for each in below]
    lines += _head(
        "supercluster_repairs",
        "gauge",
        "Repairs that are due or under way: they wait for their place, or run.",
    )
    lines += [
        f'supercluster_repairs{{super_cluster="{each}",state="{state}"}} {states[each, state]}'
        for each in below
        for state in (WAITING, RUNNING)
    ]
    lines += _head("supercluster_repairs_ended_total", "counter", "Those that have ended, by outcome.")
    lines += [
        f'supercluster_repairs_ended_total{{super_cluster="{each}",outcome="{outcome}"}} {counts.ended[each, outcome]}'
        for each in below
        for outcome in (DONE, FAILED)
    ]
    lines += _head(
        "supercluster_repair_copied_bytes_total", "counter", "Bytes that those copied which have ended."
    )
    lines += [
        f'supercluster_repair_copied_bytes_total{{super_cluster="{each}"}} {counts.copied_bytes[each]}'
        for each in below
    ]
    lines += _head(
        "supercluster_streams_on_leaving_brokers", "gauge", "Streams with copies on brokers that go for good."
    )
    lines += [
        f'supercluster_streams_on_leaving_brokers{{super_cluster="{each}"}} {leaving[each]}' for each in below
    ]
    lines += _head(
        "supercluster_drain_moves", "gauge", "StreamMoves that take copies off them and have not ended."
    )
    lines += [
        f'supercluster_drain_moves{{super_cluster="{each}",state="{state}"}} {drains[each, state]}'
        for each in below
        for state in (WAITING, RUNNING)
    ]
    return [*lines, *_blocked(cache, sorted(names))]


def _blocked(cache: ObjectCache, names: Sequence[tuple[str, str]]) -> list[str]:
    """What does not go on without a person: drains and roll-outs that are held up or were stopped, restarts to be approved."""
    lines = _head(
        "supercluster_blocked", "gauge", "SuperClusters and Clusters with something that waits for a person."
    )
    for namespace, name in names:
        whole = cache.model(SuperCluster, namespace, name)
        told = [each.status.conditions for each in cache.of_super_cluster(Cluster, namespace, name)]
        if whole is not None:
            told.append(whole.status.conditions)
        count = sum(any(map(_is_held_up, conditions)) for conditions in told)
        lines.append(f'supercluster_blocked{{super_cluster="{namespace}/{name}"}} {count}')
    return lines


def _is_held_up(condition: Condition) -> bool:
    if condition.type == ConditionType.SYNCED:
        return condition.status == "False" and condition.reason in _WAITS_FOR_A_PERSON
    return (condition.type, condition.status) == (ConditionType.BLOCKED, "True")


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
