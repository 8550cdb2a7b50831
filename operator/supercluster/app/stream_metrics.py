"""Figures of declared streams, for /metrics (`docs/metrics.md`)."""

from __future__ import annotations

from collections.abc import Callable

from supercluster.reconcilers.observe.stream_figures import Figures, StreamFigures

_GAUGES: tuple[tuple[str, str, Callable[[Figures], int]], ...] = (
    ("messages", "Messages that a declared stream holds.", lambda each: each.messages),
    ("bytes", "Bytes that it holds.", lambda each: each.bytes),
    ("last_sequence", "Sequence of its newest message.", lambda each: each.last_sequence),
    ("consumers", "Its consumers.", lambda each: each.consumers),
    ("lag_entries", "Log entries that its slowest replica lacks.", lambda each: each.lag_entries),
)


def stream_lines(figures: StreamFigures) -> list[str]:
    """Prometheus text, as of the last look at each stream."""
    labels = {
        key: f'{{super_cluster="{each.super_cluster}",stream="{key.name}"}}'
        for key, each in sorted(figures.seen.items(), key=lambda entry: str(entry[0]))
    }
    lines = []
    for name, text, value in _GAUGES:
        full = f"supercluster_stream_{name}"
        lines += [f"# HELP {full} {text}", f"# TYPE {full} gauge"]
        lines += [f"{full}{label} {value(figures.seen[key])}" for key, label in labels.items()]
    return lines
