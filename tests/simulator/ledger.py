"""What must hold, checked as it happens: the invariants of docs/safety.md over every broker of a simulated cluster.

Checks hang on the cores' own transitions (an entry was applied, a leader serves, a client got an answer), so a step
costs what changed in it. The first broker that applies an entry writes the history; all others are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from isal.isal_zlib import crc32
from tests.simulator.copies import Copies
from tests.simulator.lifetimes import Lifetimes
from tests.simulator.map_judge import MapJudge
from tests.simulator.map_recoveries import MapRecoveries
from tests.simulator.oracle import Oracle
from tests.simulator.recoveries import Recoveries
from tests.simulator.retention import Retention
from tests.simulator.seams import EPOCH_NS

from supercluster.broker.jetstream.core.agreed_clock import BOUND_NS
from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.meta_leader.replica import MetaReplica
from supercluster.broker.jetstream.replica.lineage import is_meta
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.state.log_reader import decode_stored
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.jetstream.turn.slices import Job
from supercluster.broker.raft.confchange import Membership
from supercluster.broker.raft.config import Role
from supercluster.broker.raft.entry import Entry, EntryKind

if TYPE_CHECKING:
    from tests.simulator.world import World


MAIN = "ORDERS"
# Subjects on which everybody expects to be the first: one message each.
ONE_PER_KEY = b"orders.key."
SLACK_NS = 2 * 10**9
"""What sound clocks of the simulator differ by, and more."""


class InvariantBrokenError(AssertionError):
    """A promise did not hold. The message names it."""


@dataclass(slots=True)
class History:
    """Committed entries of one group, as the first broker applied them."""

    records: dict[int, tuple[int, int]] = field(default_factory=dict)
    """index → (term, checksum)"""
    last_index: int = 0
    last_time_ns: int = 0
    message_at: dict[int, bytes] = field(default_factory=dict)
    """sequence → payload"""
    seq_of: dict[bytes, int] = field(default_factory=dict)
    """payload (unique by the publishers' choice) → sequence"""
    last_of_publisher: dict[bytes, int] = field(default_factory=dict)
    last_seq: int = 0
    leaders: dict[int, str] = field(default_factory=dict)
    states: dict[int, tuple[Any, ...]] = field(default_factory=dict)


class Ledger:
    """The history of all groups, and what clients were told."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.groups: dict[str, History] = {}
        self.oracle = Oracle(world, self.broken, self._committed_entries)
        self.on_gone: Callable[[str, str], None] = lambda node, group: None
        """A broker removed its copy of a group that was deleted."""
        self.stored: dict[bytes, tuple[str, int]] = {}
        """payload → (group, sequence), over all streams"""
        self.duplicate_window_ns = 0
        """Set where it is shorter than an outage may last."""
        self._stored_at_ns: dict[bytes, int] = {}
        self.refused: set[bytes] = set()
        """Payloads whose publisher was told that they are not stored, and did not try again."""
        self.most_clocks_are_right = False
        """Is at most one broker's clock wrong at a time (SF-28)?"""
        self.keeps_all = True
        """Nothing that is stored goes again: a key is created once."""
        self.nobody_deletes = True
        """Neither does a person delete or purge."""
        self.keys: dict[bytes, bytes] = {}
        """subject of which one message may exist → its payload"""
        self.acked: dict[bytes, int] = {}
        self.applied_total = 0
        self._converging: dict[tuple[str, str], int] = {}
        self._serving: dict[tuple[str, str], int] = {}
        """(broker, group) → the term in which it last served as the leader."""
        self._floors: dict[tuple[str, str, str], tuple[int, int]] = {}
        self.recoveries = Recoveries(self, world)
        self.lifetimes = Lifetimes()
        self.retention = Retention()
        self._map = MapJudge()
        self.maps = MapRecoveries(self, world)
        self.copies: Copies | None = None
        """Streams that take their messages from the main one."""
        self.on_new: Callable[[str, Replica, Entry], None] = lambda node, group, entry: None
        """An entry was applied that nobody had applied before."""
        self.on_opened: Callable[[Ledger, Replica], None] = lambda ledger, group: None
        """A copy was opened, and nothing was judged by it yet."""

    def share_streams(self, other: Ledger) -> None:
        """The streams of both are one history: this is a super-cluster whose map alone is its own."""
        self.groups = _SharedGroups(other.groups)
        self.stored, self.acked, self.refused, self.keys = (
            other.stored,
            other.acked,
            other.refused,
            other.keys,
        )
        self.lifetimes, self.retention = other.lifetimes, other.retention
        self._stored_at_ns = other._stored_at_ns
        self.keeps_all, self.nobody_deletes = other.keeps_all, other.nobody_deletes
        self.duplicate_window_ns = other.duplicate_window_ns

    def broken(self, what: str) -> InvariantBrokenError:
        return InvariantBrokenError(f"seed {self._world.seed}: {what} (at {self._world.now_us / 1e6:.4f} s)")

    def _committed_entries(self, group: str) -> dict[int, tuple[int, int]]:
        history = self.groups.get(group)
        return history.records if history is not None else {}

    # ---- watching a core ------------------------------------------------------------------------------------------

    def watch(self, node: str, core: BrokerCore) -> None:
        """Check whatever this core's groups do from now on."""
        self.oracle.watch(node, core)
        self.oracle.on_sent = self.maps.sends
        serving = core.host.serving

        def on_serving(group: str) -> None:
            self._leader(node, core.groups[group])
            serving(group)

        core.host.serving = on_serving  # type: ignore[method-assign]
        _WatchedGroups(
            core, lambda group: self._watch_group(node, group), lambda group: self.on_gone(node, group)
        )

    def unwatch(self, node: str) -> None:
        for key in [key for key in self._floors if key[0] == node]:
            del self._floors[key]

    def _watch_group(self, node: str, replica: Replica) -> None:
        # A copy that was retired gives way to one that begins empty, within the same process.
        for key in [key for key in self._floors if key[:2] == (node, replica.id)]:
            del self._floors[key]
        self.on_opened(self, replica)
        self.oracle.watch_group(replica)
        self.recoveries.watch(replica)
        self.maps.watch(replica)
        apply_entry = replica.apply_entry

        def applied(entry: Entry) -> Job:
            if isinstance(replica, StreamReplica) and self._world.seed % 4 == 2:
                # However little an entry takes away, it takes several turns.
                replica.state.slice_messages = 1
                for removed in apply_entry(entry):
                    yield (removed + 1) << 20
            else:
                yield from apply_entry(entry)
            self._applied(node, replica, entry)

        replica.apply_entry = applied  # type: ignore[method-assign]
        take_state = replica.take_state

        def taken(state: object) -> None:
            take_state(state)
            history = self.groups.get(replica.id)
            if (
                history is not None
                and replica.log.base_index
                and replica.applied_index == replica.log.base_index
            ):
                self._converging[node, replica.id] = history.last_index

        replica.take_state = taken  # type: ignore[method-assign]

    def _leader(self, node: str, replica: Replica) -> None:
        history = self.groups.setdefault(replica.id, History())
        term = self._serving[node, replica.id] = replica.raft.term
        known = history.leaders.setdefault(term, replica.member)
        if known != replica.member:
            raise self.broken(
                f"invariant 4: {known} and {replica.member} both lead {replica.id} in term {term}"
            )
        if replica.raft.role is not Role.LEADER:
            raise self.broken(f"{replica.member} serves {replica.id} without leading it")

    def _applied(self, node: str, replica: Replica, entry: Entry) -> None:
        self.applied_total += 1
        history = self.groups.setdefault(replica.id, History())
        if entry.index > replica.raft.commit_index:
            raise self.broken(f"{node} applied entry {entry.index} of {replica.id} beyond its commit index")
        if replica.membership_applied.index > replica.raft.commit_index:
            raise self.broken(
                f"SF-5: {node} holds membership {replica.membership_applied.index} of {replica.id} for committed at {entry.index}"
            )
        if replica.serves and entry.term > self._serving[node, replica.id]:
            raise self.broken(
                f"SF-1: {node} serves {replica.id} since term {self._serving[node, replica.id]} and answers by entry "
                f"{entry.index} of term {entry.term}"
            )
        record = (entry.term, crc32(entry.record))
        known = history.records.get(entry.index)
        if known is None:
            history.records[entry.index] = record
            history.last_index = max(history.last_index, entry.index)
            if entry.has_sections:
                if entry.time_ns < history.last_time_ns:
                    raise self.broken(f"SF-13: leader time goes back at entry {entry.index} of {replica.id}")
                history.last_time_ns = entry.time_ns
                ahead_ns = entry.time_ns - EPOCH_NS - self._world.now_us * 1000
                if self.most_clocks_are_right and ahead_ns > BOUND_NS + SLACK_NS:
                    raise self.broken(
                        f"SF-28: leader time is {ahead_ns // 10**9} s ahead at entry {entry.index} of {replica.id}"
                    )
            if entry.kind == EntryKind.CONFIG:
                self.oracle.membership(replica, Membership.decode(entry.payload))
            if isinstance(replica, StreamReplica):
                self._new_entry(replica, entry, history)
                if early := self.retention.applied(replica.id, replica.state, entry):
                    raise self.broken(early)
            elif isinstance(replica, MetaReplica) and (beyond := self._map.beyond(replica.replica)):
                raise self.broken(f"SF-12: by entry {entry.index} of the map {beyond}")
            self.maps.applied(replica, entry)
            self.on_new(node, replica, entry)
        elif known != record:
            raise self.broken(
                f"invariant 4: committed entry {entry.index} of {replica.id} is {known}, {node} applied {record}"
            )
        if isinstance(replica, StreamReplica):
            self._state(node, replica, entry, history)
        elif isinstance(replica, MetaReplica):
            view = (crc32(replica.replica.snapshot()),)
            if history.states.setdefault(entry.index, view) != view:
                raise self.broken(f"SF-13: the map at entry {entry.index} is another one on {node}")

    def _new_entry(self, replica: StreamReplica, entry: Entry, history: History) -> None:
        if self.recoveries.is_over(replica.id):
            self.recoveries.committed_late(entry, history)
            return
        if self.copies is not None and self.copies.is_copy(replica):
            origin = next((found for name, found in self.groups.items() if f".{MAIN}." in name), None)
            if wrong := self.copies.new_entry(replica, entry, origin):
                raise self.broken(f"mirrors and sources: {wrong}")
            return
        if early := self.lifetimes.too_early(replica, entry):
            raise self.broken(early)
        if not entry.count:
            return
        if entry.first_seq != history.last_seq + 1:
            raise self.broken(
                f"invariant 3: entry {entry.index} of {replica.id} starts at {entry.first_seq} after {history.last_seq}"
            )
        decoded = decode_stored(entry)
        for seq in range(entry.first_seq, entry.first_seq + entry.count):
            message = decoded.message(seq)
            payload = message.payload
            if self.lifetimes.stored(replica.id, message):
                history.message_at[seq] = payload
                continue  # A marker: no publisher's message.
            if payload in self.stored and not self._is_late_repeat(payload, history, entry.time_ns):
                raise self.broken(
                    f"invariant 1/2: {payload!r} is stored at {self.stored[payload]} and again at {seq} of {replica.id}"
                )
            if payload in self.refused:
                raise self.broken(f"SF-11: {payload!r} was refused and is stored at {seq}")
            if self.keeps_all and message.subject.startswith(ONE_PER_KEY):
                winner = self.keys.setdefault(message.subject, payload)
                if winner != payload:
                    raise self.broken(f"SF-12: {winner!r} and {payload!r} both created {message.subject!r}")
            self.stored[payload] = (replica.id, seq)
            if self.duplicate_window_ns:
                self._stored_at_ns[payload] = entry.time_ns
            history.seq_of[payload] = seq
            history.message_at[seq] = payload
            publisher, _, number = payload.partition(b":")
            if int(number) <= history.last_of_publisher.get(publisher, -1):
                raise self.broken(
                    f"invariant 1: order of {publisher!r}: {number!r} is stored behind a later one"
                )
            history.last_of_publisher[publisher] = int(number)
        history.last_seq = entry.first_seq + entry.count - 1

    def _is_late_repeat(self, payload: bytes, history: History, time_ns: int) -> bool:
        """Was it stored so long ago that its Nats-Msg-Id may be forgotten?"""
        before_ns = self._stored_at_ns.get(payload)
        late = (
            before_ns is not None and b"retry" in payload and time_ns - before_ns >= self.duplicate_window_ns
        )
        if late:
            history.last_of_publisher.pop(payload.partition(b":")[0], None)
        return late

    def _state(self, node: str, replica: StreamReplica, entry: Entry, history: History) -> None:
        state = replica.state
        if state.late is not None:
            return  # Its own state comes with an entry that it has not reached.
        if entry.index <= self._converging.get((node, replica.id), 0):
            return  # Replays from an emptied base: equal again once it is where the others were (Replica.emptied_state).
        view = (
            *(
                state.first_seq,
                state.last_seq,
                state.messages,
                state.bytes,
                len(state.message_ids),
                len(state.ttls),
                state.num_deleted,
                tuple(sorted(state.origins.items())),
                tuple(sorted(state.readers.items())),
            ),
            tuple(
                (c.name, c.delivered_sseq, c.ack_floor_sseq, len(c.pending)) for c in state.consumers.values()
            ),
        )
        known = history.states.setdefault(entry.index, view)
        if known != view:
            raise self.broken(
                f"SF-13: state of {replica.id} at {entry.index} is {known}, on {node} it is {view}"
            )
        config = state.config
        if 0 < config.max_msgs < state.messages or 0 < config.max_bytes < state.bytes:
            raise self.broken(
                f"RP-1: {replica.id} holds {state.messages} messages in {state.bytes} bytes at {entry.index}: more than "
                f"{config.max_msgs} messages or {config.max_bytes} bytes"
            )
        if config.discard == "new" and self.nobody_deletes and state.messages != state.last_seq:
            raise self.broken(
                f"RP-1: {replica.id} refuses messages when it is full, and removed {state.last_seq - state.messages}"
            )
        for consumer in state.consumers.values():
            if consumer.ack_floor_sseq > state.last_seq:
                raise self.broken(
                    f"invariant 3: consumer {consumer.name} acknowledged {consumer.ack_floor_sseq} of {state.last_seq}"
                )
            key = (node, replica.id, consumer.name)
            floor = (consumer.delivered_sseq, consumer.ack_floor_sseq)
            before = self._floors.get(key)
            if before is not None and floor[1] < before[1]:
                raise self.broken(
                    f"invariant 3: floor of {consumer.name} on {node} fell from {before} to {floor}"
                )
            self._floors[key] = floor

    # ---- what clients were told -----------------------------------------------------------------------------------

    def acknowledged(self, stream: str, payload: bytes, seq: int) -> None:
        """A publisher got an acknowledgement: the message is committed under that sequence (SF-1)."""
        if self.recoveries.excuses(payload, seq):
            return
        found = self.stored.get(payload)
        if found is None:
            raise self.broken(f"SF-1: {payload!r} was acknowledged at {seq} and is not committed")
        if self.groups[found[0]].message_at.get(seq) != payload or f".{stream}." not in found[0]:
            raise self.broken(
                f"SF-1: {payload!r} was acknowledged at {seq} of {stream} and is stored at {found}"
            )
        self.acked[payload] = seq

    def told_refused(self, payload: bytes) -> None:
        """A publisher was told that its message is not stored: that holds for good (SF-11)."""
        if payload in self.stored:
            raise self.broken(f"SF-11: {payload!r} was refused and is stored at {self.stored[payload]}")
        self.refused.add(payload)


class _WatchedGroups(dict[str, Replica]):
    """The core's groups; tells of each that is added or removed."""

    def __init__(
        self, core: BrokerCore, on_group: Callable[[Replica], None], on_gone: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._on_group = on_group
        self._on_gone = on_gone
        for name, group in core.groups.items():
            self[name] = group
        core.copies.groups = self

    def __setitem__(self, key: str, replica: Replica) -> None:
        self._on_group(replica)
        super().__setitem__(key, replica)

    def pop(self, key: str, default: Any = None) -> Any:
        found = super().pop(key, default)
        if found is not None:
            self._on_gone(key)
        return found


class _SharedGroups(dict[str, History]):
    """A map's history of its own beside the histories of streams that somebody else keeps."""

    def __init__(self, streams: dict[str, History]) -> None:
        super().__init__()
        self._streams = streams

    def __getitem__(self, key: str) -> History:
        return super().__getitem__(key) if is_meta(key) else self._streams[key]

    def __setitem__(self, key: str, history: History) -> None:
        if is_meta(key):
            super().__setitem__(key, history)
        else:
            self._streams[key] = history

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) if isinstance(key, str) and is_meta(key) else key in self._streams

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, default) if is_meta(key) else self._streams.get(key, default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        return super().setdefault(key, default) if is_meta(key) else self._streams.setdefault(key, default)
