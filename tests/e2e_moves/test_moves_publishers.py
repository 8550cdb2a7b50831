"""What the publishers of the matrix say of their waits."""

from __future__ import annotations

from array import array

import pytest
from e2e.moves.ledger import ACKNOWLEDGED, PLAIN, REPEATED
from e2e.moves.publishers import Counts, Load, Publisher


def publisher(answer_times: list[float]) -> Publisher:
    """One that was connected once."""
    found = Publisher.__new__(Publisher)
    found.answer_times = array("d", answer_times)
    return found


def test_a_stall_at_one_broker_is_seen_though_publishers_at_others_are_answered() -> None:
    load = Load("s", {}, 1_000.0)
    steady = [10.0 + 0.01 * tick for tick in range(101)]
    load.ended = 11.0
    load.publishers = {PLAIN: publisher([]), REPEATED: publisher(steady)}
    assert load.longest_stall_ms(10.0) == pytest.approx(10)
    load.publishers[ACKNOWLEDGED] = publisher([at for at in steady if not 10.2 < at < 10.6])
    assert load.longest_stall_ms(10.0) == pytest.approx(400)


def test_plain_publishers_have_no_answers_to_wait_for() -> None:
    load = Load("s", {}, 1_000.0)
    load.publishers = {PLAIN: publisher([])}
    assert load.longest_stall_ms(0.0) == 0


@pytest.mark.parametrize(
    ("after", "went_on"),
    [
        (Counts(300, 290, 1), True),
        (Counts(300, 190, 1), False),
        (Counts(300, 290, 2), False),
        (Counts(100, 95, 1), False),
    ],
    ids=["served", "stood", "refused", "sent nothing"],
)
def test_a_publisher_went_on_when_most_of_what_it_sent_is_answered_and_nothing_refused(
    after: Counts, went_on: bool
) -> None:
    assert after.went_on_since(Counts(100, 95, 1)) is went_on
