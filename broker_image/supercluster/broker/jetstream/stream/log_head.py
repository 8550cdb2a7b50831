"""The beginning of the log of a stream's replica: the first entry that the stream still reads, and the
checkpoint that has to be durable before older entries are dropped.

Messages that were carried forward (`state/carried.py`) are in the log twice. The first copy stays until a
checkpoint with the second one is durable (SF-31).
"""

from __future__ import annotations

from supercluster.broker.jetstream.publish.held_stream import HeldStream
from supercluster.broker.jetstream.replica.replica import Replica

# Retention moves the stream's first message all the time; whole segments become free far less often.
HEAD_CHECK_MS = 2000
# Checkpoints of which it is known what they need: only one that is durable counts, so a few newer ones wait for that.
LEAST_AT_MAX = 16


class LogHead:
    def __init__(self, replica: Replica, stream: HeldStream) -> None:
        self._replica = replica
        self._stream = stream
        self._least_at: dict[int, int] = {}
        """Checkpoint → the first entry that has a message of the stream then, where messages were carried."""
        self._seen_seq = 0
        self._check_ms = 0

    def least_index(self) -> int | None:
        """The first entry that has a message which the stream has; what comes next, where it has none. None: one of them is
        not in the log."""
        state, replica = self._stream.state, self._replica
        if not state.messages:
            return replica.applied_index + 1
        found = [
            index for first, last, index in state.carried if state.past(max(first, state.first_seq)) <= last
        ]
        place = state.past(max(state.first_seq, state.carried.last_seq + 1))
        if place <= state.last_seq:
            index = replica.log.index_of_seq(place)
            if index is None:
                return None
            found.append(index)
        least = min(found, default=replica.applied_index + 1)
        return least if least > replica.log.base_index else None

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    def checkpointed(self, index: int, needs_from: int) -> None:
        """A checkpoint is on the disk, which needs the entries from `needs_from` on."""
        state = self._stream.state
        if state.carried or state.sink.was_used:
            self._replica.log.want_durable(index)
            self._least_at[index] = needs_from
            if len(self._least_at) > LEAST_AT_MAX:
                del self._least_at[min(self._least_at)]

    def kept_durably(self) -> int:
        """As of the newest checkpoint that every recovery has: what was carried is durable, or the first copy of it stays (SF-31)."""
        found = self._replica.log.durable_checkpoint
        for index in [index for index in self._least_at if index < found]:
            del self._least_at[index]
        return self._least_at.get(found, 0)

    @property
    def waits_for_disk(self) -> bool:
        """Is such a checkpoint about to become durable?"""
        return bool(self._least_at) and self._replica.log.durable_checkpoint < max(self._least_at)

    # ---- time -----------------------------------------------------------------------------------------------------

    def look_again(self) -> None:
        """Messages were carried, or staged rows went: the beginning of the log may go."""
        self._seen_seq = 0

    def deadline_ms(self, *, lagged: bool) -> int | None:
        """When it is looked whether the beginning may go. `lagged`: it stayed for the sake of a follower."""
        may_move = self._stream.state.first_seq != self._seen_seq or lagged or self.waits_for_disk
        return self._check_ms if may_move else None

    def looked(self, now_ms: int) -> None:
        """It is being looked."""
        self._seen_seq, self._check_ms = self._stream.state.first_seq, now_ms + HEAD_CHECK_MS
