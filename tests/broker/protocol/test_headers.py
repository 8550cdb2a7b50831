"""Headers."""

from __future__ import annotations

import pytest

from supercluster.broker.protocol import headers

SAMPLE = b"NATS/1.0\r\nNats-Msg-Id: 7\r\nKey:  a: b\r\n\r\n"


def test_values_are_found_without_parsing_the_rest() -> None:
    assert headers.header_value(SAMPLE, b"Nats-Msg-Id") == b"7"
    assert headers.header_value(SAMPLE, b"Key") == b"a: b"
    assert headers.header_value(SAMPLE, b"Nats-Msg") is None
    assert headers.header_value(b"", b"Key") is None


def test_what_is_built_is_parsed_again() -> None:
    pairs = [(b"A", b"1"), (b"B", b"2"), (b"A", b"3")]
    assert headers.parse_header(headers.build(pairs)) == pairs
    assert headers.build([], b"404 No Messages") == b"NATS/1.0 404 No Messages\r\n\r\n"


@pytest.mark.parametrize("header", [b"", b"NATS/1.0", b"HTTP/1.0\r\n\r\n", b"NATS/1.0\r\nno colon\r\n\r\n"])
def test_what_is_no_header_is_told_apart(header: bytes) -> None:
    assert headers.parse_header(header) is None


def test_names_can_be_taken_out() -> None:
    assert headers.without(SAMPLE, [b"Nats-Msg-Id"]) == b"NATS/1.0\r\nKey: a: b\r\n\r\n"
    assert headers.without(SAMPLE, [b"Nats-Msg-Id", b"Key"]) == b""


def test_blanks_before_a_value_are_none_of_it_and_those_behind_it_are() -> None:
    header = b"NATS/1.0\r\nA:   b c \r\nD: \te\r\n\r\n"
    assert headers.header_value(header, b"A") == b"b c "
    assert headers.header_value(header, b"D") == b"\te"
    assert headers.parse_header(header) == [(b"A", b"b c "), (b"D", b"\te")]


def test_a_value_that_is_set_is_the_only_one_of_its_name() -> None:
    """A responder reads the first or the last: neither may be what a client has forged."""
    forged = headers.build([(b"Nats-Request-Info", b"admin"), (b"A", b"1"), (b"Nats-Request-Info", b"root")])
    told = headers.with_value(forged, b"Nats-Request-Info", b"real")
    assert headers.parse_header(told) == [(b"Nats-Request-Info", b"real"), (b"A", b"1")]
    broken = b"NATS/1.0\r\nno colon\r\nNats-Request-Info: a\r\nNats-Request-Info:b\r\n\r\n"
    assert headers.with_value(broken, b"Nats-Request-Info", b"real").count(b"Nats-Request-Info") == 1
