"""What a forced recovery of the map may lose, and nothing else (RP-8, SF-9).

When a broker begins a lineage of the map, what was announced as certain has to be in it. From the line in its journal on a broker
says nothing in another lineage. Copies of streams that a broker has when it joins a lineage stay, unless the map of that lineage
has had the stream deleted. What an older map had decided is in files.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.replica import MetaReplica
from supercluster.broker.jetstream.replica.lineage import META_GROUP, follows, is_meta, lineage_of
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.raft.entry import Entry, decode_entries
from supercluster.broker.raft.messages import Message

if TYPE_CHECKING:
    from tests.simulator.ledger import Ledger
    from tests.simulator.world import World


class MapRecoveries:
    """See the module."""

    def __init__(self, ledger: Ledger, world: World) -> None:
        self._ledger = ledger
        self._world = world
        self.removed: Collection[str] = ()
        """Names of streams that somebody asked to delete."""
        self.consented: set[tuple[str, str]] = set()
        """(broker, lineage): a person said that it is to follow that one."""
        self.begun = 0
        self._bases: dict[str, bytes] = {}
        """Lineage → the map that it began with."""
        self._entries: dict[str, dict[int, Entry]] = {}
        """Lineage → committed entries."""
        self._joined: dict[tuple[str, str], str] = {}
        """(broker, incarnation) → its lineage."""
        self._had: dict[tuple[str, str], set[str]] = {}
        """(broker, incarnation) → streams' groups of which it had copies when it last joined a lineage."""

    # ---- what is committed ----------------------------------------------------------------------------------------

    def applied(self, replica: Replica, entry: Entry) -> None:
        """An entry that nobody had applied before."""
        if isinstance(replica, MetaReplica):
            self._entries.setdefault(replica.id, {})[entry.index] = entry

    def watch(self, replica: Replica) -> None:
        """A copy is opened: the first of a new lineage is the chosen one."""
        if not isinstance(replica, MetaReplica) or not lineage_of(replica.id) or replica.id in self._bases:
            return
        state = replica.log.base_state()
        if state is None:
            return  # A learner's, of a lineage whose first member did not come to open it.
        restored = _restored(state)
        recovery = restored.recovery
        if recovery is None or recovery.lineage != replica.id or replica.member != recovery.member:
            return
        self.begun += 1
        self._bases[replica.id] = restored.snapshot()
        for key, found in self._certain(recovery.source, recovery.commit_index).streams.items():
            if key not in restored.streams and found.name not in self.removed:
                raise self._ledger.broken(
                    f"SF-9: {replica.id} begins without {found.group}, which was committed by {recovery.commit_index} of "
                    f"{recovery.source}"
                )

    def _certain(self, lineage: str, last: int) -> MetaState:
        """The map as of a committed entry."""
        base = self._bases.get(lineage)
        state = MetaState.restore(base) if base is not None else MetaState()
        for index, entry in sorted(self._entries.get(lineage, {}).items()):
            if state.applied_index < index <= last:
                state.apply(entry)
        return state

    # ---- who works where ------------------------------------------------------------------------------------------

    def sends(self, node: str, core: BrokerCore, group: str, message: Message) -> None:
        """SF-9: who has joined a lineage says nothing in another one."""
        if is_meta(group) and group != self._lineage(node, core):
            raise self._ledger.broken(
                f"SF-9: {node} has joined {self._lineage(node, core)} and says {type(message).__name__} in {group}"
            )

    def _lineage(self, node: str, core: BrokerCore) -> str:
        return self._joined.get((node, core.store.incarnation), core.map.meta_id)

    def after_turn(self, node: str, core: BrokerCore) -> None:
        working = [group for group in core.groups if is_meta(group)]
        if working not in ([], [core.map.meta_id]):
            raise self._ledger.broken(f"SF-9: {node} has joined {core.map.meta_id} and works in {working}")
        key = (node, core.store.incarnation)
        before = self._joined.get(key, META_GROUP)
        if core.map.meta_id == before:
            return
        if not follows(core.map.meta_id, before) and (node, core.map.meta_id) not in self.consented:
            raise self._ledger.broken(
                f"SF-9: {node} gave {before} up for {core.map.meta_id}, which does not follow from it, and nobody said so"
            )
        if core.map.meta_id not in core.store.registered():
            raise self._ledger.broken(
                f"SF-9: {node} works in {core.map.meta_id}, which its volume has not joined"
            )
        self._joined[key] = core.map.meta_id
        self._had[key] = {group for group in core.store.registered() if not is_meta(group)}

    # ---- the end --------------------------------------------------------------------------------------------------

    def check_end(self, *, destroyed: Collection[str]) -> None:
        """All brokers are up, of one lineage, and have its whole map."""
        for node in self._world.nodes.values():
            core = node.core
            assert core is not None
            assert core.meta is not None
            present = {found.group for found in core.meta.state.streams.values()}
            ever = self._ever(core.map.meta_id)
            for group in self._had.get((node.name, core.store.incarnation), ()):
                if group not in core.store.registered() and group not in present | ever:
                    raise self._ledger.broken(f"SF-9: {node.name} dropped {group}, which the map never knew")
        self._lost_is_in_files(destroyed)

    def _ever(self, lineage: str) -> set[str]:
        """Groups of all streams that the lineage's map ever had."""
        base = self._bases.get(lineage)
        if base is None:
            return set()
        state = MetaState.restore(base)
        found = {one.group for one in state.streams.values()}
        for _, entry in sorted(self._entries.get(lineage, {}).items()):
            state.apply(entry)
            found |= {one.group for one in state.streams.values()}
        return found

    def _lost_is_in_files(self, destroyed: Collection[str]) -> None:
        """What older lineages had committed behind the point where a copy was chosen."""
        kept: set[bytes] = set()
        begins: dict[str, int] = {}
        current = {node.core.map.meta_id for node in self._world.nodes.values() if node.core is not None}
        for node in self._world.nodes.values():
            disk = node.store.disk
            for path in disk.paths():
                if path.startswith("discarded/meta") and path.endswith(".entries"):
                    head, _, records = disk.read_file(path).partition(b"\n")
                    kept |= {bytes(entry.record) for entry in decode_entries(records)}
                    told = json.loads(head)
                    if told["base"] is not None:  # What is before has become the map in the file's head.
                        begins[told["group"]] = max(told["first_index"], begins.get(told["group"], 0))
        for lineage, state in self._bases.items():
            recovery = MetaState.restore(state).recovery
            assert recovery is not None
            if lineage not in current or destroyed:
                continue
            for index, entry in self._entries.get(recovery.source, {}).items():
                is_kept = bytes(entry.record) in kept or index < begins.get(recovery.source, 0)
                if index > recovery.last_index and not is_kept:
                    raise self._ledger.broken(
                        f"SF-9: entry {index} of {recovery.source} was committed, {lineage} goes on from "
                        f"{recovery.last_index}, and no file has it"
                    )


def _restored(snapshot: bytes) -> MetaState:
    reader = Reader(snapshot)
    reader.blob()
    return MetaState.restore(bytes(reader.rest()))
