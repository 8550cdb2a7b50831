"""The rows again, on servers whose leaders step down and whose streams move while they run (`restless.py`).

Some run in `make test`, a larger sample in `make test-all`; `make compat-restless` runs all. Another seed: COMPAT_SEED=7.
"""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from tests.compat.bench import Bench
from tests.compat.restless import BY_PREFIX, Unrest, not_on
from tests.compat.table import OURS_3, OURS_3_RESTLESS, OURS_3X2_RESTLESS, PLAIN, RESTLESS, Row, load
from tests.compat.targets import Targets
from tests.support.tiers import case

ROW_S = 60.0
"""Only ends a row that hangs."""
SEED = int(os.environ.get("COMPAT_SEED", "1"))
IS_WHOLE = os.environ.get("COMPAT_RESTLESS") == "all"
SAMPLE = {OURS_3_RESTLESS: 150, OURS_3X2_RESTLESS: 80}
"""So many rows of each target are drawn for `make test-all`: some two minutes' worth."""
FEW = {OURS_3_RESTLESS: 12, OURS_3X2_RESTLESS: 8}
"""So many of them are drawn for `make test` too."""
EXCLUDED_TRIES = 8
"""A row that passes so often although it is said that it cannot is reported."""

ROWS = [row for row in load() if OURS_3 in row.on]


def cases() -> list[Any]:
    """What runs, so that one fleet serves all rows with the same settings."""
    found: list[Any] = []
    for target in RESTLESS:
        rows = [row for row in ROWS if row.id not in not_on(target)]
        plain = sorted((row for row in rows if row.settings is PLAIN), key=lambda row: _lot(target, row))
        few = {row.id for row in plain[: FEW[target]]}
        found += [
            case(target, row, id=f"{target}-{row.id}", is_short=row.id in few)
            for row in sorted(
                rows if IS_WHOLE else plain[: SAMPLE[target]], key=lambda row: row.settings.name
            )
        ]
    return found


def _lot(target: str, row: Row) -> int:
    """Drawn by each row for itself, so that a new one changes little of the sample."""
    return zlib.crc32(f"{SEED} {target} {row.id}".encode())


def excluded() -> list[tuple[str, Row]]:
    found = [(target, row) for target in RESTLESS for row in ROWS if row.id in not_on(target)]
    return sorted(found, key=_fleet) if IS_WHOLE else []


def _fleet(case: tuple[str, Row]) -> tuple[int, str]:
    return RESTLESS.index(case[0]), case[1].settings.name


Note = Callable[[str, object], None]


async def meanwhile(name: str, row: Row, targets: Targets, seed: int, note: Note) -> None:
    """Run a row while leaders step down and streams move."""
    target = await targets.get(name, row.settings)
    bench, unrest = Bench(target, row), Unrest(target, row.id, seed)
    await unrest.begin()
    try:
        async with asyncio.timeout(ROW_S):
            await row.run(bench)
    finally:
        await bench.clean()
        await unrest.end()
        note("unrest", dict(unrest.done))
    assert not unrest.wrong


@pytest.mark.e2e
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("name", "row"), cases())
async def test_row_meanwhile(name: str, row: Row, targets: Targets, record_property: Note) -> None:
    await meanwhile(name, row, targets, SEED, record_property)


@pytest.mark.e2e
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.long
@pytest.mark.skipif(not IS_WHOLE, reason="make compat-restless looks at what is excluded")
@pytest.mark.parametrize(("name", "row"), excluded(), ids=lambda value: getattr(value, "id", value))
async def test_what_is_excluded_still_fails(
    name: str, row: Row, targets: Targets, record_property: Note
) -> None:
    for attempt in range(EXCLUDED_TRIES):
        try:
            await meanwhile(name, row, targets, SEED + attempt, record_property)
        except Exception:
            return
    pytest.fail(
        f"{row.id} passed {EXCLUDED_TRIES} times on {name}: take it off the list of those that cannot"
    )


def test_every_exception_names_rows_that_there_are() -> None:
    for target in RESTLESS:
        assert set(not_on(target)) <= {row.id for row in ROWS}
    for prefix in BY_PREFIX:
        assert any(row.id.startswith(prefix) for row in ROWS), f"no row's id begins with {prefix}"
