"""A control plane of Kubernetes' own programs, in place of the embedded API server and controllers.

etcd, kube-apiserver, kube-controller-manager and kube-scheduler are taken from a folder in setup-envtest's
layout, and listen on loopback only. Its nodes and the files of the state directory are those of the embedded
plane, so a client of a plane can use either. RBAC is in force, the restricted Pod Security profile is
enforced in all namespaces but kube-system, and requests are in `kube/audit.log`. etcd does not sync to disk:
a power failure may cost all objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import os
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from supercluster.app.kubeconfig import lenient
from supercluster.localplane import certificates
from supercluster.localplane.agent import Agent, start_nodes
from supercluster.localplane.client import Client
from supercluster.localplane.files import write_private
from supercluster.localplane.node.process import Process
from supercluster.localplane.plane import StateDirectory, kubeconfig

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
READY_S = 60.0
READY_POLL_S = 0.1
GRACE_S = 10.0
LOOPBACK = "127.0.0.1"
KEY_BITS = 2048
UNRESTRICTED = ("kube-system",)

ADMISSION: dict[str, Any] = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AdmissionConfiguration",
    "plugins": [
        {
            "name": "PodSecurity",
            "configuration": {
                "apiVersion": "pod-security.admission.config.k8s.io/v1",
                "kind": "PodSecurityConfiguration",
                "defaults": {"enforce": "restricted", "enforce-version": "latest"},
                "exemptions": {"namespaces": list(UNRESTRICTED)},
            },
        }
    ],
}
AUDIT: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


# Pods have addresses of loopback here, which Endpoints and EndpointSlices may not have: each change of a pod would give events about
# refused writes. Services are names, not proxies, so nothing reads them.
CONTROLLERS = "*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller"


class KubePlaneError(Exception):
    """The control plane can't be started; the message says why."""


