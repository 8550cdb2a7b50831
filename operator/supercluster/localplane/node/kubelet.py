"""The kubelet API of a node: logs of containers, over TLS on each node's address.

A client needs a certificate of the agent's client authority, unless logs are open to every client; there is no other authentication. `exec`,
`attach` and `portForward` are not supported.
"""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

from aiohttp import web

from supercluster.localplane import certificates
from supercluster.localplane.node.addresses import KUBELET_PORT
from supercluster.localplane.node.agent import NodeAgent
from supercluster.localplane.node.logs import answer, path_of, read

NOT_KEPT = ("timestamps", "sinceSeconds", "sinceTime")
SHUTDOWN_S = 1.0


class KubeletServer:
    def __init__(self, agent: NodeAgent, client_ca: Path | None) -> None:
        self._agent = agent
        self._client_ca = client_ca
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on every node. The nodes must have their addresses.

        Raises:
            OSError: the authority can't be read, or an address is in use.
        """
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
        await self._runner.setup()
        own = certificates.ensure(self._agent.state_dir, dt.datetime.now(dt.UTC), "kubelet")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(own.certificate, own.key)
        if self._client_ca is not None:
            context.load_verify_locations(cafile=self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        for node in self._agent.nodes.values():
            await web.TCPSite(self._runner, node.address, KUBELET_PORT, ssl_context=context).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        wrong = [name for name in NOT_KEPT if query.get(name, "false") != "false"]
        if wrong:
            return web.Response(status=400, text=f"{wrong[0]}: logs have no times here")
        name = request.match_info["container"]
        worker = self._agent.worker_of(request.match_info["namespace"], request.match_info["pod"])
        if worker is None:
            return web.Response(status=404, text=f"pod {request.match_info['pod']} does not run here")
        containers = {one.name: one for one in worker.inits + worker.mains}
        if name not in containers:
            return web.Response(status=404, text=f"the pod has no container {name}")
        container = containers[name]
        is_previous = query.get("previous") == "true"
        path = path_of(worker.pod_dir, name, previous=is_previous)
        if not path.exists():
            what = "has no earlier run" if is_previous else "is waiting to start"
            return web.Response(status=400, text=f"container {name} {what}")
        try:
            tail, limit = (int(query[one]) if query.get(one) else None for one in ("tailLines", "limitBytes"))
        except ValueError:
            return web.Response(status=400, text="tailLines and limitBytes are whole numbers")

        def ended() -> bool:
            return is_previous or container.is_over or worker.uid not in self._agent.workers

        chunks = read(path, follow=query.get("follow") == "true", tail=tail, limit_bytes=limit, ended=ended)
        return await answer(request, chunks, "text/plain")
