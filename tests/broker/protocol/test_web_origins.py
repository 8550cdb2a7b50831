"""Which pages may come by WebSocket, and what cookies say for CONNECT."""

from __future__ import annotations

import pytest

from supercluster.broker.protocol.web_origins import ANY_ORIGIN, WebOrigins, read_origin
from supercluster.broker.protocol.websocket import UpgradeError, WebRules, login_of, refusal, upgrade

LISTED = WebOrigins(allowed=frozenset({("http", "localhost", 3000), ("https", "ex.com", 443)}))
SAME = WebOrigins(is_same=True)
NOT_LISTED = "origin not allowed: not in the allowed list"
NOT_SAME = "origin not allowed: not same origin"


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("http://localhost:3000", ("http", "localhost", 3000)),
        ("HTTPS://Ex.COM", ("https", "ex.com", 443)),
        ("http://[::1]", ("http", "::1", 80)),
        ("localhost", None),
        ("localhost:3000", None),
        ("null", None),
        ("http://", None),
        ("http://a:99999", None),
        ("app://a", None),
        ("http://[::1", None),
    ],
)
def test_an_origin_has_scheme_host_and_port(text: str, origin: tuple[str, str, int] | None) -> None:
    assert read_origin(text) == origin


@pytest.mark.parametrize(
    ("rules", "origin", "why"),
    [
        (ANY_ORIGIN, "http://evil.example", ""),
        (LISTED, "", ""),
        (LISTED, "http://LOCALHOST:3000", ""),
        (LISTED, "https://ex.com", ""),
        (LISTED, "https://localhost:3000", NOT_LISTED),
        (LISTED, "http://localhost", NOT_LISTED),
        (LISTED, "null", "origin not allowed: it is no address"),
        (SAME, "", ""),
        (SAME, "http://broker:8080", ""),
        (SAME, "http://broker", NOT_SAME),
        (SAME, "http://other:8080", NOT_SAME),
        (WebOrigins(True, LISTED.allowed), "http://broker:8080", NOT_LISTED),
        (WebOrigins(True, LISTED.allowed), "https://ex.com", NOT_SAME),
    ],
)
def test_pages_are_judged_by_their_origin(rules: WebOrigins, origin: str, why: str) -> None:
    assert rules.refusal(origin, "broker:8080", is_secure=False) == why


def test_the_port_of_the_same_origin_is_that_of_the_scheme_where_none_is_named() -> None:
    assert SAME.refusal("https://broker", "broker", is_secure=True) == ""
    assert SAME.refusal("https://broker", "broker", is_secure=False) == NOT_SAME
    assert SAME.refusal("http://broker", "", is_secure=False) == NOT_SAME


def request(*headers: str) -> bytes:
    lines = [
        "GET / HTTP/1.1",
        "Host: broker",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.mark.parametrize("name", ["Origin", "Sec-WebSocket-Origin"])
def test_a_page_that_may_not_come_is_refused_with_403(name: str) -> None:
    with pytest.raises(UpgradeError) as error:
        upgrade(request(f"{name}: http://evil.example"), WebRules(LISTED))
    assert refusal(error.value).startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert refusal(error.value).endswith(f"{NOT_LISTED}\n".encode())
    assert upgrade(request(f"{name}: https://ex.com"), WebRules(LISTED)).startswith(b"HTTP/1.1 101 ")


def test_cookies_say_what_their_names_are_given_for() -> None:
    rules = WebRules(cookies={"user": "u", "pass": "p", "auth_token": "t"})
    said = request('Cookie: u=app; other=1; p="a=b"; t=; u=second; broken')
    assert login_of(said, rules) == {"user": "app", "pass": "a=b"}
    assert login_of(request(), rules) == {}
    assert login_of(said, WebRules()) == {}
