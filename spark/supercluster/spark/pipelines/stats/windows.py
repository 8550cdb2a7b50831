"""Counts per window and subject prefix: tasks count, the driver adds up, and a window that has ended becomes rows. Pure."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from supercluster.spark.pipelines.fields import FieldSource, values_of
from supercluster.spark.wire import Record

NS_PER_S = 1_000_000_000
PREFIXES_MAX = 1_000
"""Prefixes of one window that are counted by themselves; messages of others count together under OTHERS."""
OTHERS = "(others)"
PUBLISHERS_MAX = 1_000
"""Publishers of one window and prefix that are told apart."""
LATENESS_SECONDS = 10
"""For so long after its end a window stays open: times of a stream may go back a little when its leader changes."""
Row = dict[str, Any]


@dataclass(slots=True)
class Counts:
    """Messages of one window and prefix."""

    messages: int = 0
    bytes: int = 0
    """Of payloads."""
    largest: int = 0
    """Bytes of the largest payload."""
    per_second: Counter[int] = field(default_factory=Counter)
    publishers: set[str] = field(default_factory=set)

    def take(self, time_s: int, size: int, publisher: str | None) -> None:
        self.messages += 1
        self.bytes += size
        self.largest = max(self.largest, size)
        self.per_second[time_s] += 1
        if publisher and len(self.publishers) < PUBLISHERS_MAX:
            self.publishers.add(publisher)

    def add(self, other: Counts) -> None:
        self.messages += other.messages
        self.bytes += other.bytes
        self.largest = max(self.largest, other.largest)
        self.per_second.update(other.per_second)
        self.publishers |= set(sorted(other.publishers)[: PUBLISHERS_MAX - len(self.publishers)])


class Windows:
    """Counts of the windows that are open. Window n has the times from n windows on, in seconds since 1970."""

    def __init__(self, window_seconds: int, prefix_tokens: int, publisher: FieldSource | None) -> None:
        self._window_seconds = window_seconds
        self._prefix_tokens = prefix_tokens
        self._publisher = publisher
        self._open: dict[int, dict[str, Counts]] = {}
        self.last_time_ns = 0

    def take(self, records: Iterable[Record]) -> None:
        for record in records:
            time_s = record[1] // NS_PER_S
            tokens = record[2].split(b".")[: self._prefix_tokens]
            prefix = b".".join(tokens).decode("utf-8", "replace")
            publisher = values_of([self._publisher], record)[0]
            self._counts(time_s // self._window_seconds, prefix).take(time_s, len(record[4]), publisher)
            self.last_time_ns = max(self.last_time_ns, record[1])

    def _counts(self, window: int, prefix: str) -> Counts:
        prefixes = self._open.setdefault(window, {})
        if prefix not in prefixes and len(prefixes) >= PREFIXES_MAX:
            prefix = OTHERS
        return prefixes.setdefault(prefix, Counts())

    def add(self, other: Windows) -> None:
        """Count what a task has counted."""
        for window, prefixes in other._open.items():
            for prefix, counts in prefixes.items():
                self._counts(window, prefix).add(counts)
        self.last_time_ns = max(self.last_time_ns, other.last_time_ns)

    def close(self, stream: str, now_ns: int | None) -> list[Row]:
        """Rows of windows that have ended at `now_ns`, or of all (None). They are forgotten."""
        rows = []
        for window in sorted(self._open):
            end_s = (window + 1) * self._window_seconds
            if now_ns is None or now_ns >= (end_s + LATENESS_SECONDS) * NS_PER_S:
                for prefix, counts in sorted(self._open.pop(window).items()):
                    rows.append(self._row(stream, window, prefix, counts))
        return rows

    def _row(self, stream: str, window: int, prefix: str, counts: Counts) -> Row:
        start = dt.datetime.fromtimestamp(window * self._window_seconds, dt.UTC)
        return {
            "stream": stream,
            "window": start.isoformat().replace("+00:00", "Z"),
            "seconds": self._window_seconds,
            "prefix": prefix,
            "messages": counts.messages,
            "bytes": counts.bytes,
            "largest": counts.largest,
            "rate": round(counts.messages / self._window_seconds, 3),
            "peak": max(counts.per_second.values(), default=0),
            "publishers": len(counts.publishers),
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "lastTimeNs": self.last_time_ns,
            "windows": [
                [
                    window,
                    prefix,
                    each.messages,
                    each.bytes,
                    each.largest,
                    list(each.per_second.items()),
                    sorted(each.publishers),
                ]
                for window, prefixes in self._open.items()
                for prefix, each in prefixes.items()
            ],
        }

    def restore(self, value: dict[str, Any]) -> None:
        self.last_time_ns = value["lastTimeNs"]
        self._open = {}
        for window, prefix, messages, size, largest, per_second, publishers in value["windows"]:
            counts = Counts(messages, size, largest, Counter(dict(per_second)), set(publishers))
            self._open.setdefault(window, {})[prefix] = counts
