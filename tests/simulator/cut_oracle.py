"""One owner per stream over two super-clusters, read from the committed entries of both logs by this module itself.

Blue's group of a stream takes messages only where no FENCED stands open. Green's group, which goes on with blue's log behind
HANDED, takes them behind OPENED alone. OPENED needs the entry HANDED of its attempt with the same digest, and no REFUSED; blue
goes on behind HANDED only with green's REFUSED (SF-20, SF-21).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.encoding.sections import Section, sections
from supercluster.broker.jetstream.replica.lineage import base_of, is_meta, lineage_of
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.state.cut import Fence, Handed, Opened, Unfenced
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.raft.entry import Entry

if TYPE_CHECKING:
    from tests.simulator.cutover_world import CutoverWorld
    from tests.simulator.ledger import History, Ledger

CUTS = frozenset((Section.FENCED, Section.UNFENCED, Section.HANDED, Section.OPENED, Section.REFUSED))


@dataclass(slots=True)
class Stream:
    """What both logs say of one stream."""

    group: str
    """Blue's."""
    fenced: int = 0
    """The attempt that is fenced, 0: none."""
    attempts: int = 0
    """The largest so far."""
    handed: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """Attempt → the index of its entry HANDED, and the digest."""
    is_handed: bool = False
    refused: set[int] = field(default_factory=set)
    opened: int = 0
    """The attempt that green has opened."""
    heir: str = ""
    """Green's group that it was opened in."""
    fenced_us: int = 0
    stall_ms: float = 0.0
    """From FENCED to OPENED of the attempt that was opened."""
    heirs: dict[str, int] = field(default_factory=dict)
    """Green's groups → the attempt that each goes on with."""

    @property
    def group_now(self) -> str:
        return self.heir or self.group


