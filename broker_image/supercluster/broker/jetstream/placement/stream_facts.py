"""Questions of the meta group's leader to a stream's leader before it decides about a move.

The answers give the stream's size, its membership by the group itself (SF-5), and the progress of a running
move. The question is an internal request: it is routed like a client's, but no client can publish to its
subject.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from supercluster.broker.moves.plan import Stage
from supercluster.broker.raft.confchange import node_of

FACTS_SUBJECT = b"$SC.STREAM.FACTS"
FACTS_WAIT_MS = 1500

EARLY_STAGES = frozenset({Stage.PLANNED, Stage.LEARNING, Stage.TAIL, Stage.COMPARING})
"""Stages of a move in which none of its new members votes yet."""


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """One member in force."""

    member: str
    is_voter: bool
    is_current: bool
    """In contact, with all that is committed."""
    lag: int

    @property
    def node(self) -> str:
        return node_of(self.member)


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """A stream as its leader sees it."""

    messages: int
    message_bytes: int
    bytes_on_disk: int
    members: tuple[MemberFacts, ...]
    move: Mapping[str, Any] = field(default_factory=dict)
    """STREAM.INFO's `move`; empty while none runs."""
    leader: str = ""
    """The node that answered."""
    is_settled: bool = False
    """Is the membership in force committed, and not a joint one?"""
    config: Mapping[str, Any] | None = None
    """By the group's own log."""
    config_version: int = 0
    migrating: Mapping[str, Any] = field(default_factory=dict)
    """STREAM.INFO's `migrating`; empty where the stream is on its way to no other super-cluster."""
    consumers: int = 0

    @property
    def voters(self) -> tuple[str, ...]:
        return tuple(found.member for found in self.members if found.is_voter)

    @property
    def stage(self) -> str:
        return str(self.move.get("stage", ""))

    @property
    def stuck(self) -> dict[str, str]:
        """Targets of the move that make no headway although their brokers are in contact, and why."""
        told = self.move.get("stuck")
        return {str(target): str(why) for target, why in told.items()} if isinstance(told, Mapping) else {}

    @property
    def lacking(self) -> dict[str, int]:
        """Bytes that the move's new copies still lack."""
        told = self.move.get("lacking")
        return {str(target): int(left) for target, left in told.items()} if isinstance(told, Mapping) else {}

    def progress(self) -> str:
        """NATS's words about a move that runs (MV-3)."""
        current = sum(1 for found in self.members if found.is_current)
        lag = sum(found.lag for found in self.members)
        return f"total peers: {len(self.members)}, current peers: {current}, combined lag: {lag}"

    def to_json(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "message_bytes": self.message_bytes,
            "bytes_on_disk": self.bytes_on_disk,
            "members": [[m.member, m.is_voter, m.is_current, m.lag] for m in self.members],
            "move": dict(self.move),
            "leader": self.leader,
            "settled": self.is_settled,
            "config": self.config,
            "config_version": self.config_version,
            "migrating": dict(self.migrating),
            "consumers": self.consumers,
        }

    @staticmethod
    def from_answer(answer: bytes) -> StreamFacts | None:
        """None for an answer that is none."""
        try:
            data = json.loads(answer)
            return StreamFacts(
                int(data["messages"]),
                int(data["message_bytes"]),
                int(data["bytes_on_disk"]),
                tuple(MemberFacts(str(m), bool(v), bool(c), int(lag)) for m, v, c, lag in data["members"]),
                dict(data["move"]),
                str(data.get("leader", "")),
                bool(data.get("settled", False)),
                data.get("config"),
                int(data.get("config_version", 0)),
                dict(data.get("migrating", {})),
                int(data.get("consumers", 0)),
            )
        except (ValueError, KeyError, TypeError):
            return None
