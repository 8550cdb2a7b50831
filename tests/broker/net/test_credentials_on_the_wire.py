"""Who is let in: clients by user, password or token, brokers by theirs, and what happens when credentials roll."""

from __future__ import annotations

import asyncio
import json
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.net.conftest import until

from supercluster.broker.ports import Channel
from supercluster.broker.protocol import frames
from supercluster.broker.protocol.frames import FrameType, Hello

USERS = {
    "users": [
        {"user": "app", "password": "old", "account": "$G", "role": "client"},
        {"user": "app", "password": "new", "account": "$G", "role": "client"},
        {"user": "operator", "password": "op", "account": "$G", "role": "operator"},
        {"user": "other", "password": "x", "account": "OTHER"},
        {"token": "t0ken"},
    ]
}
LINKS = {"accept": [{"user": "route", "password": "r0ute"}], "send": {"user": "route", "password": "r0ute"}}


async def test_users_and_tokens_are_let_in_and_others_are_not(brokers: Any) -> None:
    (broker,) = await brokers.start(credentials={"users.json": USERS})
    for options in (
        {"user": "app", "password": "old"},
        {"user": "app", "password": "new"},
        {"token": "t0ken"},
    ):
        client = await brokers.client(broker, **options)
        await client.flush()
    for wrong in ({}, {"user": "app", "pass": "wrong"}, {"auth_token": "wrong"}, {"user": "", "pass": ""}):
        raw = await brokers.raw(broker)
        raw.send(b"CONNECT " + json.dumps(wrong).encode() + b"\r\n")
        assert await raw.to_end() == b"-ERR 'Authorization Violation'\r\n"
        await raw.close()
    assert broker.server.counts.auth_failures == 4


async def test_roles_reach_the_core_and_accounts_are_apart(brokers: Any) -> None:
    (broker,) = await brokers.start(credentials={"users.json": USERS})
    app = await brokers.client(broker, user="app", password="new")
    operator = await brokers.client(broker, user="operator", password="op")
    other = await brokers.client(broker, user="other", password="x")
    infos = [broker.server.clients[client.client_id].info for client in (app, operator, other)]
    assert [(info.account, info.is_operator) for info in infos] == [
        ("$G", False),
        ("$G", True),
        ("OTHER", False),
    ]
    here = await operator.subscribe("news")
    there = await other.subscribe("news")
    await operator.flush()
    await other.flush()
    await app.publish("news", b"for $G")
    assert (await here.next_msg(timeout=30)).data == b"for $G"
    await other.flush()
    assert there.pending_msgs == 0


async def test_whoever_says_nothing_or_something_else_first_is_sent_away(brokers: Any) -> None:
    (broker,) = await brokers.start(credentials={"users.json": USERS}, limits={"authTimeoutMs": 100})
    silent = await brokers.raw(broker)
    assert silent.info["auth_required"] is True
    assert await silent.to_end() == b"-ERR 'Authentication Timeout'\r\n"
    rude = await brokers.raw(broker)
    rude.send(b"PUB a 0\r\n\r\n")
    assert await rude.to_end() == b"-ERR 'Authorization Violation'\r\n"
    await silent.close()
    await rude.close()


@pytest.mark.covers("CL-5")
async def test_credentials_roll_without_a_lost_connection_that_need_not_be(brokers: Any) -> None:
    (broker,) = await brokers.start(credentials={"users.json": USERS})
    file = broker.place.credentials_dir / "users.json"
    rolled = await brokers.client(broker, user="app", password="new")
    behind = await brokers.raw(broker)
    behind.send(b'CONNECT {"user":"app","pass":"old"}\r\nPING\r\n')
    await behind.until_line(b"PONG")
    file.write_text("{ broken")
    assert not broker.credentials.refresh(), "a broken file changes nothing"
    file.write_text(json.dumps({"users": USERS["users"][1:]}))
    assert await behind.to_end() == b"-ERR 'Authorization Violation'\r\n"
    await rolled.flush()
    assert rolled.is_connected
    late = await brokers.raw(broker)
    late.send(b'CONNECT {"user":"app","pass":"old"}\r\n')
    assert await late.to_end() == b"-ERR 'Authorization Violation'\r\n"
    await late.close()
    await behind.close()


