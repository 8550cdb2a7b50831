"""Bodies of the frames about redirected clients (rules 10 and 22)."""

from __future__ import annotations

import pytest

from supercluster.broker.protocol.redirect_words import (
    ENTRIES_MAX,
    Closing,
    WordsError,
    decode_closing,
    decode_parting,
    decode_users,
    encode_closing,
    encode_parting,
    encode_users,
)


@pytest.mark.parametrize("accounts", [[], ["A"], ["A", "", "ünï", "x" * 65_535]])
def test_closing_connections_arrive_as_they_were_told(accounts: list[str]) -> None:
    told = [Closing(account, "7") for account in accounts]
    assert decode_closing(memoryview(encode_closing(told))) == told


@pytest.mark.parametrize("users", [[], [("A", "ann"), ("A", ""), ("B", "ann")]])
def test_users_arrive_as_they_were_told(users: list[tuple[str, str]]) -> None:
    assert decode_users(encode_users(users)) == users


def test_a_client_that_is_about_to_leave_is_told_of_alone() -> None:
    assert decode_parting(encode_parting("A", "10.1.1.1")) == ("A", "10.1.1.1")
    with pytest.raises(WordsError, match="2 clients, where one is told of"):
        decode_parting(encode_users([("A", "10.1.1.1"), ("A", "10.1.1.2")]))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "0 bytes"),
        (b"\0\1", "within a name"),
        (b"\0\1\0\2a", "within a name"),
        (b"\0\1\0\1a\0\1bc", "9 bytes, of which the entries take 8"),
        (b"\0\1\0\1\xff", "not UTF-8"),
        (b"\0\2\0\1a\0", "within a name"),
    ],
)
def test_what_is_not_well_formed_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(WordsError, match=why):
        decode_closing(body)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(WordsError, match="65536 bytes"):
        encode_closing([Closing("x" * 65_536, "7")])
    with pytest.raises(WordsError, match="65536 entries"):
        encode_closing([Closing("", "")] * (ENTRIES_MAX + 1))
