"""fsync on a thread: what is due is started by a turn, and its outcome is heard (RP-6, SF-4)."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.simulator.disk import SimDisk, _SimSyncHandle

from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import ClientInfo
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.runtime.process_core import VOTE_THREADS, ProcessCore
from supercluster.broker.settings import settings as settings_module
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.options import LogOptions
from supercluster.broker.storage.volume.store import VolumeStore
from supercluster.broker.storage.volume.volume import open_volume

OPERATOR = ClientInfo("$G", "operator", is_operator=True)
SYNC_INTERVAL_MS = 1000


class Clock:
    def __init__(self) -> None:
        self.ms = 10_000

    def monotonic_ms(self) -> int:
        return self.ms

    def machine_ms(self) -> int:
        return self.ms

    def now_ns(self) -> int:
        return self.ms * 1_000_000


class Network:
    """Nobody is there."""

    def send(self, *message: Any) -> bool:
        return False

    def publish(self, *message: Any) -> None: ...

    def publish_many(self, *messages: Any) -> None: ...

    def has_interest(self, *asked: Any) -> bool:
        return False


class Loop:
    """Knows which syncs are on their way."""

    def __init__(self) -> None:
        self.running: list[asyncio.Future[Any]] = []

    def run_in_executor(self, threads: Any, act: Any) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().run_in_executor(threads, act)
        self.running.append(future)
        return future


class Story:
    """A broker's core with one stream of one replica, on a disk that knows what is durable."""

    def __init__(self, folder: Path) -> None:
        file = folder / "broker.json"
        names = {"identity": "i", "superCluster": "d", "cluster": "e", "peers": {"e-0": "127.0.0.1:6222"}}
        file.write_text(json.dumps({**names, "metaVoters": ["e-0"]}))
        self.disk = SimDisk(random.Random(1))
        self.clock = Clock()
        self.loop = Loop()
        process: Any = SimpleNamespace(
            settings=settings_module.load(file),
            place=SimpleNamespace(name="e-0", routes=None),
            router=Network(),
            clock=self.clock,
            loop=self.loop,
            turn=SimpleNamespace(want=lambda: None),
            redirection=SimpleNamespace(
                passed_on=lambda *passed: None,
                set_orders=lambda orders: None,
                orders_changed=lambda: None,
                counted=dict,
            ),
            mesh=None,
        )
        volume = open_volume(self.disk, "boot", lambda: "abc")
        options = LogOptions(sync_interval_ms=SYNC_INTERVAL_MS, sync_in_tick=False)
        self.core = ProcessCore(process, VolumeStore(volume, options))

    async def pass_time(self, ms: int) -> None:
        """Every sync that a turn starts is over before the next turn, and heard of."""
        for _ in range(0, ms, 100):
            self.clock.ms += 100
            self.core.tick()
            running, self.loop.running = self.loop.running, []
            # What a ticket raises is for the core, which is asked afterwards.
            await asyncio.gather(*running, return_exceptions=True)
            await asyncio.sleep(0)

    async def create(self, fsync: str) -> StreamReplica:
        body = {"name": "S", "subjects": ["s"], "metadata": {"supercluster.dev/fsync": fsync}}
        await self.pass_time(3000)
        self.core.on_api(OPERATOR, b"$JS.API.STREAM.CREATE.S", b"", b"", json.dumps(body).encode())
        await self.pass_time(3000)
        (group,) = (found for found in self.core.groups.values() if isinstance(found, StreamReplica))
        assert group.serves
        return group


@pytest.fixture
async def story(tmp_path: Path) -> AsyncIterator[Story]:
    found = Story(tmp_path)
    try:
        yield found
    finally:
        found.core.close(clean=False)


@pytest.mark.covers("RP-6")
@pytest.mark.parametrize("fsync", ["always", "interval"])
async def test_what_is_written_is_durable_soon_by_policy(story: Story, fsync: str) -> None:
    group = await story.create(fsync)
    assert isinstance(group.log, FileLog)
    await story.pass_time(2 * SYNC_INTERVAL_MS)
    assert group.log.all_synced
    assert group.failed is None
    folder = story.core.store.directory_of(group.id)
    segments = [path for path in story.disk.paths() if path.startswith(folder) and path.endswith(".seg")]
    assert segments
    assert all(story.disk.is_durable(path, story.disk.size(path)) for path in segments)


@pytest.mark.covers("RP-6")
async def test_what_the_kernel_may_write_when_it_likes_is_not_synced(story: Story) -> None:
    group = await story.create("never")
    await story.pass_time(SYNC_INTERVAL_MS)
    body = json.dumps({"stream_name": "S", "config": {"name": "c", "durable_name": "c"}}).encode()
    story.core.on_api(OPERATOR, b"$JS.API.CONSUMER.CREATE.S.c", b"", b"", body)
    await story.pass_time(3 * SYNC_INTERVAL_MS)
    assert isinstance(group.log, FileLog)
    assert not group.log.all_synced
    assert group.log.persisted_index == group.log.last_index


