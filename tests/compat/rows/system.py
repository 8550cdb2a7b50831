"""What brokers tell of themselves and of accounts under `$SYS`: what `nats server` and `nats account` read."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from tests.compat.bench import WAIT_S, Bench, eventually
from tests.compat.table import ALL, CLUSTERS, EVERYWHERE, Group, Settings

SYSTEM = Settings(
    "system",
    credentials={
        "users.json": {
            "users": [
                {"user": "app", "password": "a", "account": "APP"},
                {
                    "user": "narrow",
                    "password": "n",
                    "account": "APP",
                    "permissions": {
                        "publish": {"allow": ["$SYS.REQ.USER.INFO", "a.>"]},
                        "subscribe": {"allow": ["_INBOX.>"], "deny": ["b"]},
                    },
                },
                {"user": "other", "password": "o", "account": "OTHER"},
                {"user": "sys", "password": "s", "account": "$SYS", "role": "system"},
            ]
        },
        "cluster.json": {"accept": [{"user": "r", "password": "r"}], "send": {"user": "r", "password": "r"}},
    },
    nats={
        "accounts": {
            "APP": {
                "users": [
                    {"user": "app", "password": "a"},
                    {
                        "user": "narrow",
                        "password": "n",
                        "permissions": {
                            "publish": {"allow": ["$SYS.REQ.USER.INFO", "a.>"]},
                            "subscribe": {"allow": ["_INBOX.>"], "deny": ["b"]},
                        },
                    },
                ],
                "jetstream": "enabled",
            },
            "OTHER": {"users": [{"user": "other", "password": "o"}]},
            "$SYS": {"users": [{"user": "sys", "password": "s"}]},
        }
    },
    login={"user": "app", "password": "a"},
)
rows = Group("system", settings=SYSTEM)
everywhere = Group("system", on=ALL, settings=SYSTEM)
clusters = Group("system", on=CLUSTERS, settings=SYSTEM)

SYS: dict[str, Any] = {"user": "sys", "password": "s"}
OTHER: dict[str, Any] = {"user": "other", "password": "o"}


async def ask(nc: Client, subject: str, body: Any = None, count: int = 1) -> list[dict[str, Any]]:
    """So many answers to one request."""
    inbox = await nc.subscribe(nc.new_inbox())
    payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    await nc.publish(subject, payload, reply=inbox.subject)
    found = []
    for _ in range(count):
        message = await inbox.next_msg(timeout=WAIT_S)
        assert message.data, f"{subject}: {message.headers}"
        found.append(json.loads(message.data))
    await inbox.unsubscribe()
    return found


async def ask_all(b: Bench, kind: str = "", body: Any = None) -> list[dict[str, Any]]:
    """The answer of every server to PING."""
    nc = await b.connect(**SYS)
    subject = f"$SYS.REQ.SERVER.PING.{kind}" if kind else "$SYS.REQ.SERVER.PING"
    return await ask(nc, subject, body, b.target.size)


async def ask_own(b: Bench, kind: str, body: Any = None) -> dict[str, Any]:
    """The answer of the server that the row talks to, asked by its id."""
    nc = await b.connect(**SYS)
    info = nc._server_info
    return (await ask(nc, f"$SYS.REQ.SERVER.{info['server_id']}.{kind}", body))[0]


async def nobody(nc: Client, subject: str, body: bytes = b"") -> None:
    """A request that nobody answers."""
    with pytest.raises(NoRespondersError):
        await nc.request(subject, body, timeout=WAIT_S)


@everywhere("ping", "every server answers PING with its figures")
async def ping(b: Bench) -> None:
    found = await ask_all(b)
    assert sorted(each["server"]["name"] for each in found) == [f"east-{n}" for n in range(b.target.size)]
    for each in found:
        server, stats = each["server"], each["statsz"]
        assert (server["jetstream"], bool(server["id"]), bool(server["ver"])) == (True, True, True)
        assert server["seq"] > 0
        assert stats["mem"] > 0
        assert stats["cores"] >= 1
        assert stats["active_servers"] == b.target.size
        assert {"msgs", "bytes"} <= set(stats["sent"])
        assert {"msgs", "bytes"} <= set(stats["received"])
        assert {"config", "stats"} <= set(stats["jetstream"])
        assert len({route["name"] for route in stats.get("routes", ())}) == b.target.size - 1
    assert sum(each["statsz"]["connections"] for each in found) >= 1


@everywhere("ping.varz", "PING.VARZ tells what /varz does")
async def ping_varz(b: Bench) -> None:
    for each in await ask_all(b, "VARZ"):
        data = each["data"]
        assert (data["server_id"], data["server_name"]) == (each["server"]["id"], each["server"]["name"])
        assert (data["port"], data["max_payload"], data["auth_required"]) == (4222, 1_048_576, True)
        assert data["system_account"] == "$SYS"
        assert data["subscriptions"] >= 0
        assert "stats" in data["jetstream"]


@everywhere("ping.idz", "PING.IDZ tells name, host and id, without a head")
async def ping_idz(b: Bench) -> None:
    found = await ask_all(b, "IDZ")
    assert {each["host"] for each in found} == set(b.target.hosts)
    assert all(set(each) == {"name", "host", "id"} for each in found)


@everywhere("ping.healthz", "PING.HEALTHZ says that all are well")
async def ping_healthz(b: Bench) -> None:
    for each in await ask_all(b, "HEALTHZ"):
        assert (each["data"]["status"], each["data"]["status_code"]) == ("ok", 200)


_UNWELL: tuple[tuple[dict[str, Any], int, str, str], ...] = (
    ({"stream": "{stream}"}, 400, "BAD_REQUEST", '"account" must not be empty when checking stream health'),
    (
        {"account": "APP", "consumer": "c"},
        400,
        "BAD_REQUEST",
        '"stream" must not be empty when checking consumer health',
    ),
    ({"account": "NOPE"}, 404, "ACCOUNT", 'JetStream account "NOPE" not found'),
    ({"account": "$SYS"}, 404, "ACCOUNT", 'JetStream account "$SYS" not found'),
    (
        {"account": "APP", "stream": "NOT-THERE"},
        404,
        "STREAM",
        'JetStream stream "NOT-THERE" not found on account "APP"',
    ),
    (
        {"account": "APP", "stream": "{stream}", "consumer": "zz"},
        404,
        "CONSUMER",
        'JetStream consumer "zz" not found for stream "{stream}" on account "APP"',
    ),
)


@everywhere(
    "healthz.names",
    "HEALTHZ, also over HTTP, says of account, stream and consumer that are named whether they are there",
)
async def healthz_names(b: Bench) -> None:
    stream = await b.stream(num_replicas=b.replicas)
    consumer = await stream.consumer()
    nc = await b.connect(**SYS)
    whole = {"account": "APP", "stream": stream.name, "consumer": consumer.name}

    async def is_known() -> bool:
        found = [each["data"] for each in await ask_all(b, "HEALTHZ", whole)]
        return all((each["status"], each["status_code"]) == ("ok", 200) for each in found)

    await eventually(is_known, "every server to know the consumer")
    assert await _over_http(b, whole) == (200, {"status": "ok"})
    for given, code, kind, text in _UNWELL:
        asked = {name: value.format(stream=stream.name) for name, value in given.items()}
        why = text.format(stream=stream.name)
        short = {"status": "error" if code == 400 else "unavailable", "error": why}
        named = {} if code == 400 else asked
        long = {"status": "error", "errors": [{"type": kind, **named, "error": why}]}
        for told, body in ((short, asked), (long, {**asked, "details": True})):
            for each in await ask_all(b, "HEALTHZ", body):
                assert each["data"] == {**told, "status_code": code}
            assert await _over_http(b, body) == (code, told)
    for name in ("js-enabled-only", "js-server-only"):
        for each in await ask_all(b, "HEALTHZ", {"account": "NOPE", name: True}):
            assert each["data"]["status_code"] == 200
    wrong = (await ask(nc, "$SYS.REQ.SERVER.PING.HEALTHZ", {"details": "yes"}))[0]
    assert wrong["error"]["code"] == 400
    assert (await _over_http(b, {"details": "yes"}))[0] == 400


async def _over_http(b: Bench, query: dict[str, Any]) -> tuple[int, Any]:
    """Status and document of /healthz."""
    words = urllib.parse.urlencode(
        {name: "true" if value is True else value for name, value in query.items()}
    )
    url = f"http://{b.host}:{b.target.monitor_port}/healthz?{words}"
    return await asyncio.to_thread(_fetch, url)


def _fetch(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            status, body = error.code, error.read()
    try:
        return status, json.loads(body)
    except ValueError:
        return status, body.decode()


@everywhere("ping.jsz", "PING.JSZ counts streams, messages and bytes where they are")
async def ping_jsz(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    found = [each["data"] for each in await ask_all(b, "JSZ")]
    for data in found:
        assert data["streams"] >= 1
        assert data["messages"] >= 0
        assert {"memory", "storage", "api", "config"} <= set(data)
    assert any(data["messages"] >= 2 and data["bytes"] > 0 for data in found)
    if b.target.size > 1:
        leaders = {data["meta_cluster"]["leader"] for data in found}
        assert len(leaders) == 1
        assert all(data["meta_cluster"]["cluster_size"] == b.target.size for data in found)


@rows("ping.jsz.streams", "JSZ tells of every stream and consumer where that is asked for")
async def ping_jsz_streams(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    consumer = await stream.consumer()
    wanted = {"account": "APP", "streams": True, "consumer": True, "config": True}
    details = [
        detail
        for each in await ask_all(b, "JSZ", wanted)
        for account in each["data"].get("account_details", ())
        for detail in account["stream_detail"]
        if detail["name"] == stream.name
    ]
    assert details
    assert all(detail["config"]["subjects"] == [f"{stream.name}.>"] for detail in details)
    assert any(detail["state"]["messages"] == 2 for detail in details)
    consumers = [found for detail in details for found in detail.get("consumer_detail") or ()]
    assert consumer.name in {found["name"] for found in consumers}
    names = [
        account["name"]
        for each in await ask_all(b, "JSZ", {"accounts": True})
        for account in each["data"]["account_details"]
    ]
    assert "APP" in names


@clusters(
    "ping.jsz.meta",
    "JSZ and STATSZ tell of every member of the meta group, and its leader of all that they are current",
)
async def ping_jsz_meta(b: Bench) -> None:
    names = {f"east-{n}" for n in range(b.target.size)}

    async def settled() -> bool:
        found = await ask_all(b, "JSZ")
        for each in found:
            meta, own = each["data"]["meta_cluster"], each["server"]["name"]
            assert {replica["name"] for replica in meta["replicas"]} == names - {own}
            assert all(replica["peer"] and replica["active"] >= 0 for replica in meta["replicas"])
            assert meta["peer"]
            assert (meta["cluster_size"], meta["quorum_needed"]) == (len(names), len(names) // 2 + 1)
            current = {replica["name"] for replica in meta["replicas"] if replica["current"]}
            if meta["leader"] == own:
                is_settled = current == names - {own} and meta["pending"] == 0
            else:
                is_settled = current == {meta["leader"]}
            if not is_settled or any(replica.get("lag") for replica in meta["replicas"]):
                return False
        return True

    await eventually(settled, "the meta group to be current")
    (leader,) = [
        each
        for each in await ask_all(b)
        if each["statsz"]["jetstream"]["meta"]["leader"] == each["server"]["name"]
    ]
    told = leader["statsz"]["jetstream"]["meta"]
    assert {replica["name"] for replica in told["replicas"]} == names - {leader["server"]["name"]}


@clusters(
    "ping.jsz.followers",
    "JSZ: a stream's follower says that the leader is current, has no lag to tell, and shows its consumers",
)
async def ping_jsz_followers(b: Bench) -> None:
    stream = await b.stream(num_replicas=b.target.size)
    await stream.fill("a", "b")
    consumer = await stream.consumer()
    wanted = {"account": "APP", "streams": True, "consumer": True}

    async def settled() -> bool:
        found = {}
        for each in await ask_all(b, "JSZ", wanted):
            details = [
                detail
                for account in each["data"].get("account_details", ())
                for detail in account["stream_detail"]
                if detail["name"] == stream.name
            ]
            if not details:
                return False
            found[each["server"]["name"]] = details[0]
        for own, detail in found.items():
            cluster, consumers = detail["cluster"], detail.get("consumer_detail") or ()
            if [each["name"] for each in consumers] != [consumer.name] or not cluster.get("leader"):
                return False
            replicas = {replica["name"]: replica for replica in cluster["replicas"]}
            assert set(replicas) == set(found) - {own}
            if any(replica.get("lag") for replica in replicas.values()):
                return False
            if own == cluster["leader"]:
                if not all(replica["current"] for replica in replicas.values()):
                    return False
            elif not replicas[cluster["leader"]]["current"]:
                return False
        return True

    await eventually(settled, "the stream's replicas to be current")


@rows("ping.jsz.leader-only", "of JSZ with leader_only only the meta leader tells")
async def ping_jsz_leader(b: Bench) -> None:
    nc = await b.connect(**SYS)
    (found,) = await ask(nc, "$SYS.REQ.SERVER.PING.JSZ", {"leader_only": True})
    if b.target.size > 1:
        assert found["data"]["meta_cluster"]["leader"] == found["server"]["name"]


@everywhere("ping.connz", "PING.CONNZ lists the connections of every server")
async def ping_connz(b: Bench) -> None:
    name = b.name("client")
    nc = await b.connect(name=name, user="other", password="o")
    await nc.subscribe("some.subject")
    await nc.flush()
    (found,) = [
        connection
        for each in await ask_all(b, "CONNZ", {"auth": True, "subscriptions": True})
        for connection in each["data"]["connections"]
        if connection.get("name") == name
    ]
    assert (found["kind"], found["type"], found["lang"]) == ("Client", "nats", "python3")
    assert (found["authorized_user"], found["account"]) == ("other", "OTHER")
    assert found["subscriptions_list"] == ["some.subject"]
    assert found["subscriptions"] == 1
    assert found["uptime"].endswith("s")


@rows("account.leafz", "ACCOUNT.<account>.LEAFZ is answered, with no leaf node")
async def account_leafz(b: Bench) -> None:
    nc = await b.connect(**SYS)
    (found,) = await ask(nc, "$SYS.REQ.ACCOUNT.APP.LEAFZ")
    assert found["data"]["leafnodes"] == 0


@rows("connz.limit", "CONNZ with a limit below 1 has the usual one")
async def connz_limit(b: Bench) -> None:
    for limit in (-1, 0):
        data = (await ask_own(b, "CONNZ", {"limit": limit}))["data"]
        assert (data["limit"], data["num_connections"] >= 1) == (1024, True)


@rows("connz.detail", "subscriptions_detail tells subject, queue and count of each")
async def connz_detail(b: Bench) -> None:
    nc = await b.connect(**OTHER)
    await nc.subscribe("d.>", "workers")
    await nc.publish("d.1", b"x")
    await nc.flush()
    data = (await ask_own(b, "CONNZ", {"subscriptions_detail": True, "acc": "OTHER"}))["data"]
    details = [each for found in data["connections"] for each in found.get("subscriptions_list_detail", ())]
    (found,) = [each for each in details if each["subject"] == "d.>"]
    assert (found["qgroup"], found["msgs"]) == ("workers", 1)


@rows("connz.bytes", "CONNZ counts the bytes of headers and payloads, and no other ones")
async def connz_bytes(b: Bench) -> None:
    nc = await b.connect(**OTHER)
    inbox = await nc.subscribe("x")
    await nc.publish("x", b"hello")
    await nc.publish("x", b"hello", headers={"A": "b"})
    for _ in range(2):
        await inbox.next_msg(timeout=WAIT_S)
    cid = nc._server_info["client_id"]
    (found,) = (await ask_own(b, "CONNZ", {"cid": cid}))["data"]["connections"]
    size = 5 + len(b"NATS/1.0\r\nA: b\r\n\r\n") + 5
    assert (found["in_msgs"], found["in_bytes"]) == (2, size)
    assert (found["out_msgs"], found["out_bytes"]) == (2, size)


@rows("connz.page", "CONNZ has offset, limit and total")
async def connz_page(b: Bench) -> None:
    for _ in range(3):
        await b.connect(**OTHER)
    data = (await ask_own(b, "CONNZ", {"acc": "OTHER", "limit": 2, "offset": 1}))["data"]
    assert (data["limit"], data["offset"], data["total"]) == (2, 1, 3)
    assert (data["num_connections"], len(data["connections"])) == (2, 2)


@rows("connz.cid", "CONNZ of one connection")
async def connz_cid(b: Bench) -> None:
    nc = await b.connect(**OTHER)
    cid = nc._server_info["client_id"]
    data = (await ask_own(b, "CONNZ", {"cid": cid}))["data"]
    assert [found["cid"] for found in data["connections"]] == [cid]
    data = (await ask_own(b, "CONNZ", {"cid": 999_999}))["data"]
    assert data["connections"] == []


@rows("connz.user", "CONNZ of one user")
async def connz_user(b: Bench) -> None:
    nc = await b.connect(**OTHER)
    data = (await ask_own(b, "CONNZ", {"user": "other", "auth": True}))["data"]
    assert nc._server_info["client_id"] in [found["cid"] for found in data["connections"]]
    assert {found["authorized_user"] for found in data["connections"]} == {"other"}


@rows("connz.sort", "CONNZ sorts, greatest first")
async def connz_sort(b: Bench) -> None:
    few, many = await b.connect(**OTHER), await b.connect(**OTHER)
    for nc, count in ((few, 1), (many, 5)):
        for number in range(count):
            await nc.subscribe(f"x.{number}")
        await nc.flush()
    data = (await ask_own(b, "CONNZ", {"acc": "OTHER", "sort": "subs"}))["data"]
    assert [found["subscriptions"] for found in data["connections"]] == [5, 1]


@rows("connz.wrong-sort", "CONNZ refuses an order that there is not")
async def connz_wrong_sort(b: Bench) -> None:
    found = await ask_own(b, "CONNZ", {"sort": "nonsense"})
    assert found["error"] == {"code": 500, "description": "invalid sorting option: nonsense"}


@rows("connz.wrong-type", "an option of another type is an error")
async def connz_wrong_type(b: Bench) -> None:
    found = await ask_own(b, "CONNZ", {"state": "closed"})
    assert found["error"]["code"] == 400
    assert "data" not in found


@rows("no-json", "a request that is no JSON is an error")
async def no_json(b: Bench) -> None:
    found = await ask_own(b, "VARZ", b"{bad")
    assert found["error"]["code"] == 400


@everywhere("ping.subsz", "PING.SUBSZ counts subscriptions")
async def ping_subsz(b: Bench) -> None:
    for each in await ask_all(b, "SUBSZ"):
        assert each["data"]["num_subscriptions"] >= 0
        assert "subscriptions_list" not in each["data"]


@rows("subsz.test", "SUBSZ tells which subscriptions a subject would reach")
async def subsz_test(b: Bench) -> None:
    nc = await b.connect(**OTHER)
    for subject in ("t.a", "t.*", "u.a"):
        await nc.subscribe(subject)
    await nc.flush()
    data = (await ask_own(b, "SUBSZ", {"subscriptions": True, "test": "t.a", "account": "OTHER"}))["data"]
    assert sorted(found["subject"] for found in data["subscriptions_list"]) == ["t.*", "t.a"]
    assert {found["account"] for found in data["subscriptions_list"]} == {"OTHER"}


@everywhere("ping.accountz", "PING.ACCOUNTZ lists the accounts")
async def ping_accountz(b: Bench) -> None:
    for each in await ask_all(b, "ACCOUNTZ"):
        assert each["data"]["system_account"] == "$SYS"
        assert {"$SYS", "APP", "OTHER"} <= set(each["data"]["accounts"])


@rows("accountz.one", "ACCOUNTZ of one account tells of it")
async def accountz_one(b: Bench) -> None:
    found = (await ask_own(b, "ACCOUNTZ", {"account": "APP"}))["data"]["account_detail"]
    assert (found["account_name"], found["jetstream_enabled"]) == ("APP", True)
    found = await ask_own(b, "ACCOUNTZ", {"account": "NOSUCH"})
    assert found["error"] == {"code": 500, "description": "Account NOSUCH does not exist"}


@everywhere("ping.routez", "PING.ROUTEZ lists the other servers of the cluster")
async def ping_routez(b: Bench) -> None:
    for each in await ask_all(b, "ROUTEZ"):
        names = {route["remote_name"] for route in each["data"]["routes"]}
        assert len(names) == b.target.size - 1
        assert each["server"]["name"] not in names


@everywhere("ping.gatewayz", "PING.GATEWAYZ and PING.LEAFZ are there without any")
async def ping_gatewayz(b: Bench) -> None:
    for each in await ask_all(b, "GATEWAYZ"):
        assert (each["data"]["outbound_gateways"], each["data"]["inbound_gateways"]) == ({}, {})
    for each in await ask_all(b, "LEAFZ"):
        assert (each["data"]["leafnodes"], each["data"]["leafs"]) == (0, [])


def _filter(name: str, title: str, body: dict[str, Any], *, who: str) -> None:
    @rows(f"filter.{name}", title)
    async def filtered(b: Bench) -> None:
        nc = await b.connect(**SYS)
        wanted = {
            key: value.replace("{name}", "east-0") if isinstance(value, str) else value
            for key, value in body.items()
        }
        inbox = await nc.subscribe(nc.new_inbox())
        await nc.publish("$SYS.REQ.SERVER.PING.HEALTHZ", json.dumps(wanted).encode(), reply=inbox.subject)
        # Whoever answers at all has done so before it answers this.
        await ask(nc, "$SYS.REQ.SERVER.PING.VARZ", None, b.target.size)
        names = []
        while inbox.pending_msgs:
            message: Msg = await inbox.next_msg(timeout=WAIT_S)
            names.append(json.loads(message.data)["server"]["name"])
        everybody = [f"east-{number}" for number in range(b.target.size)]
        assert sorted(names) == {"all": everybody, "first": ["east-0"], "none": []}[who]


_filter("name", "servers are chosen by a part of their name", {"server_name": "east"}, who="all")
_filter("name-one", "servers are chosen by their name", {"server_name": "{name}"}, who="first")
_filter(
    "name-exact",
    "with exact_match by the whole of it",
    {"server_name": "east", "exact_match": True},
    who="none",
)
_filter("host", "servers are chosen by host", {"host": "no.such.host"}, who="none")
_filter("cluster", "servers are chosen by cluster", {"cluster": "west"}, who="none")
_filter("tags", "servers are chosen by tags", {"tags": ["ssd"]}, who="none")


@everywhere("by-id", "one server is asked by its id, whichever a client is connected to")
async def by_id(b: Bench) -> None:
    nc = await b.connect(**SYS)
    for each in await ask_all(b, "IDZ", {"server_name": "IDZ goes by no filter"}):
        (found,) = await ask(nc, f"$SYS.REQ.SERVER.{each['id']}.VARZ")
        assert found["data"]["server_name"] == each["name"]
        (found,) = await ask(nc, f"$SYS.REQ.SERVER.{each['id']}.STATSZ")
        assert found["server"]["name"] == each["name"]


@rows("by-id.unknown", "nobody answers for an id that no server has, or for a kind that there is not")
async def by_id_unknown(b: Bench) -> None:
    nc = await b.connect(**SYS)
    await nobody(nc, "$SYS.REQ.SERVER.NOSUCH.VARZ")
    await nobody(nc, "$SYS.REQ.SERVER.PING.NONSENSE")
    await nobody(nc, "$SYS.REQ.ACCOUNT.APP.NONSENSE")


def _not_for_others(kind: str) -> None:
    @rows(f"others.{kind.lower() or 'ping'}", f"who is not of the system account gets no {kind or 'PING'}")
    async def refused(b: Bench) -> None:
        nc = await b.connect()
        await nobody(nc, f"$SYS.REQ.SERVER.PING{'.' if kind else ''}{kind}")
        await nobody(nc, f"$SYS.REQ.SERVER.{nc._server_info['server_id']}.{kind or 'STATSZ'}")


for _kind in ("", "STATSZ", "VARZ", "JSZ", "SUBSZ", "HEALTHZ", "ACCOUNTZ", "ROUTEZ", "IDZ"):
    _not_for_others(_kind)


@rows("others.account", "who is not of the system account gets nothing of accounts by name")
async def others_account(b: Bench) -> None:
    nc = await b.connect(**OTHER)
    for kind in ("INFO", "CONNZ", "JSZ", "SUBSZ", "CONNS"):
        await nobody(nc, f"$SYS.REQ.ACCOUNT.APP.{kind}")
        await nobody(nc, f"$SYS.REQ.ACCOUNT.OTHER.{kind}")


# ---- accounts -------------------------------------------------------------------------------------------------------


async def ask_account(b: Bench, account: str, kind: str, body: Any = None) -> list[dict[str, Any]]:
    """Every server's answer about an account."""
    nc = await b.connect(**SYS)
    return await ask(nc, f"$SYS.REQ.ACCOUNT.{account}.{kind}", body, b.target.size)


