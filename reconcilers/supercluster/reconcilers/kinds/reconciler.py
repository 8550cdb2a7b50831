"""A kind of custom resource as the operator serves it. The record is all that the cache, wake-ups and rounds know of a kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from supercluster.api.common import Resource
from supercluster.api.crd import Kind, ResourceT
from supercluster.reconcilers.execute.tools import StepHandlers
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.lists import StreamLists
from supercluster.reconcilers.observe.refused_creates import RefusedCreates
from supercluster.reconcilers.observe.repairs import Hosts
from supercluster.reconcilers.observe.stream_figures import StreamFigures
from supercluster.reconcilers.observe.waiting_moves import WaitingMoves
from supercluster.reconcilers.planners.cluster.manifests import OperatorDefaults
from supercluster.reconcilers.planners.plan import Plan, SetAside
from supercluster.reconcilers.planners.status_changes import StatusFields
from supercluster.reconcilers.planners.strategies import Strategy
from supercluster.reconcilers.ports import Brokers, Key

ObservedT = TypeVar("ObservedT")


@dataclass(frozen=True, slots=True)
class Context:
    """What observers and planners of all kinds are handed."""

    cache: ObjectCache
    brokers: Brokers
    hosts: Hosts
    lists: StreamLists
    waiting: WaitingMoves
    refused: RefusedCreates
    figures: StreamFigures
    defaults: OperatorDefaults
    strategies: Mapping[str, Strategy]
    """By the names that spec.placementStrategy has."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of the steps of this round so far."""

    refusal: str | None = None
    """Why a step was refused for good."""
    refusal_code: int = 0
    failure: str | None = None
    """Why a step failed for now."""
    aside: tuple[SetAside, ...] = ()


def _wakes_no_other(cache: ObjectCache, key: Key, spec: Mapping[str, Any]) -> Iterable[Key]:
    return ()


def _nothing(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[Any, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler(Generic[ResourceT, ObservedT]):
    kind: Kind[ResourceT]
    observe: Callable[[Context, ResourceT, Attempt, datetime], Awaitable[ObservedT]]
    plan: Callable[[Context, ResourceT, ObservedT, datetime], Plan]
    reads: frozenset[type[Resource]] = frozenset()
    """Kinds of which a plan reads every resource of the super-cluster: a change of one wakes all of this kind."""
    wakes: Callable[[ObjectCache, Key, Mapping[str, Any]], Iterable[Key]] = _wakes_no_other
    """Single resources whose plans read this one, by its key and spec."""
    grants: Callable[[Mapping[str, Any]], frozenset[tuple[Key, Any]]] = field(default=lambda _: frozenset())
    """Single resources that wait for something in this one's status, with what they were given. A new grant wakes them."""
    matters: Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Any, ...]] = _nothing
    """The parts of metadata and status that some plan reads, besides those that all kinds share."""
    status: StatusFields = field(default_factory=StatusFields)
    """How soon changes of its status are written; all other fields are written at once."""
    steps: StepHandlers = field(default_factory=dict)
    """How steps are carried out that no other kind has."""
    child_label: str = ""
    """Objects with this label wake the resource that it names."""

    async def next_plan(self, context: Context, desired: ResourceT, attempt: Attempt, now: datetime) -> Plan:
        return self.plan(context, desired, await self.observe(context, desired, attempt, now), now)
