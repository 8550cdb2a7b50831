"""The interface of a stream's replica to its move: the leader's replica, and the operations that a move adds
to its log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from supercluster.broker.jetstream.moves.range_hasher import RangeHasher
from supercluster.broker.jetstream.publish.held_stream import HeldStream
from supercluster.broker.jetstream.publish.host import StreamHost
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.moves.note import Note


@dataclass(frozen=True, slots=True)
class MovingStream:
    replica: Replica
    stream: HeldStream
    host: StreamHost
    range_hasher: RangeHasher
    put_note: Callable[[Note], int]
    """Appends what a move's leader leaves for the next one. Returns the entry's index; 0: it was not taken."""
    grown_bytes: Callable[[], int]
    """What this replica has appended as the leader."""
