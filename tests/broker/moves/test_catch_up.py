"""Whether copies come nearer, and the time that is left."""

from __future__ import annotations

import pytest

from supercluster.broker.moves.catch_up import WARM_UP_MS, WINDOW_MS, CatchUp, Rates, Sample

WHOM = frozenset({"d@1", "e@1"})


def watch(for_ms: int, left: int, per_s: float, *, step_ms: int = 1000) -> CatchUp:
    """`left` bytes are lacking at first, and by `per_s` bytes more or less with each second; feeding goes in steps."""
    found = CatchUp()
    for now_ms in range(0, for_ms + 1, 250):
        done_ms = now_ms // step_ms * step_ms
        found.look(WHOM, Sample(now_ms, left + int(per_s * done_ms / 1000), 3 * now_ms, 5 * now_ms))
    return found


@pytest.mark.covers("MV-13")
def test_the_time_that_is_left_goes_by_what_is_lacking_less_and_less() -> None:
    found = watch(20_000, 1_000_000, -10_000)
    left_ns = found.left_ns()
    assert left_ns is not None
    assert 75e9 < left_ns < 85e9


@pytest.mark.covers("MV-13")
def test_where_the_limit_holds_the_copies_back_the_time_goes_by_it_and_not_by_its_steps() -> None:
    """They are sent 3000 bytes/s, have confirmed what they got in six seconds, and the stream does not grow."""
    found = CatchUp()
    for now_ms in range(0, 8001, 250):
        found.look(WHOM, Sample(now_ms, 300_000 - now_ms // 6000 * 24_000, 3 * now_ms, 0))
    left_ns = found.left_ns(3000)
    assert left_ns is not None
    assert left_ns == 276_000 / 3000 * 1e9
    assert found.left_ns(3000) != found.left_ns()
    assert found.left_ns(100_000) == found.left_ns(), "it is not the limit that holds them back"


@pytest.mark.parametrize(("for_ms", "per_s"), [(WARM_UP_MS - 1000, -10_000), (20_000, 0), (20_000, 500)])
def test_no_time_is_told_while_it_is_not_known(for_ms: int, per_s: float) -> None:
    assert watch(for_ms, 1_000_000, per_s).left_ns() is None


@pytest.mark.covers("MV-13")
@pytest.mark.parametrize("per_s", [0, 1000])
def test_copies_that_come_no_nearer_for_the_whole_window_fall_behind(per_s: float) -> None:
    assert watch(WINDOW_MS - 5000, 1_000_000, per_s).falls_behind() is None
    assert watch(WINDOW_MS, 1_000_000, per_s).falls_behind() == Rates(3000, 5000)


@pytest.mark.parametrize("step_ms", [1000, 20_000])
def test_copies_that_come_nearer_do_not_however_slowly_and_in_whatever_steps(step_ms: int) -> None:
    assert watch(3 * WINDOW_MS, 1_000_000, -100, step_ms=step_ms).falls_behind() is None


def test_with_other_copies_all_begins_anew() -> None:
    found = watch(WINDOW_MS, 1_000_000, 0)
    found.look(frozenset({"d@1"}), Sample(WINDOW_MS + 1000, 5, 0, 0))
    assert found.falls_behind() is None
    assert found.left_ns() is None
