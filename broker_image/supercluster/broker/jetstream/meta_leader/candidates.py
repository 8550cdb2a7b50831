"""The brokers as candidates for placement, from the map of streams and from the reports of those in contact.
Changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.placement.choice import NodeFacts, room_needed
from supercluster.broker.raft.confchange import node_of


class Candidates:
    def __init__(self, tail: MapTail, host: MetaHost) -> None:
        self._tail = tail
        self._host = host
        self.lacking: dict[str, Mapping[str, int]] = {}
        """Move → bytes that each of its new copies lacked when the stream's leader was asked."""

    def forget_moves(self, running: Collection[str] = ()) -> None:
        """Keep what was said of these moves only."""
        self.lacking = {move_id: left for move_id, left in self.lacking.items() if move_id in running}

    def facts(self, storage: str, without: str = "") -> dict[str, NodeFacts]:
        """Every broker that is known, as placement looks at it for a stream of that storage: its room is what copies under
        way, except those of one group, leave of it."""
        state, contact = self._tail.state, self._host.brokers_in_contact()
        reserved = self._reserved(storage, without)
        room = self.rooms(storage, reserved)
        held = dict.fromkeys(state.brokers, 0)
        for found in state.streams.values():
            targets = found.move.targets if found.move is not None else ()
            members = {*found.members, *targets} if targets else found.members
            for member in members:
                node = node_of(member)
                if node in held:
                    held[node] += 1
        return {
            record.node: NodeFacts(
                record.node,
                record.cluster,
                record.tags,
                record.node in contact,
                room.get(record.node),
                held[record.node],
                record.node in state.leaving,
                reserved.get(record.node, 0),
                cordon.text if (cordon := state.cordoned.get(record.node)) is not None else "",
            )
            for record in state.brokers.values()
        }

    def rooms(self, storage: str, reserved: Mapping[str, int] | None = None) -> dict[str, int]:
        """Node → room for streams of that storage, as placement counts with it; of others nothing is known."""
        reserved = self._reserved(storage, "") if reserved is None else reserved
        told = {node: self._host.room_of(node) for node in self._host.brokers_in_contact()}
        return {
            node: max(0, room.of(storage) - reserved.get(node, 0))
            for node, room in told.items()
            if room is not None
        }

    def _reserved(self, storage: str, without: str) -> dict[str, int]:
        """Node → bytes that copies on their way there will still take."""
        found: dict[str, int] = {}
        for key in self._tail.state.moving:
            moving = self._tail.state.streams[key]
            move = moving.move
            if move is None or move.cancelled or moving.config.storage != storage or moving.group == without:
                continue
            for target in move.joining:
                node = node_of(target)
                left_bytes = self.lacking.get(move.id, {}).get(target, move.copy_bytes)
                found[node] = found.get(node, 0) + (room_needed(left_bytes) if left_bytes else 0)
        return found
