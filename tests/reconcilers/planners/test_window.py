"""Maintenance windows on the wall clock of their zone, clock changes included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from supercluster.api.moves import MaintenanceWindow
from supercluster.reconcilers.planners.window import Window, WindowError, window_at


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def look(now: str, cron: str = "0 2 * * *", minutes: int = 90, zone: str = "UTC") -> Window:
    spec = MaintenanceWindow(cron=cron, duration_minutes=minutes, time_zone=zone)
    return window_at(spec, at(now))


@pytest.mark.covers("MV-13")
@pytest.mark.parametrize(
    ("now", "is_open", "opens"),
    [
        ("2026-01-02T01:59:59", False, "2026-01-02T02:00"),
        ("2026-01-02T02:00:00", True, "2026-01-02T02:00"),
        ("2026-01-02T03:29:59", True, "2026-01-02T02:00"),
        ("2026-01-02T03:30:00", False, "2026-01-03T02:00"),
    ],
)
def test_a_window_is_open_from_its_first_second_to_its_last(now: str, is_open: bool, opens: str) -> None:
    window = look(now)
    assert (window.is_open, window.opens_at) == (is_open, at(opens))
    assert window.closes_at == at(opens) + timedelta(minutes=90)


@pytest.mark.parametrize(
    ("cron", "opens"),
    [
        ("30 22 * * sat", "2026-01-03T22:30"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("*/15 4 1,15 * *", "2026-01-15T04:00"),
        ("0 0 31 2 *", None),
    ],
)
def test_the_next_window_is_found_however_far_it_is(cron: str, opens: str | None) -> None:
    assert look("2026-01-02T03:04:05", cron).opens_at == (at(opens) if opens else None)


def test_a_window_is_on_the_wall_clock_of_its_zone() -> None:
    assert look("2026-07-01T00:30:00", zone="Europe/Berlin").is_open
    assert look("2026-01-01T00:30:00", zone="Europe/Berlin").opens_at == at("2026-01-01T01:00")


def test_an_hour_that_a_clock_change_skips_opens_no_window() -> None:
    window = look("2026-03-28T12:00:00", "30 2 * * *", zone="Europe/Berlin")
    assert window.opens_at == at("2026-03-30T00:30")


def test_an_hour_that_is_repeated_opens_its_window_twice() -> None:
    for now, opens in (("2026-10-24T23:00", "2026-10-25T00:30"), ("2026-10-25T01:10", "2026-10-25T01:30")):
        window = look(now, "30 2 * * *", minutes=10, zone="Europe/Berlin")
        assert (window.is_open, window.opens_at) == (False, at(opens))


@pytest.mark.parametrize(
    ("cron", "zone", "words"),
    [
        ("0 25 * * *", "UTC", "spec.maintenanceWindow.cron is '0 25 * * *': hour"),
        ("0 2 * * *", "Europe/Nowhere", "spec.maintenanceWindow.timeZone is 'Europe/Nowhere'"),
    ],
)
def test_a_window_that_makes_no_sense_names_the_field(cron: str, zone: str, words: str) -> None:
    with pytest.raises(WindowError, match=words.replace("*", r"\*")):
        look("2026-01-02T03:04:05", cron, zone=zone)
