"""The protobuf bodies that kubectl and helm send for a few kinds, decoded to JSON.

Go clients prefer protobuf for built-in kinds; the server answers in JSON, which they accept. The tables hold
the field numbers of the kinds that kubectl's own commands create. Other kinds, and other fields that are set,
are refused with 415 rather than lost.
"""

from __future__ import annotations

import base64
import datetime as dt
import struct
from collections.abc import Iterator
from typing import Any

from supercluster.localplane.apiserver.errors import bad_request, unsupported_media_type
from supercluster.localplane.apiserver.http.protobuf_tables import BODIES, MESSAGES
from supercluster.localplane.json_data import Json

MAGIC = b"k8s\x00"
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
ACCEPTED = ("application/json", "application/yaml", MEDIA_TYPE)


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
            # Go writes zeros and empty messages for what is not set; anything else would be lost in silence.
            if value not in (0, b""):
                raise unsupported_media_type(f"{MEDIA_TYPE} with field {number} of a {name}", ACCEPTED[:2])
            continue
        key, kind = field
        if kind == "ignored":
            continue
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
    if kind == "IntOrString":
        parts = dict(_fields(raw))
        return _value(parts.get(3, b""), "string") if parts.get(1) else _value(parts.get(2, 0), "int")
    if kind == "Quantity":
        return _value(dict(_fields(raw)).get(1, b""), "string")
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
