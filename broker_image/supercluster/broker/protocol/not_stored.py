"""What a plain publisher is told when its message was not stored.

nats-py, nats.js and the Go client close their connection for good on any -ERR that they do not know. They report one that begins with
the words of a permissions violation, and stay connected; so such an error begins with them.
"""

from __future__ import annotations


def not_stored(stream: str, why: str) -> str:
    """The text of the -ERR."""
    return f'Permissions Violation for Publish to "{stream}": message not stored, {why}'
