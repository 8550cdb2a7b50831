"""The step that turns TLS between brokers on or off by one stage.

The links of the kind that it takes away may still be needed. So the resource, the brokers and their reports are read anew, and the rule
of the plan (`planners/tls_stages.py`) is applied to them once more.
"""

from __future__ import annotations

from supercluster.api import API_VERSION, SuperCluster
from supercluster.api.common import Resource
from supercluster.reconcilers.execute.destructive import HeldError
from supercluster.reconcilers.execute.tools import CONFLICT, StepHandlers, Tools
from supercluster.reconcilers.observe.tls_stages import look_now
from supercluster.reconcilers.planners.plan import SetTlsStage
from supercluster.reconcilers.planners.tls_stages import why_not
from supercluster.reconcilers.ports import BrokerTarget, KubeError


async def _set_stage(tools: Tools, resource: Resource, step: SetTlsStage, target: BrokerTarget | str) -> None:
    metadata = resource.metadata
    body = await tools.kube.get(API_VERSION, "SuperCluster", metadata.namespace, metadata.name)
    own = SuperCluster.model_validate(body) if body is not None else None
    status = own.status.tls if own is not None else None
    is_seen = (
        own is not None
        and (own.metadata.uid, own.metadata.generation) == (metadata.uid, metadata.generation)
        and status is not None
        and (status.stage, status.previous) == (step.stage, step.previous)
    )
    if own is None or status is None or not is_seen:
        raise KubeError(
            CONFLICT, "Stale", f"SuperCluster {metadata.name} was changed since the plan was made"
        )
    why = why_not(status, step, await look_now(tools.cache, tools.brokers, tools.kube, own, target))
    if why:
        raise HeldError(why)
    tls = {"stage": step.goal, "previous": step.stage, "issuer": step.issuer}
    patch = {
        "metadata": {"resourceVersion": own.metadata.resource_version},
        "status": {"tls": tls, "migration": step.migration},
    }
    tools.cache.wrote(
        await tools.kube.merge_patch(
            API_VERSION, "SuperCluster", metadata.namespace, metadata.name, patch, status=True
        )
    )


TLS_STEPS: StepHandlers = {SetTlsStage: _set_stage}
