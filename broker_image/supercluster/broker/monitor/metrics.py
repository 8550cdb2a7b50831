"""/metrics of a broker in Prometheus' text format.

The library takes a megabyte and some milliseconds, so this module is imported at the first request, by a
thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

_GAUGES = (
    *("connections", "routes", "gateways", "subscriptions", "mem", "held_bytes", "unusable_copies"),
    *("redirects_waiting", "redirects_bridged", "far_links", "bulk_readers", "bulk_cache_bytes"),
)
_COUNTERS = (
    "total_connections",
    "in_msgs",
    "out_msgs",
    "in_bytes",
    "out_bytes",
    "slow_consumers",
    "stale_connections",
    "auth_failures",
    "tls_failures",
    "permission_violations",
    "links_refused",
    "protocol_errors",
    "publish_errors_sent",
    "reading_paused",
    "held_refused",
    "deliveries_dropped",
    "redirects_asked",
    "redirects_returned",
    "redirects_refused",
    "redirects_cut_off",
    "pongs_held",
    "order_not_kept",
    "group_faults",
    "far_frames_dropped",
    "bulk_rows",
    "bulk_jobs",
    "cpu_seconds",
)


@dataclass(frozen=True, slots=True)
class Figures(Collector):
    """Those of one broker; `values` has them by name."""

    labels: dict[str, str]
    values: Mapping[str, Any]

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        for kind, names in (("gauge", _GAUGES), ("counter", _COUNTERS)):
            for name in names:
                full = f"supercluster_broker_{name}"
                # The library has every counter end in _total.
                has_kind = kind == "gauge" or "total" not in name
                family = Metric(full, "As in /varz.", kind if has_kind else "unknown")
                sample = f"{full}_total" if kind == "counter" and has_kind else full
                family.add_sample(sample, self.labels, self.values[name])
                yield family


def text_of(labels: dict[str, str], values: Mapping[str, Any]) -> str:
    """What Prometheus reads."""
    return generate_latest(Figures(labels, values)).decode()
