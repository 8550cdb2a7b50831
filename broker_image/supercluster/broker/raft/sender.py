"""The leader's output to its followers: appends, heartbeats and snapshot chunks, within bounds.

Per turn and follower there is at most one append, with all new entries. Appends are sent without waiting for
earlier answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from supercluster.broker.ports import RaftLog
from supercluster.broker.raft.confchange import MembershipTrack
from supercluster.broker.raft.config import RaftConfig
from supercluster.broker.raft.entry import Entry
from supercluster.broker.raft.messages import Append, Heartbeat, InstallSnapshot, SnapshotResponse
from supercluster.broker.raft.progress import OutgoingSnapshot, Progress, SendState
from supercluster.broker.raft.read_back import ReadBack, size_of
from supercluster.broker.raft.state import State
from supercluster.broker.raft.throttle import PACED_BYTES_MIN, Throttle
from supercluster.broker.raft.tracker import Tracker

# An append to a follower that is so far behind goes over the bulk link, and so does all that follows until it is answered.
BULK_APPEND_BYTES = 256 * 1024


def is_of_bulk(round_: int) -> bool:
    """Did the heartbeat of that number go over the bulk link?"""
    return round_ % 2 == 0


@dataclass(slots=True, eq=False)
class Sender:
    """Everything that a leader sends, but for single answers."""

    config: RaftConfig
    state: State
    log: RaftLog
    memberships: MembershipTrack
    tracker: Tracker
    throttle: Throttle
    round: int = 2
    """The number of the last heartbeat round. It is even and never decreases, over all leaderships of this process. Each round
    takes two numbers: the odd one is for the control link, the even one behind it for the bulk link."""
    unsent: bool = False
    """A follower could take more at once than the last turn gave it."""
    read_back: ReadBack | None = None
    """The log as learners were lately given it. None while nobody learns."""

    def send_all(self, *, beat: bool) -> None:
        """The turn of each follower; with a heartbeat when a round was started."""
        state, last_index, throttle = self.state, self.log.last_index, self.throttle
        self.unsent = False
        throttle.due_ms = None
        batches: dict[int, tuple[Entry, ...]] = {}
        if not self.memberships.current.learners:
            self.read_back = None
        for progress in self._in_turn():
            sent = self._send_entries(progress, last_index, batches)
            commit = min(progress.confirmed, state.commit_index)
            if beat and progress.learns:
                progress.beat_sent(self.round - 1, state.now_ms)
            if beat or (not sent and commit > progress.sent_commit):
                progress.sent_commit = max(progress.sent_commit, commit)
                self._send_heartbeat(progress, self.round - 1, commit, answer=beat)
            if beat and progress.awaits_bulk:
                self._send_heartbeat(progress, self.round, commit, answer=True)

    def _in_turn(self) -> Iterable[Progress]:
        """Under a pace those that are behind come first, so that all copies grow together, from one reading of the log."""
        if self.throttle.pace is None:
            return self.tracker.progress.values()
        return sorted(self.tracker.progress.values(), key=lambda progress: progress.next)

    def send_quiesce(self) -> None:
        """Ask all that can be reached to fall silent (SF-7)."""
        for member, progress in self.tracker.progress.items():
            if self.config.is_linked_to(member):
                self._send_heartbeat(
                    progress, self.round, self.state.commit_index, answer=False, quiesce=True
                )

    def _send_heartbeat(
        self, to: Progress, round_: int, commit: int, answer: bool, quiesce: bool = False
    ) -> None:
        state, by_bulk = self.state, answer and is_of_bulk(round_)
        where = (commit, self.log.last_index, to.process)
        state.send(Heartbeat(*state.head(to.member), round_, *where, answer, quiesce, by_bulk))

    def _send_entries(
        self, progress: Progress, last_index: int, batches: dict[int, tuple[Entry, ...]]
    ) -> bool:
        """Send one append, if the follower may get one. `batches` shares slices between followers."""
        learns = progress.learns
        if learns and progress.leaving_until_ms is not None:
            return self._send_farewell(progress)
        if learns and not self.throttle.may_send(progress, last_index):
            return False
        if progress.state is SendState.SNAPSHOT:
            return self._send_chunk(progress)
        probing = progress.state is SendState.PROBE
        if probing:
            if progress.probe_sent:
                return False
        elif progress.next > last_index or self._is_window_full(progress):
            return False
        prev_index = progress.next - 1
        prev_term = self.log.term(prev_index)
        if prev_term is None:
            progress.want_snapshot()
            return False
        entries = batches.get(progress.next)
        if entries is None:
            entries = batches[progress.next] = self._read(progress, last_index)
        self._send_append(progress, prev_term, entries)
        end = prev_index + len(entries)
        if not probing and end < last_index and not self._is_window_full(progress):
            self.unsent = True
        return True

    def _is_window_full(self, progress: Progress) -> bool:
        return (
            len(progress.inflight) >= self.config.inflight_max
            or progress.inflight_bytes >= self.config.inflight_bytes_max
        )

    def _read(self, progress: Progress, last_index: int) -> tuple[Entry, ...]:
        """The entries that are next for this member, as many as one append may carry."""
        first, bytes_max = progress.next, self.throttle.bytes_max(progress)
        if first > last_index:
            return ()
        if not progress.learns:
            return tuple(self.log.entries(first, last_index, bytes_max))
        if self.read_back is None:
            self.read_back = ReadBack(self.log)
        return self.read_back.read(first, last_index, bytes_max)

    def _send_append(self, progress: Progress, prev_term: int, entries: tuple[Entry, ...]) -> None:
        state, prev_index = self.state, progress.next - 1
        end = prev_index + len(entries)
        size_bytes = size_of(entries)
        follows_bulk = progress.by_bulk and bool(progress.inflight)
        progress.by_bulk = progress.learns or follows_bulk or size_bytes > BULK_APPEND_BYTES
        where = (prev_index, prev_term, state.commit_index)
        state.send(Append(*state.head(progress.member), *where, entries, progress.by_bulk))
        progress.sent(end, size_bytes, self.round)
        progress.total_bytes += size_bytes
        if progress.learns:
            self.throttle.sent(progress, size_bytes, len(entries))
        progress.sent_commit = max(progress.sent_commit, min(end, state.commit_index))

    def _send_farewell(self, progress: Progress) -> bool:
        """A removed learner gets what it lacks up to its removal if that is next to nothing, and else no more at all:
        nobody waits for its copy, and no pace holds for it any longer. It never stands for election."""
        now_ms, last_index = self.state.now_ms, self.memberships.current.index
        if progress.leaving_until_ms is None or now_ms >= progress.leaving_until_ms:
            return False
        probing = progress.state is SendState.PROBE
        if progress.state is not SendState.SNAPSHOT:
            if progress.probe_sent if probing else progress.next > last_index:
                return False
            prev_term = self.log.term(progress.next - 1)
            entries: tuple[Entry, ...] = ()
            if progress.next <= last_index:
                entries = tuple(self.log.entries(progress.next, last_index, PACED_BYTES_MIN))
            if prev_term is not None and progress.next + len(entries) > last_index:
                self._send_append(progress, prev_term, entries)
                return True
        # Too much: the next heartbeat is without it.
        progress.leaving_until_ms = now_ms
        return False

    # Snapshots.

    def snapshots_wanted(self) -> list[str]:
        """Members that need one and can take it: nothing is prepared for the dead and the removed."""
        since_ms = self.state.now_ms - self.config.election_timeout_ms
        return [
            member
            for member, progress in self.tracker.progress.items()
            if progress.state is SendState.SNAPSHOT
            and progress.snapshot is None
            and progress.leaving_until_ms is None
            and progress.heard_ms > since_ms
        ]

    def provide_snapshot(self, to: str, data: bytes) -> None:
        """The state at the log's base, for a member that `snapshots_wanted` named."""
        progress = self.tracker.progress.get(to)
        if progress is None or progress.state is not SendState.SNAPSHOT or progress.snapshot is not None:
            return
        membership = self.memberships.committed(self.state.commit_index)
        progress.snapshot = OutgoingSnapshot(
            self.log.base_index, self.log.base_term, membership, data, self.config.snapshot_chunk_bytes
        )
        self.unsent = True

    def _send_chunk(self, progress: Progress) -> bool:
        """Send the next chunk, if fewer than the allowed number are unanswered."""
        state, snapshot, inflight_max = self.state, progress.snapshot, self.config.snapshot_inflight_max
        if snapshot is None or snapshot.next >= snapshot.chunks:
            return False
        if snapshot.next - snapshot.acked >= inflight_max:
            return False
        offset = snapshot.next * snapshot.chunk_bytes
        chunk = memoryview(snapshot.state)[offset : offset + snapshot.chunk_bytes]
        membership = snapshot.membership.encode() if offset == 0 else b""
        where = (snapshot.base_index, snapshot.base_term, offset, len(snapshot.state))
        state.send(InstallSnapshot(*state.head(progress.member), *where, membership, chunk))
        progress.total_bytes += len(chunk)
        if progress.learns:
            self.throttle.sent(progress, len(chunk), 0)
        snapshot.next += 1
        snapshot.chunk_round = self.round
        self.unsent |= snapshot.next < snapshot.chunks and snapshot.next - snapshot.acked < inflight_max
        return True

    def resume_snapshot(self, progress: Progress, round_: int) -> None:
        """A heartbeat sent behind the last chunk was answered before that chunk was: it was lost."""
        if progress.snapshot is not None and is_of_bulk(round_) and round_ > progress.snapshot.chunk_round:
            progress.snapshot.go_back()

    def on_snapshot_response(self, message: SnapshotResponse) -> None:
        progress = self.tracker.progress.get(message.frm)
        if progress is None:
            return
        progress.heard_ms = self.state.now_ms
        if progress.state is not SendState.SNAPSHOT:
            return
        if message.done:
            progress.probe(message.base_index + 1)
            progress.acked(message.base_index)
        elif progress.snapshot is not None and message.base_index == progress.snapshot.base_index:
            progress.snapshot.held(message.received)
