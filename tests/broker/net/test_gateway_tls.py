"""Links between clusters over TLS: certificates of both sides, checked against the authority of the super-cluster."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.broker.net.test_gateways import hello
from tests.support.certificates import Authority

from supercluster.broker.monitor import views
from supercluster.broker.net.clients.certificates import GatewayCertificates
from supercluster.broker.settings.settings import GatewayTls, SettingsError


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


async def start_pair(brokers: Any, east_tls: Any, west_tls: Any) -> list[Any]:
    """One broker in each cluster, both with a seed of the other."""
    hosts = {name: brokers.address() for name in ("east-0", "west-0")}
    seeds = {name.partition("-")[0]: [f"{host}:7222"] for name, host in hosts.items()}
    started = []
    for (name, host), tls in zip(hosts.items(), (east_tls, west_tls), strict=True):
        options = {"gatewayTls": tls} if tls is not None else {}
        started.append(
            await brokers.start_one(
                name, {name: host}, cluster=name.partition("-")[0], gateways=seeds, **options
            )
        )
    return started


@pytest.mark.covers("CL-6")
async def test_links_between_clusters_are_encrypted_and_carry_large_frames(
    brokers: Any, authority: Authority
) -> None:
    east, west = await start_pair(
        brokers, authority.sign("east-0").settings(), authority.sign("west-0").settings()
    )
    await brokers.all_linked()
    (row,) = views.gatewayz(east, {})["outbound_gateways"]["west"]
    assert row["tls"] is True
    there, here = await brokers.client(west), await brokers.client(east)
    subscription = await there.subscribe("big")
    await there.flush()
    await brokers.until(lambda: bool(east.router.has_interest("$G", b"big")), "interest in east")
    for number in range(20):
        await here.publish("big", bytes([number]) * 500_000)
    await here.flush()
    for number in range(20):
        assert (await subscription.next_msg(timeout=10)).data == bytes([number]) * 500_000


@pytest.mark.covers("CL-6")
async def test_silence_ends_an_encrypted_link_and_it_comes_back(brokers: Any, authority: Authority) -> None:
    east, west = await start_pair(
        brokers, authority.sign("east-0").settings(), authority.sign("west-0").settings()
    )
    await brokers.all_linked()
    links = [east.mesh.links["west-0"], west.mesh.links["east-0"]]
    east.mesh.faults.set(frozenset({"west-0"}), frozenset())
    await brokers.until(lambda: all(link.down.done() for link in links), "the loss on both sides")
    assert all(link.down.result().startswith("silent for") for link in links)
    east.mesh.faults.set(frozenset(), frozenset())
    await brokers.all_linked()


@pytest.mark.covers("CL-3", "CL-6")
async def test_brokers_with_certificates_of_another_authority_are_not_linked(
    brokers: Any, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "theirs")
    east, west = await start_pair(
        brokers, authority.sign("east-0").settings(), stranger.sign("west-0").settings()
    )
    (seed,) = east.mesh.gateways.seeds.values()
    await brokers.until(lambda: "certificate verify failed" in seed.error, "the refusal")
    assert brokers.links(east) == brokers.links(west) == 0


@pytest.mark.covers("CL-3", "CL-6")
async def test_a_broker_without_tls_or_certificate_is_not_let_in(brokers: Any, authority: Authority) -> None:
    east, west = await start_pair(brokers, authority.sign("east-0").settings(), None)
    (seed,) = west.mesh.gateways.seeds.values()
    await brokers.until(lambda: bool(seed.error), "the refusal")
    assert brokers.links(east) == 0
    blank = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blank.check_hostname, blank.verify_mode = False, ssl.CERT_NONE
    assert await said_to(east, blank) == b"", "not even HELLO is answered without a certificate"
    with_certificate = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with_certificate.check_hostname, with_certificate.verify_mode = False, ssl.CERT_NONE
    files = authority.sign("a-west").settings()
    with_certificate.load_cert_chain(files["certFile"], files["keyFile"])
    assert b"gateway_url" in await said_to(east, with_certificate)


async def said_to(broker: Any, tls: ssl.SSLContext) -> bytes:
    """What the broker answers to an introduction that is right but for its certificate."""
    try:
        reader, writer = await asyncio.open_connection(broker.place.host, broker.gateway_port, ssl=tls)
        writer.write(hello(broker, introduces=True))
        async with asyncio.timeout(60):
            found = await reader.read(1 << 16)
        writer.close()
    except (ssl.SSLError, ConnectionError):
        return b""
    return found


@pytest.mark.covers("CL-3", "CL-6")
async def test_a_server_name_is_insisted_on_when_it_is_set(brokers: Any, authority: Authority) -> None:
    east_tls = {**authority.sign("gateways.demo").settings(), "serverName": "gateways.demo"}
    east, west = await start_pair(brokers, east_tls, authority.sign("somebody.else").settings())
    (seed,) = east.mesh.gateways.seeds.values()
    await brokers.until(lambda: "gateways.demo" in seed.error, "the refusal")
    assert brokers.links(east) == 0
    await brokers.stop_one(west)
    tls = {**authority.sign("gateways.demo").settings(), "serverName": "gateways.demo"}
    await brokers.start_one(
        "west-0", {"west-0": west.place.host}, cluster="west", gateways={}, gatewayTls=tls
    )
    await brokers.all_linked()


def test_renewed_files_are_read_again_and_broken_ones_change_nothing(
    authority: Authority, tmp_path: Path
) -> None:
    files = authority.sign("east-0").settings()
    settings = GatewayTls(Path(files["certFile"]), Path(files["keyFile"]), Path(files["caFile"]))
    certificates = GatewayCertificates(settings)
    assert not certificates.refresh()
    authority.sign("east-0").settings()
    assert certificates.refresh()
    settings.cert_file.write_text("nonsense")
    with pytest.raises(SettingsError, match=r"certFile .*east-0\.crt .* can't be used"):
        certificates.refresh()
    assert not certificates.refresh()


@pytest.mark.parametrize("field", ["certFile", "keyFile", "caFile"])
async def test_files_that_cannot_be_used_are_named(brokers: Any, authority: Authority, field: str) -> None:
    files = {**authority.sign("east-0").settings(), field: "/nowhere/at.all"}
    with pytest.raises(SettingsError, match=r"gatewayTls: .*/nowhere/at\.all"):
        await brokers.start_one("east-0", {"east-0": brokers.address()}, gateways={}, gatewayTls=files)
