"""The leader's view of one other member: how far its log matches, the appends in flight, and the time of its
last message.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

from supercluster.broker.raft.confchange import Membership

# A learner's round trip is the shortest of so many: a pause of either broker is none of the link's.
_ROUND_TRIPS = 8


class SendState(IntEnum):
    """How a member is being fed."""

    PROBE = 0
    """Where the logs agree is not known: one append at a time."""
    REPLICATE = 1
    """The logs agree: appends are sent ahead of the answers, within bounds."""
    SNAPSHOT = 2
    """The entries it needs are gone: it gets the state at the log's base."""


@dataclass(slots=True, eq=False)
class OutgoingSnapshot:
    """A snapshot on its way to one member, in chunks of equal size (an empty one is one empty chunk)."""

    base_index: int
    base_term: int
    membership: Membership
    state: bytes
    chunk_bytes: int
    next: int = 0
    """Number of the next chunk to send: 0 <= next <= chunks."""
    acked: int = 0
    """Chunks that the member holds: 0 <= acked <= chunks. It falls when the member starts again from nothing."""
    chunk_round: int = 0
    """The heartbeat round in which the last chunk was sent."""

    @property
    def chunks(self) -> int:
        return max(1, -(-len(self.state) // self.chunk_bytes))

    def held(self, received_bytes: int) -> None:
        """The member holds so many bytes without a gap; it may have started again from nothing."""
        complete = received_bytes >= len(self.state)
        self.acked = self.chunks if complete else received_bytes // self.chunk_bytes
        if not complete and self.acked > self.next:
            self.next = self.acked

    def go_back(self) -> None:
        """Send again what the member does not hold; a complete one is asked after with its last chunk."""
        self.next = min(self.acked, self.chunks - 1)


@dataclass(slots=True, eq=False)
class Progress:
    """One member, as the leader sees it: 0 <= match < next, until a late answer to an older snapshot sets next back."""

    member: str
    next: int
    """Index of the next entry to send to it. An append that is a probe does not move it."""
    heard_ms: int
    """When it last answered."""
    match: int = 0
    """Its log equals the leader's up to here, and that part is durable. match <= last_index of the leader's log."""
    confirmed: int = 0
    """What it confirmed to this leader: match <= confirmed. They differ while it refuses what it had confirmed."""
    state: SendState = SendState.PROBE
    probe_sent: bool = False
    """A probe is unanswered. Never true outside of PROBE."""
    inflight: deque[tuple[int, int]] = field(default_factory=deque)
    """(last index, bytes) of unanswered appends, oldest first, each last index below next. Empty outside of REPLICATE."""
    inflight_bytes: int = 0
    """The sum of the bytes in `inflight`."""
    peer_commit: int = 0
    """The commit index that it last named."""
    sent_commit: int = 0
    """The highest commit index that it was sent: sent_commit <= commit_index."""
    round: int = 0
    """The last heartbeat round that it answered: round <= that of the leader."""
    append_round: int = 0
    """The round in which the last append was sent: an answer to a later one tells whether it arrived."""
    by_bulk: bool = False
    """The unanswered appends are on the bulk link, and whatever follows them must not overtake them."""
    doubtful: bool = False
    process: int = 0
    """The number of its process, as its last answer to a heartbeat said."""
    learns: bool = False
    """It has no vote; for a removed member: it had none when it was removed."""
    leaving_until_ms: int | None = None
    """Set for a removed member: it is fed until then, so that it learns of its removal. It counts for nothing."""
    snapshot: OutgoingSnapshot | None = None
    """None outside of SNAPSHOT, and there until the caller provides one."""
    total_bytes: int = 0
    """Bytes of entries and snapshots sent to it by this leader, repeated ones too."""
    bulk_ms: int = -(1 << 20)
    """When it was last sent a large append as a learner."""
    timed_beat: tuple[int, int] | None = None
    """An unanswered heartbeat: its round, and when it was sent. Rounds behind it are not timed."""
    round_trips_ms: tuple[int, ...] = ()
    """How long the last answers to timed heartbeats took, oldest first."""

    @property
    def round_trip_ms(self) -> int:
        """What the link to a learner takes, there and back; 0: not known yet, or no learner."""
        return min(self.round_trips_ms, default=0)

    def beat_sent(self, round_: int, now_ms: int) -> None:
        """A heartbeat of the control link that is to be timed; one at a time is."""
        if self.timed_beat is None:
            self.timed_beat = round_, now_ms

    def beat_answered(self, round_: int, now_ms: int) -> None:
        """The answer to a heartbeat of the control link. An answer to a later one shows that the timed one was lost."""
        if self.timed_beat is None or round_ < self.timed_beat[0]:
            return
        timed_round, sent_ms = self.timed_beat
        self.timed_beat = None
        if round_ == timed_round:
            self.round_trips_ms = (*self.round_trips_ms, now_ms - sent_ms)[-_ROUND_TRIPS:]

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
        self.confirmed = max(self.confirmed, index)
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
