"""The time for which a stream's migration has made no progress: neither a new stage, nor copies that come
closer. Pure.
"""

from __future__ import annotations

from collections.abc import Hashable


class Headway:
    """Of one stream, at its leader."""

    def __init__(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._waits_for: Hashable = None
        self._least = 0
        """The smallest lag since the stream waits for that."""

    def look(self, waits_for: Hashable, lag_entries: int, now_ms: int) -> None:
        """`lag_entries`: of the copy that is furthest behind."""
        if waits_for != self._waits_for or lag_entries < self._least:
            self._waits_for, self._least, self._since_ms = waits_for, lag_entries, now_ms

    def none_ms(self, now_ms: int) -> int:
        """Milliseconds without any."""
        return now_ms - self._since_ms
