"""Moves by the operator's HTTP calls, and by any client's JetStream calls, against broker processes."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.error
import urllib.request
from functools import partial
from typing import Any

import pytest
from nats.js.api import Placement, StreamConfig
from nats.js.errors import APIError
from tests.support.local_clusters import Broker, Fleet, until

USERS = {
    "users": [
        {"user": "app", "password": "app-secret", "account": "$G", "role": "client"},
        {"user": "operator", "password": "op-secret", "account": "$G", "role": "operator"},
    ]
}
ROUTE = {"user": "gate", "password": "gate-secret"}
GATEWAY = {"accept": [ROUTE], "send": ROUTE}
OPERATOR = "operator:op-secret"


def http(url: str, method: str, who: str, body: Any) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"}
    if who:
        headers["Authorization"] = f"Basic {base64.b64encode(who.encode()).decode()}"
    raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, raw, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


async def call(
    broker: Broker, method: str, stream: str, body: Any = None, who: str = OPERATOR, query: str = ""
) -> tuple[int, Any]:
    url = f"http://{broker.host}:8222/admin/streams/$G/{stream}/move{query}"
    return await asyncio.to_thread(http, url, method, who, body)


async def clusters(fleet: Fleet) -> dict[str, list[Broker]]:
    """One broker in east, three in west, two of them with a tag."""
    tagged = {f"west-{number}": {"tags": ["ssd"]} for number in (0, 2)}
    return await fleet.start_clusters(
        {"east": 1, "west": 3},
        credentials={"users.json": USERS, "gateway.json": GATEWAY},
        per_broker=tagged,
        linkFaults=False,
    )


@pytest.mark.covers("MV-1", "MV-2", "MV-13")
async def test_a_move_is_planned_started_watched_and_reported(fleet: Fleet) -> None:
    found = await clusters(fleet)
    (east,), west = found["east"], found["west"]
    client = await fleet.client(east, user="app", password="app-secret")
    js = client.jetstream()
    await js.add_stream(
        StreamConfig(name="S", subjects=["s"], num_replicas=1, placement=Placement(cluster="east"))
    )
    for number in range(100):
        await js.publish("s", b"%d" % number)
    for sequence in (3, 50, 51):
        assert await js.delete_msg("S", sequence)

    wanted = {"placement": {"cluster": "west", "tags": ["ssd"]}}

    async def planned() -> Any:
        status, plan = await call(west[1], "POST", "S", {**wanted, "dryRun": True})
        assert status == 200, plan
        return plan if not plan["refusal"] else None

    plan = await until(planned, "a plan, once every broker has said how much room it has")
    assert [target["node"] for target in plan["targets"]] == ["west-0"]
    reasons = {rejected["node"]: rejected["why"] for rejected in plan["rejected"]}
    assert reasons == {
        "east-0": "is in cluster east, not west",
        "west-1": "lacks tag ssd (has none)",
        "west-2": "fits, but others come first: holds 0 copies of streams",
    }
    assert plan["messages"] == 97
    assert 0 < plan["bytes"] == plan["bytesToSend"]
    assert plan["quorumBefore"] == plan["quorumAfter"] == {"voters": 1, "majority": 1, "well": 1}
    status, state = await call(east, "GET", "S")
    assert (status, state["move"], state["lastMove"]) == (200, None, None)

    for broker in (west[2], east):
        status, started = await call(broker, "POST", "S", {**wanted, "id": "mine"})
        assert status in (200, 202), started
    assert started["move"]["targets"][0].startswith("west-0@")

    async def done() -> Any:
        state = (await call(east, "GET", "S"))[1]
        return state["lastMove"] if state["move"] is None else None

    report = await until(done, "the end of the move")
    assert (report["outcome"], report["id"]) == ("done", "mine"), report
    assert (report["audit"]["sequences"], report["audit"]["messages"]) == (100, 97), "three were removed"
    info = await js.stream_info("S")
    assert info.cluster is not None
    assert info.cluster.leader == "west-0"
    assert info.state.messages == 97
    status, wrong = await call(east, "DELETE", "S")
    assert (status, wrong["err_code"]) == (409, 10129)


async def all_moves(broker: Broker, who: str = OPERATOR) -> tuple[int, Any]:
    return await asyncio.to_thread(http, f"http://{broker.host}:8222/admin/moves", "GET", who, None)


@pytest.mark.covers("MV-2", "MV-3", "MV-9", "MV-13")
async def test_the_count_of_replicas_is_changed_by_the_operator_and_by_any_client(fleet: Fleet) -> None:
    found = await clusters(fleet)
    (east,), west = found["east"], found["west"]
    client = await fleet.client(east, user="app", password="app-secret")
    js = client.jetstream()
    config = StreamConfig(name="S", subjects=["s"], num_replicas=1, placement=Placement(cluster="west"))
    await js.add_stream(config)
    for number in range(100):
        await js.publish("s", b"%d" % number)
    assert await all_moves(east) == (200, {"moves": []})
    assert (await all_moves(east, "app:app-secret"))[0] == 403

    async def slowly() -> bool:
        status, _ = await call(east, "POST", "S", {"replicas": 3, "bytesPerS": 1, "id": "slow"})
        return status == 202

    await until(slowly, "every broker to have said how much room it has")
    status, told = await all_moves(west[1])
    assert status == 200
    assert [(move["id"], move["name"], move["nodes"]) for move in told["moves"]] == [
        ("slow", "S", ["west-0", "west-1", "west-2"])
    ]
    with pytest.raises(APIError) as busy:
        await js.update_stream(config.evolve(num_replicas=2))
    assert busy.value.err_code == 10124
    assert (await call(west[2], "DELETE", "S"))[0] == 202

    async def members(count: int) -> bool:
        info = await js.stream_info("S")
        assert info.cluster is not None
        state = (await call(east, "GET", "S"))[1]
        return state["move"] is None and info.config.num_replicas == count == len(state["members"])

    await until(lambda: members(1), "the change to be taken back")
    for count in (3, 2, 1):
        await js.update_stream(config.evolve(num_replicas=count))
        await until(partial(members, count), f"{count} replicas")
    assert (await js.stream_info("S")).state.messages == 100
    for wanted, code in ((config.evolve(num_replicas=5), 10005), (config.evolve(num_replicas=6), 10052)):
        with pytest.raises(APIError) as refused:
            await js.update_stream(wanted)
        assert refused.value.err_code == code
    both = {"replicas": 3, "placement": {"cluster": "east"}}
    assert (await call(east, "POST", "S", both))[1]["err_code"] == 10123
    for wrong in ({"replicas": 0}, {"replicas": 6}, {"replicas": "3"}):
        assert (await call(east, "POST", "S", wrong))[1]["err_code"] == 10052


@pytest.mark.covers("MV-13")
async def test_a_move_that_a_client_starts_keeps_the_limit_that_its_brokers_were_given_meanwhile(
    fleet: Fleet,
) -> None:
    found = await clusters(fleet)
    (east,), west = found["east"], found["west"]
    js = (await fleet.client(east, user="app", password="app-secret")).jetstream()
    config = StreamConfig(name="S", subjects=["s"], num_replicas=1, placement=Placement(cluster="east"))
    await js.add_stream(config)
    for number in range(500):
        await js.publish("s", b"%d" % number + b"x" * 1000)
    for broker in (east, *west):
        broker.change(moves={"bytesPerS": 1000})

    async def taken_over() -> bool:
        return all("changed settings are in force" in broker.log() for broker in (east, *west))

    await until(taken_over, "the limit at every broker")

    async def started() -> bool:
        try:
            await js.update_stream(config.evolve(placement=Placement(cluster="west")))
        except APIError:
            return False  # 10005: no room is known of.
        return True

    await until(started, "every broker to have said how much room it has")
    told = (await all_moves(west[0]))[1]
    assert [(move["name"], move["bytesPerS"]) for move in told["moves"]] == [("S", 1000)]
    state = (await call(east, "GET", "S"))[1]
    assert state["move"]["bytes_per_s"] == 1000
    assert (await call(east, "DELETE", "S"))[0] == 202


@pytest.mark.covers("SF-23")
async def test_who_may_call_and_what_is_refused(fleet: Fleet) -> None:
    found = await clusters(fleet)
    (east,), west = found["east"], found["west"]
    client = await fleet.client(east, user="app", password="app-secret")
    js = client.jetstream()
    await js.add_stream(StreamConfig(name="S", subjects=["s"], num_replicas=1))
    wanted = {"placement": {"cluster": "west"}}
    for who, status in (("", 401), ("operator:wrong", 401), ("app:app-secret", 403)):
        for method, body in (("GET", None), ("POST", wanted), ("DELETE", None)):
            assert (await call(west[0], method, "S", body, who))[0] == status
    assert (await call(east, "GET", "NONE"))[0] == 404
    assert (await call(east, "POST", "NONE", wanted))[0] == 404
    bodies: list[Any] = [
        None,
        [],
        {},
        {"placement": 1},
        {**wanted, "bytesPerS": -1},
        {**wanted, "dryRun": "x"},
        {**wanted, "id": "no spaces"},
        {**wanted, "id": "x" * 65},
    ]
    for body in [*bodies, {**wanted, "when": 1}, {"placement": {"zone": "a"}}, b"[" * 20_000]:
        status, answer = await call(east, "POST", "S", body)
        assert status == 400, (body, answer)
        assert isinstance(answer["error"], str)
    status, wrong = await call(east, "POST", "S", {"placement": {"cluster": "nowhere"}})
    assert (status, wrong["err_code"]) == (409, 10005)
    assert "west-0 is in cluster west, not nowhere" in wrong["error"]
    assert "op-secret" not in east.log()
    with pytest.raises(APIError) as scaled:
        await js.update_stream(
            StreamConfig(name="S", subjects=["s"], num_replicas=3, placement=Placement(cluster="west"))
        )
    assert scaled.value.err_code == 10123
    status, wrong = await call(east, "DELETE", "S", query="?id=no%20name")
    assert (status, wrong["err_code"]) == (400, 10052)
    assert (await call(east, "DELETE", "S", query="?id=u1"))[0] == 409
    answer = json.loads(
        (await client.request("$JS.API.ACCOUNT.STREAM.CANCEL_MOVE.$G.S", b"", timeout=30)).data
    )
    assert answer["error"]["err_code"] == 10129
    answer = json.loads(
        (await client.request("$JS.API.ACCOUNT.STREAM.CANCEL_MOVE.other.S", b"", timeout=30)).data
    )
    assert answer["error"]["code"] == 403
    answer = json.loads(
        (await client.request("$JS.API.STREAM.PEER.REMOVE.S", b'{"peer": "west-0"}', timeout=5)).data
    )
    assert answer["type"] == "io.nats.jetstream.api.v1.stream_remove_peer_response"
    assert answer["error"]["err_code"] == 10040
