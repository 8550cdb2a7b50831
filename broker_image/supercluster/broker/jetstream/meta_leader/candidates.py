"""The brokers as placement looks at them, by the map of streams and by what those in contact say. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supercluster.broker.jetstream.meta.move_record import Move
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.placement.choice import NodeFacts, room_needed
from supercluster.broker.raft.confchange import node_of

Left = Callable[[Move, str], int]
"""Bytes that a move still has to bring to a target."""


def facts(
    state: MetaState, host: MetaHost, left: Left, storage: str, without: str = ""
) -> dict[str, NodeFacts]:
    """Every broker that is known, as placement looks at it for a stream of that storage: its room is what copies under
    way, except those of one group, leave of it."""
    contact = host.brokers_in_contact()
    reserved = _reserved(state, left, storage, without)
    room = _rooms(host, storage, reserved)
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


def rooms(state: MetaState, host: MetaHost, left: Left, storage: str) -> dict[str, int]:
    """Node → room for streams of that storage, as placement counts with it; of others nothing is known."""
    return _rooms(host, storage, _reserved(state, left, storage, ""))


def _rooms(host: MetaHost, storage: str, reserved: Mapping[str, int]) -> dict[str, int]:
    told = {node: host.room_of(node) for node in host.brokers_in_contact()}
    return {
        node: max(0, room.of(storage) - reserved.get(node, 0))
        for node, room in told.items()
        if room is not None
    }


def _reserved(state: MetaState, left: Left, storage: str, without: str) -> dict[str, int]:
    """Node → bytes that copies on their way there will still take."""
    found: dict[str, int] = {}
    for key in state.moving:
        moving = state.streams[key]
        move = moving.move
        if move is None or move.cancelled or moving.config.storage != storage or moving.group == without:
            continue
        for target in move.joining:
            node, left_bytes = node_of(target), left(move, target)
            found[node] = found.get(node, 0) + (room_needed(left_bytes) if left_bytes else 0)
    return found
