"""A Migration from the command line and kubectl, on the embedded control plane, with stand-ins for the admin calls of blue's and green's
brokers: the API server's rules, the operator, and what people see (BG-8, BG-9, BG-12)."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.app.scripted import serving
from tests.app.test_operator_on_the_plane import cli
from tests.conftest import Kubectl, eventually, kubectl_runner
from tests.reconcilers.fake_migrations import FakeMigrations

from supercluster.app.cli import main
from supercluster.reconcilers.ports import BrokersRefusedError, BrokerTarget

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NO_CLIENTS = {"cannot": 0, "may": 0, "stillOnBlue": 0, "publishersStillOnBlue": 0}
CLOCK = {
    "name": "clock",
    "account": "A",
    "user": "ann",
    "address": "10.0.0.7",
    "language": "go",
    "messages": 3,
    "streams": ["flights", "trains"],
}
LOGIN = b64encode(b"op:x").decode()


class StandIns:
    """Both sides' monitoring ports, in a thread of their own."""

    def __init__(self) -> None:
        self.fake = FakeMigrations()
        self.urls: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(30)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._loop.close()

    async def _serve(self) -> None:
        async with serving(self._handler("blue")) as blue, serving(self._handler("green")) as green:
            self.urls = {"blue": blue, "green": green}
            for name, url in self.urls.items():
                side = {"superCluster": name, "identity": f"id-{name}", "version": "1", "migrationPort": 7223}
                self.fake.sides[url] = side
            self._ready.set()
            await self._stop.wait()

    def _handler(self, side: str) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.Response:
            if request.headers.get("Authorization") != f"Basic {LOGIN}":
                return web.json_response({"error": "wrong credentials"}, status=401)
            body = await request.json() if request.can_read_body else {}
            target = BrokerTarget("default", "", (), "op", "x", (self.urls[side],))
            try:
                status, answer = self._answer(request, target, body)
            except BrokersRefusedError as error:
                status, answer = error.code, {"error": error.description, "err_code": error.err_code}
            return web.json_response(answer, status=status)

        return handle

    def _answer(self, request: web.Request, target: BrokerTarget, body: Any) -> tuple[int, Any]:
        fake, parts = self.fake, request.raw_path.removeprefix("/admin/").partition("?")[0].split("/")
        if parts == ["identity"]:
            return 200, {**fake.identity(target), "timeNs": time.time_ns()}
        if parts == ["migrations", "preflight"]:
            return 200, fake.preflight(body)
        if parts == ["migrations"]:
            return 202, fake.start(body)
        migration_id, call = parts[1].replace("%2F", "/"), parts[2:]
        if call == ["streams"]:
            return 200, {"streams": fake.streams(target, migration_id, self.urls["blue"])}
        if call:
            {"abort": fake.abort, "finalize": fake.finalize}[call[0]](migration_id)
            return 202, {}
        found = fake.state(target, migration_id)
        return (200, found) if found is not None else (404, {"error": "no such migration", "err_code": 19023})


class Site:
    def __init__(self, state: Path, kubectl: Kubectl, stand_ins: StandIns) -> None:
        self.kubectl, self.stand_ins, self.fake = kubectl, stand_ins, stand_ins.fake
        self.kubeconfig = state / "kubeconfig"

    def migrate(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """In this process: starting another one takes longer than what it does."""
        given = ["migrate", *arguments, "--kubeconfig", str(self.kubeconfig)]
        with redirect_stdout(io.StringIO()) as told, redirect_stderr(io.StringIO()) as complained:
            code = main(given)
        return subprocess.CompletedProcess(given, code, told.getvalue(), complained.getvalue())

    def begin(self, action: str, name: str, *more: str) -> subprocess.CompletedProcess[str]:
        urls = self.stand_ins.urls
        sides = [f"--{side}{part}" for side in ("blue", "green") for part in ("-url", "-secret")]
        values = (urls["blue"], "there", urls["green"], "there")
        pairs = [word for pair in zip(sides, values, strict=True) for word in pair]
        return self.migrate(action, name, *pairs, *more)

    def get(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "mig", name, "-o", "json").stdout)
        return found

    def phase(self, name: str) -> str:
        return str(self.get(name).get("status", {}).get("phase"))

    def wait(self, name: str, phase: str) -> None:
        eventually(lambda: self.phase(name) == phase, f"{name} to be {phase}, of {self.get(name)}")

    def forget(self, name: str) -> None:
        self.fake.records.clear()
        self.kubectl("delete", "mig", name, "--wait=false")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, kubectl: Path) -> Iterator[Site]:
    state = tmp_path_factory.mktemp("dev")
    stand_ins = StandIns()
    stand_ins.start()
    started = cli("dev", "up", "--nodes", "1", "--state", str(state))
    try:
        assert started.returncode == 0, started.stderr
        made = Site(state, kubectl_runner(kubectl, state / "kubeconfig", state), stand_ins)
        secret = ["create", "secret", "generic", "there", "--type=supercluster.dev/migration"]
        literals = {"user": "op", "password": "x", "migrationUser": "m", "migrationPassword": "y"}
        made.kubectl(*secret, *(f"--from-literal={key}={value}" for key, value in literals.items()))
        yield made
    finally:
        assert cli("dev", "down", "--state", str(state)).returncode == 0
        stand_ins.stop()