@pytest.mark.covers("CL-5")
async def test_a_refresh_that_fails_once_leaves_no_removed_user_in(
    brokers: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S7."""
    (broker,) = await brokers.start(credentials={"users.json": USERS})
    client = await brokers.raw(broker)
    client.send(b'CONNECT {"user":"app","pass":"old"}\r\nPING\r\n')
    await client.until_line(b"PONG")
    refresh = broker.credentials.refresh
    failures = iter([ValueError("nobody thought of that"), RecursionError()])

    def fails_twice() -> bool:
        for failure in failures:
            raise failure
        found: bool = refresh()
        return found

    monkeypatch.setattr(broker.credentials, "refresh", fails_twice)
    file = broker.place.credentials_dir / "users.json"
    file.write_text(json.dumps({"users": USERS["users"][1:]}))
    assert await client.to_end() == b"-ERR 'Authorization Violation'\r\n"
    assert caplog.text.count("settings stay as they were") == 2
    await client.close()


@pytest.mark.covers("CL-5")
async def test_clients_that_could_not_be_judged_once_are_judged_again(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (broker,) = await brokers.start(credentials={"users.json": USERS})
    client = await brokers.raw(broker)
    client.send(b'CONNECT {"user":"app","pass":"old"}\r\nPING\r\n')
    await client.until_line(b"PONG")
    judge = broker.server.credentials_changed
    failures = iter([ValueError("nobody thought of that")])

    def fails_once() -> None:
        for failure in failures:
            raise failure
        judge()

    monkeypatch.setattr(broker.server, "credentials_changed", fails_once)
    file = broker.place.credentials_dir / "users.json"
    file.write_text(json.dumps({"users": USERS["users"][1:]}))
    assert await client.to_end() == b"-ERR 'Authorization Violation'\r\n"
    await client.close()


def permitted(publish: str, **subscribe: list[str]) -> dict[str, Any]:
    allowed = {"publish": {"allow": [publish]}, "subscribe": subscribe}
    return {"users": [{"user": "app", "password": "p", "permissions": allowed}]}


@pytest.mark.covers("CL-5")
async def test_changed_permissions_are_in_force_for_who_is_here_and_nobody_is_cut_off(brokers: Any) -> None:
    (broker,) = await brokers.start(credentials={"users.json": permitted(">", allow=[">"])})
    file = broker.place.credentials_dir / "users.json"
    told: list[str] = []

    async def note(error: Exception) -> None:
        told.append(str(error))

    app = await brokers.client(broker, user="app", password="p", error_cb=note)
    kept, lost = await app.subscribe("a.>"), await app.subscribe("z.x")
    await app.flush()
    (connection,) = broker.server.clients.values()
    present = dict(connection.subscriber.subscriptions)
    file.write_text(json.dumps(permitted("a.>", allow=["a.>", "_INBOX.>"], deny=["a.no"])))
    await until(lambda: bool(told), "the client to be told")
    assert told == ['nats: permissions violation for subscription to "z.x" (sid "2")']
    assert {one.subject for one in connection.subscriber.subscriptions.values()} == {b"a.>"}
    assert connection.subscriber.subscriptions[b"1"] is present[b"1"]
    for subject in ("z.x", "a.no", "a.yes"):
        await app.publish(subject, b"")
    assert (await kept.next_msg(timeout=30)).subject == "a.yes"
    await app.flush()
    assert told[1:] == ['nats: permissions violation for publish to "z.x"']
    assert (lost.pending_msgs, app.is_connected, app.stats["reconnects"]) == (0, True, 0)


def hello(broker: Any, **changes: Any) -> bytes:
    """HELLO of a broker that claims to be east-00, whose name is smaller than the other's."""
    fields = {
        "version": 1,
        "super_cluster": "demo",
        "identity": "id-1",
        "cluster": "east",
        "node": "east-!",
        "incarnation": "i",
        "process": "p",
        "client_url": "127.0.0.1:1",
        "meta_state": 0,
        "channel": 0,
        "pair": "x",
        "user": "route",
        "password": "r0ute",
    }
    return b"".join(frames.frame(FrameType.HELLO, [frames.encode_hello(Hello(**{**fields, **changes}))]))


async def answer(broker: Any, said: bytes) -> bytes:
    """What the cluster port says to this, up to its end."""
    reader, writer = await asyncio.open_connection(broker.place.host, broker.cluster_port)
    writer.write(said)
    async with asyncio.timeout(60):
        found = await reader.read()
    writer.close()
    return found


@pytest.mark.covers("CL-3")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"password": "wrong"}, b"credentials"),
        ({"user": "", "password": ""}, b"credentials"),
        ({"identity": "another"}, b"super-cluster demo (another)"),
        ({"super_cluster": "another"}, b"super-cluster another"),
        ({"node": "east-0"}, b"this broker's own"),
        ({"node": "west-9"}, b"not the other way round"),
        ({"version": 0}, b"frame version is 0, and this broker works with 1 or newer"),
        ({"version": 99, "version_least": 98}, b"works with frame version 98 or newer"),
        ({"channel": 9}, b"channel 9"),
        ({"channel": 1}, b"control connection is not there"),
    ],
)
async def test_links_with_wrong_claims_are_refused_with_the_reason(
    brokers: Any, changes: dict[str, Any], reason: bytes
) -> None:
    (broker,) = await brokers.start(credentials={"cluster.json": LINKS})
    said = await answer(broker, hello(broker, **changes))
    size, kind = struct.unpack_from(">IB", said)
    assert (size, kind) == (len(said) - 4, FrameType.REFUSED)
    assert reason in said
    assert b"r0ute" not in said
    assert broker.mesh.links == {}


