"""The meta group's record of a stream's move: the one that runs, and how the last one ended.

It holds the targets of the copies and the state that a cancel restores. Only the stream's own group knows the
membership in force and the progress of the copies (SF-5). It reports the end of the move to the meta group,
with the result of the audit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from supercluster.broker.jetstream.config.stream import Placement, StreamConfig
from supercluster.broker.jetstream.encoding.json_fields import Stored
from supercluster.broker.raft.confchange import node_of

# Targets that were replaced in one move and are remembered: a target is gone for a minute before another one comes.
REPLACED_MAX = 64
# Moves that ended before the last one and are remembered by their ids: a call that comes late is answered by how its own
# move ended, and starts nothing.
EARLIER_MAX = 64
# Of why such a move was cancelled.
REASON_CHARACTERS_MAX = 160


@dataclass(frozen=True, slots=True)
class Move:
    """A move that runs."""

    id: str
    targets: tuple[str, ...]
    """All members that the group is to have: `<node>@<incarnation>.<token>` for new ones, present members as they are."""
    origin: tuple[str, ...]
    """The members before."""
    origin_placement: Placement
    """The configured placement before: a cancelled move ends with it."""
    started_ns: int
    bytes_per_s: int = 0
    """What may be sent to new copies together; 0: no limit."""
    cancelled: bool = False
    replaced: tuple[str, ...] = ()
    """Targets that others came for: who had taken part already may vote until the stream's group says otherwise."""
    cancel_reason: str = ""
    """Why it was called off, where nobody asked for that."""
    copy_bytes: int = 0
    """What one copy took when the move began: so much room is kept for it until its leader says how much is still to come."""
    origin_replicas: int = 0
    """The configured count of replicas before, where that is what changes; 0: it stays."""

    @property
    def joining(self) -> tuple[str, ...]:
        """The targets that are no members yet."""
        return tuple(member for member in self.targets if member not in self.origin)

    def with_target(self, old: str, new: str) -> Move:
        """The same move with one of its targets replaced."""
        targets = tuple(new if member == old else member for member in self.targets)
        return replace(self, targets=targets, replaced=(*self.replaced, old)[-REPLACED_MAX:])

    def undone(self, config: StreamConfig) -> StreamConfig:
        """The stream's configuration as it was before, in what a move changes."""
        replicas = self.origin_replicas or config.num_replicas
        return replace(config, placement=self.origin_placement, num_replicas=replicas)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "origin_placement": self.origin_placement.to_json()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Move:
        """Fields of a later version are passed over."""
        told = {found.name: data[found.name] for found in fields(Move) if found.name in data}
        told |= {name: tuple(told[name]) for name in ("targets", "origin", "replaced") if name in told}
        placement = Placement.from_json(Stored(data["origin_placement"]))
        return Move(**{**told, "origin_placement": placement})


class Outcome(StrEnum):
    """How a move ended."""

    DONE = "done"
    """The targets are the members."""
    CANCELLED = "cancelled"
    """The origin is what it was."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What the comparison of old and new copies found."""

    ranges: int = 0
    sequences: int = 0
    """In these ranges, removed ones included."""
    messages: int = 0
    """That the stream held when the replicas' states were compared: without removed ones."""
    first_seq: int = 0
    last_seq: int = 0
    digest: str = ""
    """Hash over the hashes of all ranges, hexadecimal; empty where nothing was compared."""
    results: Mapping[str, str] = field(default_factory=dict)
    """Member → `equal`, or a sentence that says what differs."""

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Audit:
        return Audit(
            int(data["ranges"]),
            int(data["sequences"]),
            int(data["messages"]),
            int(data["first_seq"]),
            int(data["last_seq"]),
            str(data["digest"]),
            {str(member): str(result) for member, result in data["results"].items()},
        )


