"""The time of a log's next fsync, by its policy (RP-6). The caller passes in the time. The log reports
whether anything is left to make durable.
"""

from __future__ import annotations

from supercluster.broker.storage.log.options import Fsync, LogOptions

# A sync that found no file descriptor is tried again after this time.
_NO_DESCRIPTOR_RETRY_MS = 100


class SyncPace:
    """See the module. Asked while something is not durable and no sync is under way. `is_urgent`: it may not wait for the
    policy."""

    def __init__(self, options: LogOptions) -> None:
        self._interval_ms = options.sync_interval_ms
        self.fsync = options.fsync
        """The policy in force."""
        self._last_ms: int | None = None
        self._from_ms = 0
        """No sync before: the last one found no file descriptor."""

    def is_due(self, now_ms: int, *, is_urgent: bool) -> bool:
        """Should a sync begin?"""
        if now_ms < self._from_ms:
            return False
        if self.fsync is Fsync.ALWAYS or is_urgent:
            return True
        if self.fsync is Fsync.NEVER:
            return False
        if self._last_ms is None:
            self._last_ms = now_ms
        return now_ms - self._last_ms >= self._interval_ms

    def next_ms(self, *, is_urgent: bool) -> int | None:
        """When `is_due` turns true (0: it is); None: the policy wants none."""
        if self.fsync is Fsync.ALWAYS or is_urgent:
            return self._from_ms
        if self.fsync is Fsync.NEVER:
            return None
        # The interval counts from the first tick that sees something to do.
        due_ms = 0 if self._last_ms is None else self._last_ms + self._interval_ms
        return max(due_ms, self._from_ms)

    def begins(self, now_ms: int) -> None:
        """The next interval counts from here."""
        self._last_ms = now_ms

    def found_no_descriptor(self) -> None:
        """The last sync was not tried: it is due again a moment later."""
        self._from_ms = (self._last_ms or 0) + _NO_DESCRIPTOR_RETRY_MS
