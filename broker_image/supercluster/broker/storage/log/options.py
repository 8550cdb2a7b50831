"""The options with which a log is opened, and the state in which it was found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from supercluster.broker.storage.disk.space import Space
from supercluster.broker.storage.log.cache import CacheBudget


class Fsync(Enum):
    """When appended entries count as durable (RP-6)."""

    ALWAYS = "always"
    """Only what was fsynced is confirmed; one fsync covers all that was appended before it."""
    INTERVAL = "interval"
    """Confirmed when written; fsynced at an interval. The first ones after a minute without are confirmed by an fsync."""
    NEVER = "never"
    """Confirmed when written; fsynced when a segment is full, and at a stop."""


class Integrity(IntEnum):
    """What a member may do with what its log holds (SF-4). Kept on disk until `settle` says it was dealt with."""

    SOUND = 0
    DOUBTFUL = 1
    """May have lost a tail that it had confirmed."""
    LOST = 2
    """A record that may have been committed is gone: not to vote with the old identity."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """One group's log."""

    fsync: Fsync = Fsync.INTERVAL
    sync_interval_ms: int = 1000
    """For `INTERVAL`; also how often the noted commit index is written."""
    segment_bytes: int = 64 * 1024 * 1024
    """A segment that reached this is full; one append may exceed it."""
    cache_bytes: int = 8 * 1024 * 1024
    """Newest records kept in memory, for replication and for consumers at the tail."""
    cache_budget: CacheBudget | None = None
    """What the caches of all logs hold together; None: each log by itself."""
    sync_in_tick: bool = True
    """`tick` fsyncs by itself, blocking. False: the runtime takes a ticket and runs it on a thread."""
    space: Space | None = None
    """Room on the volume, shared by its logs; None: unlimited."""
