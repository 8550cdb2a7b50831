"""Answers that stay open: watches over HTTP and over WebSocket."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import Any

from aiohttp import web

from supercluster.localplane.apiserver.http import bodies, listing, representation
from supercluster.localplane.apiserver.http.listing import WatchEvent
from supercluster.localplane.apiserver.http.parameters import Form
from supercluster.localplane.apiserver.storage.registry import Resource
from supercluster.localplane.apiserver.storage.store import Store


class Watches:
    """Serves watches, and ends them all when the server stops."""

    def __init__(self, store: Store, now: Callable[[], dt.datetime]) -> None:
        self._store = store
        self._now = now
        self._running: set[asyncio.Task[Any]] = set()
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True
        for task in self._running:
            task.cancel()

    async def serve(
        self, request: web.Request, resource: Resource, query: listing.Query, form: Form
    ) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await self._over_websocket(request, resource, query, form)
            return await self._over_http(request, resource, query, form)
        finally:
            self._running.discard(task)

    def _encoded(self, event: WatchEvent, resource: Resource, form: Form, first: bool) -> bytes:
        obj = event.obj
        if event.type == "BOOKMARK" and form.table:
            obj = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"], "rows": []}
        elif event.type not in ("ERROR", "BOOKMARK"):
            obj = representation.one(resource, obj, form, self._now(), headers=first)
        return bodies.encode({"type": event.type, "object": obj})

    async def _over_http(
        self, request: web.Request, resource: Resource, query: listing.Query, form: Form
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache"}
        )
        events = listing.watch(self._store, resource, query, asyncio.get_running_loop().time)
        await response.prepare(request)
        pending: list[bytes] = []
        first = True
        try:
            async for event in events:
                if event is not None:
                    pending.append(self._encoded(event, resource, form, first) + b"\n")
                    first = False
                elif pending:
                    await response.write(b"".join(pending))
                    pending.clear()
            if pending:
                await response.write(b"".join(pending))
            await response.write_eof()
        except ConnectionError:
            # The client left; there is nobody to tell.
            pass
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        return response

    async def _over_websocket(
        self, request: web.Request, resource: Resource, query: listing.Query, form: Form
    ) -> web.StreamResponse:
        """Spark's client asks for this first: one text frame per event."""
        events = listing.watch(self._store, resource, query, asyncio.get_running_loop().time)
        response = web.WebSocketResponse(heartbeat=30.0)
        await response.prepare(request)
        # The client sends nothing but its goodbye, which has to be read to be noticed.
        me = asyncio.current_task()
        reader = asyncio.create_task(_until_closed(response, me))
        first = True
        try:
            async for event in events:
                if event is not None:
                    await response.send_str(self._encoded(event, resource, form, first).decode())
                    first = False
        except ConnectionError:
            pass
        except asyncio.CancelledError:
            if not (self._stopping or response.closed):
                raise
        finally:
            reader.cancel()
            await response.close()
        return response


async def _until_closed(response: web.WebSocketResponse, watcher: asyncio.Task[Any] | None) -> None:
    async for _ in response:
        pass
    if watcher is not None:
        watcher.cancel()