@pytest.mark.covers("OP-3", "SF-13")
async def test_who_cannot_read_the_map_of_streams_is_refused(brokers: Any) -> None:
    (broker,) = await brokers.start(credentials={"cluster.json": LINKS})
    broker.mesh.handshakes.set_facts(replace(broker.mesh.facts, map_level=lambda: frames.VERSION + 1))
    said = await answer(broker, hello(broker, version=frames.VERSION))
    assert b"the map of streams uses features of version %d: no older image" % (frames.VERSION + 1) in said
    dialled: Any = SimpleNamespace(
        door=broker.mesh.cluster_door, pair="x", introduces=False, showed=None, replaces=""
    )
    told = frames.decode_hello(memoryview(broker.mesh.handshakes.hello_body(dialled, Channel.CONTROL)))
    assert told.version_least == frames.VERSION + 1, (
        "nor is it worked with by those who can say so themselves"
    )
    assert broker.mesh.links == {}


@pytest.mark.covers("CL-3")
async def test_the_handshake_has_a_time_limit_and_takes_no_garbage(brokers: Any) -> None:
    (broker,) = await brokers.start(credentials={"cluster.json": LINKS}, limits={"authTimeoutMs": 100})
    client = await brokers.client(broker)
    assert await answer(broker, b"") == b""
    assert await answer(broker, b"GET / HTTP/1.1\r\n\r\n") == b""
    assert await answer(broker, b"\x00\x00\x00\x02\x05x") == b"", "messages before HELLO"
    assert broker.mesh.handshakes.refused_total == 3
    await client.flush()


@pytest.mark.covers("CL-3")
async def test_brokers_link_with_credentials_and_clients_never_see_them(brokers: Any) -> None:
    east = await brokers.start(2, credentials={"cluster.json": LINKS, "users.json": USERS})
    assert all(brokers.links(broker) == 1 for broker in east)
    raw = await brokers.raw(east[0])
    assert "r0ute" not in json.dumps(raw.info)
    await raw.close()


@pytest.mark.covers("CL-3")
async def test_brokers_of_another_super_cluster_never_link(
    brokers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = {"east-0": brokers.address(), "east-1": brokers.address()}
    one = await brokers.start_one("east-0", hosts)
    other = await brokers.start_one("east-1", hosts, identity="id-2")
    await brokers.until(
        lambda: "it belongs to super-cluster demo (id-" in caplog.text, "the refusal in the log"
    )
    assert brokers.links(one) == brokers.links(other) == 0
