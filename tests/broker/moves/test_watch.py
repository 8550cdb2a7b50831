"""Which targets are said to be stuck, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supercluster.broker.moves.watch import STUCK_MS, Sight, TargetWatch

WELL = Sight(is_linked=True, is_open=True, is_heard=True, taken=(5, 0), is_owing=True)
SILENT = replace(WELL, is_heard=False)
CLOSED = replace(WELL, is_open=False)


def after(ms: int, sight: Sight, watch: TargetWatch | None = None, from_ms: int = 0) -> TargetWatch:
    watch = watch or TargetWatch()
    for now_ms in range(from_ms, from_ms + ms + 1, 500):
        watch.look({"d@1": sight}, now_ms)
    return watch


@pytest.mark.covers("MV-9")
@pytest.mark.parametrize(
    ("sight", "why"),
    [(SILENT, "has not answered"), (CLOSED, "has not opened"), (WELL, "has confirmed none")],
)
def test_a_target_without_headway_is_stuck_after_its_time_and_not_before(sight: Sight, why: str) -> None:
    assert after(STUCK_MS - 500, sight).stuck() == {}
    assert why in after(STUCK_MS, sight).stuck()["d@1"]


@pytest.mark.parametrize(
    "sight",
    [replace(SILENT, is_linked=False), replace(WELL, is_owing=False)],
    ids=["the leader has no link to it", "the pace holds it back"],
)
def test_a_target_that_the_leader_does_not_wait_for_is_not_stuck(sight: Sight) -> None:
    assert after(3 * STUCK_MS, sight).stuck() == {}


def test_headway_begins_the_time_anew() -> None:
    watch = after(STUCK_MS, SILENT)
    watch.look({"d@1": replace(WELL, taken=(6, 0))}, STUCK_MS + 500)
    assert watch.stuck() == {}
    assert after(STUCK_MS - 1000, replace(SILENT, taken=(6, 0)), watch, STUCK_MS + 500).stuck() == {}


def test_nobody_is_blamed_for_a_leader_that_stood_still() -> None:
    watch = after(1000, SILENT)
    watch.look({"d@1": SILENT}, 1000 + 10 * STUCK_MS)
    assert watch.stuck() == {}


def test_a_target_that_is_named_no_more_is_forgotten() -> None:
    watch = after(STUCK_MS, SILENT)
    watch.look({}, STUCK_MS + 500)
    watch.look({"d@1": SILENT}, STUCK_MS + 1000)
    assert watch.stuck() == {}


@pytest.mark.covers("MV-9", "MV-13")
def test_how_long_a_broker_is_out_of_contact_counts_from_when_it_went() -> None:
    watch = TargetWatch()
    gone = {"d@1": replace(WELL, is_linked=False)}
    watch.look(gone, 1000, ["d@1", "voter@1"])
    watch.look(gone, 4000, ["d@1"])
    assert watch.away_ms(5000) == {"d@1": 4000}
    watch.look({"d@1": WELL}, 6000)
    watch.look(gone, 7000, ["d@1"])
    assert watch.away_ms(7500) == {"d@1": 500}
    assert watch.stuck() == {}, "nobody says of it what only its leader could see"
