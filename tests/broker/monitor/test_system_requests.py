"""Requests under `$SYS.REQ` beyond what the compatibility suite shows: bounds, and other clusters."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bcrypt
import nats
import pytest
from nats.aio.client import Client
from tests.support.local_clusters import Fleet

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.auth.users import CredentialsError
from supercluster.broker.monitor import shares, system_documents
from supercluster.broker.runtime.process import BrokerProcess
from supercluster.broker.settings import settings
from supercluster.broker.settings.place import Place

USERS = {
    "users": [
        {"user": "app", "password": "a", "account": "APP"},
        {"user": "sys", "password": "s", "role": "system"},
    ]
}


async def answers(nc: Client, subject: str, count: int, body: bytes = b"") -> list[dict[str, Any]]:
    inbox = await nc.subscribe(nc.new_inbox())
    await nc.publish(subject, body, reply=inbox.subject)
    return [json.loads((await inbox.next_msg(timeout=30)).data) for _ in range(count)]


async def broker(folder: Path, users: dict[str, Any] | None = None) -> BrokerProcess:
    (folder / "users.json").write_text(json.dumps(users or USERS))
    document = {
        "superCluster": "demo",
        "identity": "id-1",
        "cluster": "east",
        "peers": {},
        "metaVoters": ["east-0"],
        "ports": {"client": 0, "cluster": 0, "monitor": 0},
    }
    place = Place("east-0", "127.0.0.1", "127.0.0.1", folder / "broker.json", folder, folder)
    process = BrokerProcess(settings.parse(document), place)
    await process.start()
    return process


async def test_an_account_that_asks_too_much_takes_no_answers_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "ACCOUNT_PER_S_MAX", 4)
    users = [*USERS["users"], {"user": "quiet", "password": "q", "account": "QUIET"}]
    process = await broker(tmp_path, {"users": users})
    process.clock = Standing()  # type: ignore[assignment]
    people = []
    for name in ("app:a", "quiet:q", "sys:s"):
        url = f"nats://{name}@{process.advertised_client_url}"
        people.append(await nats.connect(url, allow_reconnect=False))
    greedy, quiet, watcher = people
    for subject in ("$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.STATZ"):
        process.clock.now_ms += 1000  # type: ignore[attr-defined]
        inbox = await greedy.subscribe(greedy.new_inbox())
        for _ in range(1000):
            await greedy.publish(subject, reply=inbox.subject)
        await greedy.flush()
        found = [json.loads((await inbox.next_msg(timeout=30)).data) for _ in range(8)]
        assert [each.get("error", {}).get("code") for each in found] == [None] * 4 + [503] * 4
        assert "data" in json.loads((await quiet.request(subject, timeout=5)).data)
        assert "data" in (await answers(watcher, "$SYS.REQ.SERVER.PING.VARZ", 1))[0]
        assert inbox.pending_msgs == 0, "refusals are bounded"
        await inbox.unsubscribe()
    for client in people:
        await client.close()
    await process.stop()


async def test_who_asks_by_an_import_spends_the_share_of_his_own_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "ACCOUNT_PER_S_MAX", 2)
    asked = "$SYS.REQ.ACCOUNT.PING.CONNZ"
    accounts = {
        "OPS": {"exports": [{"service": "$SYS.REQ.>"}]},
        "APP": {"imports": [{"service": {"account": "OPS", "subject": asked}, "to": "ask"}]},
    }
    users = [*USERS["users"], {"user": "ops", "password": "o", "account": "OPS"}]
    process = await broker(tmp_path, {"users": users, "accounts": accounts})
    process.clock = Standing()  # type: ignore[assignment]
    app, ops = [
        await nats.connect(f"nats://{name}@{process.advertised_client_url}", allow_reconnect=False)
        for name in ("app:a", "ops:o")
    ]
    found = [json.loads((await app.request("ask", timeout=30)).data) for _ in range(3)]
    assert ["error" in each for each in found] == [False, False, True]
    assert "data" in json.loads((await ops.request(asked, timeout=30)).data)
    await asyncio.gather(app.close(), ops.close())
    await process.stop()


class Standing:
    """A clock that a test moves; what is read of it by the loop's own timers is as ever."""

    now_ms = 1000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def machine_ms(self) -> int:
        return self.now_ms

    def now_ns(self) -> int:
        return self.now_ms * 1_000_000


async def test_the_share_of_the_processor_is_reckoned_by_the_clock_that_is_handed_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = [10.0]
    usage = lambda who: SimpleNamespace(ru_utime=used[0], ru_stime=0.0)  # noqa: E731
    monkeypatch.setattr("resource.getrusage", usage)
    clock = Standing()
    process: Any = SimpleNamespace(clock=clock)
    documents = system_documents.SystemDocuments(process)
    clock.now_ms += 20_000
    assert documents._cpu_percent() == 50.0
    used[0] += 1.0
    clock.now_ms += 999
    assert documents._cpu_percent() == 50.0, "over a second at least"
    clock.now_ms += 3001
    assert documents._cpu_percent() == 25.0


