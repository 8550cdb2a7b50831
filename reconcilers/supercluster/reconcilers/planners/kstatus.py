"""The conditions Reconciling and Stalled, for Argo CD, Flux and other tools that use kstatus. They follow
from the other conditions.

Stalled: the resource needs an administrator's action. Reconciling: it proceeds by itself. A StreamMove that
waits for approval or for its time is neither: that is its declared state. Both refer to the generation that
the round has observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from supercluster.api.conditions import ConditionType, Reason
from supercluster.reconcilers.planners.plan import Manifest
from supercluster.reconcilers.planners.status import Conditions, conditions_of

# Others may come a moment later: manifests are applied in any order, and brokers begin by and by.
_PASSING = frozenset(
    {
        *(Reason.SUPER_CLUSTER_NOT_FOUND, Reason.CLUSTER_NOT_FOUND, Reason.STREAM_NOT_FOUND),
        *(Reason.NO_SUITABLE_BROKERS, Reason.PLACEMENT_UNMATCHED, Reason.TOO_MANY_REPLICAS),
        *(Reason.FOUNDER_MISSING, Reason.NOT_PROVEN_SAFE),
        *(Reason.CREDENTIALS_NOT_FOUND, Reason.PROGRAM_NOT_FOUND),
    }
)
# Why Synced is False until a person does something.
_FOR_A_PERSON = frozenset(
    {
        *(Reason.ROLLOUT_STOPPED, Reason.SETTINGS_REFUSED, Reason.CREDENTIALS_UNREADABLE),
        *(Reason.MOVE_ENDED, Reason.SCALE_DOWN_REFUSED, Reason.NOT_ACCEPTED),
    }
)
# Of a StreamPipeline.
_PROGRAM_STOPPED = frozenset(
    {
        *(Reason.DRIVER_GAVE_UP, Reason.PROGRAM_REFUSED, Reason.FINDINGS_REPORTED),
        *(Reason.QUERY_STALLED, Reason.DRIVER_NODE_LOST),
    }
)
# Of a StreamMove.
_MOVE_FAILED = frozenset({Reason.FAILED, Reason.REFUSED, Reason.BELOW_INGEST_RATE, Reason.MOVE_STALLED})
_MOVE_AT_REST = frozenset(
    {
        *(Reason.AWAITING_APPROVAL, Reason.AWAITING_WINDOW, Reason.SUSPENDED, Reason.DRY_RUN),
        *(Reason.MOVED, Reason.NOTHING_TO_MOVE, Reason.CANCELLED),
    }
)
# Of a Migration, before its start.
_PREFLIGHT_REFUSED = frozenset(
    {
        *(Reason.PREFLIGHT_REFUSED, Reason.SAME_SUPER_CLUSTER, Reason.OTHER_VERSION, Reason.CLOCKS_APART),
        *(Reason.MIGRATION_OVERLAPS,),
    }
)
# It waits for a person, or was called off, as it was declared.
_AT_REST = frozenset(
    {Reason.SUSPENDED, Reason.AWAITING_APPROVAL, Reason.AWAITING_FINALIZE, Reason.CALLED_OFF}
)
_Finding = tuple[str, str]
"""Reason and message of another condition. The reason may be one of another version."""


def with_kstatus(body: Mapping[str, Any], patch: Manifest | None, now: datetime) -> Manifest | None:
    """The patch of a status with both conditions as they follow from the others. Conditions that are
    not ours, or that this version can't read, stay as they are."""
    metadata, stored = body["metadata"], (body.get("status") or {}).get("conditions") or ()
    entries = (patch or {}).get("conditions", stored)
    if not entries:
        return patch
    there = {str(entry.get("type")): entry for entry in entries}
    stalled = _stalled(there)
    reconciling = _reconciling(there, is_deleted=bool(metadata.get("deletionTimestamp")))
    if stalled is not None and not metadata.get("deletionTimestamp"):
        reconciling = None
    conditions = Conditions(conditions_of(entries), int(metadata.get("generation", 1)), now)
    for type_, found in ((ConditionType.RECONCILING, reconciling), (ConditionType.STALLED, stalled)):
        if found is None:
            conditions.put(type_, False, Reason.NO_ISSUES)
        else:
            conditions.repeat(type_, *found)
    ours = conditions.result()
    known = {condition.type for condition in ours}
    # Another version of the operator wrote the others, or somebody else.
    others = [entry for entry in stored if entry.get("type") not in known]
    after = [*(condition.to_object() for condition in ours), *others]
    if after == list(stored):
        return {key: value for key, value in (patch or {}).items() if key != "conditions"} or None
    return {**(patch or {}), "conditions": after}


def _stalled(there: Mapping[str, Mapping[str, Any]]) -> _Finding | None:
    for type_ in (ConditionType.BLOCKED, ConditionType.ACCEPTED):
        entry = there.get(type_, {})
        bad = "True" if type_ == ConditionType.BLOCKED else "False"
        if entry.get("status") == bad and entry.get("reason") not in _PASSING:
            return _finding(entry)
    if _is_passing(there):
        return None
    for type_, reasons in (
        (ConditionType.SYNCED, _FOR_A_PERSON),
        (ConditionType.READY, _PREFLIGHT_REFUSED),
        (ConditionType.COMPLETE, _MOVE_FAILED),
        (ConditionType.READY, _PROGRAM_STOPPED),
    ):
        entry = there.get(type_, {})
        if entry.get("status") == "False" and entry.get("reason") in reasons:
            return _finding(entry)
    return None


def _is_passing(there: Mapping[str, Mapping[str, Any]]) -> bool:
    """Is it refused for a reason that may go by itself?"""
    entry = there.get(ConditionType.ACCEPTED, {})
    return entry.get("status") == "False" and entry.get("reason") in _PASSING


def _reconciling(there: Mapping[str, Mapping[str, Any]], *, is_deleted: bool) -> _Finding | None:
    complete = there.get(ConditionType.COMPLETE)
    if complete is not None:
        is_under_way = complete.get("status") != "True" and complete.get("reason") not in _MOVE_AT_REST
        return _finding(complete) if is_under_way or is_deleted else None
    # A Migration goes on until blue is cleaned up; others serve what they are for when they are ready.
    last = (ConditionType.WHOLE,) if ConditionType.PREFLIGHT_PASSED in there else ()
    for type_ in (ConditionType.ACCEPTED, ConditionType.SYNCED, ConditionType.READY, *last):
        entry = there.get(type_)
        if entry is not None and entry.get("status") != "True" and entry.get("reason") not in _AT_REST:
            return _finding(entry)
    return (Reason.DELETING, "it is being deleted") if is_deleted else None


def _finding(entry: Mapping[str, Any]) -> _Finding:
    return str(entry["reason"]), str(entry.get("message") or "")
