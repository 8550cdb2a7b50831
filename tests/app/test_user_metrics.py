"""Figures of Users (CL-5)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from supercluster.app.metrics import prometheus_text
from supercluster.app.user_metrics import LABELLED_MAX, user_families
from supercluster.reconcilers.observe.cache import ObjectCache

pytestmark = pytest.mark.covers("CL-5")

DOCS = Path(__file__).resolve().parents[2] / "docs"
NOW = datetime(2026, 7, 1, 12, 0, 0, tzinfo=UTC)
READY = {"type": "Ready", "status": "True", "reason": "AcceptedByBrokers"}
ROLLING = {
    "stage": "ClientsRolling",
    "former": 1,
    "startedAt": "2026-07-01T11:00:00Z",
    "deadline": "2026-07-01T12:30:00Z",
    "connections": 3,
}


def body(name: str, metadata: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    whole = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        **(metadata or {}),
    }
    return {"kind": "User", "metadata": whole, "spec": {"superCluster": "demo"}, "status": status}


def samples(*bodies: dict[str, Any]) -> dict[str, float]:
    """By name and labels."""
    cache = ObjectCache()
    for each in bodies:
        cache.put(each)
    lines = prometheus_text(user_families(cache, NOW)).splitlines()
    told = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name.removeprefix("supercluster_user_"): float(value) for name, _, value in told}


def test_a_rotation_is_shown_with_its_stage_its_time_and_its_deadline() -> None:
    told = samples(
        body("billing", since="2026-07-01T11:00:00Z", connections=9, rotation=ROLLING, conditions=[READY])
    )
    assert told == {
        'connections{user="ns/billing"}': 9,
        'former_connections{user="ns/billing"}': 3,
        'not_ready{user="ns/billing"}': 0,
        'rotation_stage{stage="Introducing",user="ns/billing"}': 0,
        'rotation_stage{stage="ClientsRolling",user="ns/billing"}': 1,
        'rotation_stage{stage="Withdrawing",user="ns/billing"}': 0,
        'rotation_rolling_seconds{user="ns/billing"}': 3600,
        'credential_age_seconds{user="ns/billing"}': 3600,
        'deadline_seconds{user="ns/billing"}': 1800,
    }


def test_a_user_at_rest_has_no_time_of_a_rotation() -> None:
    told = samples(body("billing", since="2026-07-01T12:00:05Z", conditions=[READY]))
    assert told['credential_age_seconds{user="ns/billing"}'] == 0, "by a clock that is ahead"
    assert not [name for name in told if name.startswith(("rotation_rolling", "deadline"))]
    assert not any(told[name] for name in told if name.startswith("rotation_stage"))


def test_a_deadline_that_has_passed_is_below_zero() -> None:
    told = samples(body("billing", rotation={**ROLLING, "deadline": "2026-07-01T11:59:00Z"}))
    assert told['deadline_seconds{user="ns/billing"}'] == -60


def test_a_user_that_nobody_looked_at_is_not_ready_and_one_that_goes_is_no_matter() -> None:
    refused = {"type": "Ready", "status": "False", "reason": "NotAccepted"}
    going = {"deletionTimestamp": "2026-07-01T11:00:00Z"}
    told = samples(body("a"), body("b", conditions=[refused]), body("c", going, conditions=[refused]))
    assert [told[f'not_ready{{user="ns/{name}"}}'] for name in "abc"] == [1, 1, 0]


def test_users_beyond_the_bound_share_one_label() -> None:
    later = {**ROLLING, "startedAt": "2026-07-01T11:59:00Z", "deadline": "2026-07-02T12:00:00Z"}
    named = [body(f"a{number:04}", connections=1) for number in range(LABELLED_MAX)]
    rest = [
        body("b0", connections=2, rotation=ROLLING),
        body("b1", connections=3, rotation=later),
        body("b2", conditions=[READY]),
    ]
    told = samples(*named, *rest)
    labels = {name.partition('user="')[2] for name in told}
    assert len(labels) == LABELLED_MAX + 1
    assert told['connections{user="other"}'] == 5
    assert told['rotation_stage{stage="ClientsRolling",user="other"}'] == 2
    assert told['not_ready{user="other"}'] == 2
    assert told['rotation_rolling_seconds{user="other"}'] == 3600, "the longest"
    assert told['deadline_seconds{user="other"}'] == 1800, "the nearest"


def test_every_figure_is_in_the_docs() -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    cache = ObjectCache()
    names = [each.name for each in user_families(cache, NOW)]
    assert len(names) == 7
    assert [name for name in names if f"`{name}`" not in page] == []
