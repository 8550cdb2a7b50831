"""Converts between a Stream's spec and NATS's stream configuration (docs/streams.md).

Only fields that the spec declares are compared and set. Other fields of the configuration, and metadata of
others, stay as they are on the brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supercluster.api import Stream
from supercluster.api.units import duration_ns, size_bytes
from supercluster.reconcilers.planners import naming

META_RESOURCE = "supercluster.dev/resource"
META_ACK_POLICY = "supercluster.dev/ack-policy"
META_FSYNC = "supercluster.dev/fsync"
META_PREFERRED_LEADER = "supercluster.dev/preferred-leader"
OUR_METADATA = (META_RESOURCE, META_ACK_POLICY, META_FSYNC, META_PREFERRED_LEADER)

# What a field that a broker leaves out of its answer is worth.
_ABSENT: dict[str, Any] = {
    "description": "",
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "discard_new_per_subject": False,
    "duplicate_window": 0,
}


_SPELLED = {
    "file": "File",
    "memory": "Memory",
    "limits": "Limits",
    "interest": "Interest",
    "workqueue": "WorkQueue",
}


def resource_mark(stream: Stream) -> str:
    """What a declared stream carries in its metadata (SF-23)."""
    return naming.mark(stream)


def mark_of(config: Mapping[str, Any]) -> str | None:
    """The resource that a stream on the brokers says it belongs to."""
    mark = (config.get("metadata") or {}).get(META_RESOURCE)
    return str(mark) if mark else None


def desired_config(stream: Stream) -> dict[str, Any]:
    """The declared part of the configuration."""
    spec, limits = stream.spec, stream.spec.limits
    return {
        "name": stream.stream_name,
        "description": spec.description or "",
        "subjects": list(spec.subjects),
        "retention": spec.retention.lower(),
        "max_msgs": limits.max_messages or -1,
        "max_bytes": _limit(limits.max_bytes),
        "max_age": duration_ns(limits.max_age) if limits.max_age else 0,
        "max_msgs_per_subject": limits.max_messages_per_subject or -1,
        "max_msg_size": _limit(limits.max_message_size),
        "discard": spec.discard.lower(),
        "discard_new_per_subject": spec.discard_new_per_subject,
        "storage": spec.storage.lower(),
        "num_replicas": spec.replicas,
        "duplicate_window": duration_ns(spec.duplicate_window),
        "metadata": desired_metadata(stream),
    }


def _limit(size: str | None) -> int:
    """NATS writes "no limit" as -1; a limit of nothing at all makes no sense and means the same."""
    return (size_bytes(size) if size else 0) or -1


def desired_metadata(stream: Stream) -> dict[str, str]:
    spec = stream.spec
    metadata = {
        META_RESOURCE: resource_mark(stream),
        META_ACK_POLICY: spec.ack_policy.lower(),
        META_FSYNC: spec.fsync.lower(),
    }
    if spec.placement.preferred_leader:
        metadata[META_PREFERRED_LEADER] = spec.placement.preferred_leader
    return metadata


def create_config(stream: Stream, cluster: str) -> dict[str, Any]:
    """The configuration to create the stream with. Placement is said only here, because changing it is a move; tags
    are not sent: the planner has found the cluster that has them."""
    return {**desired_config(stream), "placement": {"cluster": cluster}}


def changed_fields(desired: Mapping[str, Any], there: Mapping[str, Any]) -> tuple[str, ...]:
    """Declared fields that are different on the brokers; metadata key by key."""
    changed = []
    for key, value in desired.items():
        if key == "metadata":
            theirs = there.get("metadata") or {}
            changed += [f"metadata[{name}]" for name in OUR_METADATA if theirs.get(name) != value.get(name)]
        elif key == "subjects":
            if sorted(value) != sorted(there.get("subjects") or []):
                changed.append(key)
        elif _value(there, key) != value:
            changed.append(key)
    return tuple(changed)


def _value(config: Mapping[str, Any], key: str) -> Any:
    value = config.get(key)
    absent = _ABSENT.get(key)
    if value is None:
        return absent
    # NATS takes 0 for "no limit" as well and may answer with either.
    return -1 if absent == -1 and value == 0 else value


def fixed_fields(stream: Stream, there: Mapping[str, Any]) -> dict[str, str]:
    """What the stream differs in from the spec and keeps for its life, as a spec would have it."""
    wanted = desired_config(stream)
    fixed = {}
    for field in ("storage", "retention"):
        value = str(there.get(field) or wanted[field])
        # Between limits and interest brokers let it change.
        if value != wanted[field] and (field == "storage" or "workqueue" in (value, wanted[field])):
            fixed[field] = _SPELLED.get(value, value)
    return fixed


def merged_config(desired: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, Any]:
    """What to send in an update: theirs, with what is declared put in."""
    theirs = {k: v for k, v in (there.get("metadata") or {}).items() if k not in OUR_METADATA}
    return {**there, **desired, "metadata": {**theirs, **desired["metadata"]}}


def in_its_place(config: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration to be sent, with the placement and the count of replicas that are there: neither is ever changed by an
    update of the configuration."""
    kept = {key: there[key] for key in ("placement", "num_replicas") if key in there}
    return {key: value for key, value in config.items() if key != "placement" or key in kept} | kept


def released_config(there: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without the mark: from then on the stream is nobody's."""
    metadata = {k: v for k, v in (there.get("metadata") or {}).items() if k != META_RESOURCE}
    return {**there, "metadata": metadata}
