"""Purges and lowered limits remove messages in portions, as expiry does: one entry each, so that no turn has
to remove all.

The leader finds the next portion by examining a bounded number of messages a turn, and names it in an entry:
the stream's first messages up to a sequence, or single sequences. Replicas search nothing and remove the
named sequences, each the same (SF-13). The next portion follows when the one before it is applied. A small
portion goes into the command's own entry, as does a purge of the whole stream.

A purge is answered when its last portion is applied; if the leader is deposed earlier, the client's broker
asks the next one. A configuration with lowered limits is written when the excess that remains fits into one
entry.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.publish.expiry import EXPIRY_CHOSEN_MAX, EXPIRY_MESSAGES_MAX
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.publish.log_tail import LogTail
from supercluster.broker.jetstream.publish.proposal import Done, Proposal
from supercluster.broker.jetstream.state.log_reader import logical_bytes
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.subjects.filters import Predicate, compile_filters, is_literal

# The stream's first messages go faster than chosen ones, each of which is looked up.
FIRST_MAX = EXPIRY_MESSAGES_MAX
CHOSEN_MAX = EXPIRY_CHOSEN_MAX
# Messages that are looked at in one turn for those that go.
LOOKED_AT_MAX = 32_768
PURGES_MAX = 256
"""Purges that wait for their turn; beyond it the asker is told to ask again."""

Stretch = tuple[int, bytes]
"""Kind and body of a section that removes messages."""

_NOTHING: Stretch = (0, b"")
"""Nothing goes yet: there is nothing among what one turn may look at."""


def _chosen(seqs: list[int]) -> Stretch | None:
    if not seqs:
        return None
    return Section.EXPIRE_MESSAGES, u64(0) + u64(0) + array("Q", seqs).tobytes()


def nth_seq(state: StreamState, number: int) -> int:
    """The sequence of the stream's message of that number, counted from 1 at its beginning, or one before it where too many
    sequences between have none."""
    seq, left = state.first_seq, number
    for _ in range(LOOKED_AT_MAX):
        if seq >= state.last_seq:
            break
        left -= 1
        if left <= 0:
            break
        seq = state.past(seq + 1)
    return min(seq, state.last_seq)


class _First:
    """Removes messages from the stream's beginning: so many, or those up to a sequence."""

    def __init__(self, last: int, left: int) -> None:
        self._last = last
        self._left = left
        self.is_over = False

    def next(self, state: StreamState) -> Stretch | None:
        count = min(self._left, FIRST_MAX)
        up_to = min(self._last, nth_seq(state, count))
        if count <= 0 or up_to < state.first_seq or not state.messages:
            self.is_over = True
            return None
        self._left -= count
        self.is_over = self._left <= 0 or up_to >= self._last
        return Section.EXPIRE, u64(up_to)


class _Matching:
    """Removes messages whose subject matches, up to a sequence, but for the newest `keep` of them."""

    def __init__(self, pattern: str, last: int, keep: int) -> None:
        wanted = compile_filters((pattern,))
        assert wanted is not None, "a purge of all subjects looks at none"
        self._wanted: Predicate = wanted
        self._subject = pattern.encode() if is_literal(pattern) else None
        self._last = last
        self._keep = keep
        self._kept: deque[int] = deque()
        self._known: dict[bytes, bool] = {}
        self._next = 0

    @property
    def is_over(self) -> bool:
        return self._next > self._last

    def next(self, state: StreamState) -> Stretch | None:
        seq = max(self._next, state.first_seq)
        if self._subject is not None:
            count = state.subjects.count(self._subject)
            if count <= max(self._keep, len(self._kept)):
                seq = self._last + 1  # All that are left were seen, or stay.
            elif not self._kept:
                seq = max(seq, state.subjects.first_seq_hint(self._subject))
        found: list[int] = []
        looked_at = 0
        while (
            len(found) < CHOSEN_MAX and looked_at < LOOKED_AT_MAX and (seq := state.past(seq)) <= self._last
        ):
            decoded = state.reader.entry_of(seq)
            if decoded is None:
                seq += 1
                continue
            fitting = {subject for subject in set(decoded.subjects) if self._fits(subject)}
            end = min(decoded.first_seq + decoded.count, self._last + 1)
            looked_at += end - seq
            if not fitting:
                seq = end
                continue
            offset = decoded.first_seq
            for at in range(seq, end):
                if decoded.subjects[at - offset] in fitting and state.has(at):
                    self._kept.append(at)
                    if len(self._kept) > self._keep:
                        found.append(self._kept.popleft())
                        if len(found) >= CHOSEN_MAX:
                            end = at + 1
                            break
            seq = end
        self._next = seq
        return _chosen(found)

    def _fits(self, subject: bytes) -> bool:
        known = self._known
        fits = known.get(subject)
        if fits is None:
            if len(known) >= LOOKED_AT_MAX:
                known.clear()
            fits = known[subject] = self._wanted(subject)
        return fits


