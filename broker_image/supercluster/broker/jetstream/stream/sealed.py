"""A stream's copy as the bulk port reads it: which messages stand where in the log's files, and which of those
there are no more.

It tells facts of now. Messages go between two questions, and the copy may, too.
"""

from __future__ import annotations

from supercluster.broker.jetstream.encoding.timestamps import format_time
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.ports import LogSegment


class SealedMessages:
    """See the module."""

    def __init__(self, copy: StreamCopy) -> None:
        self._copy = copy

    @property
    def _state(self) -> StreamState:
        return self._copy.stream.state

    def is_same(self, other: SealedMessages | None) -> bool:
        """Is that the same copy? One that was opened anew is another one."""
        return other is not None and other._copy is self._copy

    @property
    def is_open(self) -> bool:
        """May messages be read here? Not of a stream that is hidden or between two super-clusters, nor of a copy that is not whole."""
        stream, replica = self._copy.stream, self._copy.replica
        is_whole = replica.failed is None and replica.log.failed is None and replica.is_recovered
        return (
            is_whole
            and not (stream.is_hidden or stream.is_closed or stream.is_held)
            and self._state.late is None
        )

    @property
    def lineage(self) -> str:
        """Readers tell streams of one name apart by it."""
        return format_time(self._state.created_ns)

    @property
    def keeps_messages(self) -> bool:
        """Do messages stay once they were read? Others go all the time, so that no block would be of use twice."""
        return self._state.config.retention == "limits"

    @property
    def is_trimmed(self) -> bool:
        """Do limits take the oldest messages away?"""
        config = self._state.config
        return max(config.max_msgs, config.max_bytes, config.max_age_ns) > 0

    @property
    def first_seq(self) -> int:
        """The first message that is there and was not carried forward."""
        return max(self._state.first_seq, self._state.carried.last_seq + 1)

    @property
    def applied_index(self) -> int:
        return self._state.applied_index

    @property
    def stamp(self) -> tuple[object, ...]:
        """While it is the same, no message was taken away. Deleted sequences are forgotten where the stream begins behind them."""
        state = self._state
        return state, state.first_seq, self.first_seq, len(state.deleted), state.gaps.count, state.emptied

    def absent(self, first: int, last: int) -> int:
        """How many sequences from one to the other have no message; `first` is not before the stream's first."""
        state = self._state
        found = state.deleted.count_behind(first - 1) - state.deleted.count_behind(last)
        return found + state.gaps.count_behind(first - 1) - state.gaps.count_behind(last)

    def holes(self, first: int, last: int) -> tuple[list[bytes], list[tuple[int, int]]]:
        """Those sequences: deleted ones as pieces of a snapshot (`InteriorDeletes.take`), and long stretches."""
        state = self._state
        return list(state.deleted.within(first, last).encoded()), state.gaps.within(first, last)

    def segment_of(self, seq: int) -> LogSegment | None:
        """Raises DiskError."""
        return self._copy.replica.log.segment_of_seq(seq)

    def has_room(self, size_bytes: int) -> bool:
        """May the volume be used for what can be made again?"""
        log = self._copy.replica.log
        return not log.is_scarce and log.has_room(size_bytes)
