"""A writer's batch goes over to another super-cluster in the middle of its release, and what is staged goes with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.js.api import DiscardPolicy
from tests.broker.cluster.test_sink_calls import call, committed, stage
from tests.support.blue_green import BlueGreen
from tests.support.local_clusters import until

pytestmark = [pytest.mark.e2e, pytest.mark.covers("SP-1", "BG-4")]


@pytest.fixture
async def sides(tmp_path: Path) -> AsyncIterator[BlueGreen]:
    made = BlueGreen(tmp_path)
    try:
        yield made
    finally:
        await made.stop()


async def test_green_releases_what_blue_committed_and_commits_what_blue_staged(sides: BlueGreen) -> None:
    await sides.start(1)
    js, client = await sides.blue.js(), await sides.blue.client()
    # The release stops at the hundredth row.
    await js.add_stream(
        name="S",
        subjects=["s.>"],
        discard=DiscardPolicy.NEW,
        max_msgs_per_subject=100,
        discard_new_per_subject=True,
    )
    rows = [b"%03d" % number for number in range(300)]
    parts = [await stage(client, "t", rows[:200]), await stage(client, "u", rows[200:])]
    later = [await stage(client, "v", [b"last"], batch=1)]
    await call(client, "COMMIT", {"writer": "q", "batch": 0, "offsets_hash": "h", "parts": parts})

    async def stopped() -> bool:
        return bool((await call(client, "STATUS", {"writer": "q"})).get("stopped"))

    await until(stopped, "the release to stop")
    await sides.migrate()
    green, js = await sides.green.client(), await sides.green.js()
    status = await call(green, "STATUS", {"writer": "q"})
    assert (status["released"], status["rows"]) == (100, 300)
    await js.update_stream((await js.stream_info("S")).config.evolve(max_msgs_per_subject=1000))
    assert (await committed(green, parts))["released"] == 300
    assert (await committed(green, later, batch=1))["rows"] == 1
    found = [(await js.get_msg("S", seq)).data for seq in range(1, 302)]
    assert found == [*rows, b"last"]
