"""/healthz and /metrics of the operator (Prometheus text)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

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
    more: Callable[[], list[str]] = list
    """Lines about what the operator looks after."""


def metrics_text(state: State) -> str:
    lines: list[str] = []

    def gauge(name: str, text: str, value: int) -> None:
        lines.extend((f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name} {value}"))

    def counter(name: str, text: str, label: str, values: Mapping[str, int]) -> None:
        lines.extend((f"# HELP {name} {text}", f"# TYPE {name} counter"))
        lines.extend(f'{name}{{{label}="{key}"}} {values[key]}' for key in sorted(values))

    gauge("supercluster_operator_leader", "1 while this copy holds the Lease.", int(state.is_leader()))
    gauge("supercluster_operator_workers", "Resources that have a worker.", state.workers())
    gauge("supercluster_operator_failing", "Resources whose last round failed.", state.failing())
    gauge("supercluster_operator_objects", "Objects in the cache.", state.objects())
    counters = state.counters
    counter("supercluster_operator_rounds_total", "Rounds by kind of resource.", "kind", counters.rounds)
    counter(
        "supercluster_operator_steps_total", "Steps carried out, by what they do.", "step", counters.steps
    )
    counter(
        "supercluster_operator_failures_total",
        "Steps that failed, by kind of resource.",
        "kind",
        counters.failures,
    )
    counter(
        "supercluster_operator_status_writes_total",
        "Statuses written, by kind of resource.",
        "kind",
        counters.status_writes,
    )
    return "\n".join([*lines, *state.more()]) + "\n"


def application(state: State) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        """Live as soon as it answers; ready once it watches (a copy that waits for the Lease is ready, too)."""
        ready = state.is_watching()
        body = {"ready": ready, "leader": state.is_leader()}
        return web.json_response(body, status=200 if ready else 503)

    async def livez(_: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=metrics_text(state), content_type="text/plain", charset="utf-8")

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
