"""The ledger of moves under load notices what is lost, repeated, strange and out of order, and what may be so."""

from __future__ import annotations

import pytest
from e2e.moves.ledger import ACKNOWLEDGED, PLAIN, PRELOADED_MODE, REPEATED, Ledger, Sent, Verdict, payload

ALL = [(mode, number) for number in (1, 2, 3) for mode in (PLAIN, ACKNOWLEDGED, REPEATED)]


def verdict(
    stored: list[tuple[int, int]], sent: dict[int, Sent] | None = None, preloaded: int = 0
) -> Verdict:
    default = {mode: Sent(3) for mode in (PLAIN, ACKNOWLEDGED, REPEATED)}
    ledger = Ledger({**default, **(sent or {})}, preloaded)
    ledger.note_all(payload(mode, number) for mode, number in stored)
    return ledger.verdict()


def test_everything_once_and_in_order_is_clean() -> None:
    found = verdict([(PRELOADED_MODE, 1), *ALL], preloaded=1)
    assert found.is_clean
    assert found.examples == ()


@pytest.mark.parametrize("missing", ALL)
def test_a_message_that_is_not_there_is_lost(missing: tuple[int, int]) -> None:
    found = verdict([message for message in ALL if message != missing])
    assert not found.is_clean
    assert found.lost == {PRELOADED_MODE: 0, PLAIN: 0, ACKNOWLEDGED: 0, REPEATED: 0, missing[0]: 1}
    assert f"{missing[1]}" in found.examples[0]


def test_what_was_there_before_is_counted_too() -> None:
    assert verdict([(PRELOADED_MODE, 2), *ALL], preloaded=2).lost[PRELOADED_MODE] == 1


def test_a_message_that_is_there_twice_is_repeated() -> None:
    assert verdict([*ALL, (REPEATED, 2)]).repeated == 1
    assert not verdict([*ALL, (REPEATED, 2)]).is_clean


def test_order_counts_per_publisher() -> None:
    mixed = sorted(ALL)
    assert verdict(mixed).is_clean
    found = verdict([(PLAIN, 2), (PLAIN, 1), *mixed[2:]])
    assert (found.disordered, found.is_clean) == (1, False)


def test_a_message_that_was_sent_again_may_stand_anywhere_but_only_once() -> None:
    late = [message for message in ALL if message != (REPEATED, 1)] + [(REPEATED, 1)]
    assert verdict(late).disordered == 1
    again = {REPEATED: Sent(3, resent=frozenset({1}))}
    assert verdict(late, again).is_clean
    assert verdict([*late, (REPEATED, 1)], again).repeated == 1
    assert verdict(late[:-1], again).lost[REPEATED] == 1


def test_what_was_refused_may_be_missing_and_nothing_else() -> None:
    without = [message for message in ALL if message != (ACKNOWLEDGED, 2)]
    assert verdict(without, {ACKNOWLEDGED: Sent(3, refused=frozenset({2}))}).is_clean
    assert verdict(without, {ACKNOWLEDGED: Sent(3, refused=frozenset({3}))}).lost[ACKNOWLEDGED] == 1


def test_of_plain_messages_so_many_may_be_missing_as_were_refused() -> None:
    without = [message for message in ALL if message != (PLAIN, 2)]
    found = verdict(without, {PLAIN: Sent(3, refused_unnamed=1)})
    assert (found.is_clean, found.refused) == (True, 1)
    assert verdict(without[3:], {PLAIN: Sent(3, refused_unnamed=1)}).lost[PLAIN] == 1


def test_what_nobody_published_is_foreign() -> None:
    ledger = Ledger({PLAIN: Sent(1)})
    ledger.note_all([payload(PLAIN, 1), payload(PLAIN, 2), b"x", payload(ACKNOWLEDGED, 1), b"0" * 13])
    assert ledger.verdict().foreign == 4


def test_order_is_promised_for_each_connection_of_a_publisher_by_itself() -> None:
    drained = [(PLAIN, 1), (PLAIN, 3), (PLAIN, 2), (PLAIN, 4)]
    assert verdict(drained, {PLAIN: Sent(4)}).disordered == 1
    assert verdict(drained, {PLAIN: Sent(4, starts=(3,))}).disordered == 0
    assert verdict([(PLAIN, 2), (PLAIN, 1), *drained[1:2]], {PLAIN: Sent(4, starts=(3,))}).disordered == 1
