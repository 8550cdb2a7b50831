"""The fields that resources about moves share: approval, start time, rate, and the number at a time."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from supercluster.api.common import ApiModel, CelRule
from supercluster.api.names import LabelName
from supercluster.api.units import Size

WINDOW_MINUTES_MAX = 1440
# Five fields of what a cron field is written with; the operator refuses what does not make sense and says why.
CRON_PATTERN = r"^[0-9A-Za-z*?,/-]+( +[0-9A-Za-z*?,/-]+){4}$"
# A name of the time zone database, such as Europe/Berlin or UTC.
TIME_ZONE_PATTERN = r"^[A-Za-z][A-Za-z0-9+_-]*(/[A-Za-z0-9+_-]+)*$"

Approval = Literal["Automatic", "Manual"]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=63)]


class MaintenanceWindow(ApiModel):
    """When a move may start; one that runs is not stopped at the window's end."""

    cron: Annotated[str, StringConstraints(pattern=CRON_PATTERN, max_length=100)] = Field(
        description="When the window opens: minute, hour, day of the month, month, day of the week."
    )
    duration_minutes: int = Field(
        default=60, ge=1, le=WINDOW_MINUTES_MAX, description="How long it stays open."
    )
    time_zone: Annotated[str, StringConstraints(pattern=TIME_ZONE_PATTERN, max_length=64)] = Field(
        default="UTC",
        description="Time zone of the schedule, such as Europe/Berlin. Times that a clock change skips open no window.",
    )


class Bandwidth(ApiModel):
    """How fast copies may be made."""

    bytes_per_s: Size | None = Field(
        default=None,
        description="Bytes per second that may be sent to the new replicas together; unset or 0 is the share of the "
        "super-cluster's budget, without a limit where it has none. The first message of any size goes at once, and the "
        "next ones wait until it is paid for: below some 20k a large one holds the move up for minutes.",
    )


class MovePolicy(ApiModel):
    """How a stream is moved when its placement changes."""

    approval: Approval = Field(
        default="Automatic",
        description="Automatic: the move starts by itself. Manual: it waits until spec.approved of the StreamMove is true.",
    )
    maintenance_window: MaintenanceWindow | None = Field(
        default=None, description="When it may start; unset is always."
    )
    bandwidth: Bandwidth = Field(default=Bandwidth(), description="How fast copies may be made.")


class MoveBudget(ApiModel):
    """The budget that all moves of a super-cluster share."""

    concurrent_max: int = Field(default=2, ge=1, le=64, description="Moves at the same time.")
    concurrent_per_node_max: int = Field(
        default=1, ge=1, le=64, description="Moves at the same time that a broker has a part in, old or new."
    )
    bytes_per_s: Size | None = Field(
        default=None,
        description="Bytes per second of all moves together; each gets an equal share of it, by concurrentMax. Unset or 0 "
        "is without a limit.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="self.concurrentPerNodeMax <= self.concurrentMax",
            message="moves.concurrentPerNodeMax must not be more than moves.concurrentMax",
            field_path=".concurrentPerNodeMax",
        ),
    )


class Destination(ApiModel):
    """Where a stream is to go."""

    cluster: LabelName | None = Field(default=None, description="Name of the Cluster.")
    tags: tuple[Tag, ...] = Field(
        default=(),
        max_length=16,
        description="Tags that the brokers must have.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="has(self.cluster) || (has(self.tags) && size(self.tags) > 0)",
            message="destination must name a cluster, tags, or both",
        ),
    )
