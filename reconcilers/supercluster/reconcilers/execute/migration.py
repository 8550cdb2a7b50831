"""Steps of a Migration: calls to blue's brokers, wherever they run, and changes of blue's Secret."""

from __future__ import annotations

from base64 import b64encode

from supercluster.api import Migration
from supercluster.api.common import Resource
from supercluster.reconcilers.execute.checks import made_by_us
from supercluster.reconcilers.execute.tools import StepHandlers, StepRefusedError, Tools
from supercluster.reconcilers.observe.migration_secrets import Shared, shared_by
from supercluster.reconcilers.observe.migration_sides import side_target
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import (
    AbortMigration,
    FinalizeMigration,
    ShareMigrationCredentials,
    StartMigration,
)
from supercluster.reconcilers.ports import BrokersUnreachableError, BrokerTarget, Json


async def _blue(tools: Tools, resource: Resource) -> BrokerTarget:
    assert isinstance(resource, Migration)
    found = await side_target(tools.cache, tools.kube, resource.metadata.namespace, resource.spec.blue)
    if isinstance(found, tuple):
        raise BrokersUnreachableError(found[1])
    return found


async def _start(tools: Tools, resource: Resource, step: StartMigration, _: BrokerTarget | str) -> None:
    await tools.brokers.start_migration(await _blue(tools, resource), step.body)


async def _abort(tools: Tools, resource: Resource, step: AbortMigration, _: BrokerTarget | str) -> None:
    await tools.brokers.abort_migration(await _blue(tools, resource), step.id)


async def _finalize(tools: Tools, resource: Resource, step: FinalizeMigration, _: BrokerTarget | str) -> None:
    await tools.destroyer.finalize_migration(resource, step, await _blue(tools, resource))


async def _share(
    tools: Tools, resource: Resource, _: ShareMigrationCredentials, __: BrokerTarget | str
) -> None:
    """Into the Secrets of both sides, as far as they are of this namespace. Brokers read them again."""
    assert isinstance(resource, Migration)
    namespace, spec = resource.metadata.namespace, resource.spec
    wanted = await shared_by(tools.cache, tools.kube, namespace, spec)
    if isinstance(wanted, tuple):
        raise BrokersUnreachableError(wanted[1])
    for side in (spec.green, spec.blue):
        if side.super_cluster is not None:
            await _add(tools, namespace, side.super_cluster, wanted, sends=side is spec.blue)


async def _add(tools: Tools, namespace: str, super_cluster: str, wanted: Shared, *, sends: bool) -> None:
    name = naming.credentials_secret(super_cluster)
    there = await tools.kube.get("v1", "Secret", namespace, name)
    if there is None or not made_by_us(there):
        raise StepRefusedError(
            f"Secret {name} is not there, or was not made by the operator; give the brokers of {super_cluster} {naming.MIGRATION_FILE} yourself"
        )
    if wanted.is_in(there, sends=sends):
        tools.cache.wrote({"kind": "Secret", **there})
        return
    files = wanted.added_to(there, sends=sends)
    patch: Json = {
        "metadata": {"resourceVersion": there["metadata"]["resourceVersion"]},
        "data": {file: b64encode(text.encode()).decode() for file, text in files.items()},
    }
    tools.cache.wrote(await tools.kube.merge_patch("v1", "Secret", namespace, name, patch))


MIGRATION_STEPS: StepHandlers = {
    ShareMigrationCredentials: _share,
    StartMigration: _start,
    AbortMigration: _abort,
    FinalizeMigration: _finalize,
}
