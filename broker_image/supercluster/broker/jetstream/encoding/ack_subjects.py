"""Acknowledgements as clients send them: subjects `$JS.ACK.…` and what their payloads mean."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from supercluster.broker.jetstream.encoding.json_fields import Fields, decode_object
from supercluster.broker.jetstream.errors import ApiError

_UNIT_NS = {
    b"ns": 1,
    b"us": 1_000,
    b"ms": 1_000_000,
    b"s": 1_000_000_000,
    b"m": 60_000_000_000,
    b"h": 3_600_000_000_000,
}
# A longer delay would be a message that is never seen again: TERM says that more plainly.
_DELAY_NS_MAX = 365 * 24 * 3_600_000_000_000


Ack = tuple[bytes, bytes, bytes]
"""An acknowledgement as it came: subject, reply, payload."""


class AckRef(NamedTuple):
    """The delivery that an acknowledgement's subject names."""

    stream: str
    consumer: str
    delivered: int
    stream_seq: int
    consumer_seq: int


class AckKind(IntEnum):
    """What a payload says."""

    ACK = 1
    NAK = 2
    PROGRESS = 3
    TERM = 4
    NEXT = 5
    """Acknowledged, and the reply subject asks for more."""


def ack_prefix(stream: str, consumer: str) -> str:
    """The part of an acknowledgement's subject that all of a consumer's deliveries share."""
    return f"$JS.ACK.{stream}.{consumer}."


def parse_ack_subject(subject: bytes) -> AckRef | None:
    """Read `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>`, or NATS's longer
    form with domain and account in front; None when it is neither."""
    tokens = subject.split(b".")
    if len(tokens) == 9:
        at = 2
    elif len(tokens) in (11, 12):
        at = 4
    else:
        return None
    numbers = tokens[at + 2 : at + 5]
    if tokens[0] != b"$JS" or tokens[1] != b"ACK" or not all(n.isdigit() and len(n) < 20 for n in numbers):
        return None
    try:
        stream, consumer = tokens[at].decode(), tokens[at + 1].decode()
    except UnicodeDecodeError:
        return None
    return AckRef(stream, consumer, int(numbers[0]), int(numbers[1]), int(numbers[2]))


def parse_ack_payload(payload: bytes | memoryview) -> tuple[AckKind, bytes] | None:
    """What the payload says, with what stands behind it; None when it is no acknowledgement."""
    raw = bytes(payload)
    if raw in (b"", b"+ACK", b"+OK"):
        return AckKind.ACK, b""
    word, _, rest = raw.partition(b" ")
    kind = _WORDS.get(word)
    if kind is None or (rest and kind in (AckKind.ACK, AckKind.PROGRESS)):
        return None
    return kind, rest.strip()


_WORDS = {
    b"+ACK": AckKind.ACK,
    b"-NAK": AckKind.NAK,
    b"+WPI": AckKind.PROGRESS,
    b"+TERM": AckKind.TERM,
    b"+NXT": AckKind.NEXT,
}


def again(acks: list[Ack]) -> list[Ack]:
    """Those that say the same when they are taken a second time; a message that is refused twice is delivered twice more. What
    asks for the next message as well has asked for it."""
    found: list[Ack] = []
    for ack in acks:
        kind, _ = parse_ack_payload(ack[2]) or (None, b"")
        if kind is AckKind.NEXT:
            found.append((ack[0], b"", b"+ACK"))
        elif kind in (AckKind.ACK, AckKind.TERM):
            found.append(ack)
    return found


def parse_nak_delay(argument: bytes) -> int:
    """The delay of a `-NAK`, in nanoseconds: `{"delay": 5000000}` or a duration such as `10s`; 0 for anything else,
    so that a message that a client wants again is never held back by a misspelt delay."""
    if argument.startswith(b"{"):
        try:
            delay_ns = Fields(decode_object(argument), "nak").integer("delay")
        except ApiError:
            return 0
    else:
        digits = argument.rstrip(b"nusmh")
        unit_ns = _UNIT_NS.get(argument[len(digits) :], 0)
        if not digits.isdigit() or len(digits) > 18:
            return 0
        delay_ns = int(digits) * unit_ns
    return min(max(delay_ns, 0), _DELAY_NS_MAX)
