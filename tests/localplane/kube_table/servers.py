"""The two servers: the embedded one in this process, and a real kube-apiserver from the folder KUBE_ASSETS."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
from tests.localplane.kube_table.bench import Bench, Server

from supercluster.localplane.apiserver.http.server import ApiServer

# An end for a server that does not start.
START_S = 120.0
TOKEN = "token-of-the-table"


@asynccontextmanager
async def embedded(state_dir: Path) -> AsyncIterator[Bench]:
    server = ApiServer(state_dir, TOKEN)
    await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            bench = Bench(Server(server.plain_url, TOKEN), session, "run")
            await bench.prepare()
            yield bench
    finally:
        await server.stop()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Real:
    """etcd, kube-apiserver and kube-controller-manager on loopback, as long as this runs."""

    def __init__(self, assets: Path, folder: Path) -> None:
        self._assets, self._folder = assets, folder
        self._started: list[subprocess.Popen[bytes]] = []
        self._files = ExitStack()
        self._port = _free_port()
        self._token = secrets.token_hex(16)

    def _start(self, name: str, **flags: object) -> None:
        given = [f"--{key.replace('_', '-')}={value}" for key, value in flags.items()]
        log = self._files.enter_context((self._folder / f"{name}.log").open("wb"))
        self._started.append(
            subprocess.Popen([str(self._assets / name), *given], stdout=log, stderr=log, cwd=self._folder)
        )

    async def start(self) -> Server:
        key, public = self._folder / "sa.key", self._folder / "sa.pub"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        subprocess.run(
            ["openssl", "rsa", "-in", key, "-pubout", "-out", public], check=True, capture_output=True
        )
        tokens = self._folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f"{self._token},admin,admin,system:masters\n")
        etcd = f"http://127.0.0.1:{_free_port()}"
        self._start(
            "etcd",
            data_dir=self._folder / "etcd",
            unsafe_no_fsync="true",
            listen_client_urls=etcd,
            advertise_client_urls=etcd,
            listen_peer_urls="http://127.0.0.1:0",
            log_level="warn",
        )
        self._start(
            "kube-apiserver",
            etcd_servers=etcd,
            bind_address="127.0.0.1",
            advertise_address="127.0.0.1",
            secure_port=self._port,
            cert_dir=self._folder / "certs",
            service_account_issuer="https://kubernetes.default.svc",
            service_account_key_file=public,
            service_account_signing_key_file=key,
            service_cluster_ip_range="10.0.0.0/24",
            authorization_mode="RBAC",
            token_auth_file=tokens,
            endpoint_reconciler_type="none",
            allow_privileged="true",
        )
        server = Server(f"https://127.0.0.1:{self._port}", self._token)
        await self._ready(server)
        self._kubeconfig()
        self._start(
            "kube-controller-manager",
            kubeconfig=self._folder / "kubeconfig",
            service_account_private_key_file=key,
            leader_elect="false",
            use_service_account_credentials="true",
            bind_address="127.0.0.1",
            secure_port=_free_port(),
        )
        return server

    def _kubeconfig(self) -> None:
        path = self._folder / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(
            "{apiVersion: v1, kind: Config, current-context: k,"
            f" clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:{self._port}',"
            f" certificate-authority: '{self._folder}/certs/apiserver.crt'}}}}],"
            f" users: [{{name: k, user: {{token: '{self._token}'}}}}],"
            " contexts: [{name: k, context: {cluster: k, user: k}}]}\n"
        )

    async def _ready(self, server: Server) -> None:
        certificate = self._folder / "certs" / "apiserver.crt"
        headers = {"Authorization": f"Bearer {server.token}"}
        async with asyncio.timeout(START_S), aiohttp.ClientSession() as session:
            while True:
                for process in self._started:
                    assert process.poll() is None, f"{process.args!r} ended; its log is in {self._folder}"
                if certificate.exists():
                    server.context = ssl.create_default_context(cafile=str(certificate))
                    try:
                        async with session.get(
                            f"{server.url}/readyz", headers=headers, ssl=server.context
                        ) as answer:
                            if answer.status == 200:
                                return
                    except (aiohttp.ClientError, OSError):
                        # Not listening yet.
                        pass
                await asyncio.sleep(0.25)

    def stop(self) -> None:
        for process in reversed(self._started):
            process.send_signal(signal.SIGTERM)
        for process in self._started:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._files.close()


@asynccontextmanager
async def real(assets: Path, folder: Path) -> AsyncIterator[Bench]:
    servers = Real(assets, folder)
    try:
        server = await servers.start()
        async with aiohttp.ClientSession() as session:
            bench = Bench(server, session, "run")
            await bench.prepare()
            yield bench
    finally:
        servers.stop()


def assets() -> Path | None:
    """The folder with etcd, kube-apiserver and kube-controller-manager, as setup-envtest makes it."""
    given = os.environ.get("KUBE_ASSETS")
    return Path(given) if given else None
