"""What the ledger of a restless run calls lost, repeated, out of order and excused."""

from __future__ import annotations

from collections.abc import Iterable

from e2e.restless.ledger import Sent, Verdict, judge, payload

ALL = {"sure": Sent(3, {1, 2, 3}), "once": Sent(2, {2})}


def verdict(found: Iterable[tuple[str, int]], sent: dict[str, Sent] = ALL) -> Verdict:
    return judge(sent, [payload(*one) for one in found])


def test_what_was_acknowledged_is_there_once_and_in_order() -> None:
    told = verdict([("sure", 1), ("once", 2), ("sure", 2), ("sure", 3)])
    assert told.is_clean
    assert (told.sent, told.acknowledged, told.found) == (5, 4, 4)


def test_an_unacknowledged_message_may_be_there_anywhere_but_once() -> None:
    rest = [("sure", 1), ("once", 2), ("once", 1), ("sure", 2), ("sure", 3)]
    assert verdict(rest).is_clean
    assert verdict([*rest, ("once", 1)]).repeated == 1


def test_a_missing_acknowledged_message_is_lost() -> None:
    told = verdict([("sure", 1), ("sure", 3), ("once", 2)])
    assert (told.lost, told.is_clean) == (1, False)
    assert told.examples == ("lost: sure 2 … 2, 1 of them",)


def test_messages_before_a_deletion_on_request_are_excused() -> None:
    sent = {"sure": Sent(3, {1, 2, 3}, excused=2), "once": Sent(2, {2}, excused=2)}
    assert verdict([("sure", 3)], sent).is_clean
    assert verdict([], sent).lost == 1


def test_repeated_messages_wrong_order_and_strangers_are_found() -> None:
    assert verdict([("sure", 1), ("sure", 2), ("sure", 2), ("sure", 3), ("once", 2)]).repeated == 1
    assert verdict([("sure", 1), ("sure", 3), ("sure", 2), ("once", 2)]).disordered == 1
    assert judge(ALL, [payload("sure", 4), b"nobody's"]).foreign == 2
