"""Metric families, and their text in Prometheus' format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Values: TypeAlias = Mapping[str, float] | Mapping[tuple[str, str], float]
"""By the value of the one label, or of the two."""


@dataclass(frozen=True, slots=True)
class Families(Collector):
    """What there is now: nothing is registered, since nothing is counted here."""

    found: Iterable[Metric]

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        yield from self.found


def gauge(name: str, text: str, values: Values, *labels: str) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=labels), values)


def counter(name: str, text: str, values: Values, *labels: str) -> Metric:
    """`name` ends in `_total`."""
    return _filled(CounterMetricFamily(name, text, labels=labels), values)


def prometheus_text(families: Iterable[Metric]) -> str:
    """May take a while: some families have thousands of samples."""
    return generate_latest(Families(families)).decode()


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for labels, value in values.items():
        family.add_metric((labels,) if isinstance(labels, str) else labels, value)
    return family
