"""Steps of a Migration: on blue's brokers, wherever they are, and on blue's Secret."""

from __future__ import annotations

import json
from base64 import b64encode

from supercluster.api import Migration
from supercluster.api.common import Resource
from supercluster.reconcilers.execute.destructive import made_by_us
from supercluster.reconcilers.execute.tools import StepHandlers, StepRefusedError, Tools
from supercluster.reconcilers.observe.migration_sides import migration_credentials, side_target
from supercluster.reconcilers.observe.views import secret_json
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import (
    AbortMigration,
    FinalizeMigration,
    ShareMigrationCredentials,
    StartMigration,
)
from supercluster.reconcilers.ports import BrokersUnreachableError, BrokerTarget, Json, mapping

FILE = "migration.json"


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
    tools: Tools, resource: Resource, step: ShareMigrationCredentials, _: BrokerTarget | str
) -> None:
    """Into blue's Secret, which its brokers read again. What else it has stays."""
    assert isinstance(resource, Migration)
    namespace, blue = resource.metadata.namespace, resource.spec.blue.super_cluster
    given = await migration_credentials(tools.cache, tools.kube, namespace, resource.spec.green)
    if isinstance(given, tuple):
        raise BrokersUnreachableError(given[1])
    name = naming.credentials_secret(blue or "")
    there = await tools.kube.get("v1", "Secret", namespace, name)
    if there is None or not made_by_us(there):
        raise StepRefusedError(
            f"Secret {name} of blue is not there, or was not made by the operator; give its brokers {FILE} yourself"
        )
    before = secret_json(there, FILE)
    content = {**before, "send": {**mapping(before.get("send")), step.identity: dict(given)}}
    patch: Json = {
        "metadata": {"resourceVersion": there["metadata"]["resourceVersion"]},
        "data": {FILE: b64encode((json.dumps(content, indent=1) + "\n").encode()).decode()},
    }
    tools.cache.wrote(await tools.kube.merge_patch("v1", "Secret", namespace, name, patch))


MIGRATION_STEPS: StepHandlers = {
    ShareMigrationCredentials: _share,
    StartMigration: _start,
    AbortMigration: _abort,
    FinalizeMigration: _finalize,
}
