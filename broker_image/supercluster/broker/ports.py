"""The seams: the interfaces that the broker's cores get instead of sockets, files and clocks.

Three worlds implement these protocols: the process (`net`, `storage`, `runtime`), the unit tests, and the
simulator. A core may call nothing else that reaches the outside. All calls are made on one thread, and none
blocks for longer than a local write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from supercluster.broker.raft.entry import Entry
from supercluster.broker.raft.errors import DiskError


class Channel(IntEnum):
    """The two connections of a pair of brokers: bulk copies never delay heartbeats."""

    CONTROL = 0
    BULK = 1


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """Who asks: passed with API requests, so that rules about who may do what are judged where the state is."""

    account: str
    user: str
    is_operator: bool
    """True for the operator's credentials: only they may change a declared stream (SF-23)."""
    is_system: bool = False
    """Is it a user with the system role? Judged at the client's broker, and told to no other."""

    @property
    def may_administer(self) -> bool:
        """May it make calls that concern all accounts?"""
        return self.is_operator or self.is_system


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """What a peer said of itself in the handshake."""

    node: str
    """The broker's name, unique in its super-cluster (the pod's name)."""
    cluster: str
    incarnation: str
    """Random identity of its data directory (SF-4)."""
    process: str
    """Random identity of the running process: a new one wakes the groups shared with it (SF-7)."""
    client_url: str
    """host:port for clients, for INFO's connect_urls."""
    meta_state: int
    """0: its volume holds no meta log; otherwise the last index of its meta log."""
    version: int
    """Frame version that both speak: the smaller of the two."""
    tags: tuple[str, ...] = ()
    """What the broker says of its place ("ssd", "zone:a"): placements may ask for it."""
    gateway_url: str = ""
    """host:port for brokers of other clusters; empty when it takes none in."""
    lineage: str = ""
    """The meta group's name in the lineage that its volume has joined, by a forced recovery of the map; empty before the
    first one (SF-9)."""
    bootstrap_id: str = ""
    """Which beginning of the map of streams its map goes back to; empty while it has read none (SF-26)."""
    client_tls: bool = False
    """Does it take clients with TLS?"""
    client_plain: bool = True
    """Does it take clients without TLS?"""
    process_count: int = 0
    """The number of its process on its volume (`process_count.py`); 0: it did not say."""


@dataclass(frozen=True, slots=True)
class FarSuperCluster:
    """Another super-cluster that streams are handed to: its brokers are linked while a migration names it."""

    identity: str
    addresses: tuple[str, ...]
    """host:port of some of its migration ports; these name the others."""
    tls_name: str = ""
    """The certificates of its brokers have to be for this name; empty: for whatever `migrationTls` says."""
    accounts: frozenset[str] | None = None
    """Their messages cross; None: those of all accounts but the system's."""
    has_streams: bool = False
    """It has streams of this super-cluster, or is to get some. Else it is asked for a preflight, or told behind an abort what to drop."""


class Clock(Protocol):
    """The clocks of a broker. Only `now_ns` may end up in replicated state, and only through leader time (SF-13)."""

    def now_ns(self) -> int:
        """Unix time, nanoseconds; may jump."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some start in which this process could hear others (`own_time.py`); never goes back. All time-outs
        use it."""

    def machine_ms(self) -> int:
        """Milliseconds of the machine's clock since some start, also those in which this process stood still: for what a turn may
        take, and for how long something took."""


