"""Bounds on the data that learners are sent: a copy of gigabytes takes many turns, and other members are
served in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from supercluster.broker.raft.config import RaftConfig, SendPace
from supercluster.broker.raft.progress import Progress, SendState
from supercluster.broker.raft.state import State

# An append to a learner is large from here on. Large ones leave once a millisecond at most.
LARGE_BYTES = 128 * 1024
_LARGE_ENTRIES = 128
# However small the pace, so much goes at once: smaller appends would only be more work.
PACED_BYTES_MIN = 64 * 1024
# Small entries cost by their number, at both ends: so many appends go ahead of answers.
_INFLIGHT_MAX = 16
# A member that the others are so patient with stands still for half a second, or is fed by a leader that does. Little
# processor time is left to it, so it gets small appends, and few (SF-29).
_SHORT_PATIENCE_MS = 1000
_SHORT_GAP_MS = 10


@dataclass(slots=True, eq=False)
class Throttle:
    """When a learner gets its next append, and how much of the log that carries."""

    config: RaftConfig
    state: State
    pace: SendPace | None = None
    """Bounds what learners are sent, all together."""
    due_ms: int | None = None
    """Some learner waits until then for its next append. None: no learner waits for the time."""

    def may_send(self, progress: Progress, last_index: int) -> bool:
        """Is it this learner's turn? If not, `due_ms` says when to ask again."""
        if progress.state is not SendState.SNAPSHOT and progress.next > last_index:
            return True  # Nothing large is on its way out.
        if len(progress.inflight) >= _INFLIGHT_MAX:
            return False
        now_ms = self.state.now_ms
        if self.pace is not None and not self.pace.may_send(now_ms):
            due_ms = max(self.pace.next_ms(now_ms), now_ms + 1)
        else:
            due_ms = progress.bulk_ms + (_SHORT_GAP_MS if self._is_short_of_time(progress) else 1)
        if due_ms <= now_ms:
            return True
        self.due_ms = min(due_ms, self.due_ms or due_ms)
        return False

    def bytes_max(self, progress: Progress) -> int:
        """The most that one append to this member carries."""
        most = self.config.append_bytes_max
        is_held_back = progress.learns and (self.pace is not None or self._is_short_of_time(progress))
        return min(most, PACED_BYTES_MIN) if is_held_back else most

    def sent(self, progress: Progress, size_bytes: int, entries: int) -> None:
        """A learner was sent something."""
        if self.pace is not None:
            self.pace.sent(size_bytes, self.state.now_ms)
        is_large = size_bytes >= LARGE_BYTES or entries >= _LARGE_ENTRIES
        if is_large or (size_bytes >= PACED_BYTES_MIN // 2 and self._is_short_of_time(progress)):
            progress.bulk_ms = self.state.now_ms

    def _is_short_of_time(self, progress: Progress) -> bool:
        patience_of = self.config.patience_of
        return max(patience_of(progress.member), patience_of(self.state.id)) >= _SHORT_PATIENCE_MS