def missing(assets: Path) -> list[str]:
    """The programs that a folder lacks."""
    return [name for name in PROGRAMS if not os.access(assets / name, os.X_OK)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _signing_key() -> tuple[str, str]:
    """Private and public key for service accounts' tokens, PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private.decode(), public.decode()


class KubePlane:
    """Kubernetes' control plane and simulated nodes over one state directory. With no nodes it is the control plane alone."""

    def __init__(self, state_dir: Path, nodes: int, assets: Path) -> None:
        wanting = missing(assets)
        if wanting:
            raise KubePlaneError(f"{assets} has no program {', '.join(wanting)}; setup-envtest fetches them")
        self._state = StateDirectory(state_dir)
        self._nodes = nodes
        self._assets = assets
        self._folder = self._state.path / "kube"
        self._running: dict[str, Process] = {}
        self._agent: Agent | None = None
        self.url = ""

    @property
    def kubeconfig_path(self) -> Path:
        return self._state.kubeconfig

    async def start(self, port: int) -> None:
        """Raises KubePlaneError when a program ends or is not ready in time."""
        self._state.is_not_ready()
        (self._folder / "run").mkdir(parents=True, exist_ok=True)
        self.url = f"https://{LOOPBACK}:{port or _free_port()}"
        try:
            await self._start_api()
            self._start(
                "kube-controller-manager",
                *self._as_administrator(),
                f"--service-account-private-key-file={self._folder / 'sa.key'}",
                f"--root-ca-file={self._certificate}",
                "--use-service-account-credentials=true",
                f"--controllers={CONTROLLERS}",
            )
            self._start("kube-scheduler", *self._as_administrator())
            if self._nodes:
                await self._start_nodes()
        except BaseException:
            await self._end()
            raise
        self._state.is_ready(url=self.url)

    async def stop(self) -> None:
        self._state.is_not_ready()
        await self._end()
        self._state.close()

    async def _end(self) -> None:
        if self._agent is not None:
            await self._agent.stop()
        for name in reversed(PROGRAMS):
            if name in self._running:
                await self._running.pop(name).stop(GRACE_S)

    # --- programs ---

    def _start(self, name: str, *arguments: str) -> None:
        command = [str(self._assets / name), *arguments]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = Process.start(command, os.environ, self._folder, log, self._folder / "run")

    def _file(self, name: str, content: str) -> str:
        write_private(self._folder / name, content)
        return str(self._folder / name)

    async def _start_api(self) -> None:
        etcd = f"http://{LOOPBACK}:{_free_port()}"
        urls = ["--listen-client-urls", etcd, "--advertise-client-urls", etcd]
        urls += ["--listen-peer-urls", f"http://{LOOPBACK}:0"]
        data = ["--data-dir", str(self._folder / "etcd"), "--unsafe-no-fsync", "--log-level", "warn"]
        self._start("etcd", *data, *urls)
        self._start("kube-apiserver", *self._api_arguments(etcd))
        await self._until_ready()
        authority = self._certificate.read_text()
        write_private(self._state.kubeconfig, kubeconfig(self.url, self._state.token, authority))

    @property
    def _certificate(self) -> Path:
        return self._folder / "certs" / "apiserver.crt"

    def _api_arguments(self, etcd: str) -> Sequence[str]:
        if not (self._folder / "sa.key").exists():
            private, public = _signing_key()
            self._file("sa.pub", public)
            self._file("sa.key", private)
        tokens = self._file("tokens.csv", f"{self._state.token},admin,admin,system:masters\n")
        client = certificates.ensure(self._folder, dt.datetime.now(dt.UTC), "kubelet-client")
        settings = {
            "etcd-servers": etcd,
            "bind-address": LOOPBACK,
            "advertise-address": LOOPBACK,
            "secure-port": self.url.rpartition(":")[2],
            "cert-dir": str(self._folder / "certs"),
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": str(self._folder / "sa.pub"),
            "service-account-signing-key-file": str(self._folder / "sa.key"),
            "service-cluster-ip-range": "10.0.0.0/16",
            "authorization-mode": "RBAC",
            "token-auth-file": tokens,
            "endpoint-reconciler-type": "none",
            "kubelet-client-certificate": str(client.certificate),
            "kubelet-client-key": str(client.key),
            "admission-control-config-file": self._file("admission.json", json.dumps(ADMISSION)),
            "audit-policy-file": self._file("audit.json", json.dumps(AUDIT)),
            "audit-log-path": str(self._folder / "audit.log"),
        }
        return [f"--{name}={value}" for name, value in settings.items()]

    def _as_administrator(self) -> Sequence[str]:
        return [
            f"--kubeconfig={self._state.kubeconfig}",
            "--leader-elect=false",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={_free_port()}",
        ]

    async def _until_ready(self) -> None:
        headers = {"Authorization": f"Bearer {self._state.token}"}
        timeout = aiohttp.ClientTimeout(total=READY_S)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
            try:
                async with asyncio.timeout(READY_S):
                    while not await self._answers(session):
                        await asyncio.sleep(READY_POLL_S)
            except TimeoutError:
                raise KubePlaneError(
                    f"kube-apiserver is not ready after {READY_S:g} s; see {self._folder}"
                ) from None

    async def _answers(self, session: aiohttp.ClientSession) -> bool:
        for name, process in self._running.items():
            if process.ended.done():
                raise KubePlaneError(f"{name} ended by itself; see {self._folder / name}.log")
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with session.get(f"{self.url}/readyz", ssl=self._tls()) as answer:
                return answer.status == 200
        return False

    def _tls(self) -> ssl.SSLContext:
        return lenient(ssl.create_default_context(cafile=str(self._certificate)))

    # --- nodes ---

    async def _start_nodes(self) -> None:
        client = Client(self.url, self._state.token, "localplane-node", tls=self._tls())
        access = json.loads(self._state.kubeconfig.read_text())
        trusted = self._folder / "kubelet-client.crt"
        self._agent = await start_nodes(client, self._state.path, self._nodes, access, client_ca=trusted)
