"""Figures about lost replicas."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from supercluster.app.metrics import prometheus_text
from supercluster.app.repair_metrics import repair_families
from supercluster.reconcilers.handlers.repair_counts import RepairCounts
from supercluster.reconcilers.observe.cache import ObjectCache

DOCS = Path(__file__).resolve().parents[2] / "docs"


def body(kind: str, name: str, spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"kind": kind, "metadata": metadata, "spec": spec, "status": status}


def lines_of(cache: ObjectCache, counts: RepairCounts) -> list[str]:
    return prometheus_text(repair_families(cache, counts)).splitlines()


def test_what_there_is_now_is_counted_from_the_cache() -> None:
    cache = ObjectCache()
    cache.put(body("SuperCluster", "demo", {}, {"repair": {"belowMinimum": 7}}))
    for number, phase in enumerate(("Queued", "Refused", "Running", "Succeeded", "Failed")):
        spec = {"superCluster": "demo", "streamRef": "s", "repair": {"replace": ["east-2"]}}
        cache.put(body("StreamMove", f"m{number}", spec, {"phase": phase}))
    other = {"superCluster": "demo", "streamRef": "s", "replicas": 5}
    cache.put(body("StreamMove", "other", other, {"phase": "Running"}))
    lines = lines_of(cache, RepairCounts())
    assert 'supercluster_streams_below_minimum{super_cluster="ns/demo"} 7.0' in lines
    assert 'supercluster_repairs{state="waiting",super_cluster="ns/demo"} 2.0' in lines
    counted = [line.partition('state="')[2].replace('",super_cluster="ns/demo"}', "") for line in lines]
    assert [each for each in counted if each] == ["waiting 2.0", "running 1.0", "waiting 0.0", "running 0.0"]


def test_repairs_that_wait_for_the_budget_have_no_move_yet_and_are_counted() -> None:
    cache = ObjectCache()
    cache.put(body("SuperCluster", "demo", {}, {"repair": {"belowMinimum": 40, "waitingForBudget": 38}}))
    for number, phase in enumerate(("Queued", "Running", "Running")):
        spec = {"superCluster": "demo", "streamRef": "s", "repair": {"replace": ["east-2"]}}
        cache.put(body("StreamMove", f"m{number}", spec, {"phase": phase}))
    lines = lines_of(cache, RepairCounts())
    assert 'supercluster_repairs{state="waiting",super_cluster="ns/demo"} 39.0' in lines
    assert 'supercluster_repairs{state="running",super_cluster="ns/demo"} 2.0' in lines


def test_what_waits_for_a_person_is_counted() -> None:
    cache = ObjectCache()
    held = {
        "type": "Blocked",
        "status": "True",
        "reason": "AwaitingApproval",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    over = {**held, "status": "False", "reason": "NoIssues"}
    cache.put(body("SuperCluster", "demo", {}, {"conditions": [held]}))
    cache.put(body("SuperCluster", "other", {}, {}))
    stopped = {**over, "type": "Synced", "reason": "RolloutStopped"}
    supervised = {**stopped, "reason": "AwaitingRestartApproval"}
    rolling = {**stopped, "reason": "RollingOut"}
    told = {"east": held, "west": over, "north": stopped, "south": supervised, "central": rolling}
    for name, condition in told.items():
        cache.put(body("Cluster", name, {"superCluster": "demo"}, {"conditions": [condition]}))
    lines = lines_of(cache, RepairCounts())
    assert 'supercluster_blocked{super_cluster="ns/demo"} 4.0' in lines
    assert 'supercluster_blocked{super_cluster="ns/other"} 0.0' in lines


def test_copies_that_are_moved_off_brokers_that_go_are_no_repairs() -> None:
    cache, counts = ObjectCache(), RepairCounts()
    cache.put(body("SuperCluster", "demo", {}, {"leaving": {"streams": 9}}))
    spec = {"superCluster": "demo", "streamRef": "s", "repair": {"replace": ["east-2"]}, "drains": ["east-2"]}
    for number, phase in enumerate(("Queued", "Running", "Running", "Succeeded")):
        cache.put(body("StreamMove", f"m{number}", spec, {"phase": phase}))
    counts.note(
        body("StreamMove", "m", spec, {"phase": "Running"}),
        body("StreamMove", "m", spec, {"phase": "Succeeded"}),
    )
    lines = lines_of(cache, counts)
    assert 'supercluster_streams_on_leaving_brokers{super_cluster="ns/demo"} 9.0' in lines
    assert 'supercluster_drain_moves{state="waiting",super_cluster="ns/demo"} 1.0' in lines
    assert 'supercluster_drain_moves{state="running",super_cluster="ns/demo"} 2.0' in lines
    assert 'supercluster_repairs{state="running",super_cluster="ns/demo"} 0.0' in lines
    assert 'supercluster_repairs_ended_total{outcome="done",super_cluster="ns/demo"} 0.0' in lines


def test_what_has_ended_is_counted_once_and_stays_when_its_move_is_gone() -> None:
    counts, cache = RepairCounts(), ObjectCache()
    cache.put(body("SuperCluster", "demo", {}, {}))
    repair = {"superCluster": "demo", "streamRef": "s", "repair": {"replace": ["east-2"]}}

    def move(phase: str, spec: dict[str, Any] = repair) -> dict[str, Any]:
        return body("StreamMove", "m", spec, {"phase": phase, "bytesCopied": 10})

    steps = ("Queued", "Running", "Succeeded", "Succeeded")
    for _ in range(30):
        for before, after in itertools.pairwise(steps):
            counts.note(move(before), move(after))
    counts.note(move("Running"), move("Failed"))
    counts.note(move("Queued"), move("Cancelled"))
    counts.note(move("Running", {"superCluster": "demo"}), move("Succeeded", {"superCluster": "demo"}))
    lines = lines_of(cache, counts)
    assert 'supercluster_repairs_ended_total{outcome="done",super_cluster="ns/demo"} 30.0' in lines
    assert 'supercluster_repairs_ended_total{outcome="failed",super_cluster="ns/demo"} 2.0' in lines
    assert 'supercluster_repair_copied_bytes_total{super_cluster="ns/demo"} 320.0' in lines


def test_every_figure_is_in_the_docs() -> None:
    cache = ObjectCache()
    cache.put(body("SuperCluster", "demo", {}, {}))
    told = (DOCS / "metrics.md").read_text(encoding="utf-8")
    names = [line.split()[2] for line in lines_of(cache, RepairCounts()) if line.startswith("# TYPE")]
    assert len(names) == 7
    assert [name for name in names if f"`{name}`" not in told] == []
