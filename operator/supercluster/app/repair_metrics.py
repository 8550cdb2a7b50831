"""Figures about lost replicas for /metrics, counted from what is in Kubernetes: a restart of the operator loses none."""

from __future__ import annotations

from collections import Counter

from supercluster.api import StreamMove, SuperCluster
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.planners.move_views import IN_FLIGHT

_STATES = ("waiting", "running", "done", "failed")


def repair_lines(cache: ObjectCache) -> list[str]:
    """Prometheus text. Repairs that have ended count as long as their StreamMoves are kept."""
    below, states, copied = Counter[str](), Counter[tuple[str, str]](), Counter[str]()
    names = [(key.namespace, key.name) for key in cache.all_keys() if key.kind == "SuperCluster"]
    for namespace, name in sorted(names):
        whole, label = cache.model(SuperCluster, namespace, name), f"{namespace}/{name}"
        told = whole.status.repair if whole is not None else None
        below[label] = told.below_minimum if told is not None else 0
        for move in cache.of_super_cluster(StreamMove, namespace, name):
            if move.spec.repair is not None:
                states[label, _state(move)] += 1
                copied[label] += move.status.bytes_copied or 0
    lines = _head(
        "supercluster_streams_below_minimum", "Streams with fewer usable replicas than they must have."
    )
    lines += [f'supercluster_streams_below_minimum{{super_cluster="{each}"}} {below[each]}' for each in below]
    lines += _head("supercluster_repairs", "StreamMoves that replace lost replicas, by how far they are.")
    lines += [
        f'supercluster_repairs{{super_cluster="{each}",state="{state}"}} {states[each, state]}'
        for each in below
        for state in _STATES
    ]
    lines += _head("supercluster_repair_copied_bytes", "Bytes that those of them copied which have ended.")
    lines += [f'supercluster_repair_copied_bytes{{super_cluster="{each}"}} {copied[each]}' for each in below]
    return lines


def _head(name: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} gauge"]


def _state(move: StreamMove) -> str:
    phase = move.status.phase
    if phase in IN_FLIGHT:
        return "running"
    return {"Succeeded": "done", "Failed": "failed", "Cancelled": "failed"}.get(str(phase), "waiting")
