"""TLS for clients and for monitoring is turned on and off on the embedded plane: clients with and without it at each stage, publishers
that lose nothing, and an operator, its command line and a User's Secret that follow."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from tests.app.repair_site import EAST, SUPER_CLUSTER, RepairSite
from tests.app.test_moves_on_the_plane import Publisher, read_all
from tests.app.test_operator_on_the_plane import cli
from tests.conftest import kubectl_runner

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.covers("CL-3", "CL-4")]

STREAM = "orders"


class ClientTlsSite(RepairSite):
    names = ("east-0", "east-1", "east-2")

    def turn(self, stage: str) -> None:
        patch = json.dumps({"spec": {"tls": {"clients": stage, "monitoring": stage}}})
        self.kubectl("patch", "scl", "demo", "--type=merge", "-p", patch)

    def stage(self, port: str) -> str:
        """With a plus once every broker has reported it."""
        found = self.get("scl", "demo")["status"]["tls"].get(port) or {"stage": "Off", "previous": "Off"}
        return f"{found['stage']}{'+' if found['previous'] == found['stage'] else ''}"

    def reach(self, clients: str, monitoring: str) -> None:
        self.wait(
            lambda: (self.stage("clients"), self.stage("monitoring")) == (f"{clients}+", f"{monitoring}+"),
            f"{clients} and {monitoring}, of {self.condition('scl', 'demo', 'Synced')}",
        )

    def synced(self) -> str:
        return str(self.condition("scl", "demo", "Synced").get("message"))

    def secret(self, name: str) -> dict[str, str]:
        return {key: b64decode(text).decode() for key, text in self.get("secret", name)["data"].items()}

    def uids(self) -> set[str]:
        return {str(self.pod(name)["metadata"]["uid"]) for name in self.names}

    def page(self, path: str, *, tls: bool) -> int:
        """The status of a page of a broker's monitoring port."""
        context = ssl.create_default_context(cadata=self.secret("demo-client")["ca.crt"]) if tls else None
        if context is not None:
            context.check_hostname = False
        address = f"{'https' if tls else 'http'}://{self.ip('east-0')}:8222/{path}"
        try:
            with urllib.request.urlopen(address, timeout=10, context=context) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    async def connect(self, number: int, *, tls: bool) -> Client:
        """By what the Secret of the application user has, with an address in place of the name, which nothing resolves here."""
        secret = await asyncio.to_thread(self.secret, "demo-client")
        ip = await asyncio.to_thread(self.ip, f"east-{number}")
        secure: dict[str, Any] = {}
        if tls:
            host = secret["url"].partition("://")[2].partition(":")[0]
            context = ssl.create_default_context(cadata=secret["ca.crt"])
            secure = {"tls": context, "tls_hostname": host, "tls_handshake_first": True}
        url = f"{'tls' if tls else 'nats'}://{ip}:4222"
        login = {"user": secret["user"], "password": secret["password"]}
        return await nats.connect(url, allow_reconnect=False, connect_timeout=10, **login, **secure)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, kubectl: Path) -> Iterator[ClientTlsSite]:
    state = tmp_path_factory.mktemp("dev")
    started = cli("dev", "up", "--state", str(state))
    try:
        assert started.returncode == 0, started.stderr
        made = ClientTlsSite(state, kubectl_runner(kubectl, state / "kubeconfig", state))
        made.kubectl("apply", "-f", "-", stdin=SUPER_CLUSTER)
        made.kubectl("apply", "-f", "-", stdin={**EAST, "spec": {**EAST["spec"], "replicas": 3}})
        made.kubectl("wait", "--for=condition=Ready", "ncl/east", "--timeout=180s")
        yield made
    finally:
        assert cli("dev", "down", "--state", str(state)).returncode == 0


def declare_user(site: ClientTlsSite, name: str) -> None:
    body = {
        "apiVersion": "supercluster.dev/v1alpha1",
        "kind": "User",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"superCluster": "demo"},
    }
    site.kubectl("apply", "-f", "-", stdin=body)
    site.kubectl("wait", "--for=condition=Ready", f"user.supercluster.dev/{name}", "--timeout=60s")


