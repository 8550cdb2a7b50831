"""Figures of Migrations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supercluster.app.metrics import prometheus_text
from supercluster.app.migration_metrics import migration_families
from supercluster.reconcilers.observe.cache import ObjectCache

DOCS = Path(__file__).resolve().parents[2] / "docs"


def lines_of(status: dict[str, Any]) -> list[str]:
    cache = ObjectCache()
    metadata = {"name": "over", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    spec = {"blue": {"superCluster": "demo"}, "green": {"superCluster": "next"}}
    cache.put({"kind": "Migration", "metadata": metadata, "spec": spec, "status": status})
    return prometheus_text(migration_families(cache)).splitlines()


@pytest.mark.covers("BG-9")
def test_a_migration_is_counted_by_stages_and_worst_cases() -> None:
    lines = lines_of(
        {
            "stages": {"learning": 3, "open": 4},
            "stalledTotal": 2,
            "worstLag": {"milliseconds": 70},
            "clients": {"stillOnBlue": 5, "publishersStillOnBlue": 1},
        }
    )
    figures = {line.partition("{")[0]: line for line in lines if line and not line.startswith("#")}
    assert 'supercluster_migration_streams{migration="ns/over",stage="learning"} 3.0' in lines
    assert 'supercluster_migration_streams{migration="ns/over",stage="open"} 4.0' in lines
    assert 'supercluster_migration_streams{migration="ns/over",stage="cleaned"} 0.0' in lines
    assert figures["supercluster_migration_stalled_streams"].endswith(" 2.0")
    assert figures["supercluster_migration_lag_ms"].endswith(" 70.0")
    assert figures["supercluster_migration_clients_on_blue"].endswith(" 5.0")
    assert figures["supercluster_migration_publishers_on_blue"].endswith(" 1.0")
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    assert [name for name in figures if f"`{name}`" not in page] == []


def test_one_that_was_never_looked_at_has_zeros_and_no_lag() -> None:
    lines = lines_of({})
    assert 'supercluster_migration_stalled_streams{migration="ns/over"} 0.0' in lines
    assert not [line for line in lines if line.startswith("supercluster_migration_lag_ms{")]
