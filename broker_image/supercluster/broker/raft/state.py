"""What a member is at any moment, and the changes of it that leader, follower and candidate share.

The node is built in layers, each a class in its own module: state, leading, following, election, and `node.Raft` on
top. A layer calls only what lies below it.
"""

from __future__ import annotations

from isal.isal_zlib import crc32

from supercluster.broker.ports import RaftLog
from supercluster.broker.raft.confchange import Membership, MembershipTrack, node_of
from supercluster.broker.raft.config import NEVER_MS, RaftConfig, ReadState, Rng, Role, Snapshot
from supercluster.broker.raft.entry import EntryKind
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.raft.messages import Message, ReadResponse
from supercluster.broker.raft.progress import Progress
from supercluster.broker.raft.reads import ReadQueue

_SCAN_BYTES = 1 << 20


class RaftState:
    """Fields and the transitions between roles."""

    def __init__(
        self,
        config: RaftConfig,
        log: RaftLog,
        *,
        term: int,
        vote: str,
        membership: Membership,
        commit_index: int,
        rng: Rng,
        now_ms: int,
        doubtful: bool = False,
        lineage: int = 0,
    ) -> None:
        self.config = config
        self.log = log
        self.rng = rng
        self.id = config.member
        self.lineage = lineage
        # Entries of a term may be in the log before that term's vote was saved: whoever wrote them had won, so no vote
        # of this member in that term can make another leader.
        self.term, self.vote = (term, vote) if term >= log.last_term else (log.last_term, "")
        self.role = Role.FOLLOWER
        self.leader: str | None = None
        self.doubtful = doubtful
        self.quiesced = False
        self.commit_index = max(commit_index, log.base_index)
        self._handed_out = self.commit_index
        self._now_ms = now_ms
        self._track = MembershipTrack(membership)
        self._scan_memberships()
        self._last_time_ns = self._time_of_last()

        # Follower: how far the log is known to equal the current leader's, and what was last answered.
        self._matched = self.commit_index
        self._acked_durable = -1
        self._ack_due = False
        self._heard_leader_ms = now_ms - config.election_timeout_ms
        self._election_due_ms = NEVER_MS
        self._doubt_target: int | None = None
        self._asked_reads: dict[int, int] = {}

        # Leader.
        self.progress: dict[str, Progress] = {}
        self._term_start = 0
        self._reads = ReadQueue(config.reads_max)
        self._transfer: tuple[str, int] | None = None

        # What the next `ready` hands out.
        self._outbox: list[Message] = []
        self._hard_state_due = self.term != term
        self._role_changed = False
        self._membership_seen = (self._track.current, self._track.committed(self.commit_index))
        self._ready_reads: list[ReadState] = []
        self._failed_reads: list[int] = []
        self._snapshot: Snapshot | None = None
        self._doubtful_election = False
        self._disk_error: DiskError | None = None
        self._newer_lineage = 0
        self._refused_base = self._snapshot_refused_bytes = 0

    @property
    def heard_leader_ms(self) -> int:
        """When the leader was last heard, by the clock of `tick`."""
        return self._heard_leader_ms

    @property
    def membership(self) -> Membership:
        """The membership in force."""
        return self._track.current

    @property
    def committed_membership(self) -> Membership:
        """The newest membership that is committed: only this one may be acted upon for good (SF-5)."""
        return self._track.committed(self.commit_index)

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def ready_to_serve(self) -> bool:
        """Leader, and an entry of its own term is committed: its state is no older than what any leader confirmed."""
        return self.role is Role.LEADER and self.commit_index >= self._term_start

    def _scan_memberships(self) -> None:
        """Memberships behind the commit index are in force already: find them in the log."""
        log = self.log
        index = max(self.commit_index, log.base_index) + 1
        while index <= log.last_index:
            entries = log.entries(index, log.last_index, _SCAN_BYTES)
            if not entries:
                break
            for entry in entries:
                if entry.kind == EntryKind.CONFIG:
                    self._track.add(Membership.decode(entry.payload), entry.index)
            index = entries[-1].index + 1

    def _time_of_last(self) -> int:
        last = self.log.last_index
        entries = self.log.entries(last, last, 1) if last > self.log.base_index else []
        return entries[-1].time_ns if entries else 0

    def _send(self, message: Message) -> None:
        self._outbox.append(message)

    def _set_term(self, term: int, vote: str) -> None:
        self.term, self.vote = term, vote
        self._hard_state_due = True

    def _timeout_ms(self) -> int:
        """An election time-out: between one and two of the configured, so that few stand at once, and what the leader needs more."""
        base = self.config.election_timeout_ms
        return base + self.rng.randrange(base) + self._patience_ms(self.leader)

    def _patience_ms(self, member: str | None) -> int:
        return self.config.patience_ms(node_of(member)) if member is not None else 0

    def _lot_of(self, member: str) -> tuple[int, str]:
        """Who draws the greater lot goes first: the same for everybody, and another member from group to group."""
        return crc32(member.encode(), self.config.lot), member

    def _may_campaign(self) -> bool:
        """Only voters stand for election; so an empty node never starts a group by itself (SF-4)."""
        return self._track.involves(self.id, as_voter=True)

    def _reset_election_timer(self) -> None:
        self._election_due_ms = self._now_ms + self._timeout_ms() if self._may_campaign() else NEVER_MS

    def _become_follower(self, term: int, leader: str | None) -> None:
        """Enter `term` (if it is newer) as a follower of `leader`."""
        if self.role is Role.LEADER:
            self._end_leadership()
        newer = term > self.term
        if newer:
            self._set_term(term, "")
        if newer or self.role is not Role.FOLLOWER or self.leader != leader:
            self._role_changed = True
            # What a former leader had confirmed says nothing about this one's log beyond the committed part. That holds
            # for the same member in a newer term too: it may have lost what was not durable.
            self._matched = self.commit_index
            self._acked_durable = -1
            self._ack_due = False
        self.role = Role.FOLLOWER
        self.leader = leader
        self.quiesced = False
        if leader is not None:
            self._heard_leader_ms = self._now_ms
        self._reset_election_timer()

    def _end_leadership(self) -> None:
        for context, origin in self._reads.drain():
            if origin:
                self._send(ReadResponse(self.id, origin, self.term, self.lineage, context, 0, False))
            else:
                self._failed_reads.append(context)
        self.progress = {}
        self._transfer = None

    def _disk_failed(self, error: DiskError) -> None:
        """The log took nothing. A leader that cannot write its log is none; a follower just does not answer."""
        self._disk_error = error
        if self.role is Role.LEADER:
            self._become_follower(self.term, None)
        if self._election_due_ms != NEVER_MS:
            # Others, whose disks work, shall stand first.
            self._election_due_ms = self._now_ms + 4 * self.config.election_timeout_ms

    def _commit_to(self, index: int) -> bool:
        """Raise the commit index. True when it moved."""
        if index <= self.commit_index:
            return False
        self.commit_index = index
        return True
