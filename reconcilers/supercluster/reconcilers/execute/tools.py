"""The tools for executing steps. Each kind of resource gives the executor a handler for every type of step of
its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from supercluster.api.common import Resource
from supercluster.reconcilers.execute.destructive import Destroyer
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.planners.plan import MANAGED_BY, Manifest
from supercluster.reconcilers.ports import Brokers, BrokersUnreachableError, BrokerTarget, Kube

CONFLICT = 409


class StepRefusedError(Exception):
    """The step can't succeed as things are; the words are for the resource's condition."""


class HandedOverError(StepRefusedError):
    """The stream goes to another super-cluster, or is there: nothing is done to it here."""


@dataclass(slots=True)
class Tools:
    kube: Kube
    brokers: Brokers
    cache: ObjectCache
    password: Callable[[], str]
    now: Callable[[], datetime] = field(kw_only=True)
    """By which certificates are made."""

    @property
    def destroyer(self) -> Destroyer:
        return Destroyer(self.kube, self.brokers, self.cache)


StepHandler = Callable[[Tools, Resource, Any, BrokerTarget | str], Awaitable[None]]
StepHandlers = Mapping[type[Any], StepHandler]
"""By type of step."""


def with_brokers(
    handler: Callable[[Tools, Resource, Any, BrokerTarget], Awaitable[None]],
) -> StepHandler:
    """For a step that is carried out on brokers: there have to be some."""

    async def carry_out(tools: Tools, resource: Resource, step: Any, target: BrokerTarget | str) -> None:
        if isinstance(target, str):
            raise BrokersUnreachableError(target)
        await handler(tools, resource, step, target)

    return carry_out


def foreign(manifest: Manifest) -> StepRefusedError:
    metadata = manifest["metadata"]
    return StepRefusedError(
        f"{manifest['kind']} {metadata['name']} exists in namespace {metadata['namespace']} and was not made by {MANAGED_BY} for "
        "this resource; rename one of the two"
    )
