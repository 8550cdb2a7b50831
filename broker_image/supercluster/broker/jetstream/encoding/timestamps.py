"""RFC 3339 times with nanoseconds, as in NATS's JSON: integers internally, text only at the boundary."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from supercluster.broker.bounds import TIME_NS_MAX

ZERO_TIME = "0001-01-01T00:00:00Z"
"""What NATS says where there is no time."""

_NS = 1_000_000_000
_FORM = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:([Zz])|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_time(time_ns: int) -> str:
    """Unix nanoseconds as RFC 3339 in UTC, without trailing zeros; 0 is NATS's zero time."""
    if time_ns == 0:
        return ZERO_TIME
    seconds, nanos = divmod(time_ns, _NS)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    if nanos:
        text += "." + f"{nanos:09d}".rstrip("0")
    return text + "Z"


def parse_time(text: str) -> int:
    """Unix nanoseconds of an RFC 3339 time; NATS's zero time gives 0.

    Moments that cannot be stored become the nearest one that can, from the first nanosecond of 1970 to April 2262: before the
    former no message is stored, and what is due behind the latter is due never.

    Raises:
        ValueError: it is not one.
    """
    if text == ZERO_TIME:
        return 0
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not an RFC 3339 time such as 2026-01-31T12:00:00Z")
    year, month, day, hour, minute, second, fraction, _, sign, off_hours, off_minutes = found.groups()
    offset = timedelta(hours=int(off_hours or 0), minutes=int(off_minutes or 0))
    zone = timezone(-offset if sign == "-" else offset)
    moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=zone)
    since = moment - _EPOCH
    time_ns = (since.days * 86_400 + since.seconds) * _NS + int((fraction or "").ljust(9, "0"))
    return min(max(time_ns, 1), TIME_NS_MAX)


def format_duration(duration_ns: int) -> str:
    """A duration as Go writes it in status texts (1s, 1m30s, 250ms)."""
    if duration_ns < _NS:
        for unit_ns, unit in ((1_000_000, "ms"), (1_000, "µs")):
            if duration_ns >= unit_ns:
                return f"{duration_ns / unit_ns:.9g}{unit}"
        return f"{duration_ns}ns" if duration_ns else "0s"
    minutes, rest_ns = divmod(duration_ns, 60 * _NS)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest_ns / _NS:.9f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
