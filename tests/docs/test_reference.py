"""Pages of the reference name what the code has, all of it and no more."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from prometheus_client.core import Metric
from tests.conftest import ROOT

from supercluster.app import endpoints
from supercluster.app.migration_metrics import migration_families
from supercluster.app.repair_metrics import repair_families
from supercluster.app.stream_metrics import stream_families
from supercluster.app.user_metrics import user_families
from supercluster.broker.monitor import metrics
from supercluster.reconcilers.handlers.rounds import Counters
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.spark.datasource import options, write_options


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def table(text: str) -> list[list[str]]:
    """Cells of the rows of all tables in it, without their heads."""
    rows = re.findall(r"^\| (?!---)(`.*) \|$", text, re.MULTILINE)
    return [row.split(" | ") for row in rows]


def named(families: Iterable[Metric]) -> dict[str, str]:
    """The kind of each metric, by the name that Prometheus has."""
    return {
        f"{family.name}_total" if family.type == "counter" else family.name: family.type
        for family in families
    }


def described(text: str) -> dict[str, str]:
    return {
        name: kind
        for cells in table(text)
        for name in re.findall(r"`(\w+)`", cells[0])
        for kind in cells[1:2]
    }


def test_the_page_of_metrics_has_each_metric_of_the_operator_with_its_kind() -> None:
    counters, cache = Counters(), ObjectCache()
    state = endpoints.State(counters, *(lambda: False,) * 2, *(lambda: 0,) * 3)
    found = [
        *endpoints.families(state),
        *repair_families(cache, counters.repairs),
        *stream_families(counters.streams),
        *migration_families(cache),
        *user_families(cache, datetime.now(UTC)),
    ]
    operators, _, _ = page("metrics.md").partition("\n# Metrics of a broker")
    assert described(operators) == named(found)


def test_the_page_of_metrics_has_each_metric_of_a_broker_with_its_kind() -> None:
    values = dict.fromkeys((*metrics._GAUGES, *metrics._COUNTERS), 0)
    _, _, brokers = page("metrics.md").partition("\n# Metrics of a broker")
    assert described(brokers) == named(metrics.Figures({}, values).collect())


def option_names(section: str) -> set[str]:
    text = page("reference/spark-options.md")
    (found,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return {name for cells in table(found) for name in re.findall(r"`(\w+)`", cells[0])}


def test_the_page_of_sparks_options_has_each_option() -> None:
    assert option_names("Options of a read") == set(options.KNOWN)
    alike = set(write_options.CONNECTION)
    assert option_names("Options of a write") - alike == set(write_options.KNOWN) - alike
