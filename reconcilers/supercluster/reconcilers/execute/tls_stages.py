"""The steps that turn TLS on or off by one stage, between brokers, for clients and for monitoring.

The connections of the kind that it takes away may still be needed. So the resource, the brokers and their reports are read anew, and the rule
of the plan (`planners/tls_stages.py`, `planners/tls_ports.py`) is applied to them once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supercluster.api import API_VERSION, SuperCluster
from supercluster.api.common import Resource
from supercluster.api.super_cluster import TlsStatus
from supercluster.reconcilers.execute.destructive import HeldError
from supercluster.reconcilers.execute.tools import CONFLICT, StepHandlers, Tools
from supercluster.reconcilers.observe.tls_stages import look_now
from supercluster.reconcilers.planners import tls_ports
from supercluster.reconcilers.planners.plan import SetPortTls, SetTlsStage
from supercluster.reconcilers.planners.tls_stages import why_not
from supercluster.reconcilers.ports import BrokerTarget, KubeError


async def _set_stage(tools: Tools, resource: Resource, step: SetTlsStage, target: BrokerTarget | str) -> None:
    own, status = await _read(tools, resource)
    if (status.stage, status.previous) != (step.stage, step.previous):
        raise _stale(resource)
    why = why_not(status, step, await look_now(tools.cache, tools.brokers, tools.kube, own, target))
    if why:
        raise HeldError(why)
    tls = {"stage": step.goal, "previous": step.stage, "issuer": step.issuer}
    await _write(tools, own, {"tls": tls, "migration": step.migration})


async def _set_port(tools: Tools, resource: Resource, step: SetPortTls, target: BrokerTarget | str) -> None:
    own, status = await _read(tools, resource)
    port = tls_ports.status_of(own, step.port)
    # That all brokers report the stage may have been written since.
    if port.stage != step.stage or port.previous not in (step.previous, step.stage):
        raise _stale(resource)
    view = await look_now(tools.cache, tools.brokers, tools.kube, own, target)
    why = tls_ports.why_not(port, step.port, step.goal, status, view.of_port(step.port))
    if why:
        raise HeldError(why)
    await _write(tools, own, {"tls": {step.port: {"stage": step.goal, "previous": step.stage}}})


async def _read(tools: Tools, resource: Resource) -> tuple[SuperCluster, TlsStatus]:
    metadata = resource.metadata
    body = await tools.kube.get(API_VERSION, "SuperCluster", metadata.namespace, metadata.name)
    own = SuperCluster.model_validate(body) if body is not None else None
    is_seen = own is not None and (own.metadata.uid, own.metadata.generation) == (
        metadata.uid,
        metadata.generation,
    )
    if own is None or own.status.tls is None or not is_seen:
        raise _stale(resource)
    return own, own.status.tls


def _stale(resource: Resource) -> KubeError:
    return KubeError(
        CONFLICT, "Stale", f"SuperCluster {resource.metadata.name} was changed since the plan was made"
    )


async def _write(tools: Tools, own: SuperCluster, status: Mapping[str, Any]) -> None:
    metadata = own.metadata
    patch = {"metadata": {"resourceVersion": metadata.resource_version}, "status": status}
    tools.cache.wrote(
        await tools.kube.merge_patch(
            API_VERSION, "SuperCluster", metadata.namespace, metadata.name, patch, status=True
        )
    )


TLS_STEPS: StepHandlers = {SetTlsStage: _set_stage, SetPortTls: _set_port}