class _PerSubject:
    """Removes each subject's oldest messages until no more than `limit` are left: each message is asked for its subject's count."""

    def __init__(self, limit: int, last: int) -> None:
        self.limit = limit
        self._last = last
        self._next = 0

    @property
    def is_over(self) -> bool:
        return self._next > self._last

    def next(self, state: StreamState) -> Stretch | None:
        seq = max(self._next, state.first_seq)
        found: list[int] = []
        taken: Counter[bytes] = Counter()
        looked_at = 0
        while (
            len(found) < CHOSEN_MAX
            and looked_at < LOOKED_AT_MAX // 4
            and (seq := state.past(seq)) <= self._last
        ):
            decoded = state.reader.entry_of(seq)
            if decoded is None:
                seq += 1
                continue
            end = min(decoded.first_seq + decoded.count, self._last + 1)
            looked_at += end - seq
            for at in range(seq, end):
                subject = decoded.subjects[at - decoded.first_seq]
                if state.subjects.count(subject) - taken[subject] > self.limit and state.has(at):
                    taken[subject] += 1
                    found.append(at)
                    if len(found) >= CHOSEN_MAX:
                        end = at + 1
                        break
            seq = end
        self._next = seq
        return _chosen(found)


class _Purge:
    """A purge that was asked for, and begins when all that was appended before it is applied."""

    def __init__(self, pattern: str, seq: int, keep: int, done: Done) -> None:
        self._pattern = pattern
        self._keep = keep
        self._last = seq - 1 if seq else 1 << 62
        self.done = done
        self.removed = 0
        self._end_seq = 0
        """The last sequence that was given when the purge had its turn; 0 before."""
        self._trim: _First | _Matching | None = None

    def has_begun(self, end: LogTail) -> bool:
        """Is all that was taken in before it applied?"""
        # The end is less than it was, where what was judged is not in the log.
        self._end_seq = min(self._end_seq or end.next_seq - 1, end.next_seq - 1)
        return end.state.last_seq >= self._end_seq

    def next(self, state: StreamState) -> Stretch | None:
        """What goes next, None: nothing is left."""
        if self._trim is None:
            last = min(self._last, self._end_seq)
            if self._pattern:
                self._trim = _Matching(self._pattern, last, self._keep)
            else:
                self._trim = _First(last, state.messages - self._keep)
        found = self._trim.next(state)
        return None if found is None and self._trim.is_over else found or _NOTHING


