"""Executors, the driver and the leader of the stream are killed while a query writes; every row is compared."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from random import Random

import nats
import pyspark
import pytest
from nats.js import JetStreamContext
from tests.spark.sink_program import ROWS_PER_BATCH
from tests.support.local_clusters import Fleet, until
from tests.support.tiers import ALL

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
WORK = Path(pyspark.__file__).parent / "work"
"""Where executors of a local cluster have their folders."""
BULK_PORT = 7333
EXECUTOR = b"CoarseGrainedExecutorBackend"


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Fleet]:
    (tmp_path / "fleet").mkdir()
    started = Fleet(tmp_path / "fleet")
    try:
        yield started
    finally:
        await started.stop()


class Driver:
    """The query's driver, and the executors that are its descendants."""

    def __init__(self, folder: Path, urls: str) -> None:
        self.folder = folder
        self.urls = urls
        self.starts = 0
        self._process: Process | None = None

    async def start(self) -> None:
        self.starts += 1
        log = (self.folder / "driver.log").open("ab")
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.spark.sink_program", str(self.folder), self.urls),
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()

    def log(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """SIGKILL to everything that it started, at once: a machine that is gone."""
        if self._process is not None:
            for process in self.descendants():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def descendants(self, named: bytes = b"") -> list[int]:
        """Processes of the driver's tree, the driver first."""
        parents: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                parents.setdefault(
                    int((entry / "stat").read_text().rpartition(")")[2].split()[1]), []
                ).append(int(entry.name))
        found, waiting = [], [self.process.pid]
        while waiting:
            found.append(waiting.pop())
            waiting += parents.get(found[-1], [])
        return [process for process in found if named in _command(process)]


def _command(process: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


async def written(js: JetStreamContext) -> int:
    """How many rows there are; 0 while the broker that was asked is gone."""
    try:
        return (await js.stream_info("OUT")).state.last_seq
    except (nats.errors.Error, nats.js.errors.Error):
        return 0


@pytest.mark.covers("SP-1")
@pytest.mark.parametrize("seed", range(20 if ALL else 1))
async def test_every_row_is_written_once_whoever_is_killed(brokers: Fleet, tmp_path: Path, seed: int) -> None:
    rng, rows = Random(seed), 10 * ROWS_PER_BATCH
    started = await brokers.start(3, **({} if seed % 2 else {"bulk": {"port": BULK_PORT}}))
    client = await brokers.client(*started)
    # What waits longer for a broker that was killed may miss the rest of the query.
    js, seen = client.jetstream(timeout=10), client.jetstream(timeout=1)
    for name, subject in (("S", "in.>"), ("OUT", "out.>")):
        await js.add_stream(name=name, subjects=[subject], num_replicas=3)
    for first in range(0, rows, 500):
        await asyncio.gather(
            *[await js.publish_async("in.x", b"%d" % row) for row in range(first, first + 500)]
        )
    apps = set(WORK.glob("*"))
    driver = Driver(tmp_path, ",".join(broker.url for broker in started))
    await driver.start()
    try:
        for number, victim in enumerate(("executor", "leader", "driver")):
            goal = (2 * number + 1) * ROWS_PER_BATCH + rng.randrange(ROWS_PER_BATCH)

            async def reached(goal: int = goal) -> bool:
                assert driver.process.returncode is None, driver.log()[-3000:]
                return await written(seen) >= goal

            await until(reached, f"{goal} rows before the {victim} is killed", timeout_s=400)
            if victim == "driver":
                driver.kill()
                await driver.process.wait()
                await driver.start()
            elif victim == "leader":
                leader = await brokers.leader("OUT")
                leader.kill()
                leader.start()
            else:
                os.kill(rng.choice(driver.descendants(EXECUTOR)), signal.SIGKILL)
        assert await driver.process.wait() == 0, driver.log()[-3000:]
    finally:
        driver.kill()
        for folder in set(WORK.glob("*")) - apps:
            shutil.rmtree(folder)
    reader = await js.subscribe("out.>", ordered_consumer=True)
    found = [
        int((await reader.next_msg(timeout=20)).data)
        for _ in range(await until(lambda: written(js), "an answer"))
    ]
    assert found == list(range(rows)), (
        f"{len(found)} rows of {rows}, {len(set(found))} different ones, in another order"
    )
