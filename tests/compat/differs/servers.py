"""What differs of what servers tell of themselves, and of what they can be asked to do."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import nats.errors
import pytest
from tests.compat.bench import Bench
from tests.compat.differences import Differs
from tests.compat.rows.system import SYS, SYSTEM, ask
from tests.compat.table import SINGLES

traced = Differs(
    "tracing.judgement",
    "what tracing says of a message that its stream refuses, or takes for a duplicate",
    nats="names the stream, and why it would refuse it",
    ours="names the stream; why it refused, the publisher's own answer says",
    reason="the stream's leader judges, which may be another broker: tracing tells what the publisher's broker knows",
)


async def _traced(b: Bench) -> dict[str, Any]:
    stream = await b.stream()
    told = await b.subscribe(b.subject())
    header = {"Nats-Trace-Dest": told.subject, "Nats-Expected-Last-Sequence": "7"}
    answer = await stream.publish("a", headers=header)
    assert answer["error"]["err_code"] == 10071
    events = json.loads((await told.next_msg(timeout=5)).data)["events"]
    return next(dict(each) for each in events if each["type"] == "js" and each["stream"] == stream.name)


@traced
async def _judged_too(b: Bench) -> None:
    assert "last sequence mismatch" in (await _traced(b))["error"]


@traced.ours
async def _not_judged(b: Bench) -> None:
    assert "error" not in await _traced(b)


system_insides = Differs(
    "system.insides",
    "$SYS.REQ.SERVER.<id>.PROFILEZ and the like",
    nats="answers with profiles and variables of its Go runtime",
    ours="is refused with code 501, which names the call",
    reason="these brokers have no such insides; what they do not have is refused by name",
    settings=SYSTEM,
)


async def _insides(b: Bench) -> dict[str, Any]:
    nc = await b.connect(**SYS)
    found = await ask(nc, "$SYS.REQ.SERVER.PING.EXPVARZ", None, b.target.size)
    return found[0]


@system_insides
async def _has_insides(b: Bench) -> None:
    assert "data" in await _insides(b)


@system_insides.ours
async def _no_insides(b: Bench) -> None:
    error = (await _insides(b))["error"]
    assert error["code"] == 501
    assert "EXPVARZ" in error["description"]


administration = Differs(
    "system.administration",
    "ACCOUNT.PURGE, SERVER.REMOVE and META.LEADER.STEPDOWN of who may not call them",
    nats="nobody answers, and the client waits for its time limit",
    ours="is refused with err_code 19002, which names the call",
    reason="who may not is told so; the operator's user may, as the system account may",
    settings=SYSTEM,
)


async def _purge_by_a_client(b: Bench) -> dict[str, Any]:
    stream = await b.stream()
    answer = await b.nc.request("$JS.API.ACCOUNT.PURGE.APP", b"", timeout=1)
    assert stream.name in json.loads((await b.nc.request("$JS.API.STREAM.NAMES", timeout=30)).data)["streams"]
    found: dict[str, Any] = json.loads(answer.data)
    return found


@administration
async def _is_not_heard(b: Bench) -> None:
    with pytest.raises(nats.errors.TimeoutError):
        await _purge_by_a_client(b)


@administration.ours
async def _is_refused(b: Bench) -> None:
    error = (await _purge_by_a_client(b))["error"]
    assert error["err_code"] == 19002
    assert "ACCOUNT.PURGE.APP" in error["description"]


administration_alone = Differs(
    "system.administration-alone",
    "SERVER.REMOVE and META.LEADER.STEPDOWN by the system account, on a server alone",
    nats="nobody answers, and the client waits for its time limit",
    ours="are refused: nobody has that name (10044), and without others nobody steps down (10010)",
    reason="every error says its reason, as that of STREAM.LEADER.STEPDOWN does on both",
    settings=SYSTEM,
    on=SINGLES,
)

_ALONE: tuple[tuple[str, Any, int], ...] = (
    ("META.LEADER.STEPDOWN", {}, 10010),
    ("SERVER.REMOVE", {"peer": "nobody"}, 10044),
)


@administration_alone
async def _nobody_answers(b: Bench) -> None:
    nc = await b.connect(**SYS)
    for call, body, _ in _ALONE:
        with pytest.raises(nats.errors.TimeoutError):
            await nc.request(f"$JS.API.{call}", json.dumps(body).encode(), timeout=0.5)


@administration_alone.ours
async def _says_why(b: Bench) -> None:
    nc = await b.connect(**SYS)
    for call, body, err_code in _ALONE:
        assert (await b.api(call, body, nc=nc))["error"]["err_code"] == err_code


closed_connections = Differs(
    "system.closed-connections",
    "CONNZ with state 1: connections that are closed",
    nats="lists the last ten thousand",
    ours="lists none: the end of each is told as an event",
    reason="who watches is told by $SYS.ACCOUNT.<account>.DISCONNECT; nothing is kept of clients that are gone",
    settings=SYSTEM,
    on=SINGLES,
)


async def _closed(b: Bench) -> list[str]:
    name = b.name("client")
    gone = await b.connect(name=name, user="other", password="o")
    await gone.close()
    nc = await b.connect(**SYS)
    for _ in range(50):
        found = (await ask(nc, "$SYS.REQ.SERVER.PING.CONNZ", {"state": 1}))[0]
        names = [each.get("name") for each in found["data"]["connections"]]
        if name in names:
            break
        await asyncio.sleep(0.01)
    return [each for each in names if each == name]


@closed_connections
async def _remembered(b: Bench) -> None:
    assert len(await _closed(b)) == 1


@closed_connections.ours
async def _forgotten(b: Bench) -> None:
    assert await _closed(b) == []