class Trimming:
    """Of one stream's leader. `more` asks for another turn."""

    def __init__(self, more: Callable[[], None]) -> None:
        self._more = more
        self._purges: deque[_Purge] = deque()
        self._lowering: _PerSubject | None = None
        self._is_under_way = False

    def give_up(self) -> None:
        """This replica does not lead any more."""
        purges, self._purges = self._purges, deque()
        self._lowering, self._is_under_way = None, False
        for purge in purges:
            purge.done(None)

    def applied(self) -> None:
        """An entry was applied: a purge may have waited for it."""
        if self._purges and not self._is_under_way:
            self._more()

    # ---- purges ---------------------------------------------------------------------------------------------------

    def takes(self, pattern: str, seq: int, keep: int, end: LogTail, done: Done) -> bool:
        """A purge. False: it is little, or of all, and goes with an entry of its own."""
        state = end.state
        if pattern == ">":
            pattern = ""
        is_of_all = not pattern and not keep and (not seq or seq > state.last_seq)
        if is_of_all or (not self._purges and end.next_seq - state.first_seq <= CHOSEN_MAX):
            return False
        if len(self._purges) >= PURGES_MAX:
            done(None)
        else:
            self._purges.append(_Purge(pattern, seq, keep, done))
            self._more()
        return True

    # ---- limits ---------------------------------------------------------------------------------------------------

    def makes_way(self, state: StreamState, config: StreamConfig) -> Stretch | None:
        """What goes next before that configuration is written; None: it may be written."""
        over = state.messages - config.max_msgs if config.max_msgs > 0 else 0
        if over > FIRST_MAX:
            return Section.EXPIRE, u64(nth_seq(state, FIRST_MAX))
        if config.max_bytes > 0:
            last = _last_above(state, config.max_bytes)
            if last:
                return Section.EXPIRE, u64(last)
        return self._per_subject(state, config.max_msgs_per_subject)

    def _per_subject(self, state: StreamState, limit: int) -> Stretch | None:
        before = state.config.max_msgs_per_subject
        is_lower = limit > 0 and (before <= 0 or limit < before)
        if not is_lower or state.messages - len(state.subjects) <= CHOSEN_MAX:
            return None
        if self._lowering is None or self._lowering.limit != limit:
            self._lowering = _PerSubject(limit, state.last_seq)
        if self._lowering.is_over:
            return None
        return self._lowering.next(state) or _NOTHING

    # ---- entries --------------------------------------------------------------------------------------------------

    def made_way(self, turn: LeaderTurn, wanted: StreamConfig) -> bool:
        """The next stretch that goes for that configuration becomes a part of this turn's entry. True: it may be written."""
        if self._is_under_way:
            return False
        found = self.makes_way(turn.admission.end.state, wanted)
        if found is None:
            self._lowering = None
            return True
        self._propose(found, turn.proposal, lambda result: None)
        return False

    def put(self, turn: LeaderTurn) -> None:
        """The next stretch of a purge becomes a part of this turn's entry; configurations come first."""
        if self._is_under_way or turn.config_waits or not self._purges:
            return
        end = turn.admission.end
        if self._purges[0].has_begun(end):
            self._put_purge(self._purges[0], end.state, turn.proposal)

    def _put_purge(self, purge: _Purge, state: StreamState, proposal: Proposal) -> None:
        found = purge.next(state)

        def done(result: int | None) -> None:
            purge.removed += result or 0
            if result is None and purge in self._purges:
                self._purges.remove(purge)
                purge.done(None)

        if found is None:
            self._purges.popleft()
            purge.done(purge.removed)
            self._more()
        else:
            self._propose(found, proposal, done)

    def _propose(self, found: Stretch, proposal: Proposal, then: Done) -> None:
        if found is _NOTHING:
            self._more()
            return
        self._is_under_way = True

        def done(result: int | None) -> None:
            self._is_under_way = False
            then(result)
            if result is not None:
                self._more()

        kind, body = found
        proposal.add(kind, [body])
        proposal.commands.append(done)


def _last_above(state: StreamState, bytes_max: int) -> int:
    """Up to where the stream's first messages go so that the rest has no more bytes than that; 0: what goes is little."""
    over, seq = state.bytes - bytes_max, state.first_seq
    removed = 0
    while over > 0 and seq < state.last_seq and removed < CHOSEN_MAX:
        message = state.message(seq)
        if message is not None:
            over -= logical_bytes(message.subject, message.header, message.payload)
            removed += 1
        seq = state.past(seq + 1)
    return seq - 1 if over > 0 and removed == CHOSEN_MAX else 0