@pytest.fixture(autouse=True)
def afresh(site: Site) -> None:
    site.fake.records.clear()
    site.fake.findings.clear()
    site.fake.all_to("pending")
    site.fake.clients = dict(NO_CLIENTS)


@pytest.mark.covers("BG-8", "BG-9", "BG-12")
def test_from_plan_to_the_cleaned_up_blue(site: Site) -> None:
    site.fake.findings.append(
        {"level": "warn", "code": "OpenMove", "subject": "flights", "message": "it moves", "remedy": "wait"}
    )
    planned = site.begin("plan", "over", "--account", "A")
    assert planned.returncode == 0, planned.stderr
    assert "preflight: 2 streams, 1024 bytes" in planned.stdout
    assert "warning: OpenMove flights: it moves; wait" in planned.stdout
    assert site.fake.records == {}, "a plan starts nothing"
    assert site.phase("over") == "AwaitingApproval"
    early = site.kubectl(
        "patch", "mig", "over", "--type=merge", "-p", '{"spec":{"finalize":true}}', check=False
    )
    assert early.returncode != 0
    assert "is not stated yet" in early.stderr
    assert site.migrate("finalize", "over", "--yes").returncode != 0
    assert site.migrate("approve", "over").returncode == 0
    site.wait("over", "Running")
    frozen = '{"spec":{"scope":{"account":"B"}}}'
    refused = site.kubectl("patch", "mig", "over", "--type=merge", "-p", frozen, check=False)
    assert "can't be changed once the migration has started" in refused.stderr
    site.fake.clients = {**NO_CLIENTS, "stillOnBlue": 1, "publishersStillOnBlue": 1, "publishers": [CLOCK]}
    site.fake.all_to("redirected")
    site.wait("over", "AwaitingFinalize")
    site.kubectl("wait", "--for=condition=Warning", "mig/over", "--timeout=30s")
    late = site.migrate("abort", "over")
    assert late.returncode != 0
    assert "there is no way back to blue yet" in late.stderr
    shown = site.migrate("status", "over").stdout
    assert "redirected  2" in shown
    assert "green confirms 2 streams" in shown
    assert "clock      A        ann   10.0.0.7  go        3         flights, trains" in shown
    asked = site.migrate("finalize", "over")
    assert asked.returncode != 0
    assert "blue's copies of 2 streams, as they were handed over, are deleted" in asked.stdout
    assert site.fake.clean_ups == []
    assert site.migrate("finalize", "over", "--yes").returncode == 0
    site.wait("over", "Finalizing")
    site.fake.all_to("cleaned")
    site.wait("over", "Succeeded")
    assert len(site.fake.clean_ups) == 1
    site.kubectl("wait", "--for=condition=Whole", "mig/over", "--timeout=30s")
    columns = site.kubectl("get", "mig", "over").stdout.split()
    assert columns[:6] == ["NAME", "PHASE", "STREAMS", "ONGREEN", "STALLED", "ONBLUE"]
    assert "Succeeded" in site.migrate("status").stdout
    site.forget("over")


@pytest.mark.covers("BG-12")
def test_a_plan_that_is_refused_says_why_and_what_to_do(site: Site) -> None:
    finding = {
        "level": "refused",
        "code": "NameTaken",
        "subject": "flights",
        "message": "green has one",
        "remedy": "rename",
    }
    site.fake.findings.append(finding)
    planned = site.begin("plan", "taken")
    assert planned.returncode != 0
    assert "refused: NameTaken flights: green has one; rename" in planned.stdout
    assert site.fake.records == {}
    site.forget("taken")


def test_one_that_is_started_is_called_off(site: Site) -> None:
    started = site.begin("start", "back")
    assert started.returncode == 0, started.stderr
    site.wait("back", "Running")
    assert site.migrate("abort", "back").returncode == 0
    site.wait("back", "Aborting")
    site.fake.stages = {}
    site.wait("back", "Aborted")
    site.fake.stages = {"flights": "pending", "trains": "pending"}
    assert "has ended: Aborted" in site.migrate("abort", "back").stderr
    site.forget("back")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "x", "--blue", "a"), "give either --green with"),
        (("plan", "x", "--blue", "a", "--green-url", "http://b:1"), "needs --green-secret"),
        (("approve", "nobody"), "there is no Migration nobody"),
        (("start", "x", "--blue", "a", "--green", "a"), "must be two super-clusters"),
    ],
)
def test_what_can_not_be_is_named(site: Site, arguments: tuple[str, ...], words: str) -> None:
    done = site.migrate(*arguments)
    assert done.returncode != 0
    assert words in done.stderr
