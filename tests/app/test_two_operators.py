"""Two processes of the operator and one API server, each behind a proxy of its own that can fall silent (SF-30, OP-4)."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
import yaml
from tests.conftest import KUBE_ASSETS
from tests.support.tiers import case

from supercluster.api.crd import KINDS
from supercluster.app.kube import KubeClient
from supercluster.app.kubeconfig import Connection, from_file
from supercluster.app.settings import EXIT_LEASE_LOST
from supercluster.localplane.kubeplane import KubePlane
from supercluster.localplane.plane import Plane, kubeconfig

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

CRDS = Path(__file__).resolve().parents[2] / "crds"
API_VERSION = "supercluster.dev/v1alpha1"
LEASES = b"/apis/coordination.k8s.io/"
LEASE_S = 6.0
LIMIT_S = 120.0


@dataclass
class Proxy:
    """Passes bytes on to the API server; notes what is written through it, and holds what it is told to hold."""

    to: Connection
    held: Callable[[bytes], bool] = lambda _: False
    """Of the start of a request: is it kept back?"""
    writes: list[float] = field(default_factory=list)
    """When something was changed, other than a Lease."""
    asked: list[bytes] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = urlsplit(self.to.server)
        upstream_reader, upstream = await asyncio.open_connection(
            there.hostname, there.port, ssl=self.to.ssl_context()
        )
        back = asyncio.ensure_future(_pump(upstream_reader, writer))
        try:
            while chunk := await reader.read(1 << 16):
                line = chunk.split(b"\r\n", 1)[0]
                if self.held(line):
                    # Like packets that are lost: the client hears nothing, and what it sent never arrives.
                    await reader.read()
                    break
                self.asked.append(line)
                if line.split(b" ")[0] in (b"POST", b"PUT", b"PATCH", b"DELETE") and LEASES not in line:
                    self.writes.append(time.monotonic())
                upstream.write(chunk)
                await upstream.drain()
        except ConnectionError:
            pass
        finally:
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)
            for end in (writer, upstream):
                end.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()


@asynccontextmanager
async def proxy_to(ground: Ground) -> AsyncIterator[Proxy]:
    proxy = Proxy(ground.api)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()


@asynccontextmanager
async def operator(folder: Path, proxy: Proxy, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    folder.mkdir()
    config = json.loads(kubeconfig(proxy.url, proxy.to.bearer_token() or "", ""))
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    (folder / "kubeconfig").write_text(json.dumps(config))
    arguments = [
        "--kubeconfig",
        str(folder / "kubeconfig"),
        "--listen",
        "127.0.0.1:0",
        "--resync",
        "1",
        *more,
    ]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "supercluster.app.main", *arguments, "--lease-duration", str(LEASE_S)),
            stderr=log,
            stdout=log,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def until(check: Callable[[], Any], what: str) -> Any:
    async with asyncio.timeout(LIMIT_S):
        while not (found := check()):
            await asyncio.sleep(0.02)
    return found


@dataclass
class Ground:
    api: Connection
    kube: KubeClient

    async def define(self) -> None:
        for kind in KINDS:
            await self.kube.apply(yaml.safe_load((CRDS / f"{kind.plural}.yaml").read_text()))

    async def declare(self) -> None:
        await self.kube.apply(
            {"apiVersion": API_VERSION, "kind": "SuperCluster", "metadata": DEMO, "spec": {}}
        )

    async def keep_changing(self) -> None:
        """Something to be written all the time: a new generation has to be observed."""
        for number in range(10**9):
            patch = {"spec": {"description": f"change {number}"}}
            await self.kube.merge_patch(API_VERSION, "SuperCluster", "default", "demo", patch)
            await asyncio.sleep(0.05)


DEMO = {"name": "demo", "namespace": "default"}


@pytest_asyncio.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    state = tmp_path / "plane"
    plane = KubePlane(state, 0, Path(KUBE_ASSETS)) if KUBE_ASSETS else Plane(state, nodes=0)
    await plane.start(0)
    try:
        api = from_file(plane.kubeconfig_path)
        async with KubeClient(api) as kube:
            yield Ground(api, kube)
    finally:
        await plane.stop()


async def _ended(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(LIMIT_S):
        return await process.wait()


@pytest.mark.covers("SF-30", "OP-4")
@pytest.mark.parametrize(
    "held",
    [
        case(lambda line: LEASES in line, id="only leases are held", is_short=False),
        case(lambda line: True, id="everything is held", is_short=False),
    ],
)
async def test_two_operators_never_write_in_the_same_second(
    ground: Ground, tmp_path: Path, held: Callable[[bytes], bool]
) -> None:
    await ground.define()
    await ground.declare()
    async with AsyncExitStack() as stack:
        changing = asyncio.create_task(ground.keep_changing())
        stack.callback(changing.cancel)
        one, two = [await stack.enter_async_context(proxy_to(ground)) for _ in range(2)]
        first = await stack.enter_async_context(operator(tmp_path / "one", one))
        await until(lambda: len(one.writes) > 10, "the first to work")
        await stack.enter_async_context(operator(tmp_path / "two", two))
        await until(lambda: any(LEASES in line for line in two.asked), "the second to wait for the lease")
        one.held = held
        silent_at = time.monotonic()
        await until(lambda: len(two.writes) > 10, "the second to work")
        one.held = lambda _: False
        assert await _ended(first) == EXIT_LEASE_LOST
        assert two.writes[0] - one.writes[-1] > 1.0
        assert one.writes[-1] - silent_at < LEASE_S
        assert not changing.done()


@pytest.mark.covers("SF-30")
async def test_an_operator_that_starts_before_the_definitions_leads_with_all_its_watches(
    ground: Ground, tmp_path: Path
) -> None:
    async with proxy_to(ground) as proxy, operator(tmp_path / "one", proxy):
        await until(lambda: any(b"/apis/supercluster.dev" in line for line in proxy.asked), "it to ask")
        assert not any(LEASES in line for line in proxy.asked)
        await ground.define()
        await until(lambda: any(LEASES in line for line in proxy.asked), "it to ask for the lease")
        watched = {
            line.split(b"?")[0].rpartition(b"/")[2].decode() for line in proxy.asked if b"watch=true" in line
        }
        assert {kind.plural for kind in KINDS} <= watched
        await ground.declare()
        await until(lambda: proxy.writes, "it to work")


@pytest.mark.long
@pytest.mark.covers("SF-30", "OP-2")
async def test_an_operator_waits_for_definitions_that_have_its_fields(ground: Ground, tmp_path: Path) -> None:
    """O19: an API server with an older definition drops what is recorded in a status."""
    await ground.define()
    await ground.declare()
    old = yaml.safe_load((CRDS / "clusters.yaml").read_text())
    status = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del status["metaVoters"], status["drain"]
    await ground.kube.apply(old)
    async with proxy_to(ground) as proxy, operator(tmp_path / "one", proxy):
        log = tmp_path / "one" / "log"
        said = "its definition lacks status.metaVoters"
        await until(lambda: said in log.read_text(), "it to say what is wanting")
        assert not any(LEASES in line for line in proxy.asked)
        await ground.define()
        await until(lambda: proxy.writes, "it to work")


@pytest.mark.covers("SF-30", "OP-4")
@pytest.mark.parametrize(
    ("first_serves", "second_serves"),
    [
        case(("--namespace", "default"), ("--namespace", "default,other"), id="one-and-some", is_short=False),
        case(("--namespace", "default"), (), id="one-and-all", is_short=True),
        case((), ("--namespace", "default"), id="all-and-one", is_short=False),
    ],
)
async def test_of_two_operators_that_serve_one_namespace_one_works(
    ground: Ground, tmp_path: Path, first_serves: tuple[str, ...], second_serves: tuple[str, ...]
) -> None:
    """O28, B4: two releases, each with a Lease of its own."""
    await ground.define()
    await ground.declare()
    async with AsyncExitStack() as stack:
        changing = asyncio.create_task(ground.keep_changing())
        stack.callback(changing.cancel)
        one, two = [await stack.enter_async_context(proxy_to(ground)) for _ in range(2)]
        first = await stack.enter_async_context(
            operator(tmp_path / "one", one, "--lease-name", "one", *first_serves)
        )
        await until(lambda: len(one.writes) > 10, "the first to work")
        names = ("--lease-name", "two", *second_serves)
        await stack.enter_async_context(operator(tmp_path / "two", two, *names))
        lease = b"/namespaces/default/leases/supercluster-operator"
        await until(lambda: any(lease in line for line in two.asked), "the second to wait")
        before = len(one.writes)
        await until(lambda: len(one.writes) > before + 20, "the first to go on")
        assert not two.writes
        first.terminate()
        assert await _ended(first) == 0
        await until(lambda: len(two.writes) > 10, "the second to work")
        assert two.writes[0] > one.writes[-1]
        assert not changing.done()