@pytest.mark.covers("RP-6", "SF-4")
async def test_a_failed_fsync_takes_the_replica_out(story: Story) -> None:
    group = await story.create("interval")
    await story.pass_time(2 * SYNC_INTERVAL_MS)
    story.disk.failing_syncs, story.disk.failing_syncs_of = 1, ".seg"
    info = b"$JS.API.CONSUMER.CREATE.S.c"
    body = json.dumps({"stream_name": "S", "config": {"name": "c", "durable_name": "c"}}).encode()
    story.core.on_api(OPERATOR, info, b"", b"", body)
    await story.pass_time(2 * SYNC_INTERVAL_MS)
    assert group.failed is not None
    assert "fsync" in str(group.failed)
    assert not group.serves


@pytest.mark.covers("SF-4", "RP-3")
async def test_nothing_is_done_by_a_vote_before_it_is_durable_and_the_loop_does_not_wait(
    story: Story,
) -> None:
    await story.create("interval")
    body = {"name": "T", "subjects": ["t"]}
    votes: list[Any] = []
    # Threads that stand still.
    story.core.turns.start_votes = votes.extend
    story.core.on_api(OPERATOR, b"$JS.API.STREAM.CREATE.T", b"", b"", json.dumps(body).encode())
    await story.pass_time(3000)
    group = next(found for found in story.core.groups.values() if found.id == votes[0][0])
    assert isinstance(group.log, FileLog)
    assert not group.serves
    assert group.applied_index == 0
    assert group.log.load_vote() == (0, "")
    for group_id, ticket in votes:
        ticket.run()
        story.core.vote_saved(group_id, ticket)
    await story.pass_time(200)
    assert group.serves


class Running:
    """A ticket that is through when it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def run(self) -> None:
        assert self.go.wait(20)


@pytest.mark.covers("SF-4", "RP-3")
async def test_a_vote_that_is_durable_is_heard_of_however_long_the_ones_behind_it_take(story: Story) -> None:
    tickets = [Running() for _ in range(2 * VOTE_THREADS)]
    told: asyncio.Queue[str] = asyncio.Queue()
    story.core.vote_saved = lambda group_id, ticket: told.put_nowait(group_id)  # type: ignore[method-assign]
    story.core.start_votes([(str(number), ticket) for number, ticket in enumerate(tickets)])
    try:
        tickets[0].go.set()
        assert await asyncio.wait_for(told.get(), 10) == "0"
    finally:
        for ticket in tickets:
            ticket.go.set()
        await asyncio.gather(*story.loop.running)


@pytest.mark.covers("SF-4")
@pytest.mark.parametrize("error", [DiskError("cannot close after fsync"), OSError(5, "input/output error")])
async def test_whatever_ends_the_fsync_of_a_vote_takes_its_replica_out(
    story: Story, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await story.create("interval")
    close = _SimSyncHandle.close

    def close_badly(handle: _SimSyncHandle) -> None:
        if "%2eT%2e" in handle._path:
            raise error
        close(handle)

    monkeypatch.setattr(_SimSyncHandle, "close", close_badly)
    body = {"name": "T", "subjects": ["t"]}
    story.core.on_api(OPERATOR, b"$JS.API.STREAM.CREATE.T", b"", b"", json.dumps(body).encode())
    await story.pass_time(3000)
    others = [
        one for one in story.core.groups.values() if isinstance(one, StreamReplica) and one is not group
    ]
    assert [one.failed is not None and one.log.failed is not None for one in others] == [True]
    assert group.failed is None


@pytest.mark.covers("RP-6", "SF-4")
@pytest.mark.parametrize("error", [DiskError("cannot close after fsync"), OSError(5, "input/output error")])
async def test_whatever_ends_the_fsync_of_entries_takes_the_replica_out(
    story: Story, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await story.create("interval")
    await story.pass_time(2 * SYNC_INTERVAL_MS)

    def close_badly(handle: _SimSyncHandle) -> None:
        raise error

    monkeypatch.setattr(_SimSyncHandle, "close", close_badly)
    body = json.dumps({"stream_name": "S", "config": {"name": "c", "durable_name": "c"}}).encode()
    story.core.on_api(OPERATOR, b"$JS.API.CONSUMER.CREATE.S.c", b"", b"", body)
    await story.pass_time(2 * SYNC_INTERVAL_MS)
    assert group.failed is not None
    assert group.log.failed is not None
