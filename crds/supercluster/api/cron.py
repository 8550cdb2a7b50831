"""Cron schedules: five fields (or a name such as @hourly), and the times that they denote."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# A 29 February that falls on a certain weekday comes within 28 years, or 40 around a year that is no leap year.
DAYS_MAX = 366 * 40


@dataclass(frozen=True, slots=True)
class Schedule:
    """The minutes, hours, days, months and weekdays (Sunday is 0) at which something is due."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    is_any_day: bool
    is_any_weekday: bool

    def is_due_on(self, day: dt.date) -> bool:
        """Where both kinds of days are restricted, either is enough, as cron has always had it."""
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.is_any_day or self.is_any_weekday:
            return by_day and by_weekday
        return by_day or by_weekday

    def _times_on(self, day: dt.date, zone: dt.tzinfo) -> Iterator[dt.datetime]:
        if self.is_due_on(day):
            for hour in sorted(self.hours):
                for minute in sorted(self.minutes):
                    yield dt.datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)

    def next_after(self, moment: dt.datetime) -> dt.datetime | None:
        """The first time after `moment`, in its time zone; None when there is none in forty years."""
        zone = moment.tzinfo or dt.UTC
        for offset in range(DAYS_MAX):
            for time in self._times_on(moment.date() + dt.timedelta(days=offset), zone):
                if time > moment:
                    return time
        return None

    def latest_between(self, after: dt.datetime, until: dt.datetime) -> dt.datetime | None:
        """The last time later than `after` and not later than `until`."""
        zone = until.tzinfo or dt.UTC
        for offset in range(min(DAYS_MAX, (until - after).days + 2)):
            times = list(self._times_on(until.date() - dt.timedelta(days=offset), zone))
            for time in reversed(times):
                if time <= until:
                    return time if time > after else None
        return None


def parse(text: str) -> Schedule:
    """Read a schedule.

    Raises:
        ValueError: it is not one; the message names the field.
    """
    words = NAMED.get(text.strip().lower(), text).split()
    if len(words) != 5:
        raise ValueError(
            f"schedule {text!r} has {len(words)} fields; minute, hour, day, month and weekday are five"
        )
    minutes = _field("minute", words[0], 0, 59, ())
    hours = _field("hour", words[1], 0, 23, ())
    days = _field("day", words[2], 1, 31, ())
    months = _field("month", words[3], 1, 12, MONTHS)
    weekdays = frozenset(day % 7 for day in _field("weekday", words[4], 0, 7, WEEKDAYS))
    return Schedule(minutes, hours, days, months, weekdays, words[2][0] in "*?", words[4][0] in "*?")


def _field(name: str, text: str, low: int, high: int, names: tuple[str, ...]) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if slash and (not step.isdecimal() or int(step) == 0):
            raise ValueError(f"{name} {text!r}: the step {step!r} must be a number above 0")
        first, dash, last = span.partition("-")
        if span in ("*", "?"):
            start, end = low, high
        else:
            start = _number(name, text, first, low, high, names)
            end = _number(name, text, last, low, high, names) if dash else (high if slash else start)
        if start > end:
            raise ValueError(f"{name} {text!r}: {start} to {end} runs backwards")
        found.update(range(start, end + 1, int(step) if slash else 1))
    return frozenset(found)


def _number(name: str, text: str, word: str, low: int, high: int, names: tuple[str, ...]) -> int:
    if word.lower() in names:
        # Months are counted from 1, weekdays from 0, as their ranges are.
        return names.index(word.lower()) + low
    if word.isdecimal() and low <= int(word) <= high:
        return int(word)
    raise ValueError(f"{name} {text!r}: {word!r} is not from {low} to {high}")
