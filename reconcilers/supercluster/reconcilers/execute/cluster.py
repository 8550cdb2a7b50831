"""Steps of a Cluster: volume claims, and brokers that restart, leave or stay."""

from __future__ import annotations

from supercluster.api.common import Resource
from supercluster.reconcilers.execute.checks import no_broker_is_left, no_migration_needs_it
from supercluster.reconcilers.execute.objects import finalizers
from supercluster.reconcilers.execute.tools import StepHandlers, Tools, with_brokers
from supercluster.reconcilers.planners.plan import (
    IDENTITY_ANNOTATION,
    ExpandClaim,
    HandOverLeaderships,
    LeaveBrokers,
    MarkClaim,
    SetFinalizers,
    StayBrokers,
)
from supercluster.reconcilers.ports import BrokerTarget, mapping

CLAIM = "PersistentVolumeClaim"


async def _expand_claim(tools: Tools, _: Resource, step: ExpandClaim, __: BrokerTarget | str) -> None:
    patch = {"spec": {"resources": {"requests": {"storage": step.size}}}}
    tools.cache.put(await tools.kube.merge_patch("v1", CLAIM, step.namespace, step.name, patch))


async def _mark_claim(tools: Tools, _: Resource, step: MarkClaim, __: BrokerTarget | str) -> None:
    there = await tools.kube.get("v1", CLAIM, step.namespace, step.name)
    if there is None or mapping(there.get("metadata")).get("uid") != step.uid:
        return
    annotations = mapping(there["metadata"].get("annotations"))
    if annotations.get(IDENTITY_ANNOTATION):
        tools.cache.put(there)
        return
    version = there["metadata"]["resourceVersion"]
    patch = {
        "metadata": {
            "resourceVersion": version,
            "annotations": {IDENTITY_ANNOTATION: step.identity},
        }
    }
    tools.cache.put(await tools.kube.merge_patch("v1", CLAIM, step.namespace, step.name, patch))


async def _hand_over(tools: Tools, _: Resource, step: HandOverLeaderships, target: BrokerTarget) -> None:
    await tools.brokers.hand_over(target, step.broker, step.avoid, step.hold_ms)


async def _leave(tools: Tools, resource: Resource, step: LeaveBrokers, target: BrokerTarget) -> None:
    await tools.destroyer.leave(resource, step, target)


async def _stay(tools: Tools, _: Resource, step: StayBrokers, target: BrokerTarget) -> None:
    for broker in step.brokers:
        await tools.brokers.stay_broker(target, broker)


CLUSTER_STEPS: StepHandlers = {
    SetFinalizers: finalizers(no_broker_is_left, no_migration_needs_it),
    ExpandClaim: _expand_claim,
    MarkClaim: _mark_claim,
    HandOverLeaderships: with_brokers(_hand_over),
    LeaveBrokers: with_brokers(_leave),
    StayBrokers: with_brokers(_stay),
}
