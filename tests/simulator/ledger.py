"""What must hold, checked as it happens: the invariants of docs/safety.md over every broker of a simulated cluster.

Checks hang on the cores' own transitions (an entry was applied, a leader serves, a client got an answer), so a step
costs what changed in it. The first broker that applies an entry writes the history; all others are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream.core import BrokerCore
from supercluster.broker.jetstream.group import Group
from supercluster.broker.jetstream.messages import decode_stored
from supercluster.broker.jetstream.stream_group import StreamGroup
from supercluster.broker.raft.config import Role
from supercluster.broker.raft.entry import Entry

if TYPE_CHECKING:
    from tests.simulator.world import World


class InvariantBrokenError(AssertionError):
    """A promise did not hold. The message names it."""


@dataclass(slots=True)
class History:
    """Committed entries of one group, as the first broker applied them."""

    records: dict[int, tuple[int, int]] = field(default_factory=dict)
    """index → (term, checksum)"""
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
        self.acked: dict[bytes, int] = {}
        self.applied_total = 0
        self._converging: dict[tuple[str, str], int] = {}
        self._floors: dict[tuple[str, str, str], tuple[int, int]] = {}

    def broken(self, what: str) -> InvariantBrokenError:
        return InvariantBrokenError(f"seed {self._world.seed}: {what} (at {self._world.now_us / 1e6:.4f} s)")

    # ---- watching a core ------------------------------------------------------------------------------------------

    def watch(self, node: str, core: BrokerCore) -> None:
        """Check whatever this core's groups do from now on."""
        serving = core.serving

        def on_serving(group: Group) -> None:
            self._leader(node, group)
            serving(group)

        core.serving = on_serving  # type: ignore[method-assign]
        _WatchedGroups(core, lambda group: self._watch_group(node, group))

    def unwatch(self, node: str) -> None:
        for key in [key for key in self._floors if key[0] == node]:
            del self._floors[key]

    def _watch_group(self, node: str, group: Group) -> None:
        apply_entry = group.apply_entry

        def applied(entry: Entry) -> None:
            apply_entry(entry)
            self._applied(node, group, entry)

        group.apply_entry = applied  # type: ignore[method-assign]
        restore_state = group.restore_state

        def restored(data: memoryview) -> None:
            restore_state(data)
            history = self.groups.get(group.id)
            if history is not None and group.log.base_index and group.applied_index == group.log.base_index:
                self._converging[node, group.id] = max(history.records, default=0)

        group.restore_state = restored  # type: ignore[method-assign]

    def _leader(self, node: str, group: Group) -> None:
        history = self.groups.setdefault(group.id, History())
        term = group.raft.term
        known = history.leaders.setdefault(term, group.member)
        if known != group.member:
            raise self.broken(f"invariant 4: {known} and {group.member} both lead {group.id} in term {term}")
        if group.raft.role is not Role.LEADER:
            raise self.broken(f"{group.member} serves {group.id} without leading it")

    def _applied(self, node: str, group: Group, entry: Entry) -> None:
        self.applied_total += 1
        history = self.groups.setdefault(group.id, History())
        if entry.index > group.raft.commit_index:
            raise self.broken(f"{node} applied entry {entry.index} of {group.id} beyond its commit index")
        record = (entry.term, int.from_bytes(entry.record[4:8], "little"))
        known = history.records.get(entry.index)
        if known is None:
            history.records[entry.index] = record
            if isinstance(group, StreamGroup):
                self._new_entry(group, entry, history)
        elif known != record:
            raise self.broken(
                f"invariant 4: committed entry {entry.index} of {group.id} is {known}, {node} applied {record}"
            )
        if isinstance(group, StreamGroup):
            self._state(node, group, entry, history)

    def _new_entry(self, group: StreamGroup, entry: Entry, history: History) -> None:
        if not entry.count:
            return
        if entry.first_seq != history.last_seq + 1:
            raise self.broken(
                f"invariant 3: entry {entry.index} of {group.id} starts at {entry.first_seq} after {history.last_seq}"
            )
        decoded = decode_stored(entry)
        for seq in range(entry.first_seq, entry.first_seq + entry.count):
            payload = decoded.message(seq).payload
            if payload in history.seq_of:
                raise self.broken(
                    f"invariant 1/2: {payload!r} is stored at {history.seq_of[payload]} and again at {seq}"
                )
            history.seq_of[payload] = seq
            history.message_at[seq] = payload
            publisher, _, number = payload.partition(b":")
            if int(number) <= history.last_of_publisher.get(publisher, -1):
                raise self.broken(
                    f"invariant 1: order of {publisher!r}: {number!r} is stored behind a later one"
                )
            history.last_of_publisher[publisher] = int(number)
        history.last_seq = entry.first_seq + entry.count - 1

    def _state(self, node: str, group: StreamGroup, entry: Entry, history: History) -> None:
        state = group.state
        if entry.index <= self._converging.get((node, group.id), 0):
            return  # Replays from an emptied base: equal again once it is where the others were (Group.emptied_state).
        view = (
            *(state.first_seq, state.last_seq, state.messages, state.bytes, len(state.message_ids)),
            tuple(
                (c.name, c.delivered_sseq, c.ack_floor_sseq, len(c.pending)) for c in state.consumers.values()
            ),
        )
        known = history.states.setdefault(entry.index, view)
        if known != view:
            raise self.broken(
                f"SF-13: state of {group.id} at {entry.index} is {known}, on {node} it is {view}"
            )
        for consumer in state.consumers.values():
            if consumer.ack_floor_sseq > state.last_seq:
                raise self.broken(
                    f"invariant 3: consumer {consumer.name} acknowledged {consumer.ack_floor_sseq} of {state.last_seq}"
                )
            key = (node, group.id, consumer.name)
            floor = (consumer.delivered_sseq, consumer.ack_floor_sseq)
            before = self._floors.get(key)
            if before is not None and floor[1] < before[1]:
                raise self.broken(
                    f"invariant 3: floor of {consumer.name} on {node} fell from {before} to {floor}"
                )
            self._floors[key] = floor

    # ---- what clients were told -----------------------------------------------------------------------------------

    def acknowledged(self, group: str, payload: bytes, seq: int, *, duplicate: bool) -> None:
        """A publisher got an acknowledgement: the message is committed under that sequence (SF-1)."""
        history = self.groups.get(group)
        stored = history.seq_of.get(payload) if history is not None else None
        if stored is None:
            raise self.broken(f"SF-1: {payload!r} was acknowledged at {seq} and is not committed")
        if stored != seq:
            raise self.broken(f"SF-1: {payload!r} was acknowledged at {seq} and is stored at {stored}")
        self.acked[payload] = seq


class _WatchedGroups(dict[str, Group]):
    """The core's groups; tells of each that is added."""

    def __init__(self, core: BrokerCore, on_group: Callable[[Group], None]) -> None:
        super().__init__()
        self._on_group = on_group
        for name, group in core.groups.items():
            self[name] = group
        core.groups = self

    def __setitem__(self, key: str, group: Group) -> None:
        self._on_group(group)
        super().__setitem__(key, group)
