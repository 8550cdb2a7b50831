"""ReplicaPolicy: the number of usable replicas for a group of streams, and the replacement of lost ones
(MR-1, MR-4).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from supercluster.api.common import (
    ApiModel,
    CelRule,
    Conditions,
    Resource,
    Status,
    between,
    immutable,
)
from supercluster.api.names import LabelName
from supercluster.api.stream import REPLICAS_MAX
from supercluster.api.units import Duration, Size

WEIGHT_MAX = 1_000_000
# Streams that a status names; more of them are counted.
NAMED_MAX = 32
# Letters of stream names, with * for any number of them and ? for one.
NAME_GLOB_PATTERN = r"^[A-Za-z0-9_*?-]+$"
STRATEGY_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DEFAULT_STRATEGY = "spread-zones"

LabelKey = Annotated[str, StringConstraints(max_length=317)]
LabelText = Annotated[str, StringConstraints(max_length=63)]


AutoRemove = Literal["Never", "BeyondTarget"]


class RepairBudget(ApiModel):
    """The budget that all repairs share, within the one that spec.moves of the SuperCluster gives to all moves."""

    concurrent_max: int = Field(default=2, ge=1, le=64, description="Repairs at the same time.")
    concurrent_per_node_max: int = Field(
        default=1, ge=1, le=64, description="New replicas at the same time on one broker."
    )
    bytes_per_s: Size | None = Field(
        default=None,
        description="Bytes per second of all repairs together; each gets an equal share of it, by concurrentMax. Unset or 0 "
        "is the share of the super-cluster's budget.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="self.concurrentPerNodeMax <= self.concurrentMax",
            message="budget.concurrentPerNodeMax must not be more than budget.concurrentMax",
            field_path=".concurrentPerNodeMax",
        ),
    )


class RepairRules(ApiModel):
    """How many usable replicas there are to be, and how lost ones are replaced."""

    min_replicas: int | None = Field(
        default=None,
        ge=1,
        le=REPLICAS_MAX,
        description="Usable replicas below which a stream counts as short, at most its own count; repair keeps them up, and never "
        "fewer than one more than a majority where there are as many. A stream's own spec.minReplicas comes "
        "first, then a ReplicaPolicy's, then the SuperCluster's. Unset everywhere is the stream's count.",
    )
    failure_recovery_interval: Duration = Field(
        default="60s",
        description="How long a replica's broker is out of contact, or can do nothing with its copy, before the replica is "
        "replaced. One that comes back earlier is left alone.",
    )
    check_interval: Duration = Field(
        default="2s",
        description="How often each stream is checked. Every stream has a moment of its own in it, so that many that are hit "
        "at once are not repaired at once: so much later than failureRecoveryInterval a repair may begin.",
    )
    placement_strategy: Annotated[str, StringConstraints(pattern=STRATEGY_PATTERN, max_length=63)] = Field(
        default=DEFAULT_STRATEGY,
        description="Which broker takes a new replica: spread-zones, least-loaded, most-free-disk, or one that an installed "
        "package adds.",
    )
    auto_remove: AutoRemove = Field(
        default="Never",
        description="Removal of usable replicas beyond a stream's count, which people have added by name. Never: they are "
        "left alone, and lost ones among all of them are replaced, so that the stream keeps the size that people gave it. "
        "BeyondTarget: the worst placed go, lost ones first, until the count is reached.",
    )
    budget: RepairBudget = Field(default=RepairBudget(), description="The budget that all repairs share.")

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="duration(self.failureRecoveryInterval) >= duration('5s')",
            message="failureRecoveryInterval must be at least 5s: brokers note an absence after that time",
            field_path=".failureRecoveryInterval",
        ),
        CelRule(
            rule="duration(self.failureRecoveryInterval) <= duration('24h')",
            message="failureRecoveryInterval must be at most 24h: brokers forget who was away for longer",
            field_path=".failureRecoveryInterval",
        ),
        between("checkInterval", "1s", "24h"),
    )


class StreamSelector(ApiModel):
    """Which streams are meant: those that have all that is set."""

    match_labels: dict[LabelKey, LabelText] | None = Field(
        default=None,
        description="Labels of the Stream resource. A stream that no resource declares has none.",
    )
    name_pattern: (
        Annotated[str, StringConstraints(pattern=NAME_GLOB_PATTERN, min_length=1, max_length=128)] | None
    ) = Field(
        default=None,
        description="Names on the brokers, with * and ?. It means streams that no resource declares, too.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || has(self.namePattern)",
            message="spec.selector must have matchLabels, namePattern, or both",
        ),
    )


class ReplicaPolicySpec(RepairRules):
    """Which streams, and how their replicas are kept up."""

    super_cluster: LabelName = Field(description="Name of the SuperCluster, in the same namespace.")
    selector: StreamSelector = Field(description="Which streams it is for.")
    weight: int = Field(
        default=0,
        ge=0,
        le=WEIGHT_MAX,
        description="Of the policies that select a stream, the one with the highest weight counts, and of equal ones the "
        "oldest.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        *RepairRules.cel_rules,
        immutable("superCluster", "delete the resource and create it with the new value"),
    )


class ReplicaPolicyStatus(Status):
    """The observed state of a policy."""

    selected: int = Field(default=0, description="Declared streams that it selects.")
    in_force: int = Field(default=0, description="Those of them for which no other policy comes first.")
    below_minimum: int = Field(
        default=0,
        description="Streams with fewer usable replicas than they must have, of those in force and of those that no resource "
        "declares and namePattern means.",
    )
    repairing: int = Field(default=0, description="Repairs of its streams that are under way or wait.")
    conflicts: tuple[str, ...] = Field(
        default=(),
        max_length=NAMED_MAX,
        description="Policies of the same weight that select the same declared streams, or whose name patterns can mean the "
        "same name, of a stream that no resource declares; the oldest counts.",
    )
    conditions: Conditions = ()


class ReplicaPolicy(Resource):
    """How many usable replicas a group of streams keeps, and how lost ones are replaced."""

    spec: ReplicaPolicySpec
    status: ReplicaPolicyStatus = ReplicaPolicyStatus()
