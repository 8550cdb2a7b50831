"""A kind of custom resource as the operator serves it. The cache, wake-ups and rounds know a kind only by
this record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from supercluster.api.common import Resource
from supercluster.api.crd import Kind, ResourceT
from supercluster.reconcilers.execute.tools import StepHandlers
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.context import Attempt, Context
from supercluster.reconcilers.planners.plan import Plan
from supercluster.reconcilers.planners.status_changes import StatusFields
from supercluster.reconcilers.ports import Key

ObservedT = TypeVar("ObservedT")


def _nothing(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[Any, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler(Generic[ResourceT, ObservedT]):
    kind: Kind[ResourceT]
    observe: Callable[[Context, ResourceT, Attempt, datetime], Awaitable[ObservedT]]
    plan: Callable[[Context, ResourceT, ObservedT, datetime], Plan]
    reads: frozenset[type[Resource]] = frozenset()
    """Kinds of which a plan reads every resource of the super-cluster: a change of one wakes all of this kind."""
    wakes: Callable[[ObjectCache, Key, Mapping[str, Any]], Iterable[Key]] = field(
        default=lambda cache, key, spec: ()
    )
    """Single resources whose plans read this one, by its key and spec."""
    grants: Callable[[Mapping[str, Any]], frozenset[tuple[Key, Any]]] = field(default=lambda _: frozenset())
    """Single resources that wait for something in this one's status, with what they were given. A new grant wakes them."""
    matters: Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Any, ...]] = _nothing
    """The parts of metadata and status that some plan reads, besides those that all kinds share."""
    status: StatusFields = field(default_factory=StatusFields)
    """How soon changes of its status are written; all other fields are written at once."""
    steps: StepHandlers = field(default_factory=dict)
    """How steps are carried out that no other kind has."""

    async def next_plan(self, context: Context, desired: ResourceT, attempt: Attempt, now: datetime) -> Plan:
        return self.plan(context, desired, await self.observe(context, desired, attempt, now), now)
