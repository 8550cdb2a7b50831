"""What brokers of blue tell each other of their clients (BG-12)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supercluster.broker.protocol.client_reports import (
    NAMES_MAX,
    AccountClients,
    ClientReport,
    Publishing,
    added,
    decode_report,
    encode_report,
)

pytestmark = pytest.mark.covers("BG-12")

CLOCK = Publishing("A", "ann", "clock", "python3", "10.0.0.7", 3, ("ORDERS",))
ROW = AccountClients(5, 1, 2, 1, ("web",), ("web", "old"), (CLOCK,), ("bob",), 3)


@pytest.mark.parametrize("asks", [True, False])
def test_a_report_is_read_as_it_was_written(asks: bool) -> None:
    report = ClientReport(frozenset({"3fa9c21b"}), {"A": ROW, "B": AccountClients(1)})
    assert decode_report(encode_report(report, asks=asks)) == (report, asks)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"asks": false, "linked": [], "accounts": {"A": {}}}'])
def test_what_is_no_report_is_refused(body: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        decode_report(body)


def test_reports_of_several_brokers_are_added_and_their_names_are_bounded() -> None:
    total = added([ROW] * 20)
    assert (total.connections, total.cannot, total.staying, total.publishing, total.waiting) == (
        100,
        20,
        40,
        20,
        60,
    )
    assert total.cannot_names == ("web",) * NAMES_MAX
    assert total.publishers == (CLOCK,) * NAMES_MAX
    assert total.failing == ("bob",)


def test_of_all_brokers_publishers_those_with_the_most_messages_are_named() -> None:
    rows = [
        AccountClients(1, publishing=1, publishers=(replace(CLOCK, messages=count),)) for count in range(100)
    ]
    total = added(rows)
    assert total.publishing == 100
    assert [each.messages for each in total.publishers] == list(range(99, 99 - NAMES_MAX, -1))
