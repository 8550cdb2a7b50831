"""What a leader puts on the way to its followers: appends, heartbeats and snapshot chunks, within bounds.

Per turn and follower there is at most one append; it carries all that is new. Appends are sent ahead of the answers.
"""

from __future__ import annotations

from collections.abc import Iterable

from supercluster.broker.raft.config import SendPace
from supercluster.broker.raft.entry import Entry
from supercluster.broker.raft.messages import Append, Heartbeat, InstallSnapshot, SnapshotResponse
from supercluster.broker.raft.progress import OutgoingSnapshot, Progress, SendState
from supercluster.broker.raft.read_back import ReadBack, size_of
from supercluster.broker.raft.state import RaftState

# An append to a follower that is so far behind goes over the bulk link, and so does all that follows until it is answered.
BULK_APPEND_BYTES = 256 * 1024
# An append to a learner is large from here on. Large ones leave once a millisecond at most: a copy of gigabytes is made of
# many turns, between which everybody else is served.
_LARGE_BYTES = 128 * 1024
_LARGE_ENTRIES = 128
# Small entries cost by their number, at both ends: a learner gets so many at once, and so many appends ahead of answers.
_LEARNER_ENTRIES_MAX = 256
_LEARNER_INFLIGHT_MAX = 16
# Whoever others are so patient with stands still for half a second, or is fed by a leader that does: little processor time is left
# to it, so it gets small appends, and few (SF-29).
_SHORT_PATIENCE_MS = 1000
_SHORT_GAP_MS = 10
# However small the pace, so much goes at once: smaller appends would only be more work.
_PACED_BYTES_MIN = 64 * 1024


def is_of_bulk(round_: int) -> bool:
    """Did the heartbeat of that number go over the bulk link?"""
    return round_ % 2 == 0


