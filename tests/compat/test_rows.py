"""Every row on every server it names. One row: pytest tests/compat -k 'nats-1 and core.ping'."""

from __future__ import annotations

import asyncio

import pytest
from tests.compat.bench import Bench
from tests.compat.table import TARGETS, Row, load
from tests.compat.targets import Targets

ROW_S = 30.0
"""Only ends a row that hangs."""

CASES = sorted(
    ((target, row) for row in load() for target in row.on),
    key=lambda case: (TARGETS.index(case[0]), case[1].settings.name != "plain", case[1].settings.name),
)


@pytest.mark.e2e
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("name", "row"), CASES, ids=[f"{name}-{row.id}" for name, row in CASES])
async def test_row(name: str, row: Row, targets: Targets) -> None:
    bench = Bench(await targets.get(name, row.settings), row)
    try:
        async with asyncio.timeout(ROW_S):
            await row.run(bench)
    finally:
        await bench.clean()
