"""Deletion of an object: preconditions, finalizers by propagation policy, grace period, and the final
removal.
"""

from __future__ import annotations

import datetime as dt

from supercluster.localplane.apiserver import errors
from supercluster.localplane.apiserver.objects.writes import DeleteOptions
from supercluster.localplane.apiserver.storage.registry import NAMESPACES, PODS, Resource
from supercluster.localplane.apiserver.storage.store import clone
from supercluster.localplane.json_data import Json
from supercluster.localplane.times import stamp

DEFAULT_POD_GRACE_SECONDS = 30
PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


def check(resource: Resource, old: Json, options: DeleteOptions) -> None:
    """Refuse what may not be deleted, and what is not what the client means."""
    metadata = old["metadata"]
    name = metadata["name"]
    if resource.storage == NAMESPACES and name in PROTECTED_NAMESPACES:
        raise errors.forbidden("", "namespaces", name, "this namespace may not be deleted")
    for wanted, key in ((options.uid, "uid"), (options.resource_version, "resourceVersion")):
        if wanted and wanted != metadata[key]:
            raise errors.conflict(
                resource.group,
                resource.kind,
                name,
                f"Precondition failed: the {key} in the precondition ({wanted}) does not match the {key} in record ({metadata[key]})."
                " The object might have been deleted and then recreated",
            )


def marked(resource: Resource, old: Json, options: DeleteOptions, now: dt.datetime) -> Json:
    """The object with its end written down; a second deletion can only shorten its grace."""
    metadata: Json = clone(old["metadata"])
    finalizers = _finalizers(metadata.get("finalizers") or [], options.propagation)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    grace = _grace_seconds(resource, old, options)
    known = metadata.get("deletionGracePeriodSeconds")
    if metadata.get("deletionTimestamp") is None:
        metadata["deletionTimestamp"] = stamp(now + dt.timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if resource.has_generation:
            metadata["generation"] = metadata.get("generation", 0) + 1
    elif known is None or grace < known:
        metadata["deletionGracePeriodSeconds"] = grace
    if resource.storage == NAMESPACES:
        return {**old, "metadata": metadata, "status": {**(old.get("status") or {}), "phase": "Terminating"}}
    return {**old, "metadata": metadata}


def _finalizers(present: list[str], propagation: str | None) -> list[str]:
    """The finalizers for a way of deletion; without one, those that are there decide."""
    if propagation is None:
        return list(present)
    kept = [item for item in present if item not in (FOREGROUND, ORPHAN)]
    added = {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(propagation, [])
    return kept + added


def _grace_seconds(resource: Resource, obj: Json, options: DeleteOptions) -> int:
    """How long a pod that was given to a node may take; everything else ends at once."""
    spec = obj.get("spec") or {}
    ended = (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    if resource.storage != PODS or not spec.get("nodeName") or ended:
        return 0
    if options.grace_seconds is not None:
        return max(0, options.grace_seconds)
    return int(spec.get("terminationGracePeriodSeconds", DEFAULT_POD_GRACE_SECONDS))


def is_over(resource: Resource, obj: Json) -> bool:
    """Whether nothing holds a deleted object any more."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if resource.storage == NAMESPACES and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")
