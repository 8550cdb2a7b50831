"""Steps that all kinds of resources share: objects that the operator owns, and its own finalizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supercluster.api import API_VERSION
from supercluster.api.common import Resource
from supercluster.reconcilers.execute.checks import Check, is_ours, made_by_us
from supercluster.reconcilers.execute.destructive import MAY_SHRINK, is_drop
from supercluster.reconcilers.execute.tools import CONFLICT, StepHandler, StepHandlers, Tools, foreign
from supercluster.reconcilers.planners.plan import Apply, CreateObject, DeleteObject, Manifest, SetFinalizers
from supercluster.reconcilers.ports import BrokerTarget, Json, KubeError


async def _apply(tools: Tools, resource: Resource, step: Apply, target: BrokerTarget | str) -> None:
    manifest, metadata = step.manifest, step.manifest["metadata"]
    kind, namespace, name = manifest["kind"], metadata["namespace"], metadata["name"]
    there = None
    if kind in MAY_SHRINK or tools.cache.get(kind, namespace, name) is None:
        there = await tools.kube.get(manifest["apiVersion"], kind, namespace, name)
    if there is not None and not is_ours(there, manifest):
        raise foreign(manifest)
    if there is not None:
        manifest = await tools.destroyer.judge_apply(resource, manifest, there, target)
    tools.cache.put(await _applied(tools, manifest))


async def _applied(tools: Tools, manifest: Manifest) -> Json:
    metadata = manifest["metadata"]
    try:
        body = await tools.kube.apply(manifest)
        if metadata.get("ownerReferences") == [] and body["metadata"].get("ownerReferences"):
            # Somebody else wrote the owner, so applying leaves it.
            version = body["metadata"]["resourceVersion"]
            alone = {"metadata": {"resourceVersion": version, "ownerReferences": None}}
            return await _patched(tools, manifest, alone)
        return body
    except KubeError as error:
        known = tools.cache.get(manifest["kind"], metadata["namespace"], metadata["name"])
        if not error.is_invalid or known is None or "spec" not in manifest:
            raise
    # Lists are merged by keys such as a port's number. Where somebody changed such a key, applying leaves their member
    # beside ours, and the two may contradict each other; a merge patch puts the whole list back.
    patch = {"metadata": {"annotations": dict(metadata.get("annotations", {}))}, "spec": manifest["spec"]}
    return await _patched(tools, manifest, patch)


async def _patched(tools: Tools, manifest: Manifest, patch: Manifest) -> Json:
    metadata = manifest["metadata"]
    return await tools.kube.merge_patch(
        manifest["apiVersion"], manifest["kind"], metadata["namespace"], metadata["name"], patch
    )


async def _create(tools: Tools, resource: Resource, step: CreateObject, target: BrokerTarget | str) -> None:
    await tools.destroyer.judge_creation(resource, step, target)
    try:
        tools.cache.wrote(await tools.kube.create(step.manifest))
    except KubeError as error:
        metadata, kind = step.manifest["metadata"], step.manifest["kind"]
        if error.status != CONFLICT:
            raise
        there = await tools.kube.get(
            step.manifest["apiVersion"], kind, metadata["namespace"], metadata["name"]
        )
        if there is not None and not _is_what_we_would_make(step.manifest, there):
            raise foreign(step.manifest) from error
        if there is not None:
            tools.cache.wrote(there)
        raise


async def _delete(tools: Tools, resource: Resource, step: DeleteObject, target: BrokerTarget | str) -> None:
    await tools.destroyer.delete(resource, step, target)


def finalizers(*checks: Check) -> StepHandler:
    """Sets them. `checks`: what has to hold of a resource of the kind before its last one goes, besides what holds for all."""

    async def carry_out(
        tools: Tools, resource: Resource, step: SetFinalizers, target: BrokerTarget | str
    ) -> None:
        if is_drop(resource, step):
            await tools.destroyer.drop_finalizer(resource, step, target, *checks)
        await _set_finalizers(tools, resource, step)

    return carry_out


async def _set_finalizers(tools: Tools, resource: Resource, step: SetFinalizers) -> None:
    metadata = resource.metadata
    patch = {"metadata": {"finalizers": list(step.finalizers), "resourceVersion": step.resource_version}}
    try:
        body = await tools.kube.merge_patch(
            API_VERSION, type(resource).__name__, metadata.namespace, metadata.name, patch
        )
    except KubeError as error:
        if error.status == 404 and not step.finalizers:
            return
        raise
    if metadata.deletion_timestamp is not None and not step.finalizers:
        known = tools.cache.get(type(resource).__name__, metadata.namespace, metadata.name)
        if known is not None:
            tools.cache.remove(known)
        return
    tools.cache.wrote(body)


def _is_what_we_would_make(manifest: Manifest, there: Mapping[str, Any]) -> bool:
    """Another look, or an earlier process, has made it: it is ours, and for the same owner."""
    wanted, found = (
        {str(each["uid"]) for each in body["metadata"].get("ownerReferences") or ()}
        for body in (manifest, there)
    )
    return made_by_us(there) and wanted <= found


OBJECT_STEPS: StepHandlers = {
    Apply: _apply,
    CreateObject: _create,
    DeleteObject: _delete,
    SetFinalizers: finalizers(),
}
