"""Room for new copies, judged as the brokers judge it, so that no plan contains a copy that they would
refuse.
"""

from __future__ import annotations

from dataclasses import replace

from supercluster.reconcilers.planners.strategies import Node

# A copy grows while it is made, and a log takes more room than the messages in it: one part in so many is added to its bytes.
ROOM_MARGIN_SHARE = 8


def room_needed(copy_bytes: int) -> int:
    """What a new copy of that many bytes takes; at least a byte, since a full disk takes no stream."""
    return max(1, copy_bytes + copy_bytes // ROOM_MARGIN_SHARE)


def why_no_room(node: Node, copy_bytes: int, *, in_memory: bool) -> str:
    """Empty: there is room, or nobody knows."""
    needed, room_bytes = room_needed(copy_bytes), _room_bytes(node, in_memory=in_memory)
    if room_bytes is None:
        return "has not said yet how much room it has" if node.is_room_awaited and needed > 1 else ""
    if room_bytes >= needed:
        return ""
    where = " in memory" if in_memory else ""
    return f"has {room_bytes} bytes of room{where}, and {needed} are needed"


def with_copy(node: Node, copy_bytes: int, *, in_memory: bool) -> Node:
    """The broker with one copy more: what is planned for one stream is not there for the next."""
    room_bytes = _room_bytes(node, in_memory=in_memory)
    left = None if room_bytes is None else max(0, room_bytes - room_needed(copy_bytes))
    if in_memory:
        return replace(node, copies=node.copies + 1, memory_room_bytes=left)
    return replace(node, copies=node.copies + 1, room_bytes=left)


def _room_bytes(node: Node, *, in_memory: bool) -> int | None:
    return node.memory_room_bytes if in_memory else node.room_bytes
