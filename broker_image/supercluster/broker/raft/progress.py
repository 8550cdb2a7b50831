"""What a leader knows of one other member: how far its log matches, what is on the way to it, when it was heard."""

from __future__ import annotations

from collections import deque
from enum import IntEnum

from supercluster.broker.raft.confchange import Membership


class SendState(IntEnum):
    """How a member is being fed."""

    PROBE = 0
    """Where the logs agree is not known: one append at a time."""
    REPLICATE = 1
    """The logs agree: appends are sent ahead of the answers, within bounds."""
    SNAPSHOT = 2
    """The entries it needs are gone: it gets the state at the log's base."""


class OutgoingSnapshot:
    """A snapshot on its way to one member, in chunks of equal size (an empty one is one empty chunk)."""

    __slots__ = (
        "acked",
        "base_index",
        "base_term",
        "chunk_bytes",
        "chunk_round",
        "chunks",
        "membership",
        "next",
        "state",
    )

    def __init__(
        self, base_index: int, base_term: int, membership: Membership, state: bytes, chunk_bytes: int
    ) -> None:
        self.base_index = base_index
        self.base_term = base_term
        self.membership = membership
        self.state = state
        self.chunk_bytes = chunk_bytes
        self.chunks = max(1, -(-len(state) // chunk_bytes))
        self.next = 0
        """Number of the next chunk to send."""
        self.acked = 0
        """Chunks the member holds."""
        self.chunk_round = 0
        """The heartbeat round in which the last chunk was sent."""

    def held(self, received_bytes: int) -> None:
        """The member holds so many bytes without a gap; it may have started again from nothing."""
        complete = received_bytes >= len(self.state)
        self.acked = self.chunks if complete else received_bytes // self.chunk_bytes
        if not complete and self.acked > self.next:
            self.next = self.acked

    def go_back(self) -> None:
        """Send again what the member does not hold; a complete one is asked after with its last chunk."""
        self.next = min(self.acked, self.chunks - 1)


class Progress:
    """One member, as the leader sees it."""

    __slots__ = (
        "append_round",
        "bulk_ms",
        "by_bulk",
        "doubtful",
        "heard_ms",
        "inflight",
        "inflight_bytes",
        "learns",
        "leaving_until_ms",
        "match",
        "member",
        "next",
        "peer_commit",
        "probe_sent",
        "round",
        "sent_commit",
        "snapshot",
        "state",
        "total_bytes",
    )

    def __init__(self, member: str, next_index: int, now_ms: int) -> None:
        self.member = member
        self.match = 0
        """The log matches and is durable there up to here."""
        self.next = next_index
        self.state = SendState.PROBE
        self.probe_sent = False
        self.inflight: deque[tuple[int, int]] = deque()
        """(last index, bytes) of unanswered appends, oldest first."""
        self.inflight_bytes = 0
        self.heard_ms = now_ms
        self.peer_commit = 0
        self.sent_commit = 0
        self.round = 0
        """The last heartbeat round it answered."""
        self.append_round = 0
        """The heartbeat round in which the last append was sent: an answer to a later one tells whether it arrived."""
        self.by_bulk = False
        """The unanswered appends are on the bulk link; what follows them must not overtake them."""
        self.doubtful = False
        self.learns = False
        """It has no vote; for a removed member: it had none when it was removed."""
        self.leaving_until_ms: int | None = None
        """Set for a removed member: it is fed until then, so that it learns of its removal. It counts for nothing."""
        self.snapshot: OutgoingSnapshot | None = None
        self.total_bytes = 0
        """Bytes of entries and snapshots sent to it by this leader, repeated ones too."""
        self.bulk_ms = -(1 << 20)
        """When it was last sent a large append as a learner."""

    def sent(self, last_index: int, size_bytes: int, round_: int) -> None:
        """An append ending at `last_index` was sent."""
        self.append_round = round_
        if self.state is SendState.PROBE:
            self.probe_sent = True
            return
        if size_bytes:
            self.inflight.append((last_index, size_bytes))
            self.inflight_bytes += size_bytes
        self.next = last_index + 1

    @property
    def awaits_bulk(self) -> bool:
        """Is something that went over the bulk link unanswered?"""
        if self.snapshot is not None:
            return self.snapshot.next > 0
        return self.by_bulk and (self.probe_sent or bool(self.inflight))

    def acked(self, index: int) -> bool:
        """The member confirmed everything up to `index`. True when that is news."""
        inflight = self.inflight
        while inflight and inflight[0][0] <= index:
            self.inflight_bytes -= inflight.popleft()[1]
        if self.state is SendState.PROBE:
            self.state = SendState.REPLICATE
            self.probe_sent = False
            self.next = index + 1
        elif self.next <= index:
            self.next = index + 1
        if index <= self.match:
            return False
        self.match = index
        return True

    def probe(self, next_index: int) -> None:
        """Ask again where the logs agree, starting at `next_index`."""
        self.state = SendState.PROBE
        self.probe_sent = False
        self.next = max(1, next_index)
        self.inflight.clear()
        self.inflight_bytes = 0
        self.snapshot = None

    def want_snapshot(self) -> None:
        self.probe(self.next)
        self.state = SendState.SNAPSHOT
