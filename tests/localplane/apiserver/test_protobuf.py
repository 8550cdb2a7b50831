"""Protobuf bodies, written by a small encoder of the test's own."""

from __future__ import annotations

import pytest

from supercluster.localplane.apiserver.errors import ApiError
from supercluster.localplane.apiserver.http import protobuf, protobuf_tables


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def body(api_version: str, kind: str, raw: bytes) -> bytes:
    return protobuf.MAGIC + text(1, text(1, api_version) + text(2, kind)) + text(2, raw)


def pair(key: str, value: str | bytes) -> bytes:
    return text(1, key) + text(2, value)


def test_a_secret_with_labels() -> None:
    metadata = text(1, "s") + text(2, "") + text(11, pair("app", "web")) + text(8, number(1, 1_700_000_000))
    raw = text(1, metadata) + text(2, pair("p", b"\x00\xff")) + text(3, "Opaque") + number(5, 1)
    assert protobuf.decode(body("v1", "Secret", raw)) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "labels": {"app": "web"}, "creationTimestamp": "2023-11-14T22:13:20Z"},
        "data": {"p": "AP8="},
        "type": "Opaque",
        "immutable": True,
    }


def test_an_eviction_with_options() -> None:
    options = number(1, 0) + text(2, text(1, "uid-1")) + text(4, "Background") + text(5, "All")
    raw = text(1, text(1, "p") + text(3, "ns")) + text(2, options)
    decoded = protobuf.decode(body("policy/v1", "Eviction", raw))
    assert decoded["deleteOptions"] == {
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "uid-1"},
        "propagationPolicy": "Background",
        "dryRun": ["All"],
    }


def test_negative_numbers_and_empty_unknown_fields() -> None:
    raw = number(1, -1) + text(99, "") + number(98, 0)
    assert protobuf.decode(body("v1", "DeleteOptions", raw))["gracePeriodSeconds"] == -1


def test_a_field_that_would_be_lost_is_refused() -> None:
    with pytest.raises(ApiError) as refusal:
        protobuf.decode(body("v1", "DeleteOptions", text(99, "later version")))
    assert refusal.value.code == 415
    assert "field 99 of a DeleteOptions" in refusal.value.message


def test_numbers_or_texts_and_quantities() -> None:
    budget = text(2, text(1, number(1, 1) + text(3, "50%")) + text(3, number(1, 0) + number(2, 2)))
    spec = protobuf.decode(body("policy/v1", "PodDisruptionBudget", budget))["spec"]
    assert spec == {"minAvailable": "50%", "maxUnavailable": 2}
    quota = text(2, text(1, pair("pods", text(1, "3"))))
    assert protobuf.decode(body("v1", "ResourceQuota", quota))["spec"] == {"hard": {"pods": "3"}}


def test_every_type_in_the_tables_is_known() -> None:
    scalars = {
        "int",
        "bool",
        "string",
        "bytes",
        "raw",
        "Time",
        "MicroTime",
        "IntOrString",
        "Quantity",
        "ignored",
    }
    for message in protobuf_tables.MESSAGES.values():
        for _, kind in message.values():
            assert kind.rpartition(":")[2] in scalars | set(protobuf_tables.MESSAGES)


def test_a_kind_without_a_table_is_an_unsupported_media_type() -> None:
    with pytest.raises(ApiError) as refusal:
        protobuf.decode(body("apps/v1", "DaemonSet", b""))
    assert refusal.value.code == 415
    assert "DaemonSet" in refusal.value.message


@pytest.mark.parametrize(
    "raw",
    [
        b"junk",
        protobuf.MAGIC + b"\x0a\xff",
        protobuf.MAGIC + b"\x0a",
        body("v1", "Secret", b"\x0a\x7f"),
        body("v1", "Secret", number(1, 5)),
        body("v1", "Secret", text(5, "x")),
        body("v1", "Secret", b"\x0b"),
        body("v1", "Secret", b"\xff" * 12),
        body("v1", "ConfigMap", text(1, text(1, b"\xff\xfe"))),
    ],
)
def test_damaged_bodies_are_bad_requests(raw: bytes) -> None:
    with pytest.raises(ApiError) as refusal:
        protobuf.decode(raw)
    assert refusal.value.code in (400, 415)
