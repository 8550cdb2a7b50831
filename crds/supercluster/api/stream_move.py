"""StreamMove: one move of one stream, or one change of its replica count (MV-13).

Both are planned before they start, watched while they run, and proven afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Literal

from pydantic import Field

from supercluster.api.common import (
    ApiModel,
    CelRule,
    Conditions,
    Resource,
    ShortText,
    Status,
    Time,
)
from supercluster.api.moves import Destination, MovePolicy
from supercluster.api.names import LabelName, UndeclaredName
from supercluster.api.stream import REPLICAS_MAX, NodeFinding
from supercluster.api.units import Duration

Phase = Literal[
    "Pending",
    "Planned",
    "AwaitingApproval",
    "AwaitingWindow",
    "Queued",
    "Running",
    "Cancelling",
    "Succeeded",
    "Failed",
    "Cancelled",
    "Refused",
]
# A stream's plan tells of every broker; a super-cluster has a few hundred at most.
FINDINGS_MAX = 512
_FIXED = ("superCluster", "dryRun")
_FIXED_OPTIONAL = (
    *("streamRef", "stream", "destination", "replicas", "repair", "drains", "members"),
    "maintenanceWindow",
)


def _fixed() -> CelRule:
    """Everything but approval, approved, suspend, cancel and bandwidth stays as it was created."""
    same = [f"self.{name} == oldSelf.{name}" for name in _FIXED]
    same += [
        f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
        for name in _FIXED_OPTIONAL
    ]
    return CelRule(
        rule=" && ".join(f"({part})" for part in same),
        message="only spec.approval, spec.approved, spec.suspend, spec.cancel and spec.bandwidth of a StreamMove can be "
        "changed; delete it and create another",
    )


class Repair(ApiModel):
    """Replicas that are lost, or whose brokers go for good, and who takes their places."""

    replace: tuple[ShortText, ...] = Field(
        min_length=1,
        max_length=REPLICAS_MAX,
        description="Brokers whose replicas are exchanged. They leave in the same change in which the new ones join.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    nodes: tuple[ShortText, ...] = Field(
        default=(),
        max_length=REPLICAS_MAX,
        description="All brokers that are to hold the stream; unset: the brokers choose.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    away: Duration = Field(
        default="60s",
        description="Only while the brokers have missed all of them for so long: a replica that is back is left alone. 0s: "
        "whether they are there or not.",
    )
    reason: ShortText = Field(default="", description="Why, for people.")


class MembersChange(ApiModel):
    """Replicas that join or leave by name, whatever the stream's count of replicas, which stays."""

    add: tuple[ShortText, ...] = Field(
        default=(),
        max_length=REPLICAS_MAX,
        description="Brokers that get a replica beyond the count.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    remove: tuple[ShortText, ...] = Field(
        default=(),
        max_length=REPLICAS_MAX,
        description="Brokers whose replicas go. As many as the count, and the minimum of usable ones, are left.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    reason: ShortText = Field(default="", description="Why, for people.")

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="(has(self.add) && size(self.add) > 0) != (has(self.remove) && size(self.remove) > 0)",
            message="spec.members must have either add or remove, and not both: one change at a time",
        ),
    )


