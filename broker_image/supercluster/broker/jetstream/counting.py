"""Message counters (allow_msg_counter): a message says by how much, and what is stored says what the counter stands at.

The leader adds at the end of its log, so each acknowledgement names the sum behind that very message.
"""

from __future__ import annotations

import json

from supercluster.broker.jetstream.log_end import LogEnd
from supercluster.broker.protocol.headers import get as header_value
from supercluster.broker.protocol.headers import with_value

INCREMENT = b"Nats-Incr"
SOURCES = b"Nats-Counter-Sources"
DISABLED, MISSING, HAS_PAYLOAD, INVALID, BROKEN = 10168, 10169, 10170, 10171, 10172
# Counters have no bounds in NATS; a longer number would be slow to read and to write.
DIGITS_MAX = 4000
# What cannot go with an increment, by NATS: the sum depends on the order alone.
_NOT_WITH_IT = (
    b"Nats-Rollup",
    b"Nats-Expected-Stream",
    b"Nats-Expected-Last-Msg-Id",
    b"Nats-Expected-Last-Subject-Sequence-Subject",
    b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Subject-Sequence",
)


class CounterError(Exception):
    """What is wrong, as NATS's err_code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"counter: err_code {code}")
        self.code = code


def check_increment(header: bytes, payload: bytes, *, allowed: bool) -> None:
    """Of a message with an increment, before anything else of it is judged.

    Raises:
        CounterError: it is none, or none that may be.
    """
    value = header_value(header, INCREMENT)
    if not value:
        return
    if _number(value) is None:
        raise CounterError(INVALID)
    if not allowed:
        raise CounterError(DISABLED)
    if payload:
        raise CounterError(HAS_PAYLOAD)
    if any(name in header and header_value(header, name) for name in _NOT_WITH_IT):
        raise CounterError(INVALID)


def count(end: LogEnd, subject: bytes, header: bytes) -> tuple[bytes, bytes, bytes]:
    """Header and payload to be stored, and what the acknowledgement says.

    Raises:
        CounterError: there is no increment, or what the subject holds is no counter.
    """
    value = header_value(header, INCREMENT) if header else None
    increment = _number(value) if value else None
    if increment is None:
        raise CounterError(MISSING)
    total, before = 0, end.counter(subject)
    if before is not None:
        total = _value(before[1])
        sources = header_value(before[0], SOURCES)
        if sources:
            header = with_value(header, SOURCES, sources)
    said = b'"val":"%d"' % (total + increment)
    return header, b"{%s}" % said, said


def _number(text: bytes) -> int | None:
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    return int(text) if digits.isdigit() and len(digits) <= DIGITS_MAX else None


def _value(payload: bytes) -> int:
    try:
        found = _number(json.loads(payload)["val"].encode())
    except (ValueError, KeyError, TypeError, AttributeError):
        found = None
    if found is None:
        raise CounterError(BROKEN)
    return found
