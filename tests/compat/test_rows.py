"""Every row on every server it names. One row: pytest tests/compat -k 'nats-1 and core.ping'.

`make test` runs each row once, on one broker of ours where it runs there.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.compat.bench import Bench
from tests.compat.table import NATS_1, NATS_3, NOT_ON_NATS_3, OURS_1, OURS_3, TARGETS, Row, Settings, load
from tests.compat.targets import Targets
from tests.support import tiers
from tests.support.tiers import case

from supercluster.broker.jetstream.backup import receiver, sender
from supercluster.broker.jetstream.publish import atomic_batches
from supercluster.broker.jetstream.sources import origin_reads

ROW_S = 240.0
"""Only ends a row that hangs."""

NATS_TRIES = 2
"""nats-server 2.15.1 now and then does not deliver to a subscription that it has just confirmed (about one row in thousands, of
messages that a stream stores or republishes). It is here to show that a row says what NATS does, so it may be asked twice; our
brokers never are."""

QUICK = Settings(
    "quick",
    constants={
        f"{atomic_batches.__name__}.IDLE_MS_MAX": 1000,
        f"{origin_reads.__name__}.HEARTBEAT_MS": 500,
        f"{receiver.__name__}.IDLE_MS": 1000,
        f"{sender.__name__}.FLOW_WAIT_MS": 1000,
    },
)
QUICK_ROWS = {
    "advisories.batch.timeout",
    "origins.source.interest",
    "origins.source.work-queue",
    "snapshots.no-flow",
    "snapshots.restore.stalled",
}
"""They wait for times that only constants say. In `make test` the times are shorter."""


def asked(row: Row) -> Row:
    return replace(row, settings=QUICK) if row.id in QUICK_ROWS and not tiers.ALL else row


def servers(row: Row) -> tuple[str, ...]:
    """Where a row runs: what passes on one nats-server and on three brokers of ours passes on three nats-servers."""
    if NATS_1 in row.on and OURS_3 in row.on and NATS_3 not in row.on and row.id not in NOT_ON_NATS_3:
        return (*row.on, NATS_3)
    return row.on


CASES = sorted(
    ((target, asked(row)) for row in load() for target in servers(row)),
    key=lambda case: (TARGETS.index(case[0]), case[1].settings.name != "plain", case[1].settings.name),
)


def shortest(row: Row) -> str:
    """The cheapest target that notices when the row breaks."""
    return OURS_1 if OURS_1 in row.on else OURS_3


@pytest.mark.e2e
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("name", "row"),
    [case(name, row, id=f"{name}-{row.id}", is_short=name == shortest(row)) for name, row in CASES],
)
async def test_row(name: str, row: Row, targets: Targets) -> None:
    target = await targets.get(name, row.settings)
    for left in reversed(range(1 if target.is_ours else NATS_TRIES)):
        bench = Bench(target, row)
        try:
            async with asyncio.timeout(ROW_S):
                await row.run(bench)
            target.watch.check()
        except Exception:
            if not left:
                raise
        else:
            return
        finally:
            await bench.clean()


def test_the_rows_that_wait_less_are_there() -> None:
    assert {row.id for row in load()} >= QUICK_ROWS
