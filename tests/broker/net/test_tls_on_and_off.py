"""TLS for clients and for monitoring, on and off while a broker runs, by its settings file."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.compat.raw import RawClient
from tests.support.certificates import Authority, Certificate

from supercluster.broker.monitor import views
from supercluster.broker.runtime.process import BrokerProcess

WAIT_MS = 50


def port(certificate: Certificate, stage: str, *, greets: bool) -> dict[str, Any] | None:
    """As the operator writes it."""
    if stage == "Off":
        return None
    first = {"handshakeFirst": True, "firstWaitMs": WAIT_MS} if greets else {}
    plain = {"allowPlain": True} if stage == "Optional" else {}
    return {"certFile": str(certificate.cert), "keyFile": str(certificate.key), **first, **plain}


class Site:
    def __init__(self, brokers: Any, broker: BrokerProcess, certificate: Certificate) -> None:
        self.brokers = brokers
        self.broker = broker
        self.certificate = certificate

    def turn(self, **stages: str) -> None:
        file = self.broker.place.config
        document = json.loads(file.read_text())
        for name, stage in stages.items():
            found = port(self.certificate, stage, greets=name == "clientTls")
            document.pop(name, None)
            document |= {name: found} if found is not None else {}
        file.write_text(json.dumps(document))

    def ports(self) -> dict[str, Any]:
        return views.encryption_of_ports(self.broker, self.broker.monitor.port.tls)

    async def reach(self, port: str, stage: str) -> None:
        await self.brokers.until(lambda: self.ports()[port]["stage"] == stage, f"{port} to be {stage}")

    async def connect(self, *, tls: bool) -> Any:
        """By nats-py, which begins with the handshake where it is told so."""
        secure: dict[str, Any] = (
            {"tls": self.certificate.context(), "tls_hostname": "server", "tls_handshake_first": True}
            if tls
            else {}
        )
        url = f"nats://{self.broker.advertised_client_url}"
        return await nats.connect(url, allow_reconnect=False, connect_timeout=30, **secure)

    async def page(self, path: str, *, tls: bool) -> int:
        """The status of a page of the monitoring port."""
        context = ssl.create_default_context(cafile=self.certificate.ca)
        context.check_hostname = False
        host = f"{self.broker.place.host}:{self.broker.monitor_port}"
        address = f"http{'s' if tls else ''}://{host}/{path}"

        def ask() -> int:
            try:
                with urllib.request.urlopen(address, timeout=30, context=context if tls else None) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code

        return await asyncio.to_thread(ask)


@pytest.fixture
async def site(brokers: Any, tmp_path: Path) -> Site:
    (broker,) = await brokers.start(1)
    return Site(brokers, broker, Authority(tmp_path, "ours").sign("server"))


@pytest.mark.covers("CL-4")
async def test_clients_with_and_without_tls_at_each_stage(site: Site) -> None:
    plain = await site.connect(tls=False)
    heard = await plain.subscribe("heard")
    await plain.flush()
    site.turn(clientTls="Optional")
    await site.reach("clients", "Optional")
    assert site.ports()["clients"] == {"stage": "Optional", "encrypted": 0, "plain": 1}

    secure, other = await site.connect(tls=True), await site.connect(tls=False)
    assert site.ports()["clients"] == {"stage": "Optional", "encrypted": 1, "plain": 2}
    for client in (secure, other):
        await client.publish("heard", b"optional")
        assert (await heard.next_msg(timeout=30)).data == b"optional"
    await other.close()
    # As clients do that wait for INFO, which offers TLS and does not ask for it.
    raw = await RawClient.open(
        site.broker.place.host, site.broker.client_port, tls=site.certificate.context()
    )
    assert (raw.info.get("tls_available"), raw.info.get("tls_required")) == (True, None)
    await raw.connect()
    await raw.close()

    site.turn(clientTls="Required")
    await site.reach("clients", "Required")
    await site.brokers.until(lambda: plain.is_closed, "the plain client to be sent away")
    assert "tls required" in str(plain.last_error)
    assert site.ports()["clients"] == {"stage": "Required", "encrypted": 1, "plain": 0}
    again = await site.connect(tls=True)
    await again.close()
    with pytest.raises((ssl.SSLError, OSError, nats.errors.Error)):
        await site.connect(tls=False)

    site.turn(clientTls="Optional")
    await site.reach("clients", "Optional")
    plain = await site.connect(tls=False)
    site.turn(clientTls="Off")
    await site.reach("clients", "Off")
    heard = await secure.subscribe("heard")
    await secure.flush()
    await plain.publish("heard", b"off")
    assert (await heard.next_msg(timeout=30)).data == b"off"
    for client in (secure, plain):
        await client.close()


@pytest.mark.covers("CL-4")
async def test_monitoring_by_http_and_by_https_at_each_stage(site: Site) -> None:
    assert await site.page("varz", tls=False) == 200
    site.turn(monitorTls="Optional")
    await site.reach("monitoring", "Optional")
    assert [await site.page("varz", tls=tls) for tls in (False, True)] == [200, 200]
    site.turn(monitorTls="Required")
    await site.reach("monitoring", "Required")
    assert [await site.page("varz", tls=tls) for tls in (False, True)] == [400, 200]
    assert await site.page("metrics", tls=False) == 400
    # Probes of a kubelet go on as they began.
    assert [await site.page("healthz", tls=tls) for tls in (False, True)] == [200, 200]
    site.turn(monitorTls="Off")
    await site.reach("monitoring", "Off")
    assert await site.page("varz", tls=False) == 200
    with pytest.raises(urllib.error.URLError):
        await site.page("varz", tls=True)


async def test_files_that_can_not_be_used_turn_nothing_on_until_they_can(site: Site) -> None:
    key = site.certificate.key.read_text()
    site.certificate.key.write_text("no key")
    site.turn(clientTls="Optional", monitorTls="Required")
    before = site.broker.reload.digest
    await site.brokers.until(lambda: site.broker.reload.digest != before, "the settings to be read")
    assert [each["stage"] for each in site.ports().values()] == ["Off", "Off"]
    assert await site.page("varz", tls=False) == 200
    client = await site.connect(tls=False)
    await client.close()
    site.certificate.key.write_text(key)
    await site.reach("clients", "Optional")
    await site.reach("monitoring", "Required")


async def test_an_answer_of_a_megabyte_comes_whole_over_tls(site: Site) -> None:
    site.turn(monitorTls="Required")
    await site.reach("monitoring", "Required")

    async def long(_: Any, __: Any) -> tuple[int, Any]:
        return 200, {"text": "x" * (1 << 20)}

    site.broker.monitor.register_admin("GET", "long", long)
    context = ssl.create_default_context(cafile=site.certificate.ca)
    context.check_hostname = False
    address = f"https://{site.broker.place.host}:{site.broker.monitor_port}/admin/long"

    def ask() -> int:
        with urllib.request.urlopen(address, timeout=30, context=context) as answer:
            return len(json.load(answer)["text"])

    assert await asyncio.to_thread(ask) == 1 << 20
