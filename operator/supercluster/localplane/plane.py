"""The embedded control plane as one process: the API server, and its clients.

The kubeconfig and the token in it are readable by their owner only. `ready.json` exists only while the API
answers. A second start over the same directory finds the objects and the token of the first.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import json
import os
import secrets
from pathlib import Path

from supercluster.localplane.agent import Agent, start_agent
from supercluster.localplane.apiserver.http.server import ApiServer
from supercluster.localplane.files import write_private

TOKEN_BYTES = 24


class DirectoryInUseError(Exception):
    """Another control plane runs on the state directory."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(f"another control plane runs on {state_dir}; stop it, or use another directory")


def kubeconfig(url: str, token: str, authority: str) -> str:
    """A kubeconfig with the token inside; JSON is YAML, and every client reads it."""
    name = "supercluster-local"
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(authority.encode()).decode()}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        },
        indent=1,
    )


class StateDirectory:
    """Where a control plane keeps everything; one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The state has every Secret and the key of all tokens. The folder may be from before, and open to others.
        path.chmod(0o700)
        # Before anything is read: two processes over one state file would overwrite each other's objects.
        self._lock = self._take_lock()
        self.token = self._token()

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def ready(self) -> Path:
        return self.path / "ready.json"

    def _take_lock(self) -> int:
        descriptor = os.open(self.path / "plane.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno == errno.EWOULDBLOCK:
                raise DirectoryInUseError(self.path) from None
            raise
        return descriptor

    def _token(self) -> str:
        path = self.path / "token"
        if path.exists():
            return path.read_text().strip()
        token = secrets.token_urlsafe(TOKEN_BYTES)
        write_private(path, token)
        return token

    def is_ready(self, **urls: str) -> None:
        write_private(self.ready, json.dumps({"pid": os.getpid(), **urls}))

    def is_not_ready(self) -> None:
        self.ready.unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self._lock)


class Plane:
    """API server, controllers and node agent over one state directory. With no nodes it is the API alone."""

    def __init__(self, state_dir: Path, nodes: int) -> None:
        self._state = StateDirectory(state_dir)
        self.nodes = nodes
        self.server = ApiServer(state_dir, self.token)
        self.agent: Agent | None = None

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def token(self) -> str:
        return self._state.token

    @property
    def kubeconfig_path(self) -> Path:
        return self._state.kubeconfig

    async def start(self, port: int) -> None:
        self._state.is_not_ready()
        await self.server.start(port=port)
        config = kubeconfig(self.server.url, self.token, self.server.authority)
        write_private(self.kubeconfig_path, config)
        if self.nodes:
            try:
                self.agent = await start_agent(
                    self.server.plain_url, self.token, self._state.path, self.nodes, json.loads(config)
                )
            except BaseException:
                await self.server.stop()
                raise
        self._state.is_ready(url=self.server.url, plainUrl=self.server.plain_url)

    async def stop(self) -> None:
        self._state.is_not_ready()
        if self.agent is not None:
            await self.agent.stop()
        await self.server.stop()
        self._state.close()
