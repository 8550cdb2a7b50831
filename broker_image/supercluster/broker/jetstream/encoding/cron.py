"""The due times of a schedule: a moment (`@at`), an interval (`@every`), or a cron expression of six fields,
seconds first.

Pure: the same pattern after the same moment gives the same time. Only time zones depend on the machine's
tables. Only `check_zone` and `Schedule.after` look them up, and only leaders call these; parsing a pattern,
which has to be equal on every replica, never does (SF-13).
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from supercluster.broker.jetstream.encoding.timestamps import parse_time
from supercluster.broker.protocol.durations import SECOND_NS, parse_duration_ns

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
# Name, least, greatest, names of values.
_FIELDS: tuple[tuple[int, int, tuple[str, ...]], ...] = (
    (0, 59, ()),
    (0, 59, ()),
    (0, 23, ()),
    (1, 31, ()),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_NAMED = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_PATTERN_CHARS_MAX = 1024
# A day that comes at all, such as February 29th, comes within so many years.
_YEARS_MAX = 8
_STEP_MAX = 10**9
_ZONE_CHARS_MAX = 64
# Schedules that are kept parsed.
_PARSED_MAX = 4096


class PatternError(ValueError):
    """No schedule that could ever be due."""


class ZoneError(ValueError):
    """No time zone."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A pattern that was understood."""

    at_ns: int = 0
    every_ns: int = 0
    fields: tuple[frozenset[int], ...] = ()
    any_day: tuple[bool, bool] = (True, True)
    """Are the day of the month, and that of the week, left open?"""
    zone: str = ""

    @property
    def repeats(self) -> bool:
        return not self.at_ns

    def after(self, time_ns: int) -> int:
        """When it is due first after that moment, as Unix nanoseconds; 0: never.

        Raises:
            ZoneError: this machine has no such time zone.
        """
        if self.at_ns:
            return self.at_ns
        if self.every_ns:
            return (time_ns + SECOND_NS // 2) // SECOND_NS * SECOND_NS + self.every_ns
        found = self._next(datetime.fromtimestamp(time_ns // SECOND_NS, _zone_of(self.zone or "UTC")))
        return int(found.timestamp()) * SECOND_NS if found is not None else 0

    def _next(self, after: datetime) -> datetime | None:
        """By wall clock; a time that a change of clocks leaves out is passed over."""
        seconds, minutes, hours, _, months, _ = self.fields
        now = after.replace(microsecond=0) + timedelta(seconds=1)
        day = now.date()
        for _ in range(366 * _YEARS_MAX):
            if day.month not in months:
                last = monthrange(day.year, day.month)[1]
                day += timedelta(days=last - day.day + 1)
                if day.year > now.year + _YEARS_MAX:
                    return None
                continue
            if self._is_day(day.day, (day.weekday() + 1) % 7):
                same = day == now.date()
                for hour in sorted(hours):
                    if same and hour < now.hour:
                        continue
                    for minute in sorted(minutes):
                        if same and (hour, minute) < (now.hour, now.minute):
                            continue
                        for second in sorted(seconds):
                            found = datetime(
                                day.year, day.month, day.day, hour, minute, second, tzinfo=after.tzinfo
                            )
                            if same and found.replace(tzinfo=None) < now.replace(tzinfo=None):
                                continue
                            if found.astimezone(UTC).astimezone(after.tzinfo).hour == hour:
                                return found
            day += timedelta(days=1)
        return None

    def _is_day(self, of_month: int, of_week: int) -> bool:
        fits = of_month in self.fields[3], of_week in self.fields[5]
        return all(fits) if any(self.any_day) else any(fits)


@lru_cache(_PARSED_MAX)
def parse_schedule(pattern: str, zone: str | None = None) -> Schedule:
    """
    Raises:
        PatternError: the pattern is none, or the zone means nothing for it.
        ZoneError: the zone's name can't be one.
    """
    if len(pattern) > _PATTERN_CHARS_MAX:
        raise PatternError(f"a pattern has {_PATTERN_CHARS_MAX} characters at most")
    word, _, rest = pattern.partition(" ")
    if word in ("@at", "@every") and zone is not None:
        raise PatternError(f"{word} has no time zone")
    if word == "@at":
        try:
            return Schedule(at_ns=max(parse_time(rest), 1))
        except ValueError as error:
            raise PatternError(str(error)) from None
    if word == "@every":
        every_ns = parse_duration_ns(rest.encode())
        if every_ns is None or every_ns < SECOND_NS:
            raise PatternError(f"{rest!r} is no interval of a second or more")
        return Schedule(every_ns=every_ns)
    if zone is not None and not 0 < len(zone) <= _ZONE_CHARS_MAX:
        raise ZoneError(f"{zone[:_ZONE_CHARS_MAX]!r} is no time zone")
    fields = _NAMED.get(pattern, pattern).split()
    if len(fields) != len(_FIELDS):
        raise PatternError(f"{len(fields)} fields, cron has {len(_FIELDS)}")
    sets = tuple(
        _values(text, least, most, names) for text, (least, most, names) in zip(fields, _FIELDS, strict=True)
    )
    any_day = _is_open(fields[3]), _is_open(fields[5])
    found = Schedule(fields=sets, any_day=any_day, zone="" if zone == "UTC" else zone or "")
    if found._next(datetime(2024, 1, 1, tzinfo=UTC)) is None:
        raise PatternError("no day is ever like that")
    return found


def _is_open(text: str) -> bool:
    return any(part in ("*", "?", "*/1", "?/1") for part in text.split(","))


def _values(text: str, least: int, most: int, names: tuple[str, ...]) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(step_text, 1, _STEP_MAX, ()) if slash else 1
        if span in ("*", "?"):
            first, last = least, most
        else:
            low, dash, high = span.partition("-")
            first = _number(low, least, most, names)
            last = _number(high, least, most, names) if dash else (most if slash else first)
        if first > last:
            raise PatternError(f"{span!r} ends before it begins")
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _number(text: str, least: int, most: int, names: tuple[str, ...]) -> int:
    if text.upper() in names:
        return names.index(text.upper()) + least
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or not least <= int(text) <= most:
        raise PatternError(f"{text!r} is no number from {least} to {most}")
    return int(text)


def check_zone(name: str) -> None:
    """
    Raises:
        ZoneError: this machine has no such time zone.
    """
    if not 0 < len(name) <= _ZONE_CHARS_MAX:
        raise ZoneError(f"{name[:_ZONE_CHARS_MAX]!r} is no time zone")
    _zone_of(name)


def _zone_of(name: str) -> tzinfo:
    if name in ("UTC", "Local"):
        # A cluster has no place of its own: its local time is UTC, as in nats-server's containers.
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        raise ZoneError(f"{name!r} is no time zone") from None
