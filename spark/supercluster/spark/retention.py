"""Predicts when retention overtakes a reader, that is, removes messages that it has not read. Pure.

The remainder of each limit is tracked. If it shrinks, a straight line through the last minutes gives the time
at which it is used up. A reader with more than half of a limit left is not in danger, and a short observation
shows no rate: then there is no prediction. Purges, deletions, limits per subject and TTLs of single messages
are not predicted.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

WINDOW_SECONDS = 300.0
SPAN_SECONDS_MIN = 60.0
# Between two looks: fewer would show no rate, and more would be kept for nothing.
LOOK_SECONDS = 10.0
DANGER = 0.5
OVERTAKEN = "overtaken"
"""In offsets and reports, which JSON holds: when retention overtakes the reader, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a stream removes its first messages for; None: it does not."""

    messages: int | None = None
    bytes: int | None = None
    age_seconds: float | None = None

    @classmethod
    def of(cls, config: Mapping[str, object]) -> Limits:
        """From a stream's configuration. One that refuses new messages removes none to make room."""

        def limit(name: str) -> int | None:
            value = config.get(name)
            return value if isinstance(value, int) and value > 0 else None

        age_ns = limit("max_age")
        age_seconds = age_ns / 1e9 if age_ns is not None else None
        if config.get("discard") == "new":
            return cls(age_seconds=age_seconds)
        return cls(limit("max_msgs"), limit("max_bytes"), age_seconds)


Left = Mapping[str, tuple[float, float]]
"""By kind of limit: how much is left until a message is removed that is not read, and the limit; messages, bytes or seconds."""


def left_of(
    limits: Limits, *, unread: int, mean_bytes: float, oldest: dt.datetime | None, now: dt.datetime
) -> Left:
    """`unread`: messages that are not read. `mean_bytes`: of a message. `oldest`: when the oldest of them was stored; None: not known."""
    found: dict[str, tuple[float, float]] = {}
    if limits.messages is not None:
        found["messages"] = limits.messages - unread, limits.messages
    if limits.bytes is not None:
        found["bytes"] = limits.bytes - unread * mean_bytes, limits.bytes
    if limits.age_seconds is not None and oldest is not None:
        found["age"] = limits.age_seconds - (now - oldest).total_seconds(), limits.age_seconds
    return found


class RetentionWatch:
    """One reader of one stream."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Left]] = deque()
        self._times_from_s = 0.0

    def look(self, ask: Callable[[bool], Left], now_s: float) -> None:
        """Look again, when it is time. `ask`: gives what is left, and raises an Exception where the time of a message, which True asks for,
        is not to be had."""
        if self._seen and now_s - self._seen[-1][0] < LOOK_SECONDS:
            return
        asks_time = now_s >= self._times_from_s
        try:
            left = ask(asks_time)
        except Exception:
            if not asks_time:
                raise
            # Its user may not read single messages. That costs seconds each time.
            self._times_from_s = now_s + WINDOW_SECONDS
            left = ask(False)
        self.take(left, now_s)

    def take(self, left: Left, now_s: float) -> None:
        """`now_s`: of any clock that does not jump."""
        self._seen.append((now_s, left))
        while now_s - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()

    def seconds(self, now_s: float) -> int | None:
        """Until the first unread message is removed, if all goes on as in the last minutes. None: none is in danger, or it is not known."""
        if not self._seen:
            return None
        (begin_s, before), (end_s, after) = self._seen[0], self._seen[-1]
        span_s = end_s - begin_s
        found = []
        for kind, (left, limit) in after.items():
            if left >= limit * DANGER or span_s < SPAN_SECONDS_MIN or kind not in before:
                continue
            used_per_second = (before[kind][0] - left) / span_s
            if used_per_second > 0:
                found.append(left / used_per_second - (now_s - end_s))
        return max(0, int(min(found))) if found else None

    def overtaken_s(self, now: dt.datetime, now_s: float) -> int | None:
        """The same as a time: in seconds since 1970."""
        left_s = self.seconds(now_s)
        return int(now.timestamp()) + left_s if left_s is not None else None
