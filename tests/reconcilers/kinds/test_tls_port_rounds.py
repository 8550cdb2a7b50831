"""Whole rounds in which TLS for clients and for monitoring is turned on and off, with brokers that take over what they were told."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_rounds import NS, SC, World

from supercluster.reconcilers.observe.certificates import certificate_view
from supercluster.reconcilers.observe.targets import broker_target
from supercluster.reconcilers.planners.cluster.broker_config import port_told, stage_told
from supercluster.reconcilers.planners.tls_ports import PORTS
from supercluster.reconcilers.ports import BrokerTarget

pytestmark = pytest.mark.covers("CL-3", "OP-4")

NAMES = tuple(f"east-{number}" for number in range(3))


class Site(World):
    """`late` brokers stay as they are, whatever they are told."""

    def __init__(self, **tls: str) -> None:
        super().__init__()
        self.late: set[str] = set()
        self.ports: dict[str, dict[str, str]] = {}
        self.clients = {"plain": 0, "encrypted": 0}
        self.edit(**tls)

    def edit(self, **tls: str) -> None:
        self.change("SuperCluster", "demo", lambda body: body["spec"].update(tls=tls))

    def load(self) -> None:
        config = self.kube.objects.get(("ConfigMap", NS, "east-config"))
        if config is None:
            return
        links = str(stage_told(config, None))
        for name in NAMES:
            if name not in self.late:
                self.ports[name] = {port: port_told(config, port) for port in PORTS}
            stages = self.ports.get(name, dict.fromkeys(PORTS, "Off"))
            self.brokers.restart[name] = {
                "links": {
                    "stages": {"cluster": links},
                    "encrypted": 2 * (links in ("DialTls", "Required")),
                    "plain": 0,
                },
                "ports": {
                    "clients": {"stage": stages["clients"], **self.clients},
                    "monitoring": {"stage": stages["monitoring"]},
                },
            }

    async def settle(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            await self.clock.advance(6_000)
            await self.converge()
            self.load()

    def stage(self, port: str = "clients") -> tuple[str, str]:
        found = self.status(SC)["tls"].get(port) or {"stage": "Off", "previous": "Off"}
        return found["stage"], found["previous"]

    def waiting(self) -> str:
        return str(condition(self.status(SC), "Synced")["message"])

    def client_secret(self) -> dict[str, str]:
        data = self.kube.objects[("Secret", NS, "demo-client")]["data"]
        return {key: b64decode(text).decode() for key, text in data.items()}

    def target(self) -> BrokerTarget:
        found = broker_target(self.cache, NS, "demo")
        assert isinstance(found, BrokerTarget), found
        return found

    def template(self) -> Any:
        return self.kube.objects[("StatefulSet", NS, "east")]["spec"]["template"]


async def test_a_new_super_cluster_begins_with_what_is_asked_for() -> None:
    site = Site(clients="Required", monitoring="Optional")
    await site.settle(3)
    assert site.stage() == ("Required", "Required")
    assert site.stage("monitoring") == ("Optional", "Optional")
    config = json.loads(site.kube.objects[("ConfigMap", NS, "east-config")]["data"]["broker.json"])
    pair = {"certFile": "tls.crt", "keyFile": "tls.key"}
    assert config["clientTls"] == {**pair, "handshakeFirst": True, "firstWaitMs": 300}
    assert config["monitorTls"] == {**pair, "allowPlain": True}
    secret = site.client_secret()
    assert secret["url"].startswith("tls://")
    assert secret["ca.crt"] == site.status(SC)["tls"]["authorities"]
    assert secret["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")
    target = site.target()
    assert all(url.startswith("tls://") for url in target.servers)
    assert all(url.startswith("https://") for url in target.monitors)
    assert (target.ca, target.tls_name) == (secret["ca.crt"], "brokers.demo.demo-ns.supercluster.internal")


async def test_clients_go_to_tls_and_back_and_nobody_is_left_behind() -> None:
    site = Site()
    await site.settle(3)
    template, plain = site.template(), site.client_secret()
    assert plain["url"].startswith("nats://")
    assert "ca.crt" not in plain
    site.clients["plain"] = 2
    site.load()
    site.late = {"east-1"}
    site.edit(clients="Required")
    await site.settle(2)
    assert site.stage() == ("Optional", "Off")
    assert "east-1 reports Off" in site.waiting()
    assert site.client_secret() == plain, "a broker accepts no TLS yet"
    assert site.target().servers[0].startswith("nats://")
    site.late = set()
    await site.settle(3)
    assert site.stage() == ("Optional", "Optional")
    assert "east-0 has 2 clients in plain, which could not come back" in site.waiting()
    secret = site.client_secret()
    assert secret["url"].startswith("tls://"), "by which clients that are started again use TLS"
    assert "ca.crt" in secret
    assert site.target().servers[0].startswith("tls://")
    site.clients.update(plain=0, encrypted=2)
    site.load()
    site.late = {"east-2"}
    await site.settle(2)
    assert site.stage() == ("Required", "Optional")
    site.late = set()
    await site.settle(2)
    assert site.stage() == ("Required", "Required")
    assert condition(site.status(SC), "Synced")["status"] == "True"

    site.late = set(NAMES)
    site.edit(clients="Off")
    await site.settle(2)
    assert site.stage() == ("Optional", "Required")
    assert site.client_secret()["url"].startswith("tls://"), "brokers accept no plain yet"
    site.late = set()
    await site.settle(3)
    assert site.stage() == ("Optional", "Optional")
    assert "has 2 clients with TLS, which could not come back" in site.waiting()
    assert site.client_secret() == plain
    assert site.target().servers[0].startswith("nats://")
    site.clients["encrypted"] = 0
    site.load()
    await site.settle(3)
    assert site.stage() == ("Off", "Off")
    assert "authorities" not in site.status(SC)["tls"]
    assert site.template() == template, "no broker is restarted"
    told = [note.message for note in site.kube.events if note.reason == "ClientEncryptionChanged"]
    assert [each.split(";")[0] for each in told] == [
        f"TLS for clients: {stage}" for stage in ("Optional", "Required", "Optional", "Off")
    ]


async def test_a_change_of_mind_goes_back_at_once() -> None:
    site = Site()
    await site.settle(3)
    site.late = set(NAMES)
    site.edit(clients="Required")
    await site.settle()
    assert site.stage() == ("Optional", "Off")
    site.edit(clients="Off")
    await site.settle()
    assert site.stage()[0] == "Off"


async def test_links_keep_their_certificates_while_clients_use_them() -> None:
    site = Site(clients="Required")
    await site.settle(3)
    site.clients["encrypted"] = 1
    site.load()
    site.edit(mode="Off")
    await site.settle(4)
    assert site.status(SC)["tls"]["stage"] == "AcceptBoth"
    assert "waiting until TLS for clients and monitoring is off" in site.waiting()
    assert site.stage()[0] == "Optional"
    site.clients["encrypted"] = 0
    site.load()
    await site.settle(5)
    assert (site.stage(), site.status(SC)["tls"]["stage"]) == (("Off", "Off"), "Off")


async def test_clients_wait_for_brokers_with_certificates() -> None:
    site = Site(mode="Off")
    await site.settle(3)
    site.edit(mode="Required", clients="Optional")
    await site.settle()
    assert site.stage() == ("Off", "Off")
    assert "waiting until TLS between brokers is on" in site.waiting()
    await site.settle(6)
    assert site.stage() == ("Optional", "Optional")


async def test_brokers_of_before_hold_it_and_are_named() -> None:
    site = Site()
    await site.settle(3)
    site.edit(monitoring="Required")
    site.brokers.restart["east-0"].pop("ports")
    await site.clock.advance(6_000)
    await site.converge()
    assert site.stage("monitoring") == ("Off", "Off")
    assert (
        "east-0 is not ready, or its image does not report its ports and has to be updated" in site.waiting()
    )


async def test_another_authority_signs_when_clients_have_had_time_to_load_it() -> None:
    site = Site(clients="Required", authorityOverlap="1h")
    await site.settle(3)
    before = site.client_secret()["ca.crt"]
    note = {"supercluster.dev/exchange-authority": "monday"}
    site.change(
        "SuperCluster", "demo", lambda body: body["metadata"].setdefault("annotations", {}).update(note)
    )

    def load() -> None:
        """All brokers trust, and show, what is in their Secret."""
        view = certificate_view(site.kube.objects[("Secret", NS, "east-tls")])
        assert view is not None
        loaded = {"certificate": view.fingerprint, "authorities": sorted(view.authorities)}
        for name in NAMES:
            site.brokers.restart[name]["tls"] = {"clusterTls": loaded, "gatewayTls": loaded}

    for _ in range(3):
        await site.settle()
        load()
    both = site.client_secret()["ca.crt"]
    assert before in both
    assert both.count("BEGIN CERTIFICATE") == 2
    assert "next.crt" in site.secret("demo-authority"), "clients may trust the former one alone"
    await site.clock.advance(3_600_000)
    for _ in range(4):
        await site.settle()
        load()
    after = site.client_secret()["ca.crt"]
    assert after.count("BEGIN CERTIFICATE") == 1
    assert after in both
    assert after != before
