"""The state of one member that all its parts share. Each part keeps the rest of its state to itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from supercluster.broker.raft.config import Ready, Role
from supercluster.broker.raft.messages import Message


@dataclass(slots=True, eq=False)
class State:
    """Term and role of this member, what is committed, and what the next `ready` hands out."""

    id: str
    lineage: int
    """Messages of another lineage are dropped (SF-9)."""
    term: int
    """log.last_term <= term. It never decreases."""
    vote: str
    """The member that got this member's vote in `term`; "" while none did."""
    commit_index: int
    """log.base_index <= commit_index. It never decreases."""
    handed_out: int
    """The last committed index that was handed out: handed_out <= commit_index."""
    now_ms: int
    """The caller's clock. It never decreases."""
    last_time_ns: int
    """The time of the last entry. It never decreases along the log of a leader (SF-13)."""
    doubtful: bool
    """This member may have lost entries that it had confirmed (SF-4). Never true of a leader."""
    end: tuple[int, int] = (0, 0)
    """Term and index of the last entry that a doubtful member had; (0, 0): it does not know."""
    role: Role = Role.FOLLOWER
    leader: str | None = None
    """leader == id exactly while role is LEADER. A candidate knows none."""
    quiesced: bool = False
    """The group is silent: neither heartbeats nor election time-outs (SF-7). Never true of a candidate."""
    term_start: int = 0
    """Index of the entry that opened the last term which this member led."""
    transfer_to: str | None = None
    """The member that leadership is being handed to; nothing is proposed meanwhile. None unless this member leads."""
    ready: Ready = field(default_factory=Ready)
    """The work that the parts ask for; the next `ready` hands it out."""

    @property
    def ready_to_serve(self) -> bool:
        """Leader, and an entry of its own term is committed: its state is no older than what any leader confirmed."""
        return self.role is Role.LEADER and self.commit_index >= self.term_start

    @property
    def is_unsure(self) -> bool:
        """Is it not known what this member had confirmed?"""
        return self.doubtful and self.end == (0, 0)

    def is_sure_again(self) -> None:
        """Whatever this member had confirmed, its log has it, or nobody has."""
        self.doubtful, self.end = False, (0, 0)

    def advance_clock(self, now_ms: int) -> None:
        if now_ms > self.now_ms:
            self.now_ms = now_ms

    def head(self, to: str) -> tuple[str, str, int, int]:
        """The fields with which each message to a member begins."""
        return self.id, to, self.term, self.lineage

    def send(self, message: Message) -> None:
        self.ready.messages.append(message)

    def set_term(self, term: int, vote: str) -> None:
        self.term, self.vote = term, vote
        self.ready.hard_state = term, vote

    def commit_to(self, index: int) -> bool:
        """Raise the commit index. True when it moved."""
        if index <= self.commit_index:
            return False
        self.commit_index = index
        return True