@dataclass(frozen=True, slots=True)
class EarlierMove:
    """What is left of a report when the stream's next move has ended."""

    id: str
    outcome: Outcome
    reason: str = ""
    ended_ns: int = 0
    left: tuple[str, ...] = ()
    """Nodes that were members before and not afterwards: the grace time of their copies began then."""

    def to_json(self) -> list[Any]:
        return [self.id, str(self.outcome), self.reason, self.ended_ns, list(self.left)]

    @staticmethod
    def from_json(data: list[Any]) -> EarlierMove:
        """
        Raises:
            TypeError, ValueError: it is none.
        """
        move_id, outcome, reason, ended_ns, left = data
        return EarlierMove(str(move_id), Outcome(outcome), str(reason), int(ended_ns), tuple(map(str, left)))


@dataclass(frozen=True, slots=True)
class MoveReport:
    """How a move ended: kept until the stream's next move ends, and then in brief."""

    id: str
    outcome: Outcome
    reason: str = ""
    """Why it was cancelled, as a sentence."""
    bytes_copied: int = 0
    audit: Audit = field(default_factory=Audit)
    config_index: int = 0
    """Index, in the stream's log, of the committed CONFIG entry whose members are in force."""
    targets: tuple[str, ...] = ()
    origin: tuple[str, ...] = ()
    started_ns: int = 0
    ended_ns: int = 0
    """Targets, origin and times are filled in from the move's record when the end is applied."""
    stage_ms: Mapping[str, int] = field(default_factory=dict)
    """Stage → milliseconds that it took, under all leaders together."""
    earlier: tuple[EarlierMove, ...] = ()
    """The moves before this one, the youngest first."""
    replaced: tuple[str, ...] = ()
    """Targets that others took the place of, from the record too: whoever comes back later as one of them is not needed."""

    @property
    def in_brief(self) -> EarlierMove:
        stayed = {node_of(member) for member in self.targets}
        gone = {node_of(member) for member in self.origin} - stayed
        left = tuple(sorted(gone)) if self.outcome is Outcome.DONE else ()
        return EarlierMove(self.id, self.outcome, self.reason[:REASON_CHARACTERS_MAX], self.ended_ns, left)

    @property
    def known(self) -> tuple[EarlierMove, ...]:
        """All moves of the stream that ended and are remembered, the youngest first."""
        return (self.in_brief, *self.earlier)

    def left_ns(self, node: str) -> int | None:
        """When a node that is no member ceased to be one; None where nobody remembers."""
        return next((found.ended_ns for found in self.known if node in found.left), None)

    @property
    def joining(self) -> tuple[str, ...]:
        """The targets that were no members before."""
        return tuple(member for member in self.targets if member not in self.origin)

    def of_move(self, move: Move, ended_ns: int, before: MoveReport | None) -> MoveReport:
        """The report with what the record knows, and with what is remembered of the move before."""
        return replace(
            self,
            targets=move.targets,
            origin=move.origin,
            started_ns=move.started_ns,
            ended_ns=ended_ns,
            earlier=before.known[:EARLIER_MAX] if before is not None else (),
            replaced=move.replaced,
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "earlier": [found.to_json() for found in self.earlier]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> MoveReport:
        """
        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is none.
        """
        return MoveReport(
            str(data["id"]),
            Outcome(data["outcome"]),
            str(data["reason"]),
            int(data["bytes_copied"]),
            Audit.from_json(data["audit"]),
            int(data["config_index"]),
            tuple(map(str, data["targets"])),
            tuple(map(str, data["origin"])),
            int(data["started_ns"]),
            int(data["ended_ns"]),
            {str(stage): int(ms) for stage, ms in data.get("stage_ms", {}).items()},
            tuple(EarlierMove.from_json(found) for found in data.get("earlier", ())),
            tuple(map(str, data.get("replaced", ()))),
        )


@dataclass(frozen=True, slots=True)
class MoveEnd:
    """What a stream's leader tells the meta group's (Frame.MOVE_END), until the map shows it."""

    group: str
    members: tuple[str, ...]
    """The members in force, committed in the stream's log."""
    report: MoveReport

    def to_json(self) -> dict[str, Any]:
        return {"group": self.group, "members": list(self.members), "report": self.report.to_json()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> MoveEnd:
        """
        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is none.
        """
        return MoveEnd(
            str(data["group"]), tuple(map(str, data["members"])), MoveReport.from_json(data["report"])
        )
