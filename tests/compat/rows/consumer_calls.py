"""What is done to a consumer that is there: pause, reset, priority groups, and what the server tells of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from tests.compat.bench import Answers, Bench, ConsumerOfRow, StreamOfRow, eventually, status_of
from tests.compat.table import CLUSTERS, SINGLES, Group

pause = Group("consumers.pause")
reset = Group("consumers.reset")
priority = Group("consumers.priority")
events = Group("consumers.events")
calls = Group("consumers.calls")

SECOND = 1_000_000_000
ZERO_TIME = "0001-01-01T00:00:00Z"
RESPONSE = "io.nats.jetstream.api.v1."


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


async def filled(b: Bench, *suffixes: str) -> StreamOfRow:
    stream = await b.stream()
    await stream.fill(*suffixes)
    return stream


def call(name: str, consumer: ConsumerOfRow) -> str:
    return f"CONSUMER.{name}.{consumer.stream.name}.{consumer.name}"


async def pull(consumer: ConsumerOfRow, **request: Any) -> Msg:
    """The first thing that a pull request is answered."""
    return await (await consumer.ask({"batch": 1, "expires": SECOND, **request})).next()


def said(message: Msg) -> tuple[str, str]:
    headers = message.headers or {}
    return headers.get("Status", ""), headers.get("Description", "")


# ---- pause --------------------------------------------------------------------------------------------------------


@pause("call", "PAUSE answers until when, and INFO says how long that is")
async def pause_call(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer()
    until = "2099-01-01T00:00:00Z"
    answer = await b.ok(call("PAUSE", consumer), {"pause_until": until})
    assert answer["type"] == RESPONSE + "consumer_pause_response"
    assert (answer["paused"], answer["pause_until"]) == (True, until)
    assert answer["pause_remaining"] > 0
    info = await consumer.info()
    assert (info["paused"], info["config"]["pause_until"]) == (True, until)
    assert info["pause_remaining"] > 0


@pause("resume", "PAUSE without a time lets the consumer go on")
async def pause_resume(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer(pause_until="2099-01-01T00:00:00Z")
    assert consumer.created["paused"] is True
    answer = await b.ok(call("PAUSE", consumer), {})
    assert (answer["paused"], answer["pause_until"]) == (False, ZERO_TIME)
    assert "pause_remaining" not in answer
    info = await consumer.info()
    assert "paused" not in info
    assert "pause_until" not in info["config"]
    assert (await consumer.next()).data == b"a"


@pause("empty", "an empty PAUSE does the same")
async def pause_empty(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer(pause_until="2099-01-01T00:00:00Z")
    answer = await b.ok(call("PAUSE", consumer))
    assert (answer["paused"], answer["pause_until"]) == (False, ZERO_TIME)


@pause("past", "a time that is over pauses nothing")
async def pause_past(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer()
    answer = await b.ok(call("PAUSE", consumer), {"pause_until": "2020-01-01T00:00:00Z"})
    assert (answer["paused"], answer["pause_until"]) == (False, "2020-01-01T00:00:00Z")
    assert (await consumer.next()).data == b"a"


@pause("pull", "a pull request waits while the consumer is paused, and gets its messages behind that")
async def pause_pull(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer(pause_until=soon(0.7))
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await consumer.next()).data == b"a"
    assert loop.time() - began > 0.4


@pause("expires", "a pull request that expires during a pause is told so")
async def pause_expires(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer(pause_until="2099-01-01T00:00:00Z")
    answers = await consumer.ask({"batch": 1, "expires": SECOND // 4})
    assert await answers.status() == ("408", "Request Timeout")


@pause("no-wait", "a pull request that does not wait finds nothing during a pause")
async def pause_no_wait(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer(pause_until="2099-01-01T00:00:00Z")
    assert await (await consumer.ask({"batch": 1, "no_wait": True})).status() == ("404", "No Messages")


@pause("push", "a paused push consumer sends heartbeats and nothing else")
async def pause_push(b: Bench) -> None:
    stream = await filled(b, "a")
    inbox = await b.subscribe()
    await stream.consumer(deliver_subject=inbox.subject, idle_heartbeat=SECOND // 5, pause_until=soon(0.7))
    answers = Answers(inbox)
    assert await answers.status() == ("100", "Idle Heartbeat")
    while status_of(message := await answers.next()):
        pass
    assert message.data == b"a"


@pause("update", "creating a consumer again does not change for how long it is paused")
async def pause_update(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer(pause_until="2099-01-01T00:00:00Z")
    again = await stream.consumer(consumer.name, description="new")
    assert again.created["config"]["pause_until"] == "2099-01-01T00:00:00Z"
    other = await stream.consumer()
    again = await stream.consumer(other.name, pause_until="2099-01-01T00:00:00Z")
    assert "pause_until" not in again.created["config"]


@pause("unknown", "PAUSE of a consumer that is not there is refused")
async def pause_unknown(b: Bench) -> None:
    stream = await b.stream()
    answer = await b.api(f"CONSUMER.PAUSE.{stream.name}.nobody", {"pause_until": "2099-01-01T00:00:00Z"})
    assert answer["error"] == {"code": 404, "err_code": 10014, "description": "consumer not found"}
    assert (answer["paused"], answer["pause_until"]) == (False, ZERO_TIME)


# ---- reset --------------------------------------------------------------------------------------------------------


@reset("sequence", "RESET to a sequence delivers from there, and counts anew")
async def reset_sequence(b: Bench) -> None:
    stream = await filled(b, "a", "b", "c", "d")
    consumer = await stream.consumer()
    await consumer.fetch(3)
    answer = await b.ok(call("RESET", consumer), {"seq": 2})
    assert answer["type"] == RESPONSE + "consumer_reset_response"
    assert answer["reset_seq"] == 2
    assert answer["delivered"] == {"consumer_seq": 0, "stream_seq": 1}
    assert answer["ack_floor"] == {"consumer_seq": 0, "stream_seq": 1}
    assert (answer["num_pending"], answer["num_ack_pending"]) == (3, 0)
    message = await consumer.next()
    assert message.data == b"b"
    assert message.reply.split(".")[4:7] == ["1", "2", "1"]


@reset("floor", "RESET without a sequence goes back to the first message that is not acknowledged")
async def reset_floor(b: Bench) -> None:
    stream = await filled(b, "a", "b", "c")
    consumer = await stream.consumer()
    await consumer.fetch(1)
    await consumer.fetch(2, ack=None)
    assert (await consumer.info())["num_ack_pending"] == 2
    answer = await b.ok(call("RESET", consumer))
    assert (answer["reset_seq"], answer["num_ack_pending"], answer["num_pending"]) == (2, 0, 2)
    assert (await consumer.next()).data == b"b"


@reset("acks", "RESET works for consumers without acknowledgements")
async def reset_no_acks(b: Bench) -> None:
    stream = await filled(b, "a", "b")
    consumer = await stream.consumer(ack_policy="none")
    assert (await consumer.next()).data == b"a"
    assert (await b.ok(call("RESET", consumer), {"seq": 1}))["reset_seq"] == 1
    assert (await consumer.next()).data == b"a"


@reset("push", "a push consumer that is reset sends its messages again")
async def reset_push(b: Bench) -> None:
    stream = await filled(b, "a")
    inbox = await b.subscribe()
    consumer = await stream.consumer(deliver_subject=inbox.subject)
    assert (await Answers(inbox).next()).data == b"a"
    await b.ok(call("RESET", consumer), {"seq": 1})
    again = await Answers(inbox).next()
    assert (again.data, again.reply.split(".")[4:7]) == (b"a", ["1", "1", "1"])


@reset("below-start", "RESET below the start sequence is refused")
async def reset_below(b: Bench) -> None:
    stream = await filled(b, "a", "b", "c", "d")
    consumer = await stream.consumer(deliver_policy="by_start_sequence", opt_start_seq=3)
    await b.refused(
        call("RESET", consumer), {"seq": 1}, code=400, err_code=10204, text="invalid reset: below start seq"
    )
    assert (await b.ok(call("RESET", consumer), {"seq": 4}))["reset_seq"] == 4
    assert (await consumer.next()).data == b"d"


@reset("new", "RESET to a sequence is refused where the consumer began with new messages")
async def reset_new(b: Bench) -> None:
    stream = await filled(b, "a")
    consumer = await stream.consumer(deliver_policy="new")
    await b.refused(
        call("RESET", consumer), {"seq": 1}, code=400, err_code=10204, text="invalid reset: not allowed"
    )
    assert (await b.ok(call("RESET", consumer)))["reset_seq"] == 2


# ---- priority groups ----------------------------------------------------------------------------------------------

OVERFLOW: dict[str, Any] = {"priority_policy": "overflow", "priority_groups": ["A"]}
PINNED: dict[str, Any] = {"priority_policy": "pinned_client", "priority_groups": ["A"]}
PRIORITIZED: dict[str, Any] = {"priority_policy": "prioritized", "priority_groups": ["A"]}

BAD_CONFIGS: Mapping[str, tuple[dict[str, Any], int, str]] = {
    "no-policy": (
        {"priority_groups": ["A"]},
        10196,
        "consumer can not have priority groups when policy is none",
    ),
    "no-group": (
        {"priority_policy": "overflow"},
        10159,
        "Setting PriorityPolicy requires at least one PriorityGroup to be set",
    ),
    "empty-name": ({**OVERFLOW, "priority_groups": [""]}, 10161, "Group name cannot be an empty string"),
    "bad-name": (
        {**OVERFLOW, "priority_groups": ["not good"]},
        10162,
        "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters",
    ),
    "long-name": (
        {**OVERFLOW, "priority_groups": ["a" * 17]},
        10162,
        "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters",
    ),
    "push": (
        {**OVERFLOW, "deliver_subject": "d.x"},
        10178,
        "priority groups can not be used with push consumers",
    ),
    "timeout": ({"priority_timeout": SECOND}, 10197, "PinnedTTL cannot be set when PriorityPolicy is none"),
}


def _bad_config(name: str, fields: dict[str, Any], err_code: int, text: str) -> None:
    @priority(f"config.{name}", f"{fields} is refused")
    async def refused(b: Bench) -> None:
        await (await b.stream()).consumer_refused(code=400, err_code=err_code, text=text, **fields)


for _name, (_fields, _err_code, _text) in BAD_CONFIGS.items():
    _bad_config(_name, _fields, _err_code, _text)


@priority("config.shown", "groups and policy are shown, and that nobody is pinned")
async def priority_shown(b: Bench) -> None:
    consumer = await (await b.stream()).consumer(**PINNED)
    config = consumer.created["config"]
    assert (config["priority_groups"], config["priority_policy"]) == (["A"], "pinned_client")
    assert config["priority_timeout"] == 120 * SECOND
    assert consumer.created["priority_groups"] == [{"group": "A", "pinned_ts": ZERO_TIME}]


BAD_REQUESTS: Mapping[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "group-missing": (OVERFLOW, {}, "Bad Request - Priority Group missing"),
    "group-unknown": (OVERFLOW, {"group": "B"}, "Bad Request - Invalid Priority Group"),
    "id": (OVERFLOW, {"group": "A", "id": "x"}, "Bad Request - Not a Pinned Client Priority consumer"),
    "plain-id": ({}, {"id": "x"}, "Bad Request - Not a Pinned Client Priority consumer"),
    "plain-min": ({}, {"min_pending": 5}, "Bad Request - Not a Overflow Priority consumer"),
    "too-high": (
        PRIORITIZED,
        {"group": "A", "priority": 10},
        "Bad Request - Priority must be between 0 and 9",
    ),
    "negative": (
        PRIORITIZED,
        {"group": "A", "priority": -1},
        "Bad Request - Priority must be between 0 and 9",
    ),
}


def _bad_request(name: str, config: dict[str, Any], request: dict[str, Any], text: str) -> None:
    @priority(f"request.{name}", f"a pull request with {request} is refused: {text}")
    async def refused(b: Bench) -> None:
        consumer = await (await filled(b, "a")).consumer(**config)
        assert said(await pull(consumer, **request)) == ("400", text)


for _name, (_config, _request, _text) in BAD_REQUESTS.items():
    _bad_request(_name, _config, _request, _text)


@priority("request.ignored", "a plain consumer takes no notice of a group")
async def group_ignored(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer()
    assert (await pull(consumer, group="A", priority=3)).data == b"a"


@priority("overflow.plain", "an overflow consumer serves who asks for nothing")
async def overflow_plain(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer(**OVERFLOW)
    assert (await pull(consumer, group="A")).data == b"a"


@priority("overflow.pending", "min_pending is served only when so many messages are there")
async def overflow_pending(b: Bench) -> None:
    stream = await filled(b, "a", "b")
    consumer = await stream.consumer(**OVERFLOW)
    assert said(await pull(consumer, group="A", min_pending=3, expires=SECOND // 4))[0] == "408"
    answers = await consumer.ask({"batch": 1, "group": "A", "min_pending": 3, "expires": 5 * SECOND})
    await stream.fill("c")
    assert (await answers.next()).data == b"a"


@priority("overflow.ack-pending", "min_ack_pending is served only when so many are out unacknowledged")
async def overflow_ack_pending(b: Bench) -> None:
    consumer = await (await filled(b, "a", "b", "c")).consumer(**OVERFLOW)
    assert said(await pull(consumer, group="A", min_ack_pending=1, expires=SECOND // 4))[0] == "408"
    assert (await pull(consumer, group="A")).data == b"a"
    assert (await pull(consumer, group="A", min_ack_pending=1)).data == b"b"


@priority("overflow.either", "of both minima one is enough")
async def overflow_either(b: Bench) -> None:
    consumer = await (await filled(b, "a", "b")).consumer(**OVERFLOW)
    assert (await pull(consumer, group="A", min_pending=2, min_ack_pending=100)).data == b"a"


@priority("overflow.no-wait", "a request that does not wait and is not served is told 404")
async def overflow_no_wait(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer(**OVERFLOW)
    answers = await consumer.ask({"batch": 1, "no_wait": True, "group": "A", "min_pending": 100})
    assert await answers.status() == ("404", "No Messages")


@priority("prioritized", "the lowest number is served first, equals in turn")
async def prioritized(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer(**PRIORITIZED)
    nc = await b.connect()
    asked = [
        (
            number,
            await consumer.ask({"batch": 2, "group": "A", "priority": number, "expires": 9 * SECOND}, nc=nc),
        )
        for number in (5, 1, 5, 1, 0)
    ]

    async def all_wait() -> bool:
        return bool((await consumer.info())["num_waiting"] == len(asked))

    await eventually(all_wait, "all requests wait")
    await stream.fill(*"abcdefg")
    got: dict[int, list[bytes]] = {}
    for number, answers in asked:
        for _ in range({0: 2, 1: 2, 5: 0}[number]):
            got.setdefault(number, []).append((await answers.next()).data)
    assert got == {0: [b"a", b"b"], 1: [b"c", b"e", b"d", b"f"]}
    assert (await asked[0][1].next()).data == b"g"


@priority("pinned", "the first to ask is pinned, and its messages name the pin")
async def pinned(b: Bench) -> None:
    consumer = await (await filled(b, "a", "b", "c")).consumer(**PINNED)
    first = await pull(consumer, group="A")
    pin = (first.headers or {})["Nats-Pin-Id"]
    assert (first.data, bool(pin)) == (b"a", True)
    (shown,) = (await consumer.info())["priority_groups"]
    assert (shown["group"], shown["pinned_client_id"]) == ("A", pin)
    assert shown["pinned_ts"] > "2026"
    again = await pull(consumer, group="A", id=pin)
    assert (again.data, again.headers) == (b"b", {"Nats-Pin-Id": pin})


@priority("pinned.others", "others wait while somebody is pinned, and a wrong id is told 423")
async def pinned_others(b: Bench) -> None:
    consumer = await (await filled(b, "a", "b")).consumer(**PINNED)
    await pull(consumer, group="A")
    assert said(await pull(consumer, group="A", expires=SECOND // 4))[0] == "408"
    assert said(await pull(consumer, group="A", id="wrong")) == ("423", "Nats-Pin-Id mismatch")


@priority("pinned.timeout", "who says nothing for priority_timeout is not pinned any more")
async def pinned_timeout(b: Bench) -> None:
    consumer = await (await filled(b, "a", "b", "c")).consumer(**PINNED, priority_timeout=SECOND // 2)
    pin = ((await pull(consumer, group="A")).headers or {})["Nats-Pin-Id"]
    other = await pull(consumer, group="A", expires=5 * SECOND)
    assert other.data == b"b"
    assert (other.headers or {})["Nats-Pin-Id"] != pin


@priority("pinned.stale", "an id that nobody has any more is told 423")
async def pinned_stale(b: Bench) -> None:
    consumer = await (await filled(b, "a", "b")).consumer(**PINNED)
    pin = ((await pull(consumer, group="A")).headers or {})["Nats-Pin-Id"]
    assert await b.ok(call("UNPIN", consumer), {"group": "A"}) == {
        "type": RESPONSE + "consumer_unpin_response"
    }
    (shown,) = (await consumer.info())["priority_groups"]
    assert shown == {"group": "A", "pinned_ts": ZERO_TIME}
    assert said(await pull(consumer, group="A", id=pin)) == ("423", "Nats-Wrong-Pin-Id")
    assert (await pull(consumer, group="A")).data == b"b"


UNPIN_REFUSED: Mapping[str, tuple[dict[str, Any], bytes, int, int, str]] = {
    "empty": (PINNED, b"", 400, 10025, "invalid JSON: unexpected end of JSON input"),
    "no-group": (PINNED, b"{}", 400, 10025, "invalid JSON: consumer group not specified"),
    "unknown-group": (
        PINNED,
        b'{"group":"B"}',
        400,
        10160,
        "Provided priority group does not exist for this consumer",
    ),
    "plain": (
        {},
        b'{"group":"A"}',
        400,
        10160,
        "Provided priority group does not exist for this consumer",
    ),
}


def _unpin_refused(
    name: str, config: dict[str, Any], body: bytes, code: int, err_code: int, text: str
) -> None:
    @priority(f"unpin.{name}", f"UNPIN with {body!r} is refused: {text}")
    async def refused(b: Bench) -> None:
        consumer = await (await b.stream()).consumer(**config)
        await b.refused(call("UNPIN", consumer), body, code=code, err_code=err_code, text=text)


for _name, _unpin in UNPIN_REFUSED.items():
    _unpin_refused(_name, *_unpin)


@priority("unpin.unknown", "UNPIN of a consumer that is not there is refused")
async def unpin_unknown(b: Bench) -> None:
    stream = await b.stream()
    await b.refused(
        f"CONSUMER.UNPIN.{stream.name}.nobody",
        {"group": "A"},
        code=404,
        err_code=10014,
        text="consumer not found",
    )


# ---- what is told of consumers ------------------------------------------------------------------------------------


async def listen(b: Bench, subject: str) -> Subscription:
    return await b.subscribe(f"$JS.EVENT.{subject}")


async def told(subscription: Subscription, kind: str, subject: str) -> dict[str, Any]:
    """The next event, without what differs each time."""
    message = await Answers(subscription).next()
    assert message.subject == f"$JS.EVENT.{subject}"
    found: dict[str, Any] = json.loads(message.data)
    assert found.pop("type") == f"io.nats.jetstream.{kind}"
    assert found.pop("id")
    assert found.pop("timestamp") > "2026"
    found.pop("domain", None)
    return found


@events("action", "that consumers are created and deleted is told")
async def action(b: Bench) -> None:
    stream = await b.stream()
    inbox = await listen(b, f"ADVISORY.CONSUMER.*.{stream.name}.c")
    await stream.consumer("c")
    for what in ("create", "delete"):
        if what == "delete":
            await b.ok(f"CONSUMER.DELETE.{stream.name}.c")
        subject = f"ADVISORY.CONSUMER.{what.upper()}D.{stream.name}.c"
        while True:
            message = await Answers(inbox).next()
            if "LEADER_ELECTED" not in message.subject:
                break
        found = json.loads(message.data)
        assert message.subject == f"$JS.EVENT.{subject}"
        assert found["type"] == "io.nats.jetstream.advisory.v1.consumer_action"
        assert (found["stream"], found["consumer"], found["action"]) == (stream.name, "c", what)


@events("stream-deleted", "the consumers of a stream that is deleted are told of as well")
async def stream_deleted(b: Bench) -> None:
    stream = await b.stream()
    inbox = await listen(b, f"ADVISORY.CONSUMER.DELETED.{stream.name}.*")
    await stream.consumer("c")
    await b.ok(f"STREAM.DELETE.{stream.name}")
    found = await told(inbox, "advisory.v1.consumer_action", f"ADVISORY.CONSUMER.DELETED.{stream.name}.c")
    assert found == {"stream": stream.name, "consumer": "c", "action": "delete"}


@events("nak", "a refused message is told of")
async def event_nak(b: Bench) -> None:
    stream = await filled(b, "a", "b")
    consumer = await stream.consumer()
    subject = f"ADVISORY.CONSUMER.MSG_NAKED.{stream.name}.{consumer.name}"
    inbox = await listen(b, subject)
    await consumer.fetch(1)
    await consumer.fetch(1, ack=b"-NAK")
    assert await told(inbox, "advisory.v1.nak", subject) == {
        "stream": stream.name,
        "consumer": consumer.name,
        "consumer_seq": 2,
        "stream_seq": 2,
        "deliveries": 1,
    }


@events("terminated", "a terminated message is told of, with the reason")
async def event_terminated(b: Bench) -> None:
    stream = await filled(b, "a", "b")
    consumer = await stream.consumer()
    subject = f"ADVISORY.CONSUMER.MSG_TERMINATED.{stream.name}.{consumer.name}"
    inbox = await listen(b, subject)
    await consumer.fetch(1, ack=b"+TERM no good")
    wanted = {"stream": stream.name, "consumer": consumer.name, "consumer_seq": 1, "stream_seq": 1}
    assert await told(inbox, "advisory.v1.terminated", subject) == {
        **wanted,
        "deliveries": 1,
        "reason": "no good",
    }
    await consumer.fetch(1, ack=b"+TERM")
    wanted |= {"consumer_seq": 2, "stream_seq": 2, "deliveries": 1}
    assert await told(inbox, "advisory.v1.terminated", subject) == wanted


@events("max-deliver", "a message that is given up is told of")
async def event_max_deliver(b: Bench) -> None:
    stream = await filled(b, "a")
    consumer = await stream.consumer(max_deliver=1, ack_wait=SECOND // 5)
    subject = f"ADVISORY.CONSUMER.MAX_DELIVERIES.{stream.name}.{consumer.name}"
    inbox = await listen(b, subject)
    answers = await consumer.ask({"batch": 2, "expires": 5 * SECOND})
    assert (await answers.next()).data == b"a"
    assert await told(inbox, "advisory.v1.max_deliver", subject) == {
        "stream": stream.name,
        "consumer": consumer.name,
        "stream_seq": 1,
        "deliveries": 1,
    }


@events("sampled", "sample_freq tells how long acknowledgements take")
async def event_sampled(b: Bench) -> None:
    stream = await filled(b, "a")
    consumer = await stream.consumer(sample_freq="100%")
    subject = f"METRIC.CONSUMER.ACK.{stream.name}.{consumer.name}"
    inbox = await listen(b, subject)
    message = await consumer.next()
    await asyncio.sleep(0.2)
    await b.nc.request(message.reply, b"+ACK", timeout=5)
    found = await told(inbox, "metric.v1.consumer_ack", subject)
    assert 0.15 * SECOND < found.pop("ack_time") < 5 * SECOND
    assert found == {
        "stream": stream.name,
        "consumer": consumer.name,
        "consumer_seq": 1,
        "stream_seq": 1,
        "deliveries": 1,
    }


@events("sampled.config", "sample_freq is shown as it was asked for")
async def sampled_config(b: Bench) -> None:
    stream = await b.stream()
    for freq in ("30", "30%", "101"):
        assert (await stream.consumer(sample_freq=freq)).created["config"]["sample_freq"] == freq


@events("sampled.bad", "a sample_freq that is no number is refused")
async def sampled_bad(b: Bench) -> None:
    await (await b.stream()).consumer_refused(
        code=400,
        err_code=10095,
        text='failed to parse consumer sampling configuration: strconv.Atoi: parsing "often": invalid syntax',
        sample_freq="often",
    )


@events("pause", "a pause is told of, and its end")
async def event_pause(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer()
    subject = f"ADVISORY.CONSUMER.PAUSE.{stream.name}.{consumer.name}"
    inbox = await listen(b, subject)
    until = soon(0.5)
    await b.ok(call("PAUSE", consumer), {"pause_until": until})
    for is_paused in (True, False):
        found = await told(inbox, "advisory.v1.consumer_pause", subject)
        assert (found["paused"], found["stream"], found["consumer"]) == (
            is_paused,
            stream.name,
            consumer.name,
        )
        assert datetime.fromisoformat(found["pause_until"]) == datetime.fromisoformat(until)


@events("pinned", "pins and their ends are told of")
async def event_pinned(b: Bench) -> None:
    stream = await filled(b, "a")
    consumer = await stream.consumer(**PINNED)
    subject = f"ADVISORY.CONSUMER.PINNED.{stream.name}.{consumer.name}"
    inbox, ends = await listen(b, subject), await listen(b, subject.replace("PINNED", "UNPINNED"))
    pin = ((await pull(consumer, group="A")).headers or {})["Nats-Pin-Id"]
    who = {"account": "$G", "stream": stream.name, "consumer": consumer.name, "group": "A"}
    assert await told(inbox, "advisory.v1.consumer_group_pinned", subject) == {**who, "pinned_id": pin}
    await b.ok(call("UNPIN", consumer), {"group": "A"})
    found = await told(ends, "advisory.v1.consumer_group_unpinned", subject.replace("PINNED", "UNPINNED"))
    assert found == {**who, "reason": "admin"}


@events("captured", "a stream may capture what is told, for messages that were given up")
async def captured(b: Bench) -> None:
    stream = await filled(b, "a")
    consumer = await stream.consumer(max_deliver=1, ack_wait=SECOND // 5)
    letters = await b.stream(subjects=[f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream.name}.*"])
    answers = await consumer.ask({"batch": 2, "expires": 5 * SECOND})
    assert (await answers.next()).data == b"a"

    async def is_stored() -> bool:
        return bool((await letters.state())["messages"] == 1)

    await eventually(is_stored, "the advisory is stored")


@events("leader", "a new leader of a stream is told of", on=CLUSTERS)
async def event_leader(b: Bench) -> None:
    stream = await b.stream()
    subject = f"ADVISORY.STREAM.LEADER_ELECTED.{stream.name}"
    inbox = await listen(b, subject)
    await b.ok(f"STREAM.LEADER.STEPDOWN.{stream.name}")
    found = await told(inbox, "advisory.v1.stream_leader_elected", subject)

    async def leads() -> bool:
        try:
            return bool((await stream.info())["cluster"].get("leader") == found["leader"])
        except (nats.errors.Error, AssertionError):
            return False

    await eventually(leads, "it leads")
    assert found["stream"] == stream.name
    assert len(found["replicas"]) == 3 or len(found["replicas"]) == 2


# ---- other calls --------------------------------------------------------------------------------------------------


@calls("step-down.single", "without a cluster no consumer's leader steps down", on=SINGLES)
async def step_down_single(b: Bench) -> None:
    consumer = await (await b.stream()).consumer()
    await b.refused(
        call("LEADER.STEPDOWN", consumer),
        code=503,
        err_code=10010,
        text="JetStream clustering support required",
    )


@calls("step-down", "a consumer's leader steps down, and the consumer goes on", on=CLUSTERS)
async def step_down(b: Bench) -> None:
    stream = await filled(b, "a")
    consumer = await stream.consumer()
    assert (await b.ok(call("LEADER.STEPDOWN", consumer)))["success"] is True

    async def fetched() -> bool:
        try:
            return [message.data for message in await consumer.fetch(1)] == [b"a"]
        except (nats.errors.Error, AssertionError):
            return False

    await eventually(fetched, "the consumer delivers")


@calls("action.create", "action create is refused for a consumer that is there and differs")
async def action_create(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer()
    config = {"durable_name": consumer.name, "ack_policy": "explicit", "description": "other"}
    await b.refused(
        f"CONSUMER.CREATE.{stream.name}.{consumer.name}",
        {"stream_name": stream.name, "action": "create", "config": config},
        code=400,
        err_code=10148,
        text="consumer already exists",
    )


@calls("action.same", "action create is answered for a consumer that is there and does not differ")
async def action_same(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer()
    config = {"durable_name": consumer.name, "ack_policy": "explicit"}
    answer = await b.ok(
        f"CONSUMER.CREATE.{stream.name}.{consumer.name}",
        {"stream_name": stream.name, "action": "create", "config": config},
    )
    assert answer["name"] == consumer.name


@calls("action.update", "action update is refused for a consumer that is not there")
async def action_update(b: Bench) -> None:
    stream = await b.stream()
    await b.refused(
        f"CONSUMER.CREATE.{stream.name}.c",
        {"stream_name": stream.name, "action": "update", "config": {"durable_name": "c"}},
        code=400,
        err_code=10149,
        text="consumer does not exist",
    )


@calls("memory", "memory storage and a count of replicas of its own are shown as asked for")
async def memory(b: Bench) -> None:
    consumer = await (await b.stream()).consumer(mem_storage=True, num_replicas=1)
    config = consumer.created["config"]
    assert (config["mem_storage"], config["num_replicas"]) == (True, 1)


UPDATE_REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
    "ack-policy": ({"ack_policy": "all"}, "ack policy can not be updated"),
    "deliver-policy": ({"deliver_policy": "new"}, "deliver policy can not be updated"),
    "replay-policy": ({"replay_policy": "original"}, "replay policy can not be updated"),
    "max-waiting": ({"max_waiting": 5}, "max waiting can not be updated"),
}


def _update_refused(name: str, change: dict[str, Any], text: str) -> None:
    @calls(f"update.{name}", f"an update to {change} is refused: {text}")
    async def refused(b: Bench) -> None:
        stream = await b.stream()
        consumer = await stream.consumer()
        await stream.consumer_refused(
            durable_name=consumer.name, code=500, err_code=10012, text=text, **change
        )


for _name, (_change, _text) in UPDATE_REFUSED.items():
    _update_refused(_name, _change, _text)


@calls("update.changes", "what may change is changed, and in force at once")
async def update_changes(b: Bench) -> None:
    stream = await filled(b, "a", "b")
    consumer = await stream.consumer()
    changes = {
        "max_ack_pending": 1,
        "ack_wait": 60 * SECOND,
        "max_deliver": 7,
        "description": "said",
        "filter_subject": f"{stream.name}.b",
        "headers_only": True,
        "metadata": {"k": "v"},
    }
    again = await stream.consumer(consumer.name, **changes)
    shown = again.created["config"]
    shown["metadata"] = {key: value for key, value in shown["metadata"].items() if key == "k"}
    assert {name: shown[name] for name in changes} == changes
    message = await consumer.next()
    assert (message.subject, message.data) == (f"{stream.name}.b", b"")
