"""The error for a plain publisher whose message was not stored.

nats-py, nats.js and the Go client close their connection for good on any -ERR that they do not know. They
report one that begins with the words of a permissions violation, and stay connected; so such an error begins
with them.
"""

from __future__ import annotations

CLOSED = "\x01"
"""Stands where a stream's name does, and is none: what captures the subject refuses every message, and nobody else gets one."""


def not_stored(stream: str, why: str) -> str:
    """The text of the -ERR."""
    return f'Permissions Violation for Publish to "{stream}": message not stored, {why}'
