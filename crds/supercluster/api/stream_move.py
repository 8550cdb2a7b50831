"""StreamMove: one move of one stream, planned before it starts, watched while it runs, proven afterwards (MV-13)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from supercluster.api.common import ApiModel, CelRule, Conditions, LabelName, ObjectMeta, ShortText
from supercluster.api.moves import Destination, MovePolicy
from supercluster.api.stream import STREAM_NAME_PATTERN, NodeFinding

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
_FIXED = ("superCluster", "destination", "bandwidth", "dryRun")
_FIXED_OPTIONAL = ("streamRef", "stream", "maintenanceWindow")


def _fixed() -> CelRule:
    """Everything but approval, approved, suspend and cancel stays as it was created."""
    same = [f"self.{name} == oldSelf.{name}" for name in _FIXED]
    same += [
        f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
        for name in _FIXED_OPTIONAL
    ]
    return CelRule(
        rule=" && ".join(f"({part})" for part in same),
        message="only spec.approval, spec.approved, spec.suspend and spec.cancel of a StreamMove can be changed; delete it "
        "and create another",
    )


class StreamMoveSpec(MovePolicy):
    """What is to be moved, and where to."""

    super_cluster: LabelName = Field(description="Name of the SuperCluster, in the same namespace.")
    stream_ref: ShortText | None = Field(
        default=None,
        description="Name of the Stream resource. Its own placement must allow the destination; to move it elsewhere, change "
        "spec.placement of the Stream, which makes a StreamMove for itself.",
    )
    stream: (
        Annotated[str, StringConstraints(pattern=STREAM_NAME_PATTERN, min_length=1, max_length=128)] | None
    ) = Field(default=None, description="Name on the brokers of a stream that no resource declares.")
    destination: Destination = Field(description="Where the stream is to go.")
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
    """What the move would do, found out without doing it."""

    planned_at: str = Field(
        default="", description="When it was made.", json_schema_extra={"format": "date-time"}
    )
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
        default=(), max_length=16, description="Whom and what the move would be felt by, as sentences."
    )
    refusal: str = Field(default="", description="Why the move can't be made; empty when it can.")


class MoveProgress(ApiModel):
    """How far the move is."""

    stage: str = Field(default="", description="What is being done.")
    targets: tuple[str, ...] = Field(default=(), description="Brokers that are to hold the stream.")
    bytes_left: int = Field(default=0, description="Bytes that the new replicas lack.")
    lag_entries: int = Field(default=0, description="Log entries that the slowest new replica lacks.")
    eta_seconds: int | None = Field(default=None, description="Time left, as far as can be told.")


class MemberAudit(ApiModel):
    """How one replica compared."""

    name: str = Field(description="The replica.")
    result: str = Field(default="", description="equal, or what differs.")


class MoveAudit(ApiModel):
    """The comparison of old and new replicas, made before the old ones were dropped."""

    ranges: int = Field(default=0, description="Ranges of 10,000 sequences that were hashed.")
    messages: int = Field(default=0, description="Messages in them.")
    first_sequence: int = Field(default=0, description="First sequence compared.")
    last_sequence: int = Field(default=0, description="Last sequence compared.")
    digest: str = Field(default="", description="Hash over the hashes of all ranges.")
    members: tuple[MemberAudit, ...] = Field(
        default=(), max_length=64, description="How each replica compared."
    )


class WindowStatus(ApiModel):
    """The maintenance window that counts now."""

    opens_at: str | None = Field(
        default=None, description="When it opens, or opened.", json_schema_extra={"format": "date-time"}
    )
    closes_at: str | None = Field(
        default=None, description="When it closes.", json_schema_extra={"format": "date-time"}
    )


class StreamMoveStatus(ApiModel):
    """What was observed of a move."""

    observed_generation: int = Field(
        default=0, description="The generation of the spec that the status is about."
    )
    phase: Phase | None = Field(default=None, description="How far the move is in its life.")
    stream_name: str | None = Field(default=None, description="Name of the stream on the brokers.")
    source: str | None = Field(default=None, description="Cluster that the stream came from.")
    destination: str | None = Field(default=None, description="Cluster, or tags, that it goes to.")
    ticket: int = Field(
        default=0, description="How often the move has queued: a place in the budget is given to one ticket."
    )
    plan: MovePlan | None = Field(default=None, description="What the move would do.")
    progress: MoveProgress | None = Field(default=None, description="How far it is.")
    percent: str | None = Field(default=None, description="Share of the planned bytes that is copied.")
    window: WindowStatus | None = Field(default=None, description="The maintenance window.")
    audit: MoveAudit | None = Field(default=None, description="The proof that nothing was lost.")
    bytes_copied: int | None = Field(default=None, description="Bytes that were copied.")
    started_at: str | None = Field(
        default=None, description="When it was started.", json_schema_extra={"format": "date-time"}
    )
    ended_at: str | None = Field(
        default=None, description="When it ended.", json_schema_extra={"format": "date-time"}
    )
    message: str | None = Field(default=None, description="What it waits for, or how it ended, for people.")
    conditions: Conditions = ()


class StreamMove(ApiModel):
    """One move of one stream to other brokers, without losing a message."""

    metadata: ObjectMeta
    spec: StreamMoveSpec
    status: StreamMoveStatus = StreamMoveStatus()

    @property
    def destination_text(self) -> str:
        destination = self.spec.destination
        tags = f"tags {', '.join(destination.tags)}" if destination.tags else ""
        return ", ".join(part for part in (destination.cluster or "", tags) if part)
