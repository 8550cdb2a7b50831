"""Message counters (allow_msg_counter): a publish carries an increment, and the stored message carries the
counter's value.

The leader adds at the end of its log, so each acknowledgement has the sum as of that very message. A message
from a source carries the source's value: the counter grows by the difference to the last value from that
source, which is stored beside the sum. So skipped messages do not matter, and none counts twice.
"""

from __future__ import annotations

import json

from supercluster.broker.bounds import read_json
from supercluster.broker.jetstream.publish.log_tail import LogTail
from supercluster.broker.protocol.headers import header_value, with_value

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


def count(end: LogTail, subject: bytes, header: bytes) -> tuple[bytes, bytes, bytes]:
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


def count_taken(
    end: LogTail, subject: bytes, header: bytes, payload: bytes, source: str, from_subject: str
) -> tuple[bytes, bytes]:
    """The same for what a source's counter says: header and payload to be stored. `source` is how the source is called, and
    `from_subject` the subject there.

    Raises:
        CounterError: MISSING: it is no counter's message; BROKEN: what the subject holds is no counter, or has something else where
            it says what was heard of sources.
    """
    if not header_value(header, INCREMENT):
        raise CounterError(MISSING)
    try:
        told = _value(payload)
    except CounterError:
        raise CounterError(MISSING) from None
    total, before, known = 0, end.counter(subject), dict[str, dict[str, str]]()
    if before is not None:
        total, known = _value(before[1]), _sources(header_value(before[0], SOURCES))
    of_source = known.setdefault(source, {})
    increment = told - _heard(of_source.get(from_subject, "0"))
    of_source[from_subject] = str(told)
    header = with_value(header, INCREMENT, b"%d" % increment)
    header = with_value(header, SOURCES, _json(known))
    return header, b'{"val":"%d"}' % (total + increment)


def _sources(value: bytes | None) -> dict[str, dict[str, str]]:
    """What is known of sources: name → subject there → sum."""
    if not value:
        return {}
    try:
        found = read_json(value)
    except ValueError:
        raise CounterError(BROKEN) from None
    if not isinstance(found, dict) or not all(isinstance(sums, dict) for sums in found.values()):
        raise CounterError(BROKEN)
    return found


def _heard(value: object) -> int:
    found = _number(value.encode()) if isinstance(value, str) else None
    if found is None:
        raise CounterError(BROKEN)
    return found


def _json(known: dict[str, dict[str, str]]) -> bytes:
    """As Go writes it, which clients may compare."""
    found = json.dumps(known, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    for sign in "&<>":
        found = found.replace(sign, f"\\u{ord(sign):04x}")
    return found.encode()


def _number(text: bytes) -> int | None:
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    return int(text) if digits.isdigit() and len(digits) <= DIGITS_MAX else None


def _value(payload: bytes) -> int:
    try:
        found = _number(read_json(payload)["val"].encode())
    except (ValueError, KeyError, TypeError, AttributeError):
        found = None
    if found is None:
        raise CounterError(BROKEN)
    return found