class CutOracle:
    """See the module."""

    def __init__(self, world: CutoverWorld) -> None:
        self._world = world
        self._broken = world.ledger.broken
        self.streams: dict[str, Stream] = {}
        """Blue's group without lineages → the stream."""
        self.may_clean = False
        """Was the last word asked for?"""
        self._held: set[tuple[str, str]] = set()
        """(broker, group) of copies that were seen."""
        self.on_cut: Callable[[str, str, str], None] = lambda kind, node, group: None
        """A section of a cut was applied for the first time, by this broker."""
        for ledger in world.ledgers:
            ledger.on_new = self._applied
            ledger.on_opened = self._begun  # Before anything is judged by the new group's history.

    @property
    def stalls_ms(self) -> list[float]:
        return [found.stall_ms for found in self.streams.values() if found.opened]

    def of(self, group: str) -> Stream | None:
        return self.streams.get(base_of(group))

    # ---- what is committed ------------------------------------------------------------------------------------------

    def _applied(self, node: str, replica: Replica, entry: Entry) -> None:
        if not isinstance(replica, StreamReplica):
            return
        stream = self.streams.setdefault(base_of(replica.id), Stream(replica.id))
        is_heir = replica.id in stream.heirs
        if not is_heir and replica.id != stream.group:
            stream.group = replica.id  # Made again, or recovered by force.
        if not entry.has_sections:
            return
        found = list(sections(entry.payload))
        self._may_take(stream, replica.id, entry, [kind for kind, _ in found])
        for kind, body in found:
            if kind in CUTS:
                self._cut(stream, node, replica, entry, kind, Reader(body))

    def _may_take(self, stream: Stream, group: str, entry: Entry, kinds: list[int]) -> None:
        """A leader's entry: what may stand in it."""
        others = sorted({Section(kind).name for kind in kinds if kind not in CUTS})
        if not others and not entry.count:
            return
        text = f"entry {entry.index} of {group} has {', '.join(others)}"
        if group in stream.heirs:
            if group != stream.heir:
                raise self._broken(f"SF-20: {text}, and attempt {stream.heirs[group]} is not open")
        elif stream.opened:
            raise self._broken(f"SF-20: {text}, and {stream.heir} is open: both took it")
        elif stream.fenced:
            raise self._broken(f"SF-20: {text}, and attempt {stream.fenced} is fenced")

    def _cut(
        self, stream: Stream, node: str, replica: StreamReplica, entry: Entry, kind: int, reader: Reader
    ) -> None:
        now_us, where = self._world.now_us, f"entry {entry.index} of {replica.id}"
        name = Section(kind).name
        if kind == Section.FENCED:
            attempt = Fence.decode(reader).attempt
            if replica.id in stream.heirs:
                raise self._broken(f"SF-20: {where} fences green's stream")
            if stream.fenced:
                return
            if attempt <= stream.attempts:
                raise self._broken(f"SF-20: {where} fences attempt {attempt} after {stream.attempts}")
            stream.fenced = stream.attempts = attempt
            stream.fenced_us = now_us
        elif kind == Section.HANDED:
            handed = Handed.decode(reader)
            attempt = handed.attempt
            if stream.fenced != attempt:
                return
            stream.handed[attempt], stream.is_handed = (entry.index, handed.digest), True
        elif kind == Section.UNFENCED:
            attempt = Unfenced.decode(reader).attempt
            if stream.fenced != attempt:
                return
            if stream.is_handed and attempt not in stream.refused:
                raise self._broken(
                    f"SF-21: {where} takes back attempt {attempt}, which green has not refused"
                )
            stream.fenced, stream.is_handed = 0, False
        elif kind == Section.OPENED:
            attempt = self._opened(stream, replica, where, Opened.decode(reader))
        else:
            attempt = reader.u64()
            if attempt == stream.opened:
                return
            if replica.id not in stream.heirs:
                raise self._broken(f"SF-21: {where} refuses attempt {attempt}, and is not green's")
            stream.refused.add(attempt)
        self._world.note(f"{name} {attempt} is {where}, on {node}")
        self.on_cut(name, node, replica.id)

    def _opened(self, stream: Stream, replica: StreamReplica, where: str, opened: Opened) -> int:
        attempt = opened.attempt
        if attempt in stream.refused or stream.opened:
            return attempt
        _, digest = stream.handed.get(attempt, (0, b""))
        if replica.id not in stream.heirs or stream.heirs[replica.id] != attempt:
            raise self._broken(f"SF-20: {where} opens attempt {attempt}, which did not come with its log")
        if attempt not in stream.handed or stream.fenced != attempt or not stream.is_handed:
            raise self._broken(f"SF-20: {where} opens attempt {attempt}, which blue has not handed over")
        if opened.digest != digest:
            raise self._broken(f"SF-20: {where} opens attempt {attempt} with another digest than was handed")
        stream.opened, stream.heir = attempt, replica.id
        stream.stall_ms = (self._world.now_us - stream.fenced_us) / 1000
        return attempt

    # ---- green's groups -----------------------------------------------------------------------------------------------

    def _begun(self, ledger: Ledger, replica: Replica) -> None:
        """A copy of green goes on with blue's log as a group of its own: its history begins with blue's."""
        if is_meta(replica.id) or not lineage_of(replica.id) or replica.id in ledger.groups:
            return
        stream = self.of(replica.id)
        if (
            stream is None
            or not isinstance(replica, StreamReplica)
            or replica.assignment.recovery is not None
        ):
            return
        attempt = self._attempt_of(stream, replica)
        old = ledger.groups[stream.group]
        stream.heirs[replica.id] = attempt
        ledger.groups[replica.id] = _heir(old, stream.handed[attempt][0])
        ledger.lifetimes.inherit(stream.group, replica.id)

    def _attempt_of(self, stream: Stream, replica: StreamReplica) -> int:
        """Which entry HANDED its log goes on behind; all before it has to be blue's."""
        old = self._world.ledger.groups[stream.group]
        for attempt, (index, _) in sorted(stream.handed.items(), reverse=True):
            entry = replica.log.entry(index)
            if entry is not None and old.records.get(index) == (entry.term, crc32(entry.record)):
                return attempt
            if replica.log.base_index >= index:
                return attempt
        raise self._broken(
            f"SF-19: {replica.member} begins {replica.id} with a log that lacks every entry HANDED"
        )

    def kept(self, node: str, core: BrokerCore) -> None:
        """BG-8: blue keeps its copies until the last word was said."""
        registered = core.store.registered()
        for stream in self.streams.values():
            if stream.group in registered:
                self._held.add((node, stream.group))
            elif (node, stream.group) in self._held and not self.may_clean:
                raise self._broken(f"BG-8: {node} drops its copy of {stream.group} before the last word")

    # ---- blue ---------------------------------------------------------------------------------------------------------

    def after_turn(self, node: str, groups: dict[str, Replica]) -> None:
        """No broker of blue has a copy of green's group."""
        for stream in self.streams.values():
            for heir in stream.heirs:
                if heir in groups and self._world.side_of[node] == "blue":
                    raise self._broken(f"BG-8: {node} has a copy of {heir}")


def _heir(old: History, index: int) -> History:
    """Green's history so far: all that blue has up to the entry HANDED. No message stands behind the fence."""
    return type(old)(
        records={at: record for at, record in old.records.items() if at <= index},
        last_index=index,
        last_time_ns=old.last_time_ns,
        message_at=dict(old.message_at),
        seq_of=dict(old.seq_of),
        last_of_publisher=dict(old.last_of_publisher),
        last_seq=old.last_seq,
        states={at: state for at, state in old.states.items() if at <= index},
    )
