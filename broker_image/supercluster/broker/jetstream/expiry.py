"""When messages that are older than a stream's max_age go: by entries of its leader, judged by leader time (SF-13)."""

from __future__ import annotations

from supercluster.broker.jetstream.stream import StreamState

# Expiry by age is looked at this often: an entry per message would be busier than publishing.
EXPIRY_CHECK_MS = 250
# As many messages go with one entry, so that a broker that was away for long does not stand still over it.
EXPIRY_MESSAGES_MAX = 20_000
EXPIRY_MORE_MS = 20


class Expiry:
    """Paces a leader's looks at its stream's oldest messages."""

    def __init__(self) -> None:
        self._check_ms = 0

    def is_due(self, state: StreamState, now_ms: int) -> bool:
        """Is it time to look?"""
        return bool(state.config.max_age_ns and state.messages and now_ms >= self._check_ms)

    def up_to(self, state: StreamState, leader_time_ns: int, now_ms: int) -> int:
        """Look now: the last sequence that is to go with this turn's entry; 0 when none is."""
        self._check_ms = now_ms + EXPIRY_CHECK_MS
        horizon_ns = leader_time_ns - state.config.max_age_ns
        last, seq = 0, state.first_seq
        seq_end = min(state.last_seq, seq + EXPIRY_MESSAGES_MAX)
        while seq <= seq_end:
            decoded = state.reader.entry_of(seq)
            if decoded is None or decoded.time_ns > horizon_ns:
                break
            last = min(decoded.first_seq + decoded.count - 1, state.last_seq)
            seq = last + 1
        if seq > seq_end and seq <= state.last_seq:
            self._check_ms = now_ms + EXPIRY_MORE_MS
        return last

    def deadline_ms(self, state: StreamState, now_ms: int, now_ns: int) -> int | None:
        """When the oldest message is due, by this broker's clocks."""
        if not state.config.max_age_ns or not state.messages:
            return None
        left_ns = state.first_time_ns + state.config.max_age_ns - now_ns
        return max(self._check_ms, now_ms + max(0, -(-left_ns // 1_000_000)))
