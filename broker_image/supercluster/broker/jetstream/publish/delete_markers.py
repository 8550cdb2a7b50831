"""Markers for subjects whose last message has expired (subject_delete_marker_ttl): messages of the leader's
own.

A marker tells subscribers, such as a watcher of a key-value bucket, that the subject is now empty. The entry
that removes the subject's last message contains it, unless a later message is already in the log. A marker
has a TTL of its own, and leaves no marker when it expires.
"""

from __future__ import annotations

from collections.abc import Iterable

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.publish.log_tail import LogTail
from supercluster.broker.jetstream.state.message_ttl import TTL
from supercluster.broker.protocol.durations import SECOND_NS, format_seconds
from supercluster.broker.protocol.headers import build, header_value

MARKER_REASON = b"Nats-Marker-Reason"
_KV_OPERATION = b"KV-Operation"


def is_marker(header: bytes) -> bool:
    """Does the message stand for an empty subject already? A key-value client's purge does."""
    if not header:
        return False
    return bool(header_value(header, MARKER_REASON)) or header_value(header, _KV_OPERATION) == b"PURGE"


def marker_header(config: StreamConfig) -> bytes:
    seconds = config.subject_delete_marker_ttl_ns // SECOND_NS
    return build(
        (
            (MARKER_REASON, b"MaxAge"),
            (TTL, format_seconds(seconds).encode()),
            (b"Nats-Rollup", b"sub"),
        )
    )


def markers_for(end: LogTail, seqs: Iterable[int]) -> list[bytes]:
    """The markers for an entry that removes these messages, in this order: subject, header, payload, subject, …"""
    state, header = end.state, marker_header(end.state.config)
    left: dict[bytes, int] = {}
    found: list[bytes] = []
    for seq in seqs:
        message = state.message(seq)
        if message is None:
            continue
        subject = message.subject
        left[subject] = left.get(subject, state.subjects.count(subject)) - 1
        if left[subject] == 0 and end.last_of_subject(subject) <= seq and not is_marker(message.header):
            found += (subject, header, b"")
    return found
