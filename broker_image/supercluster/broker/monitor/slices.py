"""Long answers in slices: a request for thousands of streams or subscriptions delays no message.

The rows are built and encoded for a few milliseconds at a time, and the loop serves other work in between. Of all such
answers of a broker one is worked on at a time (`LongAnswers`): their slices would add up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from supercluster.broker.ports import Clock

SLICE_MS = 5
"""A row takes a fraction of a millisecond, so a slice is hardly longer; heartbeats and messages wait for no more than it."""
LONG_ANSWERS_MAX = 4
"""Long answers that wait or are worked on; each may have tens of megabytes."""

PAUSE = ""
"""A piece of JSON that says nothing: a slice may end here."""


class LongAnswers:
    """See the module. One per broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._count = 0

    @property
    def is_full(self) -> bool:
        return self._count >= LONG_ANSWERS_MAX

    async def encode(self, document: Mapping[str, Any]) -> str:
        """A document as JSON. An iterator stands for a list of rows, None among them for a pause, and a function for what is
        known behind the rows before it."""
        self._count += 1
        try:
            async with self._lock:
                return await _joined(pieces_of(document), self._clock)
        finally:
            self._count -= 1


async def _joined(pieces: Iterator[str], clock: Clock) -> str:
    encoded: list[str] = []
    until_ms = clock.machine_ms() + SLICE_MS
    for piece in pieces:
        encoded.append(piece)
        if clock.machine_ms() >= until_ms:
            await asyncio.sleep(0)
            until_ms = clock.machine_ms() + SLICE_MS
    return "".join(encoded)


def is_long(document: Mapping[str, Any]) -> bool:
    """Has it rows that are made in slices?"""
    return any(isinstance(value, Iterator) for value in document.values())


def pieces_of(value: Any) -> Iterator[str]:
    """JSON, piece by piece."""
    if isinstance(value, Iterator):
        yield from _rows(value)
    elif isinstance(value, list) and any(isinstance(one, Mapping) and is_long(one) for one in value):
        yield from _rows(iter(value))
    elif isinstance(value, Mapping):
        yield from _fields(value)
    else:
        told: Callable[[], Any] | Any = value
        yield json.dumps(told() if callable(told) else told)


def _rows(rows: Iterator[Any]) -> Iterator[str]:
    before = "[\n"
    for row in rows:
        if row is None:
            yield PAUSE
            continue
        yield before
        yield from pieces_of(row)
        before = ",\n"
    yield "[]" if before == "[\n" else "\n]"


def _fields(fields: Mapping[str, Any]) -> Iterator[str]:
    if not is_long(fields) and not any(
        callable(value) or isinstance(value, Mapping | list) for value in fields.values()
    ):
        yield json.dumps(fields)
        return
    before = "{"
    for name, value in fields.items():
        yield f"{before}{json.dumps(name)}: "
        yield from pieces_of(value)
        before = ", "
    yield "{}" if before == "{" else "}"
