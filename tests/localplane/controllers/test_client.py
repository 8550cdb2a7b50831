"""The informer against a scripted server: what it does when watches break, versions expire and objects vanish."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from supercluster.localplane import client as plane_client
from supercluster.localplane.client import Client, Informer, Json, Key, RequestError
from supercluster.localplane.controllers.base import Cluster, Controller, Queue
from supercluster.localplane.event_recorder import EventRecorder


def thing(name: str, version: int, uid: str = "") -> Json:
    meta = {"name": name, "namespace": "ns", "uid": uid or name, "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


class Script:
    """Answers lists with `objects`, and each watch with the next of `watches`; the last one stays open."""

    def __init__(self) -> None:
        self.objects: list[Json] = []
        self.version = 1
        self.watches: list[list[bytes]] = []
        self.asked: list[str] = []
        self.lists = 0
        self.refuses_watch = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == "Bearer secret"
        if "watch" not in request.query:
            self.lists += 1
            meta = {"resourceVersion": str(self.version)}
            return web.json_response({"kind": "List", "metadata": meta, "items": self.objects})
        self.asked.append(request.query["resourceVersion"])
        if self.refuses_watch:
            self.refuses_watch = False
            return web.json_response({"kind": "Status", "code": 410}, status=410)
        answer = web.StreamResponse()
        await answer.prepare(request)
        is_last = len(self.watches) <= 1
        for chunk in self.watches.pop(0) if self.watches else ():
            await answer.write(chunk)
            await asyncio.sleep(0)
        if is_last:
            await asyncio.Event().wait()
        return answer


def event(kind: str, obj: Json) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


@pytest.fixture
async def script() -> Script:
    return Script()


@pytest.fixture
async def informer(script: Script) -> AsyncIterator[Informer]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.handle)
    async with TestServer(app) as server, Client(str(server.make_url("/")), "secret") as client:
        yield Informer(client, plane_client.CONFIG_MAPS)


async def run_until(informer: Informer, holds: Callable[[], bool]) -> None:
    changed = asyncio.Event()
    informer.listen(lambda before, after: changed.set())
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(60):
            while not holds():
                changed.clear()
                await changed.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_broken_watch_goes_on_from_the_last_version_seen(script: Script, informer: Informer) -> None:
    script.objects = [thing("a", 1)]
    script.watches = [
        [event("ADDED", thing("b", 7)), event("BOOKMARK", thing("", 9))],
        [event("ADDED", thing("c", 10))],
    ]
    await run_until(informer, lambda: informer.get("ns", "c") is not None)
    assert script.asked == ["1", "9"]
    assert script.lists == 1
    assert {name for _, name in informer.all_keys()} == {"a", "b", "c"}


@pytest.mark.parametrize("is_told_by_status", [True, False])
async def test_an_expired_version_lists_again_and_drops_what_is_gone(
    script: Script, informer: Informer, is_told_by_status: bool
) -> None:
    expired = {"kind": "Status", "code": 410, "metadata": {}}
    script.objects = [thing("a", 1), thing("b", 1)]
    script.refuses_watch = is_told_by_status
    script.watches = [[]] if is_told_by_status else [[event("ERROR", expired)], []]
    gone: list[Json] = []

    def changed(before: Json | None, after: Json | None) -> None:
        if after is None and before is not None:
            gone.append(before)
        # The next list is without it.
        script.objects, script.version = [thing("b", 5)], 5

    informer.listen(changed)
    await run_until(informer, lambda: bool(gone))
    assert [one["metadata"]["name"] for one in gone] == ["a"]
    assert script.lists == 2


async def test_lines_may_come_in_pieces_and_be_longer_than_a_buffer(
    script: Script, informer: Informer
) -> None:
    big = thing("big", 3)
    big["data"] = {"x": "y" * 300_000}
    line = event("ADDED", big)
    script.watches = [[line[:10], line[10:200_000], line[200_000:] + event("ADDED", thing("next", 4))]]
    await run_until(informer, lambda: informer.get("ns", "next") is not None)
    held = informer.get("ns", "big")
    assert held is not None
    assert len(held["data"]["x"]) == 300_000


async def test_older_news_never_replaces_newer(informer: Informer) -> None:
    informer.observe(thing("a", 5))
    informer.observe({**thing("a", 4), "data": {"stale": "yes"}})
    assert informer.get("ns", "a") == thing("a", 5)


async def test_an_object_made_again_is_told_as_an_end_and_a_beginning(informer: Informer) -> None:
    heard: list[tuple[str | None, str | None]] = []

    def uid(obj: Json | None) -> str | None:
        return obj["metadata"]["uid"] if obj else None

    informer.listen(lambda before, after: heard.append((uid(before), uid(after))))
    informer.observe(thing("a", 1, "first"))
    informer.observe(thing("a", 2, "second"))
    informer.forget(("ns", "a"), "first")
    assert heard == [(None, "first"), ("first", None), (None, "second")]
    assert informer.get("ns", "a") is not None


async def test_a_listener_that_fails_does_not_keep_news_from_others(
    informer: Informer, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Json | None] = []

    def broken(before: Json | None, after: Json | None) -> None:
        raise RuntimeError("broken")

    informer.listen(broken)
    informer.listen(lambda before, after: heard.append(after))
    informer.observe(thing("a", 1))
    assert len(heard) == 1
    assert "a listener failed" in caplog.text


async def test_refusals_carry_status_and_reason(informer: Informer) -> None:
    error = RequestError(409, "Conflict", "changed meanwhile")
    assert (error.status, error.reason, str(error)) == (409, "Conflict", "409 Conflict: changed meanwhile")


async def test_a_key_waits_once_however_often_it_is_added() -> None:
    queue = Queue()
    for _ in range(3):
        queue.add(("ns", "a"))
    queue.add(("ns", "b"))
    assert [await queue.next(), await queue.next()] == [("ns", "a"), ("ns", "b")]
    assert len(queue) == 0


async def test_a_delayed_key_comes_after_its_delay_and_the_earliest_delay_wins() -> None:
    queue = Queue()
    queue.add_after(("ns", "late"), 3600)
    queue.add_after(("ns", "late"), 0.01)
    queue.add_after(("ns", "late"), 7200)
    async with asyncio.timeout(60):
        assert await queue.next() == ("ns", "late")


async def test_a_full_queue_drops_keys_and_says_so() -> None:
    queue = Queue(keys_max=2)
    for name in "abc":
        queue.add(("ns", name))
    assert len(queue) == 2
    assert queue.overflowed


class Stumbling(Controller):
    """Fails on its first try of each key."""

    kind = plane_client.CONFIG_MAPS

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, EventRecorder(cluster.client, "test"))
        self.tried: list[str] = []
        self.done = asyncio.Event()

    async def sync(self, key: Key) -> float | None:
        self.tried.append(key[1])
        if self.tried.count(key[1]) == 1:
            raise RequestError(500, "InternalError", "try again")
        if len(self.tried) == 4:
            self.done.set()
        return None


async def test_a_controller_tries_again_what_failed(informer: Informer) -> None:
    cluster = Cluster(informer._client, [])
    cluster.informers[plane_client.CONFIG_MAPS] = informer
    controller = Stumbling(cluster)
    informer.observe(thing("a", 1))
    informer.observe(thing("b", 2))
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(60):
        await controller.done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert sorted(controller.tried) == ["a", "a", "b", "b"]
