"""The protobuf bodies that kubectl and helm send for a few kinds, decoded to JSON.

Go clients prefer protobuf for built-in kinds; the server answers in JSON, which they take. The tables hold the field
numbers of the kinds that people create with kubectl's own commands; others are refused with 415.
"""

from __future__ import annotations

import base64
import datetime as dt
import struct
from collections.abc import Iterator
from typing import Any

from supercluster.localplane.apiserver.errors import bad_request, unsupported_media_type

Json = dict[str, Any]
# number -> (name, type); a type is a scalar's name, a message's name, or either after "map:" or "list:".
Message = dict[int, tuple[str, str]]

MAGIC = b"k8s\x00"
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
ACCEPTED = ("application/json", "application/yaml", MEDIA_TYPE)

MESSAGES: dict[str, Message] = {
    "Unknown": {
        1: ("typeMeta", "TypeMeta"),
        2: ("raw", "raw"),
        3: ("encoding", "string"),
        4: ("type", "string"),
    },
    "TypeMeta": {1: ("apiVersion", "string"), 2: ("kind", "string")},
    "ObjectMeta": {
        1: ("name", "string"),
        2: ("generateName", "string"),
        3: ("namespace", "string"),
        5: ("uid", "string"),
        6: ("resourceVersion", "string"),
        7: ("generation", "int"),
        8: ("creationTimestamp", "Time"),
        11: ("labels", "map:string"),
        12: ("annotations", "map:string"),
        13: ("ownerReferences", "list:OwnerReference"),
        14: ("finalizers", "list:string"),
    },
    "OwnerReference": {
        1: ("kind", "string"),
        3: ("name", "string"),
        4: ("uid", "string"),
        5: ("apiVersion", "string"),
        6: ("controller", "bool"),
        7: ("blockOwnerDeletion", "bool"),
    },
    "DeleteOptions": {
        1: ("gracePeriodSeconds", "int"),
        2: ("preconditions", "Preconditions"),
        3: ("orphanDependents", "bool"),
        4: ("propagationPolicy", "string"),
        5: ("dryRun", "list:string"),
    },
    "Preconditions": {1: ("uid", "string"), 2: ("resourceVersion", "string")},
    "Namespace": {
        1: ("metadata", "ObjectMeta"),
        2: ("spec", "NamespaceSpec"),
        3: ("status", "NamespaceStatus"),
    },
    "NamespaceSpec": {1: ("finalizers", "list:string")},
    "NamespaceStatus": {1: ("phase", "string")},
    "ConfigMap": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "map:string"),
        3: ("binaryData", "map:bytes"),
        4: ("immutable", "bool"),
    },
    "Secret": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "map:bytes"),
        3: ("type", "string"),
        4: ("stringData", "map:string"),
        5: ("immutable", "bool"),
    },
    "ServiceAccount": {
        1: ("metadata", "ObjectMeta"),
        3: ("imagePullSecrets", "list:LocalObjectReference"),
        4: ("automountServiceAccountToken", "bool"),
    },
    "LocalObjectReference": {1: ("name", "string")},
    "Role": {1: ("metadata", "ObjectMeta"), 2: ("rules", "list:PolicyRule")},
    "ClusterRole": {1: ("metadata", "ObjectMeta"), 2: ("rules", "list:PolicyRule")},
    "PolicyRule": {
        1: ("verbs", "list:string"),
        2: ("apiGroups", "list:string"),
        3: ("resources", "list:string"),
        4: ("resourceNames", "list:string"),
        5: ("nonResourceURLs", "list:string"),
    },
    "RoleBinding": {
        1: ("metadata", "ObjectMeta"),
        2: ("subjects", "list:Subject"),
        3: ("roleRef", "RoleRef"),
    },
    "ClusterRoleBinding": {
        1: ("metadata", "ObjectMeta"),
        2: ("subjects", "list:Subject"),
        3: ("roleRef", "RoleRef"),
    },
    "Subject": {
        1: ("kind", "string"),
        2: ("apiGroup", "string"),
        3: ("name", "string"),
        4: ("namespace", "string"),
    },
    "RoleRef": {1: ("apiGroup", "string"), 2: ("kind", "string"), 3: ("name", "string")},
    "Eviction": {1: ("metadata", "ObjectMeta"), 2: ("deleteOptions", "DeleteOptions")},
    "TokenRequest": {1: ("metadata", "ObjectMeta"), 2: ("spec", "TokenRequestSpec")},
    "TokenRequestSpec": {1: ("audiences", "list:string"), 4: ("expirationSeconds", "int")},
    "Lease": {1: ("metadata", "ObjectMeta"), 2: ("spec", "LeaseSpec")},
    "LeaseSpec": {
        1: ("holderIdentity", "string"),
        2: ("leaseDurationSeconds", "int"),
        3: ("acquireTime", "MicroTime"),
        4: ("renewTime", "MicroTime"),
        5: ("leaseTransitions", "int"),
    },
    "Event": {
        1: ("metadata", "ObjectMeta"),
        2: ("involvedObject", "ObjectReference"),
        3: ("reason", "string"),
        4: ("message", "string"),
        5: ("source", "EventSource"),
        6: ("firstTimestamp", "Time"),
        7: ("lastTimestamp", "Time"),
        8: ("count", "int"),
        9: ("type", "string"),
    },
    "ObjectReference": {
        1: ("kind", "string"),
        2: ("namespace", "string"),
        3: ("name", "string"),
        4: ("uid", "string"),
        5: ("apiVersion", "string"),
        6: ("resourceVersion", "string"),
        7: ("fieldPath", "string"),
    },
    "EventSource": {1: ("component", "string"), 2: ("host", "string")},
    "SelfSubjectReview": {1: ("metadata", "ObjectMeta")},
    "SelfSubjectAccessReview": {1: ("metadata", "ObjectMeta"), 2: ("spec", "SelfSubjectAccessReviewSpec")},
    "SelfSubjectAccessReviewSpec": {
        1: ("resourceAttributes", "ResourceAttributes"),
        2: ("nonResourceAttributes", "NonResourceAttributes"),
    },
    "ResourceAttributes": {
        1: ("namespace", "string"),
        2: ("verb", "string"),
        3: ("group", "string"),
        4: ("version", "string"),
        5: ("resource", "string"),
        6: ("subresource", "string"),
        7: ("name", "string"),
    },
    "NonResourceAttributes": {1: ("path", "string"), 2: ("verb", "string")},
}
# Messages that may be a whole body.
BODIES = frozenset(
    [
        "Namespace",
        "ConfigMap",
        "Secret",
        "ServiceAccount",
        "Role",
        "ClusterRole",
        "RoleBinding",
        "ClusterRoleBinding",
        "Eviction",
        "DeleteOptions",
        "TokenRequest",
        "Lease",
        "Event",
        "SelfSubjectReview",
        "SelfSubjectAccessReview",
    ]
)


