"""A new connection's first PONG waits until blue has settled what closing connections published (BG-2, rule 10)."""

from __future__ import annotations

import pytest

from supercluster.broker.net.clients.redirect.held_pongs import HOLD_MS, HeldPongs

pytestmark = pytest.mark.covers("BG-2")


ONE, TWO = ("blue-0", "7"), ("blue-1", "7")


def test_a_pong_waits_while_blue_has_something_unsettled_of_its_account_and_no_longer() -> None:
    closing = {"A": frozenset({ONE, TWO}), "B": frozenset[tuple[str, str]]()}
    pongs = HeldPongs(lambda account: closing[account])
    assert [pongs.hold(1, "A", 0), pongs.hold(2, "B", 0), pongs.hold(3, "A", 10)] == [True, False, True]
    closing["A"] = frozenset({TWO})
    assert pongs.release(500) == []
    closing["A"] = frozenset()
    assert pongs.release(510) == [1, 3]
    assert (len(pongs), pongs.held_total, pongs.not_kept_total) == (0, 2, 0)


@pytest.mark.covers("SF-22")
def test_connections_that_close_later_hold_up_nobody_who_is_there() -> None:
    """While hundreds are redirected some are always closing."""
    closing = frozenset({ONE})
    pongs = HeldPongs(lambda account: closing)
    pongs.hold(1, "A", 0)
    closing = frozenset({TWO})
    pongs.hold(2, "A", 10)
    assert (pongs.release(20), pongs.not_kept_total) == ([1], 0)


def test_a_pong_waits_for_a_second_at_most_and_that_is_counted_as_order_not_kept() -> None:
    pongs = HeldPongs(lambda account: frozenset({ONE}))
    pongs.hold(1, "A", 0)
    pongs.hold(2, "A", 100)
    assert pongs.release(HOLD_MS - 1) == []
    assert pongs.release(HOLD_MS) == [1]
    assert pongs.not_kept_total == 1
    pongs.went(2)
    assert pongs.release(10 * HOLD_MS) == []
    assert pongs.not_kept_total == 1, "nobody was served before its time"
