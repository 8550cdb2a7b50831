"""Expiry of messages by a stream's max_age or by their own TTL: the leader appends entries, judged by leader
time (SF-13).

If messages have TTLs, an entry names the run of expired sequences, which messages that never expire survive,
and the single sequences whose TTL is over. The next entry waits until it is applied, so that nothing is
announced twice.
"""

from __future__ import annotations

from array import array

from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.publish.delete_markers import markers_for
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.state.log_reader import DecodedEntry
from supercluster.broker.jetstream.state.stream import StreamState

# Expiry by age is looked at this often: an entry per message would be busier than publishing.
EXPIRY_CHECK_MS = 250
# As many messages go with one entry, so that a broker that was away for long does not stand still over it.
EXPIRY_MESSAGES_MAX = 5_000
# Fewer where single messages have times of their own: each is looked up.
EXPIRY_CHOSEN_MAX = 3_000
# And fewer where each message is read, to see whether its subject is empty then: markers of the longest subjects fit into an entry.
EXPIRY_MARKED_MAX = 500
EXPIRY_MORE_MS = 20


def _last_up_to(decoded: DecodedEntry, seq: int, horizon_ns: int) -> int:
    """The last of an entry's messages, from `seq` on, that are not younger than that."""
    end = decoded.first_seq + decoded.count
    if not decoded.times_ns:
        return end - 1
    return next((at - 1 for at in range(seq, end) if decoded.time_of(at) > horizon_ns), end - 1)


class Expiry:
    """Paces a leader's looks at its stream's oldest messages. One per term of leadership."""

    def __init__(self) -> None:
        self._check_ms = 0
        self._is_under_way = False
        self._aged_up_to = 0
        """Messages up to here are too old and were removed, or never expire."""

    def is_due(self, state: StreamState, now_ms: int) -> bool:
        """Is it time to look?"""
        if not state.messages or now_ms < self._check_ms or self._is_under_way:
            return False
        return bool(state.config.max_age_ns or state.ttls.next_ns() is not None)

    def put(self, turn: LeaderTurn) -> None:
        """What is to go becomes a part of this turn's entry."""
        if not turn.is_hidden and self.is_due(turn.stream.state, turn.now_ms):
            self._put(turn)

    def _put(self, turn: LeaderTurn) -> None:
        end, proposal, leader_time_ns, now_ms = turn.admission.end, turn.proposal, turn.time_ns, turn.now_ms
        state = end.state
        if not state.config.allow_msg_ttl:
            last = self._up_to(state, leader_time_ns, now_ms, EXPIRY_MESSAGES_MAX)
            if last:
                proposal.add(Section.EXPIRE, [u64(last)])
                proposal.commands.append(lambda result: None)
            return
        most = EXPIRY_MARKED_MAX if state.config.subject_delete_marker_ttl_ns else EXPIRY_CHOSEN_MAX
        first, last = self._first(state), self._up_to(state, leader_time_ns, now_ms, most)
        due = [seq for seq in state.ttls.due(leader_time_ns, most) if not first <= seq <= last]
        if len(due) == most:
            self._check_ms = now_ms + EXPIRY_MORE_MS
        if not last and not due:
            return
        self._is_under_way = True
        self._aged_up_to = max(self._aged_up_to, last)
        body = u64(first) + u64(last) + array("Q", due).tobytes()
        proposal.add(Section.EXPIRE_MESSAGES, [body])
        proposal.commands.append(self._done)
        if state.config.subject_delete_marker_ttl_ns:
            aged = [seq for seq in range(first, last + 1) if seq not in state.ttls.never]
            proposal.add_own(end, markers_for(end, sorted(aged + due)))

    def _done(self, result: int | None) -> None:
        self._is_under_way = False
        if result is None:
            self._aged_up_to = 0

    def _first(self, state: StreamState) -> int:
        return max(state.first_seq, self._aged_up_to + 1)

    def _up_to(self, state: StreamState, leader_time_ns: int, now_ms: int, most: int) -> int:
        """The last sequence that is too old; 0 when none is."""
        self._check_ms = now_ms + EXPIRY_CHECK_MS
        if not state.config.max_age_ns:
            return 0
        horizon_ns = leader_time_ns - state.config.max_age_ns
        last, seq = 0, self._first(state)
        seq_end = min(state.last_seq, seq + most)
        while (seq := state.past(seq)) <= seq_end:
            decoded = state.reader.entry_of(seq)
            if decoded is None or decoded.time_of(seq) > horizon_ns:
                break
            last = min(_last_up_to(decoded, seq, horizon_ns), seq_end)
            if last < decoded.first_seq + decoded.count - 1:
                break
            seq = last + 1
        if last >= seq_end and seq_end < state.last_seq:
            self._check_ms = now_ms + EXPIRY_MORE_MS
        return last

    def deadline_ms(self, state: StreamState, now_ms: int, now_ns: int) -> int | None:
        """When the oldest message is due, by this broker's clocks."""
        if not state.messages or self._is_under_way:
            return None
        found = [ttl_ns] if (ttl_ns := state.ttls.next_ns()) is not None else []
        if state.config.max_age_ns:
            first = self._first(state)
            if first <= state.first_seq:
                found.append(state.first_time_ns + state.config.max_age_ns)
            elif (decoded := state.reader.entry_of(first)) is not None:
                found.append(decoded.time_of(first) + state.config.max_age_ns)
        if not found:
            return None
        left_ns = min(found) - now_ns
        return max(self._check_ms, now_ms + max(0, -(-left_ns // 1_000_000)))