class StreamMoveSpec(MovePolicy):
    """The stream to move, and its destination."""

    super_cluster: LabelName = Field(description="Name of the SuperCluster, in the same namespace.")
    stream_ref: ShortText | None = Field(
        default=None,
        description="Name of the Stream resource. Its own placement must allow the destination; to move it elsewhere, change "
        "spec.placement of the Stream, which makes a StreamMove for itself.",
    )
    stream: UndeclaredName | None = Field(
        default=None, description="Name on the brokers of a stream that no resource declares."
    )
    destination: Destination | None = Field(default=None, description="Where the stream is to go.")
    replicas: int | None = Field(
        default=None,
        ge=1,
        le=REPLICAS_MAX,
        description="Instead of a destination: how many replicas the stream is to have, inside its placement. For a declared "
        "stream, change spec.replicas of the Stream, which makes a StreamMove for itself.",
    )
    repair: Repair | None = Field(
        default=None,
        description="Instead of a destination: replicas that are lost, and who takes their places. The operator makes such a "
        "StreamMove by itself, as the ReplicaPolicy says.",
    )
    drains: tuple[ShortText, ...] | None = Field(
        default=None,
        max_length=REPLICAS_MAX,
        description="Brokers that go for good, whose copies the move takes away. The operator makes such a StreamMove by "
        "itself when brokers of a Cluster are to go.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    members: MembersChange | None = Field(
        default=None,
        description="Instead of a destination: replicas beyond the stream's count that are added, or taken away, by name.",
    )
    approved: bool = Field(default=False, description="With approval Manual: the move may start.")
    suspend: bool = Field(
        default=False, description="Do not start the move for the time being. One that runs goes on."
    )
    dry_run: bool = Field(default=False, description="Make the plan and leave it at that.")
    cancel: bool = Field(
        default=False,
        description="Call the move off. While it runs, up to the hand-over, the stream goes back to where it was.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        _fixed(),
        CelRule(
            rule="has(self.streamRef) != has(self.stream)",
            message="either spec.streamRef or spec.stream must be set, and not both",
        ),
        CelRule(
            rule="(has(self.destination) ? 1 : 0) + (has(self.replicas) ? 1 : 0) + (has(self.repair) ? 1 : 0) + "
            "(has(self.members) ? 1 : 0) == 1",
            message="either spec.destination or spec.replicas must be set (or spec.repair, or spec.members), and not both: a "
            "move and another count of replicas are never one step",
        ),
        CelRule(
            rule="!oldSelf.cancel || self.cancel",
            message="spec.cancel can't be taken back; create another StreamMove",
            field_path=".cancel",
        ),
    )


class HeadRoom(ApiModel):
    """Room on a broker's disk."""

    name: str = Field(description="The broker.")
    before_bytes: int = Field(default=0, description="Free now.")
    after_bytes: int = Field(default=0, description="Free when the move is done, if nothing else changes.")


class Quorum(ApiModel):
    """Replicas that decide together what is committed."""

    voters: int = Field(default=0, description="Replicas that vote.")
    majority: int = Field(default=0, description="How many of them must agree.")
    well: int = Field(default=0, description="How many of them are well.")


class MovePlan(ApiModel):
    """The effects of the move, planned without carrying it out."""

    planned_at: Time = Field(default="", description="When it was made.")
    origin: tuple[str, ...] = Field(default=(), description="Brokers that hold the stream now.")
    targets: tuple[NodeFinding, ...] = Field(
        default=(),
        max_length=FINDINGS_MAX,
        description="Brokers that are to hold it, and why they were chosen.",
    )
    rejected: tuple[NodeFinding, ...] = Field(
        default=(),
        max_length=FINDINGS_MAX,
        description="Brokers that were looked at, and why they were not chosen.",
    )
    bytes: int = Field(default=0, description="Bytes to copy, all new replicas together.")
    messages: int = Field(default=0, description="Messages to copy.")
    bytes_per_s: int = Field(
        default=0, description="Bytes per second that the move gets; 0 is without a limit."
    )
    estimated_seconds: int = Field(
        default=0, description="Time to copy at that rate, if nothing else slows it down."
    )
    quorum_before: Quorum = Field(default=Quorum(), description="The replicas now.")
    quorum_after: Quorum = Field(default=Quorum(), description="The replicas afterwards.")
    head_room: tuple[HeadRoom, ...] = Field(
        default=(), max_length=FINDINGS_MAX, description="Room on the disks of the brokers concerned."
    )
    disturbs: tuple[str, ...] = Field(
        default=(),
        max_length=16,
        description="Effects of the move on brokers, publishers and consumers, as sentences.",
    )
    refusal: str = Field(default="", description="Why the move can't be made; empty when it can.")


class MoveStage(StrEnum):
    """Where a move is, in the words and the order of the brokers (`broker/moves/plan.py`)."""

    PLANNED = "planned"
    LEARNING = "learning"
    TAIL = "tail"
    COMPARING = "comparing"
    JOINT = "joint"
    HANDING_OVER = "handing over"
    LEAVING = "leaving"
    CANCELLING = "cancelling"
    DONE = "done"
    UNKNOWN = "unknown"
    """One that this version does not know."""

    @classmethod
    def _missing_(cls, value: object) -> MoveStage:
        return cls.UNKNOWN