class Sending(RaftState):
    """The leader's way out."""

    _round = 2
    """Number of the last heartbeat round; it only grows, over all leaderships of this process. Each takes two numbers: the odd
    one is for the control link, the even one behind it for the bulk link."""
    _beat_wanted = False
    _heartbeat_due_ms = 0
    _active_ms = 0
    _unsent = False
    """A follower could take more at once than the last turn gave it."""
    learner_pace: SendPace | None = None
    """Bounds what learners are sent, all together."""
    _read_back: ReadBack | None = None
    """What learners were given lately; None while nobody learns."""
    _learners_due_ms: int | None = None
    """A learner waits until then for its next append."""

    def _end_leadership(self) -> None:
        super()._end_leadership()
        self._read_back = None

    def _send_all(self) -> None:
        if self._reads.wants_round(self._round):
            self._beat_wanted = True
        beat, self._beat_wanted = self._beat_wanted, False
        if beat:
            self._round += 2
            self._confirm_alone()
        self._unsent = False
        self._learners_due_ms = None
        batches: dict[int, tuple[Entry, ...]] = {}
        last_index = self.log.last_index
        if not self.membership.learners:
            self._read_back = None
        for progress in self._in_turn():
            sent = self._send_entries(progress, last_index, batches)
            commit = min(progress.match, self.commit_index)
            if beat or (not sent and commit > progress.sent_commit):
                progress.sent_commit = max(progress.sent_commit, commit)
                self._send_heartbeat(progress, self._round - 1, commit, answer=beat)
            if beat and progress.awaits_bulk:
                self._send_heartbeat(progress, self._round, commit, answer=True, by_bulk=True)

    def _send_heartbeat(
        self, progress: Progress, round_: int, commit: int, *, answer: bool, by_bulk: bool = False
    ) -> None:
        self._send(
            Heartbeat(
                self.id,
                progress.member,
                self.term,
                self.lineage,
                round_,
                commit,
                self.log.last_index,
                answer=answer,
                by_bulk=by_bulk,
            )
        )

    def _in_turn(self) -> Iterable[Progress]:
        """Whom to send to, in order. Where a pace is shared, who is behind comes first: so all copies grow together, from
        one reading of the log, and none has to wait until another one is complete."""
        if self.learner_pace is None:
            return self.progress.values()
        return sorted(self.progress.values(), key=lambda progress: progress.next)

    def _confirm_alone(self) -> None:
        """A leader that is a quorum by itself confirms its reads without answers."""
        self._confirm_reads()

    def _confirm_reads(self) -> None:
        raise NotImplementedError

    def _send_entries(
        self, progress: Progress, last_index: int, batches: dict[int, tuple[Entry, ...]]
    ) -> bool:
        """Send one append, if the follower may get one. `batches` shares slices between followers."""
        learns = progress.learns
        if learns and progress.leaving_until_ms is not None:
            return self._send_farewell(progress)
        if learns and not self._learner_may_get(progress, last_index):
            return False
        if progress.state is SendState.SNAPSHOT:
            return self._send_chunk(progress)
        probing = progress.state is SendState.PROBE
        if probing:
            if progress.probe_sent:
                return False
        elif progress.next > last_index or self._window_full(progress):
            return False
        prev_index = progress.next - 1
        prev_term = self.log.term(prev_index)
        if prev_term is None:
            progress.want_snapshot()
            return False
        entries = batches.get(progress.next)
        if entries is None:
            bytes_max = self._append_bytes_max(progress)
            entries = self._read_for(progress.next, last_index, bytes_max, learns=learns)
            batches[progress.next] = entries
        self._send_append(progress, prev_term, entries)
        end = prev_index + len(entries)
        if not probing and end < last_index and not self._window_full(progress):
            self._unsent = True
        return True

    def _send_append(self, progress: Progress, prev_term: int, entries: tuple[Entry, ...]) -> None:
        prev_index = progress.next - 1
        end = prev_index + len(entries)
        size_bytes = size_of(entries)
        follows_bulk = progress.by_bulk and bool(progress.inflight)
        progress.by_bulk = progress.learns or follows_bulk or size_bytes > BULK_APPEND_BYTES
        self._send(
            Append(
                self.id,
                progress.member,
                self.term,
                self.lineage,
                prev_index,
                prev_term,
                self.commit_index,
                self.log.last_index,
                entries,
                progress.by_bulk,
            )
        )
        progress.sent(end, size_bytes, self._round)
        progress.total_bytes += size_bytes
        if progress.learns:
            self._learner_got(progress, size_bytes, len(entries))
        progress.sent_commit = max(progress.sent_commit, min(end, self.commit_index))

    def _read_for(self, first: int, last_index: int, bytes_max: int, *, learns: bool) -> tuple[Entry, ...]:
        """Entries from `first` on, as many as one append may carry."""
        if first > last_index:
            return ()
        if not learns:
            return tuple(self.log.entries(first, last_index, bytes_max))
        if self._read_back is None:
            self._read_back = ReadBack()
        found = self._read_back.get(first, bytes_max)
        if found is None:
            reach = min(last_index, first + _LEARNER_ENTRIES_MAX - 1)
            found = tuple(self.log.entries(first, reach, bytes_max))
            if size_of(found) >= _LARGE_BYTES:
                self._read_back.keep(first, bytes_max, found)
        return found

    # Learners.

    def _send_farewell(self, progress: Progress) -> bool:
        """A removed learner gets what it lacks up to its removal if that is next to nothing, and else no more at all:
        nobody waits for its copy, and no pace holds for it any longer. It never stands for election."""
        last_index = self.membership.index
        if progress.leaving_until_ms is None or self._now_ms >= progress.leaving_until_ms:
            return False
        probing = progress.state is SendState.PROBE
        if progress.state is not SendState.SNAPSHOT:
            if progress.probe_sent if probing else progress.next > last_index:
                return False
            prev_term = self.log.term(progress.next - 1)
            entries: tuple[Entry, ...] = ()
            if progress.next <= last_index:
                entries = tuple(self.log.entries(progress.next, last_index, _PACED_BYTES_MIN))
            if prev_term is not None and progress.next + len(entries) > last_index:
                self._send_append(progress, prev_term, entries)
                return True
        # Too much: the next heartbeat is without it.
        progress.leaving_until_ms = self._now_ms
        return False

    def _append_bytes_max(self, progress: Progress) -> int:
        most = self.config.append_bytes_max
        is_held_back = self.learner_pace is not None or self._is_short_of_time(progress)
        return min(most, _PACED_BYTES_MIN) if progress.learns and is_held_back else most

    def _is_short_of_time(self, progress: Progress) -> bool:
        return max(self._patience_ms(progress.member), self._patience_ms(self.id)) >= _SHORT_PATIENCE_MS

    def _learner_may_get(self, progress: Progress, last_index: int) -> bool:
        """Is it this learner's turn? If not, `_learners_due_ms` says when to look again."""
        if progress.state is not SendState.SNAPSHOT and progress.next > last_index:
            return True  # Nothing large is on its way out.
        if len(progress.inflight) >= _LEARNER_INFLIGHT_MAX:
            return False
        due_ms = self._now_ms
        if self.learner_pace is not None and not self.learner_pace.may_send(self._now_ms):
            due_ms = max(self.learner_pace.next_ms(self._now_ms), self._now_ms + 1)
        else:
            due_ms = progress.bulk_ms + (_SHORT_GAP_MS if self._is_short_of_time(progress) else 1)
            due_ms = max(due_ms, self._now_ms)
        if due_ms == self._now_ms:
            return True
        self._learners_due_ms = min(due_ms, self._learners_due_ms or due_ms)
        return False

    def _learner_got(self, progress: Progress, size_bytes: int, entries: int) -> None:
        if self.learner_pace is not None:
            self.learner_pace.sent(size_bytes, self._now_ms)
        is_large = size_bytes >= _LARGE_BYTES or entries >= _LARGE_ENTRIES
        if is_large or (size_bytes >= _PACED_BYTES_MIN // 2 and self._is_short_of_time(progress)):
            progress.bulk_ms = self._now_ms

    def _window_full(self, progress: Progress) -> bool:
        return (
            len(progress.inflight) >= self.config.inflight_max
            or progress.inflight_bytes >= self.config.inflight_bytes_max
        )

    # Snapshots.

    def _snapshots_wanted(self) -> list[str]:
        """Members that need one and can take it: nothing is prepared for the dead and the removed."""
        since_ms = self._now_ms - self.config.election_timeout_ms
        return [
            member
            for member, progress in self.progress.items()
            if progress.state is SendState.SNAPSHOT
            and progress.snapshot is None
            and progress.leaving_until_ms is None
            and progress.heard_ms > since_ms
        ]

    def provide_snapshot(self, to: str, state: bytes) -> None:
        """The state at the log's base, for a member that `Ready.snapshot_wanted` named."""
        progress = self.progress.get(to)
        if progress is None or progress.state is not SendState.SNAPSHOT or progress.snapshot is not None:
            return
        log = self.log
        progress.snapshot = OutgoingSnapshot(
            log.base_index, log.base_term, self.committed_membership, state, self.config.snapshot_chunk_bytes
        )
        self._unsent = True

    def _send_chunk(self, progress: Progress) -> bool:
        """Send the next chunk, if fewer than the allowed number are unanswered."""
        snapshot = progress.snapshot
        if snapshot is None or snapshot.next >= snapshot.chunks:
            return False
        if snapshot.next - snapshot.acked >= self.config.snapshot_inflight_max:
            return False
        offset = snapshot.next * snapshot.chunk_bytes
        self._send(
            InstallSnapshot(
                self.id,
                progress.member,
                self.term,
                self.lineage,
                snapshot.base_index,
                snapshot.base_term,
                offset,
                len(snapshot.state),
                snapshot.membership.encode() if offset == 0 else b"",
                memoryview(snapshot.state)[offset : offset + snapshot.chunk_bytes],
            )
        )
        size_bytes = min(snapshot.chunk_bytes, len(snapshot.state) - offset)
        progress.total_bytes += size_bytes
        if progress.learns:
            self._learner_got(progress, size_bytes, 0)
        snapshot.next += 1
        snapshot.chunk_round = self._round
        more = snapshot.next < snapshot.chunks
        self._unsent |= more and snapshot.next - snapshot.acked < self.config.snapshot_inflight_max
        return True

    def _resume_snapshot(self, progress: Progress, round_: int) -> None:
        """A heartbeat sent behind the last chunk was answered before that chunk was: it was lost."""
        if progress.snapshot is not None and is_of_bulk(round_) and round_ > progress.snapshot.chunk_round:
            progress.snapshot.go_back()

    def _on_snapshot_response(self, message: SnapshotResponse) -> None:
        progress = self.progress.get(message.frm)
        if progress is None:
            return
        progress.heard_ms = self._now_ms
        if progress.state is not SendState.SNAPSHOT:
            return
        if message.done:
            progress.probe(message.base_index + 1)
            progress.acked(message.base_index)
        elif progress.snapshot is not None and message.base_index == progress.snapshot.base_index:
            progress.snapshot.held(message.received)
