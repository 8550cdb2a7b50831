"""Executes a step against Kubernetes or the brokers, within the time left on the Lease."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

from supercluster.api.common import Resource
from supercluster.reconcilers.execute.objects import OBJECT_STEPS
from supercluster.reconcilers.execute.tools import StepHandlers, Tools
from supercluster.reconcilers.planners.plan import Step
from supercluster.reconcilers.ports import BrokersUnreachableError, BrokerTarget


@dataclass(slots=True)
class Executor:
    tools: Tools
    time_left_s: Callable[[], float] = lambda: math.inf
    """How long this process may still change anything, brokers included (the Lease)."""

    async def run(
        self, resource: Resource, step: Step, target: BrokerTarget | str, of_kind: StepHandlers
    ) -> None:
        """Carry out one step for a resource. `of_kind`: the handlers that its kind has besides, or in place of, those of every kind.

        Raises:
            KubeError, BrokersUnreachableError, BrokersRefusedError: it was not carried out.
            StepRefusedError: it was not, and trying again is no use until something changes.
            HeldError: it was not, since it would destroy something that may be needed.
        """
        handler = of_kind.get(type(step)) or OBJECT_STEPS.get(type(step))
        if handler is None:
            raise TypeError(f"no record has {type(step).__name__} for a {type(resource).__name__}: {step}")
        left_s = self.time_left_s()
        if left_s <= 0:
            raise BrokersUnreachableError(f"{step}: not begun, since the lease was not renewed in time")
        try:
            async with asyncio.timeout(left_s if left_s < math.inf else None) as limit:
                await handler(self.tools, resource, step, target)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise BrokersUnreachableError(
                f"{step}: cut off, since the lease was not renewed in time"
            ) from error