async def course(site: ClientTlsSite) -> dict[str, int]:
    """Up and down again, with a publisher of each kind at each stage; what each of them has published."""
    sent, there = dict[str, int](), dict[str, tuple[Client, list[Publisher]]]()

    async def come(name: str, number: int, *, tls: bool) -> None:
        client = await site.connect(number, tls=tls)
        kinds = (True, False)
        there[name] = (
            client,
            [Publisher(f"{name}{kind:d}", client, STREAM, is_plain=kind) for kind in kinds],
        )

    async def go(name: str) -> None:
        client, publishers = there.pop(name)
        for each in publishers:
            sent[each.name] = await each.stop()
        assert client.is_connected, f"{name} has lost its connection"
        await client.close()

    async def do(what: Any, *values: Any) -> None:
        await asyncio.to_thread(what, *values)
        for name, (client, publishers) in there.items():
            assert client.is_connected, f"{name} has lost its connection"
            assert not any(each.task.done() for each in publishers), name

    await come("first", 0, tls=False)
    await do(site.turn, "Required")
    await do(site.reach, "Optional", "Required")
    await do(site.wait, lambda: "clients in plain, which could not come back" in site.synced(), "its reason")
    await do(site.wait, lambda: site.secret("demo-client")["url"].startswith("tls://"), "the Secret")
    await come("second", 1, tls=True)
    await go("first")
    await do(site.reach, "Required", "Required")
    with pytest.raises((NatsError, OSError)):
        await site.connect(2, tls=False)
    await come("third", 2, tls=True)
    await do(required, site)
    await do(site.turn, "Off")
    await do(site.reach, "Optional", "Off")
    await do(site.wait, lambda: "clients with TLS, which could not come back" in site.synced(), "its reason")
    await come("fourth", 0, tls=False)
    await go("second")
    assert await asyncio.to_thread(site.stage, "clients") == "Optional+", "one client is left"
    await go("third")
    await do(site.reach, "Off", "Off")
    await go("fourth")
    return sent


def required(site: ClientTlsSite) -> None:
    """With TLS alone everything works that works without it."""
    assert [site.page("varz", tls=tls) for tls in (False, True)] == [400, 200]
    assert [site.page("healthz", tls=tls) for tls in (False, True)] == [200, 200]
    assert all(site.is_ready(name) for name in site.names)
    site.declare("later")
    site.ready("later")
    declare_user(site, "reader")
    secret = site.secret(str(site.get("user.supercluster.dev", "reader")["status"]["secret"]))
    assert secret["ca.crt"] == site.secret("demo-client")["ca.crt"]
    assert secret["url"].startswith("tls://")
    assert str(site.get("ncl", "east")["status"]["url"]).startswith("tls://")
    kubeconfig = ("--kubeconfig", str(site.state / "kubeconfig"))
    for words in (("publish", "later.a", "hello"), ("pull", "later"), ("users", "who-uses", "reader")):
        done = cli(*words, *kubeconfig)
        assert done.returncode == 0, (words, done.stderr)
    assert site.condition("scl", "demo", "Synced")["status"] == "True", site.synced()


def test_clients_and_monitoring_go_to_tls_and_back_and_nobody_loses_a_connection_or_a_message(
    site: ClientTlsSite,
) -> None:
    site.declare(STREAM)
    site.ready(STREAM)
    before = site.uids()
    plain = site.secret("demo-client")
    sent = asyncio.run(course(site))
    assert site.uids() == before, "no broker is restarted"
    site.wait(lambda: site.secret("demo-client") == plain, "the Secret to be as it was")
    total = sum(sent.values())
    site.wait(lambda: site.ask(f"STREAM.INFO.{STREAM}")["state"]["messages"] >= total, "every message")
    assert site.ask(f"STREAM.INFO.{STREAM}")["state"]["messages"] == total
    found = site.with_client(lambda client: read_all(client, STREAM, total))
    for publisher, count in sent.items():
        assert count > 5, publisher
        assert [number for name, number in found if name == publisher] == list(range(count)), publisher
    assert "ClientEncryptionChanged" in site.events("demo")
