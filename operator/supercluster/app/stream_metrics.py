"""Metrics of declared streams, for /metrics (`docs/metrics.md`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from supercluster.app.metrics import gauge
from supercluster.reconcilers.observe.stream_figures import Figures, StreamFigures
from supercluster.reconcilers.ports import Key

_GAUGES: tuple[tuple[str, str, Callable[[Figures], int]], ...] = (
    ("messages", "Messages that a declared stream holds.", lambda each: each.messages),
    ("bytes", "Bytes that it holds.", lambda each: each.bytes),
    ("last_sequence", "Sequence of its newest message.", lambda each: each.last_sequence),
    ("consumers", "Its consumers.", lambda each: each.consumers),
    ("lag_entries", "Log entries that its slowest replica lacks.", lambda each: each.lag_entries),
)


def stream_families(figures: StreamFigures) -> Iterator[Metric]:
    """As of the last look at each stream. There may be thousands: they are copied now, and made into samples one by one, by any
    thread."""
    return _families(list(figures.seen.items()))


def _families(seen: list[tuple[Key, Figures]]) -> Iterator[Metric]:
    streams = sorted(seen, key=lambda entry: str(entry[0]))
    for name, text, value in _GAUGES:
        values = {(each.super_cluster, key.name): value(each) for key, each in streams}
        yield gauge(f"supercluster_stream_{name}", text, values, "super_cluster", "stream")
