"""Long answers in slices: a request for thousands of streams delays no message.

The rows are built and encoded for a few milliseconds at a time, and the loop serves other work in between.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from supercluster.broker.ports import Clock

SLICE_MS = 5
"""A row takes a fraction of a millisecond, so a slice is hardly longer; heartbeats and messages wait for no more than it."""


async def encode_rows(rows: Iterator[dict[str, Any]], clock: Clock) -> str:
    """A JSON list of all rows, one on each line."""
    encoded: list[str] = []
    until_ms = clock.machine_ms() + SLICE_MS
    for row in rows:
        encoded.append(json.dumps(row))
        if clock.machine_ms() >= until_ms:
            await asyncio.sleep(0)
            until_ms = clock.machine_ms() + SLICE_MS
    return "[\n  " + ",\n  ".join(encoded) + "\n ]" if encoded else "[]"


async def encode_jsz(head: dict[str, Any], rows: dict[str, Iterator[dict[str, Any]]], clock: Clock) -> str:
    """NATS's JSZ: each of `head`'s accounts gets its rows as `stream_detail`, where there are any."""
    if not rows:
        return json.dumps(head)
    parts = []
    for detail in head["account_details"]:
        streams = await encode_rows(rows[detail["name"]], clock)
        parts.append(f'{json.dumps(detail).removesuffix("}")},"stream_detail":{streams}}}')
    rest = {name: value for name, value in head.items() if name != "account_details"}
    return f'{json.dumps(rest).removesuffix("}")},"account_details":[{",".join(parts)}]}}'
