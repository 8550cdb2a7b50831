"""The pages from which browsers may connect by WebSocket, by the `Origin` of the request, which no page can
choose.

A client that sends none is no browser, and is accepted. The rules are nats-server's.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}

Origin = tuple[str, str, int]
"""Scheme, host and port."""


def read_origin(text: str) -> Origin | None:
    """None: it is no address as in http://localhost:3000."""
    try:
        found = urlsplit(text)
        port = found.port
    except ValueError:
        return None
    host, scheme = found.hostname, found.scheme.lower()
    if not host or (port is None and scheme not in _PORTS):
        return None
    return scheme, host, port or _PORTS[scheme]


@dataclass(frozen=True, slots=True)
class WebOrigins:
    """Who may come."""

    is_same: bool = False
    """Only pages of the server's own host and port, as the browser calls it."""
    allowed: frozenset[Origin] | None = None
    """None: all of them."""

    def refusal(self, said: str, host: str, *, is_secure: bool) -> str:
        """Why the request with this `Origin` and this `Host` is refused; empty when it is not."""
        if not said or not (self.is_same or self.allowed is not None):
            return ""
        origin = read_origin(said)
        if origin is None:
            return "origin not allowed: it is no address"
        own = read_origin(f"{'https' if is_secure else 'http'}://{host}")
        if self.is_same and (own is None or origin[1:] != own[1:]):
            return "origin not allowed: not same origin"
        if self.allowed is not None and origin not in self.allowed:
            return "origin not allowed: not in the allowed list"
        return ""


ANY_ORIGIN = WebOrigins()