class MoveProgress(ApiModel):
    """How far the move is."""

    stage: MoveStage | None = Field(
        default=None, description="The current stage; absent while the stream's leader does not answer."
    )
    targets: tuple[str, ...] = Field(default=(), description="Brokers that are to hold the stream.")
    bytes_left: int = Field(default=0, description="Bytes that the new replicas lack.")
    lag_entries: int = Field(default=0, description="Log entries that the slowest new replica lacks.")
    eta_seconds: int | None = Field(
        default=None,
        description="Time left; absent while it can't be told, or at this rate there is no end of it.",
    )
    bytes_per_s: int | None = Field(
        default=None,
        description="Bytes per second that the new replicas may be sent together; 0 is no limit.",
    )
    trouble: str = Field(
        default="",
        description="The obstacle to the move's progress, and the remedy; empty without one.",
    )


class MemberAudit(ApiModel):
    """How one replica compared."""

    name: str = Field(description="The replica.")
    result: str = Field(default="", description="equal, or what differs.")


class MoveAudit(ApiModel):
    """The comparison of old and new replicas, made before the old ones were dropped."""

    ranges: int = Field(default=0, description="Ranges of 10,000 sequences that were hashed.")
    sequences: int = Field(default=0, description="Sequences in them, those of removed messages included.")
    messages: int = Field(
        default=0,
        description="Messages that the stream held when the replicas' states were compared, removed ones not counted.",
    )
    first_sequence: int = Field(default=0, description="First sequence compared.")
    last_sequence: int = Field(default=0, description="Last sequence compared.")
    digest: str = Field(default="", description="Hash over the hashes of all ranges.")
    members: tuple[MemberAudit, ...] = Field(
        default=(), max_length=64, description="The result of the comparison for each replica."
    )


class StageTime(ApiModel):
    """How long one stage of a move took."""

    stage: MoveStage = Field(description="The stage.")
    milliseconds: int = Field(default=0, description="For how long.")


class WindowStatus(ApiModel):
    """The maintenance window that counts now."""

    opens_at: Time | None = Field(default=None, description="When it opens, or opened.")
    closes_at: Time | None = Field(default=None, description="When it closes.")


class StreamMoveStatus(Status):
    """The observed state of a move."""

    phase: Phase | None = Field(default=None, description="How far the move is in its life.")
    stream_name: str | None = Field(default=None, description="Name of the stream on the brokers.")
    source: str | None = Field(default=None, description="Cluster that the stream came from.")
    destination: str | None = Field(
        default=None, description="Cluster, or tags, that it goes to; or its count of replicas."
    )
    ticket: int = Field(
        default=0, description="How often the move has queued: a place in the budget is given to one ticket."
    )
    plan: MovePlan | None = Field(default=None, description="The effects of the move.")
    approval_void: bool = Field(
        default=False,
        description="spec.approved is true for a plan that could not be carried out any more; the next one needs an approval "
        "of its own: set spec.approved to false and to true again.",
    )
    progress: MoveProgress | None = Field(default=None, description="How far it is.")
    percent: str | None = Field(default=None, description="Share of the planned bytes that is copied.")
    window: WindowStatus | None = Field(default=None, description="The maintenance window.")
    audit: MoveAudit | None = Field(default=None, description="The proof that nothing was lost.")
    bytes_copied: int | None = Field(default=None, description="Bytes that were copied.")
    stages: tuple[StageTime, ...] = Field(
        default=(), max_length=32, description="How long each stage took, in their order."
    )
    started_at: Time | None = Field(default=None, description="When it was started.")
    ended_at: Time | None = Field(default=None, description="When it ended.")
    message: str | None = Field(
        default=None, description="The reason for its wait, or how it ended, for people."
    )
    conditions: Conditions = ()


class StreamMove(Resource):
    """One move of one stream to other brokers, or to more or fewer of them, without losing a message."""

    spec: StreamMoveSpec
    status: StreamMoveStatus = StreamMoveStatus()

    @staticmethod
    def claimed_name(spec: Mapping[str, Any], name: str) -> str:
        named = spec.get("streamRef")
        return named if isinstance(named, str) else ""

    @property
    def destination_text(self) -> str:
        destination, replicas = self.spec.destination, self.spec.replicas
        if self.spec.repair is not None:
            return f"another broker for {', '.join(self.spec.repair.replace)}"
        if self.spec.members is not None and self.spec.members.add:
            return f"a replica more on {', '.join(self.spec.members.add)}"
        if self.spec.members is not None:
            return f"no replica on {', '.join(self.spec.members.remove)}"
        if destination is None:
            return f"{replicas} replica{'s' if replicas != 1 else ''}"
        tags = f"tags {', '.join(destination.tags)}" if destination.tags else ""
        return ", ".join(part for part in (destination.cluster or "", tags) if part)
