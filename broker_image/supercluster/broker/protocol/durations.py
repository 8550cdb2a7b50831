"""Durations in Go's notation: `1h30m`, `1.5s`, `250ms`."""

from __future__ import annotations

import re
from fractions import Fraction

from supercluster.broker.bounds import I64_MAX

SECOND_NS = 1_000_000_000
_UNIT_NS = {
    b"ns": 1,
    b"us": 1_000,
    "µs".encode(): 1_000,
    "μs".encode(): 1_000,
    b"ms": 1_000_000,
    b"s": SECOND_NS,
    b"m": 60 * SECOND_NS,
    b"h": 3600 * SECOND_NS,
}
_PIECE = re.compile(rb"(\d*)(?:\.(\d*))?(ns|us|\xc2\xb5s|\xce\xbcs|ms|s|m|h)")
# A longer text is no duration that anybody wrote; numbers in it would be slow to read.
_TEXT_BYTES_MAX = 64


def parse_duration_ns(text: bytes) -> int | None:
    """Nanoseconds, of which a text may name a negative number; None when it is no duration."""
    if len(text) > _TEXT_BYTES_MAX:
        return None
    sign, rest = (-1, text[1:]) if text[:1] == b"-" else (1, text[1:] if text[:1] == b"+" else text)
    if rest == b"0":
        return 0
    total, at = Fraction(0), 0
    while at < len(rest):
        found = _PIECE.match(rest, at)
        if found is None or not (found[1] or found[2]):
            return None
        whole, part = found[1] or b"0", found[2] or b""
        total += Fraction(int(whole + part), 10 ** len(part)) * _UNIT_NS[found[3]]
        at = found.end()
    if at == 0 or total > I64_MAX:
        return None
    return sign * int(total)


def format_seconds(seconds: int) -> str:
    """Whole seconds as Go prints a duration: `90` is `1m30s`."""
    minutes, left = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{left}s"
    return f"{minutes}m{left}s" if minutes else f"{left}s"
