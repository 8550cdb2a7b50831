"""A stream that a Migration hands to another super-cluster, or has handed: the operator leaves it alone, and
its resource reports that.

It is neither recreated, changed, moved, repaired nor deleted: the change would affect green's stream, or
create a second one beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from supercluster.api.conditions import ConditionType, Reason
from supercluster.reconcilers.planners.status import Conditions


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What the brokers say of such a stream."""

    green: str
    """The super-cluster that it goes to."""
    is_open: bool
    """Green serves it. Otherwise it is on its way, and may come back."""

    @property
    def text(self) -> str:
        if self.is_open:
            return f"super-cluster {self.green} serves the stream since a Migration handed it over; here it is left alone"
        return f"a Migration is handing the stream to super-cluster {self.green}; here it is left alone meanwhile"


def describe(handed: HandedOver, conditions: Conditions) -> None:
    conditions.put(ConditionType.ACCEPTED, True, Reason.AS_DECLARED)
    reason = Reason.STREAM_HANDED if handed.is_open else Reason.MIGRATING
    conditions.put(ConditionType.HANDED, handed.is_open, reason, handed.text)
    for type_ in (ConditionType.SYNCED, ConditionType.READY):
        conditions.put(type_, True if handed.is_open else None, reason, handed.text)
    if handed.is_open:
        conditions.put(ConditionType.WHOLE, True, reason, handed.text)


def describe_return(conditions: Conditions) -> None:
    """It is here again, or never went: of the latter nothing is said."""
    if conditions.reason_of(ConditionType.HANDED):
        conditions.put(ConditionType.HANDED, False, Reason.NO_ISSUES, "the stream is served here")
