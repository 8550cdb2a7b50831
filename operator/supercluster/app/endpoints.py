"""/healthz and /metrics of the operator (Prometheus text)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from aiohttp import web
from prometheus_client.core import Metric

from supercluster.app.metrics import counter, gauge, prometheus_text
from supercluster.reconcilers.handlers.rounds import Counters


@dataclass(frozen=True, slots=True)
class State:
    """What the endpoints tell of the process."""

    counters: Counters
    is_leader: Callable[[], bool]
    is_watching: Callable[[], bool]
    workers: Callable[[], int]
    failing: Callable[[], int]
    objects: Callable[[], int]
    more: Callable[[], Iterable[Metric]] = tuple
    """Of what the operator looks after; iterated by another thread."""


def families(state: State) -> list[Metric]:
    """What the process does."""
    counters = state.counters

    def plain(name: str, text: str, value: int) -> Metric:
        return gauge(f"supercluster_operator_{name}", text, {"": value})

    def counted(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
        return counter(f"supercluster_operator_{name}_total", text, dict(sorted(values.items())), label)

    return [
        plain("leader", "1 while this copy holds the Lease.", int(state.is_leader())),
        plain("workers", "Resources that have a worker.", state.workers()),
        plain("failing", "Resources whose last round failed.", state.failing()),
        plain("objects", "Objects in the cache.", state.objects()),
        counted("rounds", "Rounds by kind of resource.", "kind", counters.rounds),
        counted("steps", "Steps carried out, by what they do.", "step", counters.steps),
        counted("failures", "Steps that failed, by kind of resource.", "kind", counters.failures),
        counted("status_writes", "Statuses written, by kind of resource.", "kind", counters.status_writes),
    ]


def application(state: State) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        """Live as soon as it answers; ready once it watches (a copy that waits for the Lease is ready, too)."""
        ready = state.is_watching()
        body = {"ready": ready, "leader": state.is_leader()}
        return web.json_response(body, status=200 if ready else 503)

    async def livez(_: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def metrics(_: web.Request) -> web.Response:
        found = chain(families(state), state.more())
        text = await asyncio.to_thread(prometheus_text, found)
        return web.Response(text=text, content_type="text/plain", charset="utf-8")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/livez", livez), web.get("/metrics", metrics)])
    return app


async def serve(state: State, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Listen; the runner is to be cleaned up, and the port is the one that was taken.

    Raises:
        OSError: the address can't be used.
    """
    runner = web.AppRunner(application(state), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    addresses = runner.addresses
    return runner, int(addresses[0][1]) if addresses else port
