"""Fault injection for tests and demos: kill a pod's processes, lose a node, bring it back.

They are an HTTP endpoint of the agent (with the plane's token) and a command line over it:
`python -m supercluster.localplane.node.faults STATE_DIR pods | kill NS/POD [CONTAINER] | lose NODE
[--destroy-volumes]
| return NODE`. Draining and cordoning need no lever: kubectl does both through the API.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
from aiohttp import web

from supercluster.localplane.client import Json
from supercluster.localplane.files import write_private
from supercluster.localplane.node.agent import NodeAgent

ADDRESS_FILE = "agent.json"
REQUEST_TIMEOUT_S = 60.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Faults:
    """The levers themselves."""

    def __init__(self, agent: NodeAgent) -> None:
        self.agent = agent

    def pods(self) -> list[Json]:
        """Every pod that runs here, with its node, address and the process ids of its containers."""
        return [
            {
                "namespace": worker.pod["metadata"]["namespace"],
                "name": worker.pod["metadata"]["name"],
                "uid": worker.uid,
                "node": worker.pod["spec"].get("nodeName"),
                "address": worker.address,
                "directory": str(worker.pod_dir),
                "processes": {
                    container.name: container.process.pid
                    for container in worker.inits + worker.mains
                    if container.process is not None
                },
            }
            for worker in self.agent.workers.values()
        ]

    def kill(
        self,
        namespace: str,
        name: str,
        container: str = "",
        number: int = signal.SIGKILL,
        *,
        forgive: bool = False,
    ) -> list[int]:
        """Signal the first process of each container (or of one), as `kill` on a node would. The process ids.

        With `forgive` the restart comes at once, however often the container ended before.
        """
        worker = self.agent.worker_of(namespace, name)
        if worker is None:
            raise KeyError(f"no pod {namespace}/{name} runs here")
        running = {one.name: one for one in worker.inits + worker.mains if one.process is not None}
        if container and container not in running:
            raise KeyError(f"pod {namespace}/{name} has no running container {container!r}")
        killed = []
        for found in running.values():
            if container in ("", found.name) and found.process is not None:
                if forgive:
                    found.forgive()
                found.process.signal(number)
                killed.append(found.process.pid)
        return killed

    async def lose_node(self, name: str, *, destroy_volumes: bool = False) -> int:
        return await self.agent.lose_node(name, destroy_volumes=destroy_volumes)

    async def return_node(self, name: str) -> None:
        await self.agent.return_node(name)


class FaultServer:
    """The levers over HTTP, on the first node's address."""

    def __init__(self, agent: NodeAgent, token: str) -> None:
        self.faults = Faults(agent)
        self._agent = agent
        self._token = token
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(middlewares=[self._guarded])
        app.router.add_get("/pods", self._pods)
        app.router.add_post("/faults/kill", self._kill)
        app.router.add_post("/faults/lose-node", self._lose)
        app.router.add_post("/faults/return-node", self._return)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        assert self._agent.listener is not None, "the agent's prepare() comes first"
        await web.SockSite(self._runner, self._agent.listener).start()
        host, port = self._agent.listener.getsockname()
        path = self._agent.state_dir / ADDRESS_FILE
        write_private(path, json.dumps({"url": f"http://{host}:{port}", "token": self._token}))

    async def stop(self) -> None:
        (self._agent.state_dir / ADDRESS_FILE).unlink(missing_ok=True)
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return web.json_response({"message": "Unauthorized"}, status=401)
        try:
            return await handler(request)
        except KeyError as error:
            return web.json_response({"message": str(error.args[0])}, status=404)
        except ValueError as error:
            return web.json_response({"message": str(error)}, status=400)

    async def _pods(self, request: web.Request) -> web.Response:
        return web.json_response({"items": self.faults.pods()})

    async def _kill(self, request: web.Request) -> web.Response:
        body = await request.json()
        number = int(signal.Signals[body.get("signal", "SIGKILL")])
        killed = self.faults.kill(
            body["namespace"],
            body["pod"],
            body.get("container", ""),
            number,
            forgive=bool(body.get("forgive")),
        )
        return web.json_response({"killed": killed})

    async def _lose(self, request: web.Request) -> web.Response:
        body = await request.json()
        destroy = bool(body.get("destroyVolumes"))
        return web.json_response({"pods": await self.faults.lose_node(body["node"], destroy_volumes=destroy)})

    async def _return(self, request: web.Request) -> web.Response:
        body = await request.json()
        await self.faults.return_node(body["node"])
        return web.json_response({})


async def call(state_dir: Path, method: str, path: str, body: Json | None = None) -> Json:
    """Ask the agent that runs on `state_dir`.

    Raises:
        FileNotFoundError: none runs there.
        RuntimeError: it refused, and why.
    """
    where = json.loads((state_dir / ADDRESS_FILE).read_text())
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {where['token']}"}
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
        async with session.request(method, where["url"] + path, json=body) as answer:
            told: Json = await answer.json()
            if answer.status != 200:
                raise RuntimeError(str(told.get("message")))
            return told


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m supercluster.localplane.node.faults", description=__doc__
    )
    parser.add_argument("state_dir", type=Path, help="the plane's state directory")
    orders = parser.add_subparsers(dest="order", required=True)
    orders.add_parser("pods", help="list running pods with their process ids")
    kill = orders.add_parser("kill", help="send a signal to a pod's processes")
    kill.add_argument("pod", help="NAMESPACE/NAME")
    kill.add_argument("container", nargs="?", default="")
    kill.add_argument("--signal", default="SIGKILL", help="SIGKILL unless given")
    kill.add_argument("--forgive", action="store_true", help="restart at once, without back-off")
    lose = orders.add_parser("lose", help="kill all pods of a node and make it unreachable")
    lose.add_argument("node")
    lose.add_argument("--destroy-volumes", action="store_true", help="empty the volumes that live on it")
    back = orders.add_parser("return", help="bring a lost node back")
    back.add_argument("node")
    return parser.parse_args(words)


async def _run(given: argparse.Namespace) -> Json:
    match given.order:
        case "pods":
            return await call(given.state_dir, "GET", "/pods")
        case "kill":
            namespace, _, name = given.pod.rpartition("/")
            body: Json = {"namespace": namespace or "default", "pod": name, "container": given.container}
            body |= {"signal": given.signal, "forgive": given.forgive}
            return await call(given.state_dir, "POST", "/faults/kill", body)
        case "lose":
            body = {"node": given.node, "destroyVolumes": given.destroy_volumes}
            return await call(given.state_dir, "POST", "/faults/lose-node", body)
    return await call(given.state_dir, "POST", "/faults/return-node", {"node": given.node})


def main(words: list[str] | None = None) -> int:
    """0: done; 1: refused or no plane runs there."""
    try:
        print(json.dumps(asyncio.run(_run(_arguments(words))), indent=1))
    except (OSError, RuntimeError, aiohttp.ClientError) as error:
        print(f"faults: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
