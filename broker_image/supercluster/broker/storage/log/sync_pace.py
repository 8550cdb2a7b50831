"""The time of a log's next fsync, by its policy (RP-6). The caller passes in the time. The log reports
whether anything is left to make durable.
"""

from __future__ import annotations

from supercluster.broker.storage.log.options import Fsync, LogOptions

# So long after its last entries were fsynced a log has the disk know that it owes nothing. A stream that is used at least so often
# waits for no fsync, and fsyncs nothing more than its entries; one that is used less often is confirmed by its fsync.
QUIET_MS = 60_000
# A sync that found no file descriptor is tried again after this time.
_NO_DESCRIPTOR_RETRY_MS = 100


class SyncPace:
    """See the module. Asked while something is left to do and no sync is under way. `is_urgent`: entries are not confirmed before,
    or somebody waits for them. `is_synced`: none is left, and only what the log owes is to be cleared."""

    def __init__(self, options: LogOptions) -> None:
        self._interval_ms = options.sync_interval_ms
        self.fsync = options.fsync
        """The policy in force."""
        self._last_ms: int | None = None
        self._from_ms = 0
        """No sync before: the last one found no file descriptor."""

    def is_due(self, now_ms: int, *, is_urgent: bool, is_synced: bool) -> bool:
        """Should a sync begin?"""
        if self._last_ms is None and not is_urgent:
            self._last_ms = now_ms
        due_ms = self.next_ms(is_urgent=is_urgent, is_synced=is_synced)
        return due_ms is not None and now_ms >= due_ms

    def next_ms(self, *, is_urgent: bool, is_synced: bool) -> int | None:
        """When `is_due` turns true (0: it is); None: the policy wants none."""
        if is_urgent:
            return self._from_ms
        if self.fsync is Fsync.NEVER:
            return None
        # Both count from the first tick that sees something to do.
        due_ms = (
            0 if self._last_ms is None else self._last_ms + (QUIET_MS if is_synced else self._interval_ms)
        )
        return max(due_ms, self._from_ms)

    def is_busy(self, now_ms: int) -> bool:
        """Is it worth an fsync of its own that the next entries need none?"""
        return self.fsync is Fsync.NEVER or (self._last_ms is not None and now_ms - self._last_ms < QUIET_MS)

    def begins(self, now_ms: int) -> None:
        """The next interval counts from here."""
        self._last_ms = now_ms

    def begins_anew(self) -> None:
        """The next interval counts from when somebody asks."""
        self._last_ms = None

    def found_no_descriptor(self) -> None:
        """The last sync was not tried: it is due again a moment later."""
        self._from_ms = (self._last_ms or 0) + _NO_DESCRIPTOR_RETRY_MS
