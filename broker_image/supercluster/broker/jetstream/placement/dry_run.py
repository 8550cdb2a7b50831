"""The effects of a move, computed before it starts (MV-13): nodes and reasons, bytes, time, majorities and
room before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supercluster.broker.jetstream.placement.choice import Choice, NodeFacts, NodeReason
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts

# Bytes per second that an estimate goes by when a move has no limit: what one leader sends to three new copies together
# on a plain disk and network. A guess by design; the running move tells its own ETA.
ASSUMED_BYTES_PER_S = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HeadRoom:
    """A node that gets a copy: its room now, and with the copy."""

    node: str
    room_bytes: int
    after_bytes: int

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "roomBytes": self.room_bytes, "afterBytes": self.after_bytes}


@dataclass(frozen=True, slots=True)
class Quorum:
    """Voters, how many of them have to agree, and how many are well."""

    voters: int
    well: int

    @property
    def majority(self) -> int:
        return self.voters // 2 + 1

    def to_json(self) -> dict[str, int]:
        return {"voters": self.voters, "majority": self.majority, "well": self.well}


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The answer to a dry run."""

    targets: tuple[NodeReason, ...] = ()
    rejected: tuple[NodeReason, ...] = ()
    copy_bytes: int = 0
    """Of one copy."""
    send_bytes: int = 0
    """Of all new copies together."""
    messages: int = 0
    estimated_s: int = 0
    before: Quorum = Quorum(0, 0)
    after: Quorum = Quorum(0, 0)
    head_room: tuple[HeadRoom, ...] = ()
    refusal: str = ""

    @property
    def moves_nothing(self) -> bool:
        return not self.refusal and self.send_bytes == 0 and not self.head_room

    def to_json(self) -> dict[str, Any]:
        return {
            "targets": [found.to_json() for found in self.targets],
            "rejected": [found.to_json() for found in self.rejected],
            "bytes": self.copy_bytes,
            "bytesToSend": self.send_bytes,
            "messages": self.messages,
            "estimatedS": self.estimated_s,
            "quorumBefore": self.before.to_json(),
            "quorumAfter": self.after.to_json(),
            "headRoom": [found.to_json() for found in self.head_room],
            "movesNothing": self.moves_nothing,
            "refusal": self.refusal,
        }


def copy_bytes(facts: StreamFacts) -> int:
    """What one copy takes: the log as it is, deleted messages included."""
    return max(facts.message_bytes, facts.bytes_on_disk)


def make_plan(
    choice: Choice, facts: StreamFacts, known: Mapping[str, NodeFacts], bytes_per_s: int = 0
) -> MovePlan:
    """The plan for a choice of nodes. `facts` are the stream's, as its leader told them."""
    voters = [found for found in facts.members if found.is_voter]
    held = {found.node for found in voters}
    joining = [node for node in choice.nodes if node not in held]
    size = copy_bytes(facts)
    room = [
        HeadRoom(node, room_bytes, room_bytes - size)
        for node in joining
        if (room_bytes := known[node].room_bytes) is not None
    ]
    well = sum(1 for node in choice.nodes if known[node].in_contact)
    return MovePlan(
        choice.chosen,
        choice.rejected,
        size,
        size * len(joining),
        facts.messages,
        -(-size * len(joining) // (bytes_per_s or ASSUMED_BYTES_PER_S)),
        Quorum(len(voters), sum(1 for found in voters if found.is_current)),
        Quorum(len(choice.nodes), well) if choice.nodes else Quorum(0, 0),
        tuple(room),
        choice.refusal,
    )
