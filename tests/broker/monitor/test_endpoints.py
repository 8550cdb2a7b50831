"""The monitoring port: figures for people and Prometheus, probes, and the admin routes' guard."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import nats
import pytest

from supercluster.broker.monitor import monitor
from supercluster.broker.monitor.admin_calls import AdminCalls
from supercluster.broker.runtime.process import BrokerProcess
from supercluster.broker.settings import settings
from supercluster.broker.settings.place import Place
from supercluster.broker.version import VERSION

USERS = {
    "users": [
        {"user": "app", "password": "app-secret", "role": "client"},
        {"user": "operator", "password": "op-secret", "role": "operator"},
    ]
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    (tmp_path / "users.json").write_text(json.dumps(USERS))
    file = tmp_path / "broker.json"
    file.write_text("{}")
    parsed = settings.parse(
        {
            "superCluster": "demo",
            "identity": "id-1",
            "cluster": "east",
            "peers": {},
            "metaVoters": ["east-0"],
            "ports": {"client": 0, "cluster": 0, "monitor": 0},
        }
    )
    process = BrokerProcess(parsed, Place("east-0", "127.0.0.1", "127.0.0.1", file, tmp_path, tmp_path))
    await process.start()
    yield process
    await process.stop()


async def get(broker: BrokerProcess, path: str, **options: Any) -> tuple[int, str]:
    url = f"http://127.0.0.1:{broker.monitor_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, **options) as response:
        return response.status, await response.text()


def basic(login: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}


async def test_figures_follow_what_clients_do(broker: BrokerProcess) -> None:
    client = await nats.connect(
        f"nats://app:app-secret@{broker.advertised_client_url}", name="reader", allow_reconnect=False
    )
    subscription = await client.subscribe("a.*")
    for _ in range(5):
        await client.publish("a.b", b"12345")
    await client.flush()
    for _ in range(5):
        await subscription.next_msg(timeout=30)
    status, text = await get(broker, "/varz")
    shown = json.loads(text)
    assert status == 200
    assert (shown["in_msgs"], shown["out_msgs"], shown["connections"], shown["subscriptions"]) == (5, 5, 1, 1)
    assert shown["server_name"] == "east-0"
    assert shown["mem"] > 1 << 20
    status, text = await get(broker, "/connz?limit=10")
    (connection,) = json.loads(text)["connections"]
    assert (connection["name"], connection["lang"], connection["in_msgs"]) == ("reader", "python3", 5)
    assert json.loads((await get(broker, "/routez"))[1])["num_routes"] == 0
    assert json.loads((await get(broker, "/jsz"))[1])["disabled"] is True
    await client.close()
    everything = "".join(
        [(await get(broker, path))[1] for path in ("/varz", "/connz", "/metrics", "/routez", "/jsz")]
    )
    assert "secret" not in everything


async def test_metrics_are_prometheus_text(broker: BrokerProcess) -> None:
    status, text = await get(broker, "/metrics")
    assert status == 200
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert 'supercluster_broker_in_msgs_total{broker="east-0",cluster="east"} 0.0' in samples
    for figure in (
        "unusable_copies",
        "group_faults_total",
        "far_links",
        "far_frames_dropped_total",
        "bulk_rows_total",
    ):
        assert f'supercluster_broker_{figure}{{broker="east-0",cluster="east"}} 0.0' in samples
    assert all(float(line.rpartition(" ")[2]) >= 0 for line in samples)


async def test_probes_tell_live_from_ready(broker: BrokerProcess) -> None:
    for probe in ("live", "startup", "ready"):
        assert (await get(broker, f"/healthz?probe={probe}"))[0] == 200
    await broker.lame_duck()
    assert (await get(broker, "/healthz?probe=live"))[0] == 200
    status, text = await get(broker, "/healthz?probe=ready")
    assert status == 503
    assert "leaving" in text
    assert (await get(broker, "/healthz?probe=nonsense"))[0] == 400


async def test_admin_needs_the_operator(broker: BrokerProcess) -> None:
    async def echo(query: dict[str, str], body: Any) -> tuple[int, Any]:
        return 200, {"query": query, "body": body}

    broker.monitor.register_admin("GET", "echo", echo)
    assert (await get(broker, "/admin/echo", headers=basic("app:app-secret")))[0] == 403
    for headers in ({}, basic("app:wrong"), basic("operator:wrong"), {"Authorization": "Basic !"}):
        assert (await get(broker, "/admin/echo", headers=headers))[0] == 401
    operator = basic("operator:op-secret")
    status, text = await get(broker, "/admin/echo?a=1", headers=operator, json={"b": 2})
    assert (status, json.loads(text)) == (200, {"query": {"a": "1"}, "body": {"b": 2}})
    assert (await get(broker, "/admin/echo", headers=operator, data=b"{"))[0] == 400
    status, text = await get(broker, "/admin/nothing", headers=operator)
    assert status == 404
    assert "GET /admin/echo" in text
    broker.monitor.register_admin("GET", "things/{kind}/{name}/state", echo)
    status, text = await get(broker, "/admin/things/$G/a%20b/state?name=c", headers=operator)
    assert (status, json.loads(text)["query"]) == (200, {"kind": "$G", "name": "a b"})
    status, text = await get(broker, "/admin/things/a%2Fb/c/state", headers=operator)
    assert (status, json.loads(text)["query"]["kind"]) == (200, "a/b"), "a part may have an escaped slash"
    for path in ("things/x/y", "things//y/state", "things/x/y/state/more"):
        assert (await get(broker, f"/admin/{path}", headers=operator))[0] == 404


async def test_a_broker_says_which_super_cluster_it_is_of(broker: BrokerProcess) -> None:
    calls = AdminCalls(cast("Any", None), broker.turn, dict, broker._identity)
    broker.monitor.register_routes(calls.routes())
    status, text = await get(broker, "/admin/identity", headers=basic("operator:op-secret"))
    told = json.loads(text)
    assert (status, told["identity"], told["migrationPort"]) == (200, broker.settings.identity, None)
    assert (told["superCluster"], told["version"]) == (broker.settings.super_cluster, VERSION)
    assert told["timeNs"] > 0
    assert told["greens"] == []


async def test_more_requests_than_the_bound_are_turned_away(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "REQUESTS_MAX", 0)
    assert (await get(broker, "/varz"))[0] == 503
    monkeypatch.setattr(monitor, "REQUESTS_MAX", 1)
    assert (await get(broker, "/varz"))[0] == 200
