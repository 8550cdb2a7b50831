"""What a broker says of credentials at `/admin/credentials`, and what labels and limits of users do to clients."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import threading
from functools import partial
from typing import Any

import aiohttp
import bcrypt
import pytest
from tests.broker.net.conftest import until

from supercluster.reconcilers.planners.user.entries import entry_digest

OPERATOR = {"user": "op", "password": "op-secret", "role": "operator"}
ROUTE = {"user": "route", "password": "r0ute"}
LINKS = {"accept": [ROUTE], "send": ROUTE}


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


def entry(password: str, label: str = "", **more: Any) -> dict[str, Any]:
    return {"user": "app", "password": password, **({"credential": label} if label else {}), **more}


def write(broker: Any, *users: dict[str, Any]) -> None:
    """The broker's `users.json` from now on, beside the operator."""
    (broker.place.credentials_dir / "users.json").write_text(json.dumps({"users": [*users, OPERATOR]}))


async def ask(broker: Any, query: str = "", login: str = "op:op-secret") -> tuple[int, Any]:
    url = f"http://{broker.place.host}:{broker.monitor_port}/admin/credentials{query}"
    headers = {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, await answer.json()


async def shown(broker: Any, query: str = "") -> dict[tuple[str, str], dict[str, Any]]:
    status, found = await ask(broker, query)
    assert status == 200, found
    return {(row.get("user", row.get("nkey")), row["credential"]): row for row in found["shown"]}


@pytest.mark.covers("CL-5")
async def test_a_broker_says_what_is_in_force_and_who_shows_it(brokers: Any) -> None:
    users = [entry("old", "u.1"), entry("new", "u.2"), {"user": "plain", "password": "p"}, OPERATOR]
    east = await brokers.start(2, credentials={"users.json": {"users": users}, "cluster.json": LINKS})
    broker = east[0]
    clients = [await brokers.client(broker, user="app", password="old", name=name) for name in "aab"]
    await brokers.client(broker, user="plain", password="p")
    status, found = await ask(broker)
    assert status == 200
    assert (found["broker"], found["process"]) == ("east-0", broker.process_id)
    assert 0 <= found["upMs"] < 600_000
    files = {name: file["digest"] for name, file in found["files"].items()}
    for name in ("users.json", "cluster.json"):
        raw = (broker.place.credentials_dir / name).read_bytes()
        assert files[name] == hashlib.sha256(raw).hexdigest()[:16]
    assert (files["gateway.json"], files["migration.json"]) == ("", "")
    assert {file["problem"] for file in found["files"].values()} == {""}
    old, new, operator = found["shown"]
    first = old["clients"][0]
    assert (first["address"], first["name"], first["language"], first["connections"]) == (
        broker.server.clients[clients[0].client_id].peer[0],
        "a",
        "python3",
        2,
    )
    assert first["version"]
    assert [client["name"] for client in old["clients"]] == ["a", "b"]
    assert (old["credential"], old["connections"], old["idleMs"], old["clientsMore"]) == ("u.1", 3, 0, 0)
    assert (new["credential"], new["connections"], new["idleMs"], new["clients"]) == ("u.2", 0, None, [])
    assert [each["inForce"] for each in (old, new)] == [True, True]
    assert [each["digest"] for each in (old, new)] == [entry_digest(each) for each in users[:2]]
    assert (operator["user"], operator["connections"], operator["credential"]) == ("op", 0, "")
    assert operator["idleMs"] is not None, "this call has shown it"
    assert "clients" not in operator
    assert found["links"] == {"cluster": {"route": 1}, "gateway": {}}
    for secret in ("op-secret", "r0ute", '"old"', '"new"'):
        assert secret not in json.dumps(found)
    for client in clients:
        await client.close()
    await until(lambda: len(broker.server.clients) == 1, "the clients to go")
    idle = (await shown(broker))["app", "u.1"]
    assert idle["connections"] == 0
    assert 0 <= idle["idleMs"] < 60_000


async def test_only_an_operator_is_told(brokers: Any) -> None:
    (broker,) = await brokers.start(credentials={"users.json": {"users": [entry("p", "u.1"), OPERATOR]}})
    assert (await ask(broker, login="app:p"))[0] == 403
    assert (await ask(broker, login="op:wrong"))[0] == 401
    assert (await shown(broker))["app", "u.1"]["idleMs"] is not None, "a call by a client shows it too"


async def test_clients_of_users_that_are_asked_for_are_named_within_a_bound(brokers: Any) -> None:
    users = [entry("p", "u.1"), {"user": "other", "password": "p", "credential": "o.1"}, OPERATOR]
    (broker,) = await brokers.start(credentials={"users.json": {"users": users}})
    for number in range(20):
        await brokers.client(broker, user="app", password="p", name=f"n{min(number, 17)}")
    found = await shown(broker)
    assert not any("clients" in row for row in found.values())
    found = await shown(broker, "?user=$G/op&user=$G/app")
    assert "clients" not in found["other", "o.1"]
    assert found["op", ""]["clients"] == []
    row = found["app", "u.1"]
    assert [(one["name"], one["connections"]) for one in row["clients"][:2]] == [("n17", 3), ("n0", 1)]
    assert (len(row["clients"]), row["clientsMore"]) == (16, 2)
    status, refusal = await ask(broker, "?" + "&".join(f"user=$G/u{number}" for number in range(17)))
    assert (status, refusal["error"]) == (400, "user is there 17 times; at most 16 users can be asked for")


@pytest.mark.covers("CL-5")
async def test_a_label_that_comes_changes_or_goes_ends_no_connection(brokers: Any) -> None:
    (broker,) = await brokers.start(credentials={"users.json": {"users": [entry("p"), OPERATOR]}})
    client = await brokers.client(broker, user="app", password="p")
    (connection,) = broker.server.clients.values()

    def is_labelled(wanted: str) -> bool:
        return bool(connection.credential.credential == wanted)

    for label in ("u.1", "u.2", ""):
        write(broker, entry("p", label))
        await until(partial(is_labelled, label), f"label {label!r}")
        await client.flush()
        found = await shown(broker)
        labels = {key[1]: row["connections"] for key, row in found.items() if key[0] == "app"}
        assert labels == ({label: 1} if label else {})
    assert client.stats["reconnects"] == 0


@pytest.mark.covers("CL-5")
async def test_both_passwords_of_a_user_with_two_hashes_log_in_and_are_told_apart(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[threading.Thread] = set()
    really = bcrypt.checkpw

    def compare(given: bytes, configured: bytes) -> bool:
        threads.add(threading.current_thread())
        return really(given, configured)

    monkeypatch.setattr(bcrypt, "checkpw", compare)
    users = [entry(hashed("old"), "u.1"), entry(hashed("new"), "u.2"), OPERATOR]
    (broker,) = await brokers.start(credentials={"users.json": {"users": users}})
    for password in ("old", "new", "new"):
        await brokers.client(broker, user="app", password=password)
    found = await shown(broker)
    assert {key[1]: row["connections"] for key, row in found.items() if key[0] == "app"} == {
        "u.1": 1,
        "u.2": 2,
    }
    assert threads
    assert threading.main_thread() not in threads
    write(broker, entry(hashed("other"), "u.3"))
    await until(lambda: not broker.server.clients, "both to be cut off")
    found = await shown(broker)
    assert [key for key in found if key[0] == "app"] == [("app", "u.3")], "what is not in force is forgotten"


@pytest.mark.covers("CL-5")
async def test_a_refused_file_is_told_and_the_others_are_in_force(brokers: Any) -> None:
    (broker,) = await brokers.start(
        credentials={"users.json": {"users": [entry("p"), OPERATOR]}, "cluster.json": LINKS}
    )
    before = (await ask(broker))[1]["files"]
    write(broker, entry("p", "no label"))
    newer = {"user": "route-2", "password": "newer"}
    (broker.place.credentials_dir / "cluster.json").write_text(
        json.dumps({**LINKS, "accept": [ROUTE, newer]})
    )
    await until(lambda: broker.credentials.links.accepts("route-2", "newer"), "the other file")
    await until(lambda: bool(broker.credentials.files["users.json"].problem), "the refusal")
    files = (await ask(broker))[1]["files"]
    assert files["users.json"]["digest"] == before["users.json"]["digest"]
    assert "users[0].credential has to have at most 64 letters" in files["users.json"]["problem"]
    assert files["cluster.json"]["digest"] != before["cluster.json"]["digest"]


async def test_clients_of_a_user_count_together_whatever_they_showed(brokers: Any) -> None:
    limits = {"connectionsMax": 2, "subscriptionsMax": 1, "payloadBytesMax": 10}
    users = [entry("old", "u.1", limits=limits), entry("new", "u.2", limits=limits), OPERATOR]
    (broker,) = await brokers.start(credentials={"users.json": {"users": users}})
    first = await brokers.raw(broker)
    first.send(b'CONNECT {"user":"app","pass":"old"}\r\nPING\r\n')
    await first.until_line(b"PONG")
    await brokers.client(broker, user="app", password="new")
    await brokers.client(broker, user="op", password="op-secret")
    third = await brokers.raw(broker)
    third.send(b'CONNECT {"user":"app","pass":"new"}\r\n')
    assert await third.to_end() == b"-ERR 'maximum account active connections exceeded'\r\n"
    await third.close()
    first.send(b"SUB a 1\r\nSUB b 2\r\nPING\r\n")
    assert (await first.until_line(b"PONG"))[-2] == b"-ERR 'maximum subscriptions exceeded'"
    await first.close()
    raw_limits = {**limits, "connectionsMax": 3}
    write(broker, entry("old", "u.1", limits=raw_limits), entry("new", "u.2", limits=raw_limits))
    await until(lambda: broker.credentials.users[0].limits.connections_max == 3, "the new limits")
    raw = await brokers.raw(broker)
    raw.send(b'CONNECT {"user":"app","pass":"new"}\r\nPUB a 11\r\n01234567890\r\n')
    assert b"-ERR 'Maximum Payload Violation'" in await raw.to_end()
    await raw.close()


async def test_limits_that_change_hold_for_who_is_here_and_the_last_to_come_has_to_go(brokers: Any) -> None:
    (broker,) = await brokers.start(credentials={"users.json": {"users": [entry("p"), OPERATOR]}})
    first, last = [await brokers.raw(broker) for _ in range(2)]
    for raw in (first, last):
        raw.send(b'CONNECT {"user":"app","pass":"p","protocol":1}\r\nPING\r\n')
        await raw.until_line(b"PONG")
    write(broker, entry("p", limits={"connectionsMax": 1, "payloadBytesMax": 100}))
    end = await last.to_end()
    assert end.endswith(b"-ERR 'maximum account active connections exceeded'\r\n")
    first.send(b"PING\r\n")
    infos = [line for line in await first.until_line(b"PONG") if line.startswith(b"INFO")]
    assert json.loads(infos[-1][5:])["max_payload"] == 100
    for raw in (first, last):
        await raw.close()


@pytest.mark.covers("CL-5")
async def test_of_two_labels_of_one_hash_clients_show_the_first(brokers: Any) -> None:
    """The operator puts a credential that is the same once more before the former one: nobody has to connect anew for it."""
    hash_ = hashed("p")
    (broker,) = await brokers.start(credentials={"users.json": {"users": [entry(hash_, "u.1"), OPERATOR]}})
    client = await brokers.client(broker, user="app", password="p")
    write(broker, entry(hash_, "u.2"), entry(hash_, "u.1"))

    async def moved() -> bool:
        found = await shown(broker)
        return ("app", "u.2") in found and found["app", "u.2"]["connections"] == 1

    async with asyncio.timeout(10):
        while not await moved():
            await asyncio.sleep(0.02)
    assert (await shown(broker))["app", "u.1"]["connections"] == 0
    assert client.is_connected
