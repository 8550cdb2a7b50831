"""Links follow the logins that are in force: none ends for another one, a withdrawn one ends its links, and who is halfway in meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.broker.net.conftest import until
from tests.broker.net.test_credentials_on_the_wire import hello

from supercluster.broker.net.links import link_logins
from supercluster.broker.net.links.dialler import Dialler
from supercluster.broker.ports import Channel
from supercluster.broker.protocol.frames import FrameType

A, B = ({"user": f"route-{one}", "password": f"secret-{one}"} for one in "ab")
BOTH_SEND_A = {"accept": [A, B], "send": A}
BOTH_SEND_B = {"accept": [A, B], "send": B}
ONLY_A = {"accept": [A], "send": A}
ONLY_B = {"accept": [B], "send": B}


def write(document: Any, *brokers: Any, file: str = "cluster.json") -> None:
    for broker in brokers:
        Path(broker.place.credentials_dir / file).write_text(json.dumps(document))


def logins(broker: Any, kind: str = "cluster") -> dict[str, int]:
    return dict(broker.mesh.logins()[kind])


@pytest.mark.covers("CL-3", "CL-5")
async def test_links_go_from_one_login_to_the_next(brokers: Any) -> None:
    east = await brokers.start(3, credentials={"cluster.json": ONLY_A})
    assert [logins(broker) for broker in east] == 3 * [{"route-a": 2}]
    write(BOTH_SEND_A, *east)
    await until(
        lambda: all(broker.credentials.links.accepts("route-b", "secret-b") for broker in east), "both"
    )
    links = [link for broker in east for link in broker.mesh.links.values()]
    write(BOTH_SEND_B, east[1])
    await until(lambda: logins(east[1]) == {"route-a": 2, "route-b": 2}, "links that were made with both")
    await until(lambda: logins(east[0]) == {"route-a": 2, "route-b": 1}, "its login to be judged")
    write(BOTH_SEND_B, east[0], east[2])
    await until(lambda: all(logins(broker) == {"route-b": 2} for broker in east), "links by the new login")
    write(ONLY_B, *east)
    await until(
        lambda: not any(broker.credentials.links.accepts("route-a", "secret-a") for broker in east), "one"
    )
    assert not any(link.down.done() for link in links), "no link ends for another login"


@pytest.mark.covers("CL-3", "CL-5", "CL-6")
async def test_links_between_clusters_do_too(brokers: Any) -> None:
    clusters = await brokers.start_clusters({"east": 1, "west": 1}, credentials={"gateway.json": ONLY_A})
    both = [clusters["east"][0], clusters["west"][0]]
    for stage, shown in ((BOTH_SEND_A, "route-a"), (BOTH_SEND_B, "route-b"), (ONLY_B, "route-b")):
        write(stage, *both, file="gateway.json")
        wanted = hashlib.sha256(json.dumps(stage).encode()).hexdigest()[:16]

        def is_done(digest: str = wanted, user: str = shown) -> bool:
            files = [broker.credentials.files["gateway.json"] for broker in both]
            is_read = all(file.digest == digest for file in files)
            return is_read and all(logins(broker, "gateway") == {user: 1} for broker in both)

        await until(is_done, f"links by {shown}")


@pytest.mark.covers("CL-3", "CL-5")
async def test_a_login_that_is_not_accepted_yet_is_judged_again_when_files_were_read(brokers: Any) -> None:
    east = await brokers.start(2, credentials={"cluster.json": ONLY_A})
    (link,) = east[1].mesh.links.values()
    write(BOTH_SEND_B, east[0])
    await until(lambda: link.offered is not None, "the login to be shown")
    assert logins(east[1]) == {"route-a": 1}
    assert not link.down.done()
    write(BOTH_SEND_B, east[1])
    await until(lambda: all(logins(broker) == {"route-b": 1} for broker in east), "links by the new login")
    assert link.offered is None
    assert not link.down.done()


@pytest.mark.covers("CL-3", "CL-5")
async def test_a_login_that_found_the_queue_full_is_shown_later(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_logins, "RETRY_S", 0.05)
    east = await brokers.start(2, credentials={"cluster.json": BOTH_SEND_A})
    (link,) = east[0].mesh.links.values()
    refused: list[int] = []
    frame = link.frame

    def is_full(frame_type: int, body: list[Any], channel: Channel) -> bool:
        if frame_type == FrameType.LOGIN and len(refused) < 2:
            refused.append(frame_type)
            return False
        return bool(frame(frame_type, body, channel))

    monkeypatch.setattr(link, "frame", is_full)
    write(BOTH_SEND_B, *east)
    await until(lambda: all(logins(broker) == {"route-b": 1} for broker in east), "links by the new login")
    assert len(refused) == 2


@pytest.mark.covers("CL-3", "CL-5")
async def test_a_login_that_nobody_accepts_gets_nobody_in(brokers: Any) -> None:
    """Neither one that is shown nor one that is withdrawn keeps a link."""
    east = await brokers.start(2, credentials={"cluster.json": BOTH_SEND_A})
    (link,) = east[1].mesh.links.values()
    write({"accept": [A, B], "send": {"user": "route-c", "password": "wrong"}}, east[0])
    await until(lambda: link.offered is not None, "the login to be shown")
    write(ONLY_B, east[1])
    await until(link.down.done, "the link to end")
    assert "its login is not accepted any more" in link.down.result()


@pytest.mark.covers("CL-3", "CL-5")
async def test_a_login_that_is_not_accepted_any_more_ends_its_links_at_once(brokers: Any) -> None:
    east = await brokers.start(3, credentials={"cluster.json": ONLY_A})
    write({"accept": [B], "send": A}, east[2])
    await until(lambda: brokers.links(east[2]) == 0, "both links to end")
    await until(lambda: brokers.links(east[0]) == 1, "its other side to notice")
    write(ONLY_A, east[2])
    await until(lambda: all(brokers.links(broker) == 2 for broker in east), "the links to be back")


@pytest.mark.covers("CL-3", "CL-5")
async def test_links_that_were_made_without_any_login_show_one_when_there_are_some(brokers: Any) -> None:
    east = await brokers.start(3)
    assert logins(east[0]) == {"": 2}
    write(ONLY_A, *east)
    await until(lambda: all(logins(broker) == {"route-a": 2} for broker in east), "links with a login")


@pytest.mark.covers("CL-3", "CL-5")
async def test_a_link_without_a_login_ends_where_one_is_asked_for(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_logins, "GRACE_S", 0.2)
    east = await brokers.start(2)
    (link,) = east[0].mesh.links.values()
    write(ONLY_A, east[0])
    await until(link.down.done, "the link to end")
    assert "it presents no login" in link.down.result()


@pytest.mark.covers("CL-3", "CL-5")
async def test_a_broker_that_is_halfway_in_by_an_old_login_is_sent_away(brokers: Any) -> None:
    limits = {"authTimeoutMs": 60_000}  # It is not sent away for being slow.
    (broker,) = await brokers.start(credentials={"cluster.json": ONLY_A}, limits=limits)
    reader, writer = await asyncio.open_connection(broker.place.host, broker.cluster_port)
    writer.write(hello(broker, **A))
    await reader.readexactly(5)
    write(ONLY_B, broker)
    async with asyncio.timeout(30):
        await reader.read()
    writer.close()
    assert broker.mesh.links == {}


@pytest.mark.covers("CL-3", "CL-5")
async def test_a_broker_that_was_dialled_and_showed_an_old_login_meanwhile_is_dialled_again(
    brokers: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its control connection showed the login that was withdrawn before its other one was there."""
    east = await brokers.start(2, linked=False, credentials={"cluster.json": BOTH_SEND_A})
    await brokers.all_linked()
    connect = Dialler._connect
    is_first = True

    async def change_between(dialler: Dialler, connection: Any, address: str) -> None:
        nonlocal is_first
        if connection.channel is Channel.BULK and is_first:
            is_first = False
            write(BOTH_SEND_B, east[1])
            write({"accept": [B], "send": A}, east[0])
            for broker in reversed(east):
                assert broker.credentials.refresh()
                broker.mesh.credentials_changed()
        await connect(dialler, connection, address)

    monkeypatch.setattr(Dialler, "_connect", change_between)
    east[0].mesh.links["east-1"].control.close("the test wants a new one")
    await until(lambda: not is_first and brokers.links(east[0]) == 1, "a link")
    assert "no link with east-1" in caplog.text
    assert "its credentials are not among the accepted ones" in caplog.text
    (link,) = east[0].mesh.links.values()
    assert {connection.hello.user for connection in (link.control, link.bulk)} == {"route-b"}
