"""Figures about lost replicas."""

from __future__ import annotations

from typing import Any

from supercluster.app.repair_metrics import repair_lines
from supercluster.reconcilers.observe.cache import ObjectCache


def body(kind: str, name: str, spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"kind": kind, "metadata": metadata, "spec": spec, "status": status}


def test_streams_below_their_minimum_and_repairs_are_counted_from_the_cache() -> None:
    cache = ObjectCache()
    cache.put(body("SuperCluster", "demo", {}, {"repair": {"belowMinimum": 7}}))
    phases = ("Queued", "Running", "Succeeded", "Failed", "Succeeded")
    for number, phase in enumerate(phases):
        spec = {"superCluster": "demo", "streamRef": "s", "repair": {"replace": ["east-2"]}}
        cache.put(body("StreamMove", f"m{number}", spec, {"phase": phase, "bytesCopied": 10}))
    other = {"superCluster": "demo", "streamRef": "s", "replicas": 5}
    cache.put(body("StreamMove", "other", other, {"phase": "Running"}))
    lines = repair_lines(cache)
    assert 'supercluster_streams_below_minimum{super_cluster="ns/demo"} 7' in lines
    counted = [line.partition('state="')[2] for line in lines if "state=" in line]
    assert counted == ['waiting"} 1', 'running"} 1', 'done"} 2', 'failed"} 1']
    assert 'supercluster_repair_copied_bytes{super_cluster="ns/demo"} 50' in lines
