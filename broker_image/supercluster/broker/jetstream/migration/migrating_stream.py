"""The interface of a stream's replica to its migration: the leader's replica, and the operations that a
migration adds to its log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.publish.held_stream import HeldStream
from supercluster.broker.jetstream.publish.host import StreamHost
from supercluster.broker.jetstream.replica.replica import Replica


@dataclass(frozen=True, slots=True)
class MigratingStream:
    replica: Replica
    stream: HeldStream
    host: StreamHost
    put_cut: Callable[[Section, bytes], int]
    """Appends what takes the stream's cut further. Returns the entry's index; 0: it was not taken."""
    is_cut_pending: Callable[[], bool]
    """Is such an entry in the log and not applied?"""
