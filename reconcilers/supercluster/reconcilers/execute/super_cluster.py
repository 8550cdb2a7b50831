"""Steps of a SuperCluster besides those on Secrets: accounts, cordons, recovery of the map of streams."""

from __future__ import annotations

from supercluster.api.common import Resource
from supercluster.reconcilers.execute.checks import no_cluster_is_left, no_migration_needs_it
from supercluster.reconcilers.execute.objects import finalizers
from supercluster.reconcilers.execute.secrets import SECRET_STEPS
from supercluster.reconcilers.execute.tools import StepHandlers, Tools, with_brokers
from supercluster.reconcilers.observe.targets import each_broker
from supercluster.reconcilers.planners.plan import CordonBroker, ForceMapRecovery, SetAccount, SetFinalizers
from supercluster.reconcilers.ports import BrokersUnreachableError, BrokerTarget, Json


async def _set_account(tools: Tools, _: Resource, step: SetAccount, target: BrokerTarget) -> None:
    await tools.brokers.set_account(target, step.name, step.record)


async def _cordon(tools: Tools, _: Resource, step: CordonBroker, target: BrokerTarget) -> None:
    record = {"reason": step.reason, "declaredBy": step.declared_by} if step.reason else None
    await tools.brokers.cordon_broker(target, step.broker, record)


async def _recover_map(
    tools: Tools, resource: Resource, step: ForceMapRecovery, _: BrokerTarget | str
) -> None:
    metadata = resource.metadata
    targets = each_broker(tools.cache, metadata.namespace, metadata.name)
    if isinstance(targets, str):
        raise BrokersUnreachableError(targets)
    if step.node not in targets:
        raise BrokersUnreachableError(f"broker {step.node} has no pod with an address")
    body: Json = {"node": step.node, "acceptLastIndex": step.accepted_index, "id": step.id}
    if step.accepts_doubt:
        body["acceptDoubtful"] = True
    await tools.brokers.recover_map(targets[step.node], body)


SUPER_CLUSTER_STEPS: StepHandlers = {
    **SECRET_STEPS,
    SetFinalizers: finalizers(no_cluster_is_left, no_migration_needs_it),
    SetAccount: with_brokers(_set_account),
    CordonBroker: with_brokers(_cordon),
    ForceMapRecovery: _recover_map,
}
