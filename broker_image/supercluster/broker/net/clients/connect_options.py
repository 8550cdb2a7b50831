"""What CONNECT may say: fields of the wrong type make nonsense of it, as with nats-server, whose clients send none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROTOCOLS = (None, 0, 1)
"""Not said, and of clients that take INFO at any time (1) or only at the beginning (0)."""

_FLAGS = ("verbose", "pedantic", "tls_required", "echo", "headers", "no_responders")
_TEXTS = ("jwt", "nkey", "sig", "auth_token", "user", "pass", "name", "lang", "version", "account")


def are_typed(options: Mapping[str, Any]) -> bool:
    """Is each known field null or of its type?"""
    wanted = (*((name, bool) for name in _FLAGS), *((name, str) for name in _TEXTS))
    if not all(options.get(name) is None or isinstance(options[name], kind) for name, kind in wanted):
        return False
    protocol = options.get("protocol")
    return protocol is None or type(protocol) is int
