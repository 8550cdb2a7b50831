"""Metrics of Migrations, for /metrics (`docs/metrics.md`), counted from their statuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric

from supercluster.api import Migration
from supercluster.api.migration import ClientCounts, MigrationStatus, StageCounts
from supercluster.app.metrics import gauge
from supercluster.reconcilers.observe.cache import ObjectCache

_LABEL = "migration"


def migration_families(cache: ObjectCache) -> Iterator[Metric]:
    """Of each Migration, by namespace and name."""
    return _families(
        {f"{each.metadata.namespace}/{each.metadata.name}": each.status for each in cache.all_of(Migration)}
    )


def _families(found: Mapping[str, MigrationStatus]) -> Iterator[Metric]:
    stages = {
        (name, stage): count
        for name, status in found.items()
        for stage, count in (status.stages or StageCounts()).model_dump().items()
    }
    clients = {name: status.clients or ClientCounts() for name, status in found.items()}
    lag = {name: status.worst_lag.milliseconds for name, status in found.items() if status.worst_lag}
    yield gauge(
        "supercluster_migration_streams",
        "Streams by the stage that they have come to.",
        stages,
        _LABEL,
        "stage",
    )
    yield gauge(
        "supercluster_migration_stalled_streams",
        "Streams that make no progress.",
        {name: status.stalled_total or 0 for name, status in found.items()},
        _LABEL,
    )
    yield gauge(
        "supercluster_migration_lag_ms", "By how much the copy that is furthest behind lags.", lag, _LABEL
    )
    yield gauge(
        "supercluster_migration_clients_on_blue",
        "Clients that are still connected to blue.",
        {name: each.still_on_blue for name, each in clients.items()},
        _LABEL,
    )
    yield gauge(
        "supercluster_migration_publishers_on_blue",
        "Clients on blue that have published there to streams that were handed over.",
        {name: each.publishers_still_on_blue for name, each in clients.items()},
        _LABEL,
    )