class RaftLog(Protocol):
    """A group's log, as Raft sees it. Appends are in the log when the call returns; whether they are durable is
    `persisted_index`, and only that may be acknowledged."""

    @property
    def base_index(self) -> int:
        """Index of the entry before the first one held; the state up to it is the base snapshot. 0 when new."""

    @property
    def base_term(self) -> int: ...

    @property
    def last_index(self) -> int: ...

    @property
    def last_term(self) -> int: ...

    @property
    def persisted_index(self) -> int:
        """The last entry that is durable under the group's fsync policy."""

    def term(self, index: int) -> int | None:
        """Term of the entry at `index` (also of the base); None when it is not held."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries that follow `last_index` without a gap. `persisted_index` stays before a CONFIG or DURABLE entry
        until that is durable, whatever the fsync policy: a group must not commit what decides who writes (its membership, a
        stream's cut) while its members may forget it (SF-4, SF-20).

        Raises:
            DiskError: nothing of them was kept.
        """

    def truncate_after(self, index: int) -> None:
        """Drop every entry above `index` (a conflict with a newer leader's log)."""

    def entries(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Entries first … last in order, at least one when held, ending before `bytes_max` is passed.

        Raises:
            DiskError: a record is damaged or cannot be read.
        """

    def reset(self, base_index: int, base_term: int) -> None:
        """Throw the log away and start behind a snapshot's base."""


class Ticket(Protocol):
    """Something on its way to the disk."""

    def run(self) -> None:
        """Wait for the disk, on any thread; who gave the ticket out hears of errors."""


@dataclass(frozen=True, slots=True)
class LogSegment:
    """A file of a log, and where in it each entry is."""

    path: str
    """In the data directory. No other file of a volume ever has the same one."""
    first_index: int
    first_seq: int
    next_seq: int
    size_bytes: int
    is_full: bool
    """Nothing is appended to it any more."""
    offsets: Sequence[int]
    seqs: Sequence[int]
    """Of each entry its first sequence, or the next one where it has no messages."""


class StreamLog(RaftLog, Protocol):
    """A log that is also a stream's store (RP-4)."""

    frees_room: Callable[[Entry], bool]
    """Set by the group: does the entry free room on the disk, or stand before one that does? It gets what is kept back
    when there is no other (SF-18)."""

    @property
    def failed(self) -> DiskError | None:
        """Why the log refuses everything until it is opened anew (an fsync failed); None while it works, and while the
        disk is only full."""

    @property
    def may_open_anew(self) -> bool:
        """Does the disk know all that this process does? Then the log may be closed and opened again, as by a restart of
        the process. Not after an fsync that failed (what is read back may never have reached the disk), nor while one is
        under way, of entries or of a vote; and not what is in memory only."""

    @property
    def may_ever_open_anew(self) -> bool:
        """The same, but for what is under way: is it worth looking again later?"""

    def entry(self, index: int) -> Entry | None:
        """The entry at `index`, or None when it is not held."""

    def memberships(self, first: int, last: int) -> list[Entry]:
        """The CONFIG entries from `first` to `last`, without reading the others.

        Raises:
            DiskError: a record is damaged or cannot be read.
        """

    @property
    def first_seq(self) -> int:
        """Messages before this sequence are in none of the held entries that added them."""

    @property
    def segment_bytes(self) -> int:
        """The log is dropped from its beginning in pieces of about this size."""

    @property
    def durable_checkpoint(self) -> int:
        """Index of the newest checkpoint that recovery starts from at worst, whatever ends the process: the entries up to it
        are durable. -1: there is none."""

    def want_durable(self, index: int) -> None:
        """The entries up to `index` are to be made durable soon, whatever the policy."""

    def lose(self, why: str) -> DiskError:
        """What is here is not enough to go by: remember that on the disk, and refuse everything from now on. The next opening
        says that a record was lost (SF-4)."""

    def index_of_seq(self, seq: int) -> int | None:
        """Raft index of the entry that has message `seq`; None when no held entry has it."""

    def segment_of_seq(self, seq: int) -> LogSegment | None:
        """The segment whose sequences `seq` is one of; None when none is, or the log is in memory.

        Raises:
            DiskError: its index is damaged or cannot be read.
        """

    def save_checkpoint(self, index: int, state: bytes) -> None:
        """Keep the state as of committed `index` (SF-17: the caller passes only committed ones). The newest two stay,
        and those that a head drop needs."""

    def begin_checkpoint(self, index: int, pieces: Sequence[bytes]) -> Ticket | None:
        """The same, of a state in pieces, while nobody waits: to be run, and then taken by `finish_checkpoint`. One at a time.
        None: it is kept already. Raises DiskError."""

    def finish_checkpoint(self, ticket: Ticket) -> Ticket | None:
        """The ticket was run. None: the checkpoint counts from now on; else a ticket that is to be run next. Raises DiskError:
        nothing of it is kept."""

    def drop_checkpoint(self) -> None:
        """The checkpoint that is on its way is of no use; its ticket, which may be running, tells nobody anything."""

    def load_checkpoint(self) -> tuple[int, bytes] | None:
        """The newest valid checkpoint not beyond the log's end."""

    def checkpoint_at(self, index: int) -> bool:
        """True when a full segment ends at `index` and has no checkpoint: the best place for one, since a head drop
        can take it as the new base without keeping a part of a segment."""

    def can_drop_head(self, keep_from_index: int) -> bool:
        """Would `drop_head` drop anything?"""

    def drop_head(self, keep_from_index: int) -> int:
        """Drop whole sealed segments that end below `keep_from_index` and have a checkpoint at or behind their end,
        below `keep_from_index`; that checkpoint is the new base, and the state at it stays readable by
        `base_state()`. Returns the new base index."""

    def base_state(self) -> bytes | None:
        """The state machine's snapshot as of `base_index`; None when none was kept there (a new log)."""

    def begin_base(self, base_index: int, base_term: int, pieces: Sequence[bytes]) -> Ticket | None:
        """Write the state for `install_base`, as `begin_checkpoint` does; the log stays as it is."""

    def install_base(self, base_index: int, base_term: int, state: bytes) -> None:
        """`reset`, with the state that belongs to the base (an installed snapshot). It is written here, unless `begin_base`
        has done that."""

    def begin_vote(self, term: int, vote: str) -> Ticket | None:
        """Write term and vote, whatever the fsync policy (SF-4): they are durable when the ticket was run and `finish_vote`
        has taken it. None: they are already. Nothing that follows from them may be said before. Raises DiskError."""

    def finish_vote(self, ticket: Ticket) -> None:
        """Take the outcome of a ticket of `begin_vote`. Raises DiskError: the vote may be lost, and the log refuses
        everything from now on."""

    def save_vote(self, term: int, vote: str) -> None:
        """Make term and vote durable, at once."""

    def sync(self) -> None:
        """Make everything that is written durable, now, while the caller waits: for what happens once in a stream's life.
        Raises DiskError."""

    def load_vote(self) -> tuple[int, str]:
        """(term, vote); (0, "") when new."""

    def note_commit(self, index: int) -> None:
        """Remember (not durably at once) the highest index known to be committed: recovery tells by it a torn tail
        from a lost record."""

    def bytes_on_disk(self) -> int: ...

    def bytes_behind(self, index: int) -> int:
        """How much the held entries behind `index` take. It reads nothing: in a segment whose index is put away all entries
        count as equally large."""

    def has_room(self, size_bytes: int) -> bool:
        """Is there room for so many bytes of messages? A reserve is kept from them, for entries that are none (SF-18)."""

    @property
    def is_scarce(self) -> bool:
        """Is half of the reserve used up? The rest is for what frees room: nothing is handed out to consumers any more,
        whose operations would use it up as messages would (SF-18)."""

    def settle(self) -> None:
        """What recovery found was dealt with: a doubtful member caught up with a leader, or the group was registered
        under a new identity. Until then every opening reports it again (SF-4)."""

    def tick(self, now_ms: int) -> int:
        """Do what is due (fsync by the policy, the noted commit index). Returns `persisted_index`."""

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do (0: now), or a sync is due that somebody else carries out; None while
        everything is noted, and as durable as the policy wants it."""

    def close(self, *, clean: bool) -> None: ...

    def destroy(self) -> None:
        """Remove the group's files (after the grace time, SF-5)."""


class Publisher(Protocol):
    """A client connection as an ingest window sees it."""

    def pause(self, stream: str) -> None:
        """Stop reading from the socket: the window of `stream` is full (SF-15)."""

    def resume(self, stream: str) -> None: ...

    def error(self, text: str) -> None:
        """Send -ERR and count it: a plain publish was refused after the time limit (SF-15)."""


class Network(Protocol):
    """What cores send: frames to brokers, messages to subscribers."""

    def send(self, node: str, frame_type: int, body: Sequence[bytes | memoryview], channel: Channel) -> bool:
        """Queue one frame to a broker; False (and dropped) when there is no link or its queue is full. Raft, ingest
        and the API all repeat what stays unanswered."""

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Publish to plain subscribers, here and over routes. Never captured by a stream."""

    def publish_many(self, account: str, messages: Sequence[tuple[bytes, bytes]]) -> None:
        """Publish (subject, payload) pairs without reply and header: one write per connection (acknowledgements)."""

    def deliver(
        self, account: str, inbox: bytes, items: Sequence[tuple[bytes, bytes, bytes, bytes | memoryview]]
    ) -> None:
        """Deliver (shown subject, reply, header, payload) items to the subscriptions on `inbox`: what consumers hand out. Of a
        queue group each item goes to one member."""

    def has_interest(self, account: str, subject: bytes, queue: bytes = b"") -> bool:
        """Does anyone, here or at a peer, subscribe to something that matches `subject`? With `queue`: as that queue
        group."""

    def pending_bytes(self, account: str, inbox: bytes) -> int:
        """Bytes that wait unsent on the way to the subscription on `inbox`: deliveries go on when there are few."""


@dataclass(frozen=True, slots=True)
class OpenedGroup:
    """A group's log as it was found, with what Raft must know of it."""

    log: StreamLog
    commit_index: int
    """Entries up to here are known to be committed (checkpoint or noted commit)."""
    doubtful: bool
    """It may have lost a tail that it had confirmed (SF-4)."""
    lost: bool
    """A committed record or the copy itself is gone: it must not vote with its old identity (SF-4)."""
    end: tuple[int, int] = (0, 0)
    """Of a log that lost records of its middle, and is doubtful until they are there again: term and index of the last entry that it
    had."""


class GroupStore(Protocol):
    """A broker's volume, as the core sees it."""

    @property
    def incarnation(self) -> str:
        """Random identity of the data directory."""

    @property
    def process_count(self) -> int:
        """Kept in the volume, and more at every start: numbers sessions (SF-10). See `process_count.py`."""

    def renew(self) -> None:
        """Durably: the volume has another incarnation from the next start on, and another identity in each of its groups (SF-27)."""

    def registered(self) -> dict[str, str]:
        """group → member id of every group that this volume has joined and not forgotten."""

    def open(self, group: str, *, memory: bool, fsync: str, create: bool) -> OpenedGroup:
        """Open a group's log; `create` for one that this volume does not know. `fsync` is always, interval or never.

        Raises:
            UnreadableError: the disk does not give all of it back, which says nothing of what is there (SF-32).
            DiskError: it cannot be opened for another reason.
        """

    def set_aside(self, group: str) -> str:
        """Move the files of a group to the volume's quarantine. Its next opening finds none, so the group is lost here.
        Returns where they are, below the data directory.

        Raises:
            DiskError: they are where they were.
        """

    def set_fsync(self, group: str, fsync: str) -> None:
        """Another policy for a group that is open (RP-6). What was confirmed stays so; one that got stronger counts at once,
        a weaker one as soon as the disk knows of it (SF-4)."""

    def tick(self, now_ms: int) -> None:
        """Called often, for what all groups share: the room on the volume is asked for now and then (SF-18)."""

    def register(self, group: str, member: str, home: str = "") -> None:
        """Remember durably that this volume joined the group as that member; with `home`, that the group has the files
        of that other group, which it follows as a new lineage (SF-9)."""

    def has_tail(self, group: str, last_index: int, last_term: int) -> bool:
        """Has `keep_tail` kept a copy's end that ends with that entry?"""

    def keep_tail(
        self, group: str, last_index: int, last_term: int, head: bytes, records: Iterable[bytes]
    ) -> str:
        """Write the end of a copy of an older lineage into a file, durably: `head`, and the records behind it. Each end
        has its own file, by the entry that it ends with. Returns where, below the data directory.

        Raises:
            DiskError: it is not there as a whole; to be tried again.
        """

    def note(self) -> bytes | None:
        """What `put_note` has kept; empty at first, None when it is damaged."""

    def put_note(self, note: bytes) -> None:
        """Keep a short text durably, in place of the one before: which copies a recovered map does not know (SF-9).

        Raises:
            DiskError: the one before stands.
        """

    def halt(self, group: str) -> None:
        """Mark the group's copy durably as one that contradicted another, if it has files (SF-34).

        Raises:
            DiskError: the mark may not be there.
        """

    def is_halted(self, group: str) -> bool:
        """Has the volume's copy of the group that mark? It goes with the copy, when a person removes it, or when a person chose
        the copy for a new lineage.

        Raises:
            DiskError: the disk does not say.
        """

    def destroy(self, group: str) -> None:
        """Remove what the volume has of a group, which may be in no state to be opened.

        Raises:
            DiskError: it is there still, or the next start removes it.
        """

    def forget(self, group: str) -> None:
        """The group was deleted."""

    def directory_of(self, group: str) -> str:
        """Where a group's files are, for people: a path below the data directory."""

    def room_bytes(self, *, memory: bool) -> int:
        """What messages may still take, in files or in memory."""
