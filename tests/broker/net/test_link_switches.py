"""TLS between brokers is turned on and off while links are up: none is lost, and no message on them."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.broker.net.test_cluster_tls import FILES, NAME, mount
from tests.support.certificates import Authority

from supercluster.broker.monitor import views
from supercluster.broker.net.links import first_byte, handshake

UP = ("dialled", "accepted", "refused")
STAGES = {"dialled": "AcceptBoth", "accepted": "DialTls", "refused": "Required"}


class Site:
    """Brokers with certificates, whose settings are edited while they run. `west-0` is of another cluster."""

    def __init__(self, brokers: Any, folder: Path) -> None:
        self.brokers = brokers
        self.folder = folder
        self.hosts = {name: brokers.address() for name in ("east-0", "east-1", "west-0")}
        self.running: dict[str, Any] = {}
        ours = Authority(folder, "ours")
        for name in self.hosts:
            mount(folder / f"tls-{name}", ours.sign(name, dns=[NAME]), ours)

    async def start(self, plain: str | None, *names: str) -> None:
        """None: without TLS."""
        for name in names or tuple(self.hosts):
            cluster = name.partition("-")[0]
            tls = {"clusterTls": {**FILES, "plain": plain}, "gatewayTls": {**FILES, "plain": plain}}
            self.running[name] = await self.brokers.start_one(
                name,
                {each: host for each, host in self.hosts.items() if each.startswith(cluster)},
                cluster=cluster,
                gateways={
                    each.partition("-")[0]: [f"{host}:7222"]
                    for each, host in self.hosts.items()
                    if each.endswith("-0")
                },
                tls_dir=(self.folder / f"tls-{name}").absolute(),
                **(tls if plain is not None else {}),
            )

    def edit(self, name: str, plain: str) -> None:
        """As the operator edits its settings file."""
        file = self.running[name].place.config
        document = json.loads(file.read_text())
        for port in ("clusterTls", "gatewayTls"):
            document[port]["plain"] = plain
        file.write_text(json.dumps(document))
        self.running[name]._refresh_once()

    def links(self) -> dict[tuple[str, str], Any]:
        return {
            (name, other): link
            for name, each in self.running.items()
            for other, link in each.mesh.links.items()
        }

    def encrypted(self) -> set[bool]:
        return {link.control.is_encrypted for link in self.links().values()}


@pytest.fixture
def site(brokers: Any, tmp_path: Path) -> Site:
    return Site(brokers, tmp_path)


@pytest.mark.covers("CL-3", "CL-6")
async def test_links_go_over_to_tls_and_back_while_messages_cross_them_and_none_is_lost(site: Site) -> None:
    await site.start("dialled")
    await site.brokers.all_linked()
    before = site.links()
    assert site.encrypted() == {False}
    received: dict[str, list[int]] = {}
    sent = dict.fromkeys(site.hosts, 0)
    clients = {name: await site.brokers.client(each) for name, each in site.running.items()}
    for name, client in clients.items():
        for other in site.hosts:

            async def take(message: Any, key: str = f"{other}->{name}") -> None:
                received.setdefault(key, []).append(int(message.data[:8]))

            await client.subscribe(f"from.{other}", cb=take)
        await client.flush()
    for each in site.running.values():
        for other in site.hosts:
            await site.brokers.until(
                lambda each=each, other=other: each.router.has_interest("$G", f"from.{other}".encode()),
                "interest",
            )
    going = True

    async def publish(name: str) -> None:
        while going:
            for _ in range(20):
                await clients[name].publish(f"from.{name}", b"%8d" % sent[name] + bytes(3000))
                sent[name] += 1
            await clients[name].flush()

    tasks = [asyncio.create_task(publish(name)) for name in site.hosts]
    for plain in (*UP[1:], "accepted", "dialled", "accepted", "dialled", *UP[1:]):
        for name in site.hosts:
            site.edit(name, plain)
            await asyncio.sleep(0)
        wanted = {plain != "dialled"}
        await site.brokers.until(lambda wanted=wanted: site.encrypted() == wanted, f"{plain}: all links")
        told = views.encryption_of_links(site.running["east-0"])
        assert told["stages"] == {"cluster": STAGES[plain], "gateway": STAGES[plain]}
        assert told["encrypted" if plain != "dialled" else "plain"] == 2
    going = False
    await asyncio.gather(*tasks)
    for name in site.hosts:
        for other in site.hosts:
            key = f"{other}->{name}"
            await site.brokers.until(lambda key=key, other=other: len(received[key]) >= sent[other], key)
            assert received[key] == list(range(sent[other])), key
    assert site.links() == before, "a link was lost meanwhile"
    await site.brokers.until(
        lambda: not any(link.retiring for link in before.values()), "old connections close"
    )
    assert min(sent.values()) > 100


async def test_what_comes_on_the_new_connections_waits_for_what_is_still_on_its_way_on_the_old_ones(
    site: Site,
) -> None:
    await site.start("dialled", "east-0", "east-1")
    await site.brokers.all_linked()
    one, other = (site.running[name] for name in ("east-0", "east-1"))
    here, there = await site.brokers.client(one), await site.brokers.client(other)
    taken: list[bytes] = []

    async def take(message: Any) -> None:
        taken.append(message.data)

    await there.subscribe("subject", cb=take)
    await there.flush()
    await site.brokers.until(lambda: one.router.has_interest("$G", b"subject"), "interest")
    link = other.mesh.links["east-0"]
    old = link.control
    old._transport.pause_reading()
    await here.publish("subject", b"first")
    site.edit("east-0", "accepted")
    await site.brokers.until(lambda: one.mesh.links["east-1"].control.is_encrypted, "the switch")
    await here.publish("subject", b"second")
    await here.flush()
    await site.brokers.until(lambda: bool(link.control.is_held and link.control._early), "the second one")
    assert taken == []
    old._transport.resume_reading()
    await site.brokers.until(lambda: len(taken) == 2, "both")
    assert taken == [b"first", b"second"]
    await site.brokers.until(lambda: old.closed and not link.retiring, "the old one's end")
    assert other.mesh.links["east-0"] is link


@pytest.mark.covers("CL-3")
async def test_a_broker_that_takes_both_links_with_a_plain_one_and_with_an_encrypted_one(site: Site) -> None:
    await site.start(None, "east-0")
    await site.start("dialled", "east-1")
    await site.start("dialled", "west-0")
    await site.brokers.all_linked()
    assert site.encrypted() == {False}
    site.edit("east-1", "accepted")
    await site.brokers.until(lambda: site.running["east-1"].mesh.links["west-0"].control.is_encrypted, "TLS")
    assert not site.running["east-1"].mesh.links["east-0"].control.is_encrypted


@pytest.mark.covers("CL-3")
async def test_where_tls_fails_the_plain_link_stays_and_nobody_falls_back_to_plain_for_a_new_one(
    site: Site, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    await site.start("dialled", "east-0", "east-1")
    await site.brokers.all_linked()
    theirs = Authority(tmp_path, "theirs")
    mount(tmp_path / "tls-east-1", theirs.sign("east-1", dns=[NAME], file="other"), theirs)
    site.running["east-1"]._refresh_certificates()
    link = site.running["east-0"].mesh.links["east-1"]
    site.edit("east-0", "accepted")
    await site.brokers.until(lambda: "the link with east-1 stays as it is" in caplog.text, "the failure")
    assert site.running["east-0"].mesh.links["east-1"] is link
    assert not link.control.closed
    caplog.clear()
    link.control.abort()
    await site.brokers.until(lambda: "no link with east-1" in caplog.text, "the refusal")
    assert [site.brokers.links(each) for each in site.running.values()] == [0, 0]


@pytest.mark.covers("CL-3")
async def test_where_tls_is_required_plain_links_end_and_none_is_accepted(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await site.start("dialled", "east-0", "east-1")
    await site.brokers.all_linked()
    site.edit("east-1", "refused")
    await site.brokers.until(lambda: "links have to be encrypted" in caplog.text, "the end of the link")
    await site.brokers.until(lambda: "it does not begin with TLS" in caplog.text, "the refusal")
    assert site.brokers.links(site.running["east-1"]) == 0
    site.edit("east-0", "accepted")
    await site.brokers.all_linked()
    assert site.encrypted() == {True}


async def test_a_switch_of_a_link_that_is_gone_leaves_nothing_behind(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.start("dialled", "east-0", "east-1")
    await site.brokers.all_linked()
    there = site.running["east-1"].mesh
    monkeypatch.setattr(there.links["east-0"].control, "pair", "another")
    before = dict(there.links)
    site.edit("east-0", "accepted")
    await site.brokers.until(
        lambda: there.links.get("east-0") not in (None, before["east-0"]), "another link"
    )
    await site.brokers.until(lambda: site.encrypted() == {True}, "TLS")


async def test_silent_strangers_at_a_port_with_tls_keep_no_broker_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKES_PER_ADDRESS_MAX", 4)
    await site.start("refused", "east-1")
    strangers = []
    for _ in range(20):
        stranger = socket.create_connection((site.hosts["east-1"], 6222))
        stranger.setblocking(False)
        strangers.append(stranger)
    await site.start("refused", "east-0")
    await site.brokers.all_linked()
    assert first_byte.HANDSHAKE == 0x16
    for stranger in strangers:
        async with asyncio.timeout(30):
            assert await asyncio.get_running_loop().sock_recv(stranger, 1) == b""
        stranger.close()


async def test_a_broker_that_stops_while_a_handshake_begins_leaves_no_socket_open(site: Site) -> None:
    await site.start("refused", "east-1")
    reader, writer = await asyncio.open_connection(site.hosts["east-1"], 6222)
    listener = site.running["east-1"].mesh.handshakes._listeners[0]
    writer.write(b"\x16")
    await site.brokers.until(lambda: bool(listener._handshakes), "the handshake")
    listener.close()
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    writer.close()