async def test_an_account_of_the_brokers_own_is_nobodys(tmp_path: Path) -> None:
    users = {"users": [{"user": "a", "password": "b", "account": " brokers"}]}
    (tmp_path / "users.json").write_text(json.dumps(users))
    with pytest.raises(CredentialsError, match="cannot begin with a space"):
        Credentials(tmp_path).load()


@pytest.mark.covers("CL-6")
async def test_brokers_of_all_clusters_answer(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    cluster = {"accept": [{"user": "r", "password": "r"}], "send": {"user": "r", "password": "r"}}
    credentials = {"users.json": USERS, "cluster.json": cluster, "gateway.json": cluster}
    clusters = await fleet.start_clusters({"east": 2, "west": 1}, credentials=credentials)
    try:
        host = clusters["east"][0].host
        client = await nats.connect(f"nats://sys:s@{host}:4222", allow_reconnect=False)
        app = await nats.connect(f"nats://app:a@{clusters['west'][0].host}:4222", name="far")
        found = await answers(client, "$SYS.REQ.SERVER.PING", 3)
        assert sorted(each["server"]["cluster"] for each in found) == ["east", "east", "west"]
        assert {len(each["statsz"].get("gateways", ())) for each in found} == {1, 2}
        found = await answers(client, "$SYS.REQ.SERVER.PING.GATEWAYZ", 3)
        for each in found:
            data = each["data"]
            others = {*data["outbound_gateways"], *data["inbound_gateways"]}
            assert others == {"west" if each["server"]["cluster"] == "east" else "east"}
        far = await answers(client, "$SYS.REQ.SERVER.PING.CONNZ", 1, b'{"cluster": "west", "acc": "APP"}')
        assert [each["name"] for each in far[0]["data"]["connections"]] == ["far"]
        own = await answers(app, "$SYS.REQ.ACCOUNT.PING.CONNZ", 3)
        assert sum(each["data"]["num_connections"] for each in own) == 1
        await asyncio.gather(client.close(), app.close())
    finally:
        await fleet.stop()


@pytest.mark.parametrize("hashed", [False, True])
async def test_a_password_that_is_no_text_is_refused_as_no_connect(tmp_path: Path, hashed: bool) -> None:
    password = bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode() if hashed else "x"
    process = await broker(tmp_path, {"users": [{"user": "app", "password": password}]})
    reader, writer = await asyncio.open_connection("127.0.0.1", process.client_port)
    try:
        await reader.readline()
        writer.write(b'CONNECT {"user":"app","pass":"\\ud800"}\r\nPING\r\n')
        assert await asyncio.wait_for(reader.readline(), 5) == b"-ERR 'Parser Error'\r\n"
    finally:
        writer.close()
        await process.stop()


async def test_who_asks_by_an_import_or_a_mapping_has_his_own_rights(tmp_path: Path) -> None:
    asked = {"account": "OPS", "subject": "$SYS.REQ.SERVER.PING.*"}
    accounts = {
        "OPS": {"exports": [{"service": "$SYS.REQ.>"}]},
        "APP": {
            "imports": [{"service": asked, "to": "ask.*"}],
            "mappings": {"me": "$SYS.REQ.USER.INFO"},
        },
    }
    process = await broker(tmp_path, {**USERS, "accounts": accounts})
    client = await nats.connect(f"nats://app:a@{process.advertised_client_url}", allow_reconnect=False)
    try:
        assert json.loads((await client.request("me", timeout=30)).data)["data"]["user"] == "app"
        found = json.loads((await client.request("ask.CONNZ", timeout=30)).data)["data"]
        assert found["connections"] == [], "of the account that exports it"
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("ask.VARZ", timeout=30)
    finally:
        await client.close()
        await process.stop()


@pytest.mark.parametrize("payload", [b'{"filter_subject": "\\ud800"}', b'{"filter_subject": "\xff"}', b"[1]"])
async def test_a_request_that_is_no_text_is_refused_and_its_client_stays(
    tmp_path: Path, payload: bytes
) -> None:
    process = await broker(tmp_path)
    client = await nats.connect(f"nats://app:a@{process.advertised_client_url}", allow_reconnect=False)
    await client.subscribe("a")
    try:
        (found,) = await answers(client, "$SYS.REQ.SERVER.PING.CONNZ", 1, payload)
        assert found["error"]["code"] == 400
    finally:
        await client.close()
        await process.stop()
