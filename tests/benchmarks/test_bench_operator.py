"""The benchmark of the operator at a small size: what it counts, and that figures alone are few writes (O17)."""

from __future__ import annotations

import pytest
from benchmarks.operator import MINUTE_MS, RESYNC_MS, WRITES_A_MINUTE_MAX, rows_of, run_once


async def test_busy_streams_are_few_writes() -> None:
    found = await run_once(30, 3, 1)
    looks = MINUTE_MS / RESYNC_MS
    assert 0 < found.writes_a_minute <= max(2 * looks, 40), (
        "figures by their budget, and what a Stream says of its move"
    )
    assert found.resync_s > 0
    cpu, writes, _ = rows_of([found], 30, 3)
    assert cpu.is_reached is not None
    assert writes.is_reached
    assert writes.target is not None
    assert writes.target.bound == pytest.approx(WRITES_A_MINUTE_MAX)