@everywhere("account.connz", "an account's connections")
async def account_connz(b: Bench) -> None:
    nc = await b.connect(**OTHER)
    found = await ask_account(b, "OTHER", "CONNZ")
    cids = [each["cid"] for told in found for each in told["data"]["connections"]]
    assert cids == [nc._server_info["client_id"]]


@rows("account.connz.acc", "the account of the subject counts, not one in the request")
async def account_connz_acc(b: Bench) -> None:
    await b.connect(**OTHER)
    found = await ask_account(b, "OTHER", "CONNZ", {"acc": "APP", "auth": True})
    accounts = {each["account"] for told in found for each in told["data"]["connections"]}
    assert accounts == {"OTHER"}


@rows("account.subsz", "an account's subscriptions")
async def account_subsz(b: Bench) -> None:
    nc = await b.connect(**OTHER)
    await nc.subscribe("only.here", "q")
    await nc.flush()
    found = await ask_account(b, "OTHER", "SUBSZ", {"subscriptions": True})
    lists = [each for told in found for each in told["data"].get("subscriptions_list", ())]
    (one,) = [each for each in lists if each["subject"] == "only.here"]
    assert (one["qgroup"], one["account"]) == ("q", "OTHER")


@everywhere("account.info", "an account at a glance")
async def account_info(b: Bench) -> None:
    await b.connect(**OTHER)
    found = [each["data"] for each in await ask_account(b, "OTHER", "INFO")]
    assert {data["account_name"] for data in found} == {"OTHER"}
    assert sum(data["client_connections"] for data in found) == 1
    assert all(data["complete"] and not data["expired"] for data in found)


