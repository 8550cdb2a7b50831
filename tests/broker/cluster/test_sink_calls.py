"""The sink's calls on real brokers: staged, committed, released, and read by a client."""

from __future__ import annotations

import json
import struct
from array import array
from typing import Any
from zlib import crc32

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from tests.support.local_clusters import Fleet, until


def block(subject: str, payloads: list[bytes]) -> bytes:
    parts = [part for payload in payloads for part in (subject.encode(), b"", payload)]
    return struct.pack("<I", len(payloads)) + array("I", map(len, parts)).tobytes() + b"".join(parts)


async def call(client: Client, name: str, body: dict[str, Any], tail: bytes = b"") -> dict[str, Any]:
    """One call, repeated while nobody can answer it."""
    payload = json.dumps(body).encode() + tail

    async def asked() -> dict[str, Any] | None:
        try:
            answer = await client.request(f"$JS.API.SINK.{name}.S", payload, timeout=6)
        except (NatsTimeoutError, NoRespondersError):
            return None
        found: dict[str, Any] = json.loads(answer.data)
        return None if found.get("error", {}).get("code") == 503 else found

    found: dict[str, Any] = await until(asked, f"an answer to {name}")
    return found


async def stage(
    client: Client, token: str, payloads: list[bytes], batch: int = 0, number: int = 1
) -> dict[str, Any]:
    raw = block("s.a", payloads)
    found = await call(
        client,
        "STAGE",
        {"writer": "q", "batch": batch, "token": token, "block": number, "crc": crc32(raw)},
        b"\n" + raw,
    )
    if "error" in found:
        raise AssertionError(found)
    return {"token": token, "rows": len(payloads), "crc": crc32(raw)}


async def committed(client: Client, parts: list[dict[str, Any]], batch: int = 0) -> dict[str, Any]:
    """Commit until all is released."""
    body = {"writer": "q", "batch": batch, "offsets_hash": "h", "parts": parts}

    async def released() -> dict[str, Any] | None:
        found = await call(client, "COMMIT", body)
        return found if "error" in found or found["released"] == found["rows"] else None

    found: dict[str, Any] = await until(released, "the release of the batch")
    return found


@pytest.mark.covers("SP-1")
async def test_rows_are_unseen_until_they_are_committed(fleet: Fleet) -> None:
    (broker,) = await fleet.start(1)
    js, client = await fleet.js(broker), await fleet.client(broker)
    await js.add_stream(name="S", subjects=["s.>"])
    parts = [await stage(client, "t", [b"a", b"b"]), await stage(client, "u", [b"c"])]
    assert (await js.stream_info("S")).state.last_seq == 0
    assert (await committed(client, [parts[1], parts[0]]))["rows"] == 3
    assert [(await js.get_msg("S", seq)).data for seq in (1, 2, 3)] == [b"c", b"a", b"b"]
    # A lost answer, and an abort that follows it.
    assert (await committed(client, parts))["released"] == 3
    assert (await call(client, "ABORT", {"writer": "q", "batch": 0, "tokens": ["t", "u"]}))["dropped"] == 0
    assert (await js.stream_info("S")).state.last_seq == 3
    broker.kill()
    broker.start()
    await broker.ready()
    status = await call(await fleet.client(broker), "STATUS", {"writer": "q"})
    assert (status["batch"], status["released"]) == (0, 3)


@pytest.mark.covers("SP-1")
async def test_leaders_die_in_the_middle_of_a_batch(fleet: Fleet) -> None:
    brokers = await fleet.start(3)
    js, client = await fleet.js(*brokers), await fleet.client(*brokers)
    await js.add_stream(name="S", subjects=["s.>"], num_replicas=3)
    rows = [b"%06d" % number for number in range(12_000)]
    starts = range(0, len(rows), 3000)
    parts = [await stage(client, f"t{at}", rows[at : at + 3000]) for at in starts]
    leader = await fleet.leader("S")
    leader.kill()
    body = {"writer": "q", "batch": 0, "offsets_hash": "h", "parts": parts}
    assert "error" not in await call(client, "COMMIT", body)
    leader.start()
    await leader.ready()
    (await fleet.leader("S")).kill()
    assert (await committed(client, parts))["rows"] == len(rows)
    reader = await js.subscribe("s.>", ordered_consumer=True)
    found = [(await reader.next_msg(timeout=20)).data for _ in rows]
    assert found == rows
    assert (await js.stream_info("S")).state.last_seq == len(rows)
