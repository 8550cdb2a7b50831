"""A whole plane per test: the API server and the agent in this process, pods as real processes on loopback."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from supercluster.localplane import client as plane_client
from supercluster.localplane.agent import Agent
from supercluster.localplane.client import Client, Json, Kind
from supercluster.localplane.plane import Plane

SERVER = """
import http.server, json, os, pathlib, signal, sys
data = pathlib.Path(os.environ["DATA"])
starts = data / "starts"
starts.write_text(str(int(starts.read_text()) + 1 if starts.exists() else 1))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        config = pathlib.Path(os.environ["CONFIG"], "greeting")
        body = json.dumps({
            "name": os.environ["POD_NAME"], "pid": os.getpid(), "starts": int(starts.read_text()),
            "greeting": config.read_text() if config.exists() else None,
            "secret": os.environ.get("SECRET"), "args": sys.argv[1:], "version": os.environ.get("VERSION"),
        }).encode()
        is_sick = (data / "sick").exists() and self.path != "/"
        self.send_response(503 if is_sick else 200)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        print(*args, flush=True)
signal.signal(signal.SIGTERM, lambda *args: sys.exit(0))
http.server.HTTPServer((os.environ["POD_IP"], 8080), Handler).serve_forever()
"""


def field_env(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def web_template(**container: Any) -> Json:
    """A pod template of the tiny web server above."""
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "containers": [
                {
                    "name": "web",
                    "image": "registry.test:5000/localplane/python:1",
                    "args": ["-c", SERVER, "--data=/data/x"],
                    "env": [
                        field_env("POD_NAME", "metadata.name"),
                        field_env("POD_IP", "status.podIP"),
                        {"name": "DATA", "value": "/data"},
                        {"name": "CONFIG", "value": "/etc/web"},
                        {
                            "name": "SECRET",
                            "valueFrom": {
                                "secretKeyRef": {"name": "web", "key": "password", "optional": True}
                            },
                        },
                    ],
                    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                    "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1},
                    "volumeMounts": [
                        {"name": "data", "mountPath": "/data"},
                        {"name": "config", "mountPath": "/etc/web"},
                    ],
                    **container,
                }
            ],
            "volumes": [{"name": "config", "configMap": {"name": "web", "optional": True}}],
        },
    }


def web_set(replicas: int = 3, name: str = "web", **spec: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "serviceName": "web",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "web"}},
            "template": web_template(),
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }
            ],
            **spec,
        },
    }


def bare_pod(name: str, *words: str, image: str = "localplane/sh", **container: Any) -> Json:
    """A pod of one shell command."""
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 2,
            "containers": [{"name": "main", "image": image, "args": list(words), **container}],
        },
    }


WAIT_S = 60.0


@dataclass
class Lab:
    """A plane under test, and what tests do with it."""

    state_dir: Path
    plane: Plane
    agent: Agent
    client: Client
    _changes: asyncio.Event = field(default_factory=asyncio.Event)

    def follow(self) -> None:
        def changed(before: Json | None, after: Json | None) -> None:
            self._changes.set()

        for informer in self.agent.cluster.informers.values():
            informer.listen(changed)

    async def until(self, holds: Callable[[], Any] | Callable[[], Awaitable[Any]], what: str = "") -> Any:
        """Wait until `holds()` is true, asking again whenever something changed in the cluster, and now and then."""
        async with asyncio.timeout(WAIT_S):
            while True:
                self._changes.clear()
                found = holds()
                if inspect.isawaitable(found):
                    found = await found
                if found:
                    return found
                try:
                    await asyncio.wait_for(self._changes.wait(), 0.1)
                except TimeoutError:
                    continue

    def get(self, kind: Kind, name: str, namespace: str = "default") -> Json | None:
        return self.agent.cluster[kind].get(namespace if kind.is_namespaced else "", name)

    def held(self, kind: Kind, name: str) -> Json:
        """As `get`, of an object that must be there."""
        found = self.get(kind, name)
        assert found is not None, f"no {kind.kind} {name}"
        return found

    def pod(self, name: str) -> Json:
        return self.held(plane_client.PODS, name)

    def pods(self) -> dict[str, Json]:
        return {
            pod["metadata"]["name"]: pod
            for pod in self.agent.cluster[plane_client.PODS].in_namespace("default")
        }

    def is_ready(self, name: str) -> bool:
        pod = self.get(plane_client.PODS, name)
        conditions = ((pod or {}).get("status") or {}).get("conditions") or ()
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    async def ready(self, *names: str) -> None:
        await self.until(lambda: all(self.is_ready(name) for name in names))

    async def events(self, reason: str) -> list[str]:
        found = await self.client.list(plane_client.EVENTS, "default")
        return [event["message"] for event in found["items"] if event["reason"] == reason]

    async def ask(self, pod: str, path: str = "/") -> Json:
        """What the pod's web server says."""
        url = f"http://{self.pod(pod)['status']['podIP']}:8080{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            told: Json = await answer.json(content_type=None)
            return told

    def log(self, pod: str, container: str = "main") -> str:
        uid = self.pod(pod)["metadata"]["uid"]
        path = self.state_dir / "pods" / "default" / uid / f"{container}.log"
        return path.read_text() if path.exists() else ""

    async def create(self, kind: Kind, body: Json) -> Json:
        """Make an object; the caches that tests look at have it when this returns."""
        return await self.agent.cluster.create(kind, body)

    async def delete(self, kind: Kind, name: str, grace_s: int | None = None) -> None:
        await self.client.delete(kind, ("default" if kind.is_namespaced else "", name), grace_s=grace_s)

    def state_of(self, pod: str, index: int = 0) -> Json:
        statuses = (self.pod(pod).get("status") or {}).get("containerStatuses")
        return statuses[index]["state"] if statuses else {}


@dataclass
class Labs:
    """Starts planes; each is stopped at the end of its test."""

    state_dir: Path
    open: list[tuple[Plane, Client]] = field(default_factory=list)

    async def start(self, nodes: int = 3) -> Lab:
        plane = Plane(self.state_dir, nodes)
        await plane.start(0)
        assert plane.agent is not None
        client = Client(plane.server.plain_url, plane.token, "test")
        self.open.append((plane, client))
        lab = Lab(self.state_dir, plane, plane.agent, client)
        lab.follow()
        return lab

    async def stop(self) -> None:
        while self.open:
            plane, client = self.open.pop()
            await client.close()
            await plane.stop()


@pytest.fixture
async def labs(tmp_path: Path) -> AsyncIterator[Labs]:
    found = Labs(tmp_path / "state")
    yield found
    await found.stop()


@pytest.fixture
async def lab(labs: Labs) -> Lab:
    return await labs.start()
