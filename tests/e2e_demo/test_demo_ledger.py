"""The ledger notices what is lost, repeated, strange and out of order, and the comparison every figure that differs."""

from __future__ import annotations

from e2e.demo.flights import ACKNOWLEDGED, PLAIN, Figures, encode, publisher_of
from e2e.demo.ledger import Ledger, compare, table

ROW = {"origin": "JFK", "carrier": "B6", "dep_delay": "3"}


def ledger_of(*numbers: int, expected: int = 6) -> Ledger:
    ledger = Ledger(expected)
    for number in numbers:
        ledger.note(encode(number, ROW).payload)
    return ledger


def test_all_messages_once_is_clean() -> None:
    assert ledger_of(1, 2, 3, 4, 5, 6).is_clean


def test_halves_are_told_apart_by_the_number() -> None:
    assert [publisher_of(number) for number in (1, 2, 3)] == [PLAIN, ACKNOWLEDGED, PLAIN]


def test_lost_messages_are_counted_and_named() -> None:
    ledger = ledger_of(1, 2, 5)
    assert (ledger.lost, ledger.repeated, ledger.is_clean) == (3, 0, False)
    assert ledger.examples_lost() == [3, 4, 6]


def test_repeated_messages_are_counted_each_time() -> None:
    ledger = ledger_of(1, 2, 2, 3, 3, 3, 4, 5, 6)
    assert (ledger.lost, ledger.repeated, ledger.is_clean) == (0, 3, False)


def test_plain_messages_out_of_order_are_noticed_and_acknowledged_ones_may_be() -> None:
    assert ledger_of(1, 4, 2, 3, 6, 5).is_clean
    ledger = ledger_of(1, 5, 3, 2, 4, 6)
    assert (ledger.disordered, ledger.is_clean) == (1, False)


def test_order_is_judged_for_each_plain_connection_by_itself() -> None:
    ledger = Ledger(6, plain_starts=[4])
    for number in (1, 5, 3, 2, 4, 6):
        ledger.note(encode(number, ROW).payload)
    assert ledger.is_clean


def test_strange_messages_are_noticed() -> None:
    ledger = ledger_of(1, 2, 3, 4, 5, 6, 7)
    ledger.note(b"hello")
    assert (ledger.foreign, ledger.is_clean) == (2, False)


def test_figures_that_differ_or_are_missing_on_a_side_are_found_and_marked() -> None:
    same, other = Figures(3, 2, -5), Figures(3, 2, -4)
    expected = {("EWR", "UA"): same, ("JFK", "B6"): same, ("LGA", "DL"): same}
    found = {("EWR", "UA"): same, ("JFK", "B6"): other, ("LGA", "YV"): same}
    assert [difference.group for difference in compare(expected, found)] == [
        ("JFK", "B6"),
        ("LGA", "DL"),
        ("LGA", "YV"),
    ]
    assert compare(expected, dict(expected)) == []
    lines = table(expected, found)
    assert [("DIFFERS" in line) for line in lines] == [False, False, True, True, True]
