"""Maintenance windows: whether one is open, and when the next one opens.

Times are real minutes, read on the wall clock of the window's zone. If a clock change repeats an hour, a
window of that hour opens twice; if it skips one, the window of that time doesn't open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from supercluster.api import cron
from supercluster.api.moves import MaintenanceWindow

MINUTE = timedelta(minutes=1)
# Every schedule that ever comes, comes within eight years: 29 February around a century without a leap year.
DAYS_MAX = 366 * 8 + 1


@dataclass(frozen=True, slots=True)
class Window:
    """The window that is open, or else the next one."""

    is_open: bool
    opens_at: datetime | None = None
    closes_at: datetime | None = None


class WindowError(ValueError):
    """The window can't be understood; the text names the field."""


def window_at(spec: MaintenanceWindow, now: datetime) -> Window:
    """The window as it is at a moment.

    Raises:
        WindowError: the schedule or the time zone makes no sense.
    """
    try:
        schedule = cron.parse(spec.cron)
    except ValueError as error:
        raise WindowError(f"spec.maintenanceWindow.cron is {spec.cron!r}: {error}") from error
    try:
        zone = ZoneInfo(spec.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise WindowError(
            f"spec.maintenanceWindow.timeZone is {spec.time_zone!r}, which is no time zone; write one such as Europe/Berlin"
        ) from error
    length = timedelta(minutes=spec.duration_minutes)
    minute = now.astimezone(UTC).replace(second=0, microsecond=0)
    for back in range(spec.duration_minutes + 1):
        begin = minute - back * MINUTE
        if begin + length > now and _is_due(schedule, begin.astimezone(zone)):
            return Window(True, begin, begin + length)
    coming = next(_times_after(schedule, zone, now), None)
    return Window(False, coming, coming + length if coming else None)


def _is_due(schedule: cron.Schedule, wall: datetime) -> bool:
    return wall.minute in schedule.minutes and wall.hour in schedule.hours and schedule.is_due_on(wall.date())


def _times_after(schedule: cron.Schedule, zone: ZoneInfo, now: datetime) -> Iterator[datetime]:
    first = now.astimezone(zone).date()
    for offset in range(DAYS_MAX):
        day = first + timedelta(days=offset)
        if schedule.is_due_on(day):
            yield from (time for time in sorted(_times_on(schedule, zone, day)) if time > now)


def _times_on(schedule: cron.Schedule, zone: ZoneInfo, day: date) -> Iterator[datetime]:
    for hour in schedule.hours:
        for minute in schedule.minutes:
            for fold in (0, 1):
                wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone, fold=fold)
                real = wall.astimezone(UTC)
                back = real.astimezone(zone)
                # A time that a clock change skips comes back as another one; one that is not repeated has fold 0 only.
                if (back.hour, back.minute, back.fold) == (hour, minute, fold):
                    yield real