def decode(raw: bytes) -> Json:
    """The object of a protobuf body."""
    if not raw.startswith(MAGIC):
        raise bad_request("the body is not protobuf as Kubernetes sends it: it lacks the prefix k8s\\0")
    try:
        envelope = _message(raw[len(MAGIC) :], "Unknown")
        kind = (envelope.get("typeMeta") or {}).get("kind", "")
        if kind not in BODIES:
            raise unsupported_media_type(f"{MEDIA_TYPE} of a {kind or 'nameless kind'}", ACCEPTED[:2])
        obj = _message(envelope.get("raw", b""), kind)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise bad_request(f"the protobuf body is cut off or damaged: {error}") from error
    return {**envelope["typeMeta"], **obj}


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise bad_request("the protobuf body has a number of more than 64 bits")


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(raw, at)
            yield number, value
        elif wire == 2:
            size, at = _varint(raw, at)
            if at + size > len(raw):
                raise bad_request("the protobuf body is cut off")
            yield number, raw[at : at + size]
            at += size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            yield number, raw[at : at + size]
            at += size
        else:
            raise bad_request(
                f"the protobuf body has a field of wire type {wire}, which Kubernetes does not use"
            )


def _message(raw: bytes, name: str) -> Json:
    known = MESSAGES[name]
    result: Json = {}
    for number, value in _fields(raw):
        field = known.get(number)
        if field is None:
            continue
        key, kind = field
        if kind.startswith("list:"):
            result.setdefault(key, []).append(_value(value, kind[5:]))
        elif kind.startswith("map:"):
            entry = dict(_fields(_bytes(value)))
            name_bytes = _bytes(entry.get(1, b""))
            result.setdefault(key, {})[name_bytes.decode()] = _value(entry.get(2, b""), kind[4:])
        else:
            decoded = _value(value, kind)
            # Go writes empty texts and zero times for what is not set.
            if decoded not in ("", None):
                result[key] = decoded
    return result


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise bad_request("the protobuf body has a number where a text or message belongs")
    return value


def _value(value: int | bytes, kind: str) -> Any:
    if kind in ("int", "bool"):
        if not isinstance(value, int):
            raise bad_request("the protobuf body has a text where a number belongs")
        if kind == "bool":
            return bool(value)
        return value - (1 << 64) if value >= 1 << 63 else value
    raw = _bytes(value)
    if kind == "string":
        return raw.decode()
    if kind == "raw":
        return raw
    if kind == "bytes":
        return base64.b64encode(raw).decode()
    if kind in ("Time", "MicroTime"):
        return _time(raw, micro=kind == "MicroTime")
    return _message(raw, kind)


def _time(raw: bytes, micro: bool) -> str | None:
    parts = dict(_fields(raw))
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int) or not seconds:
        return None
    if seconds >= 1 << 63:
        return None
    moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    if micro:
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{nanos // 1000:06d}Z"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