@rows("account.info.unknown", "an account that there is not")
async def account_info_unknown(b: Bench) -> None:
    for each in await ask_account(b, "NOSUCH", "INFO"):
        assert each["error"] == {"code": 500, "description": "Account NOSUCH does not exist"}
    for each in await ask_account(b, "NOSUCH", "JSZ"):
        assert each["error"] == {"code": 500, "description": 'account "NOSUCH" not found'}


@everywhere("account.jsz", "what an account stores")
async def account_jsz(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    found = [each["data"] for each in await ask_account(b, "APP", "JSZ")]
    assert {data["name"] for data in found} == {"APP"}
    assert any(data["storage"] > 0 for data in found)
    assert any(data["api"]["total"] > 0 for data in found)


@everywhere("account.conns", "an account's connections in numbers, from servers that have any")
async def account_conns(b: Bench) -> None:
    await b.connect(**OTHER)
    nc = await b.connect(**SYS)
    (found,) = await ask(nc, "$SYS.REQ.ACCOUNT.OTHER.CONNS")
    assert found["type"] == "io.nats.server.advisory.v1.account_connections"
    assert (found["acc"], found["conns"], found["total_conns"]) == ("OTHER", 1, 1)
    assert {"msgs", "bytes"} <= set(found["sent"])


@everywhere("account.statz", "statistics of accounts that are in use")
async def account_statz(b: Bench) -> None:
    nc = await b.connect(**OTHER)
    await nc.publish("nobody.listens", b"12345")
    await nc.flush()
    sys = await b.connect(**SYS)
    (found,) = await ask(sys, "$SYS.REQ.ACCOUNT.OTHER.STATZ")
    (stats,) = found["data"]["account_statz"]
    assert (stats["acc"], stats["conns"], stats["leafnodes"]) == ("OTHER", 1, 0)
    assert stats["received"]["msgs"] >= 1
    (found,) = await ask(sys, "$SYS.REQ.ACCOUNT.PING.STATZ", {"accounts": ["OTHER"]})
    assert [stats["acc"] for stats in found["data"]["account_statz"]] == ["OTHER"]


@everywhere("own.statz", "everybody may ask for the statistics of his own account")
async def own_statz(b: Bench) -> None:
    nc = await b.connect(**OTHER)
    (found,) = await ask(nc, "$SYS.REQ.ACCOUNT.PING.STATZ", {"accounts": ["APP"]})
    assert [stats["acc"] for stats in found["data"]["account_statz"]] == ["OTHER"]


@everywhere("own.connz", "everybody may ask for the connections of his own account, and sees no other")
async def own_connz(b: Bench) -> None:
    nc = await b.connect(**OTHER)
    for subject in ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ"):
        found = await ask(nc, subject, {"acc": "APP"}, b.target.size)
        cids = [each["cid"] for told in found for each in told["data"]["connections"]]
        assert cids == [nc._server_info["client_id"]]


@rows("user.info", "everybody may ask who he is", on=ALL)
async def user_info(b: Bench) -> None:
    for options, user, account in (({}, "app", "APP"), (OTHER, "other", "OTHER"), (SYS, "sys", "$SYS")):
        nc = await b.connect(**options)
        (found,) = await ask(nc, "$SYS.REQ.USER.INFO")
        assert found["data"] == {"user": user, "account": account, "account_name": account}


@rows("user.info.permissions", "USER.INFO tells what a user may do")
async def user_permissions(b: Bench) -> None:
    nc = await b.connect(user="narrow", password="n")
    (found,) = await ask(nc, "$SYS.REQ.USER.INFO")
    permissions = found["data"]["permissions"]
    assert permissions["publish"] == {"allow": ["$SYS.REQ.USER.INFO", "a.>"]}
    assert permissions["subscribe"] == {"allow": ["_INBOX.>"], "deny": ["b"]}


# ---- events ---------------------------------------------------------------------------------------------------------


async def event(b: Bench, subject: str, *, of: str = "") -> Any:
    """What is told under a subject; a function that waits for the next of this client."""
    nc = await b.connect(**SYS)
    inbox = await nc.subscribe(subject)
    await nc.flush()

    async def next_one() -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            while True:
                found: dict[str, Any] = json.loads((await inbox.next_msg(timeout=WAIT_S)).data)
                if not of or found["client"].get("name") == of:
                    return found

    return next_one


@rows("event.connect", "the system account is told of a client that comes")
async def event_connect(b: Bench) -> None:
    name = b.name("client")
    told = await event(b, "$SYS.ACCOUNT.OTHER.CONNECT", of=name)
    nc = await b.connect(name=name, **OTHER)
    found = await told()
    assert found["type"] == "io.nats.server.advisory.v1.client_connect"
    client = found["client"]
    assert (client["acc"], client["user"], client["lang"]) == ("OTHER", "other", "python3")
    assert (client["kind"], client["client_type"]) == ("Client", "nats")
    assert client["id"] == nc._server_info["client_id"]
    assert found["server"]["id"] == nc._server_info["server_id"]


@rows("event.disconnect", "the system account is told of a client that goes, and what it sent and got")
async def event_disconnect(b: Bench) -> None:
    name = b.name("client")
    told = await event(b, "$SYS.ACCOUNT.OTHER.DISCONNECT", of=name)
    nc = await b.connect(name=name, **OTHER)
    inbox = await nc.subscribe("x")
    await nc.publish("x", b"hello")
    await inbox.next_msg(timeout=WAIT_S)
    await nc.close()
    found = await told()
    assert found["type"] == "io.nats.server.advisory.v1.client_disconnect"
    assert found["reason"] == "Client Closed"
    assert (found["received"]["msgs"], found["sent"]["msgs"]) == (1, 1)
    assert found["client"]["stop"] >= found["client"]["start"]


@rows("event.connections", "the system account is told how many clients an account has")
async def event_connections(b: Bench) -> None:
    told = await event(b, "$SYS.ACCOUNT.OTHER.SERVER.CONNS")
    nc = await b.connect(**OTHER)
    found = await told()
    assert (found["acc"], found["conns"]) == ("OTHER", 1)
    await nc.close()
    assert (await told())["conns"] == 0


@rows("event.auth-error", "the system account is told of wrong credentials")
async def event_auth_error(b: Bench) -> None:
    told = await event(b, "$SYS.SERVER.*.CLIENT.AUTH.ERR")
    client = await b.raw(connect=False)
    client.send_connect(**{"user": "app", "pass": "wrong"})
    await client.closed()
    found = await told()
    assert (found["reason"], found["client"]["user"]) == ("Authentication Failure", "app")
    assert "wrong" not in json.dumps(found)


@rows("event.not-for-others", "other accounts are told nothing", on=EVERYWHERE)
async def event_not_for_others(b: Bench) -> None:
    nc = await b.connect()
    inbox = await nc.subscribe("$SYS.>")
    await nc.flush()
    name = b.name("client")
    told = await event(b, "$SYS.ACCOUNT.OTHER.DISCONNECT", of=name)
    other = await b.connect(name=name, **OTHER)
    await other.close()
    await told()
    await nc.flush()
    assert inbox.pending_msgs == 0


# ---- JetStream's API for all accounts ----------------------------------------------------------------------------


async def administer(b: Bench, call: str, body: Any = None) -> dict[str, Any]:
    """The answer to a call of the system account."""
    return (await ask(await b.connect(**SYS), f"$JS.API.{call}", body))[0]


@everywhere("account-purge", "the system account has all streams of an account deleted")
async def account_purge(b: Bench) -> None:
    app = await b.connect()
    made = [await b.stream(nc=app) for _ in range(3)]

    async def left() -> set[str]:
        found = (await ask(app, "$JS.API.STREAM.NAMES"))[0]["streams"] or ()
        return {stream.name for stream in made} & set(found)

    assert len(await left()) == 3
    found = await administer(b, "ACCOUNT.PURGE.APP")
    assert found == {"type": "io.nats.jetstream.api.v1.account_purge_response", "initiated": True}

    async def gone() -> bool:
        return not await left()

    await eventually(gone, "the account's streams to go")
    again = await b.stream(nc=app, name=made[0].name)
    assert again.name == made[0].name


@everywhere(
    "account-purge-nothing", "a purge of an account that has no streams, or is not there, has nothing to do"
)
async def account_purge_nothing(b: Bench) -> None:
    for account in ("OTHER", b.name("nobody")):
        assert (await administer(b, f"ACCOUNT.PURGE.{account}", {"any": "thing"}))["initiated"] is True


@clusters("server-remove-refused", "a server that is not there cannot be removed")
async def server_remove_refused(b: Bench) -> None:
    kind = "io.nats.jetstream.api.v1.meta_server_remove_response"
    wrong: list[tuple[Any, int]] = [
        (None, 10003),
        ({}, 10003),
        (b"no json", 10025),
        ({"peer": 5}, 10025),
        ({"peer": "east-0", "more": 1}, 10025),
        ({"peer": "nobody"}, 10044),
        ({"peer_id": "nobodyxx"}, 10044),
    ]
    for body, code in wrong:
        found = await administer(b, "SERVER.REMOVE", body)
        assert (found["type"], found["error"]["code"], found["error"]["err_code"]) == (kind, 400, code), body


@clusters("meta-stepdown", "the system account has JetStream's leader step down")
async def meta_stepdown(b: Bench) -> None:
    assert (await administer(b, "META.LEADER.STEPDOWN"))["success"] is True
