"""What is done to a consumer that is there: pause, reset and other calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import nats.errors
from tests.compat.bench import Answers, Bench, eventually, status_of
from tests.compat.consumer_asking import RESPONSE, SECOND, ZERO_TIME, call, filled, soon
from tests.compat.table import CLUSTERS, SINGLES, Group

pause = Group("consumers.pause")
reset = Group("consumers.reset")
calls = Group("consumers.calls")


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


@reset("below-first", "RESET below the first message waits for the first")
async def reset_below_first(b: Bench) -> None:
    stream = await filled(b, "a", "b", "c", "d")
    await b.ok(f"STREAM.PURGE.{stream.name}", {"seq": 3})
    consumer = await stream.consumer()
    answer = await b.ok(call("RESET", consumer), {"seq": 1})
    assert (answer["reset_seq"], answer["num_pending"]) == (1, 2)
    assert (await consumer.next()).data == b"c"


@reset("beyond", "RESET beyond the last message waits for that sequence")
async def reset_beyond(b: Bench) -> None:
    stream = await filled(b, "a", "b")
    consumer = await stream.consumer()
    answer = await b.ok(call("RESET", consumer), {"seq": 4})
    assert (answer["reset_seq"], answer["num_pending"]) == (4, 0)
    await stream.fill("c", "d")
    assert (await consumer.next()).data == b"d"


@reset("paused", "RESET does not end a pause")
async def reset_paused(b: Bench) -> None:
    stream = await filled(b, "a", "b")
    consumer = await stream.consumer(pause_until="2099-01-01T00:00:00Z")
    answer = await b.ok(call("RESET", consumer), {"seq": 2})
    assert (answer["reset_seq"], answer["paused"]) == (2, True)
    assert answer["pause_remaining"] > 0


@reset("start-time", "RESET below where a start time lies is refused")
async def reset_start_time(b: Bench) -> None:
    stream = await filled(b, "a")
    consumer = await stream.consumer(deliver_policy="by_start_time", opt_start_time="2099-01-01T00:00:00Z")
    text = "invalid reset: below start time"
    await b.refused(call("RESET", consumer), {"seq": 1}, code=400, err_code=10204, text=text)
    answer = await b.api(call("RESET", consumer), {"seq": 1})
    assert answer["reset_seq"] == 0


@reset("wrong", "RESET with a body that is none is refused")
async def reset_wrong(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer()
    for body in ({"seq": -1}, {"seq": "1"}, [1]):
        answer = await b.api(call("RESET", consumer), body)
        assert (answer["error"]["err_code"], answer["reset_seq"]) == (10025, 0)


@pause("times", "times are kept as they are: those that are over, and parts of a second")
async def pause_times(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer()
    for until in ("2020-01-01T00:00:00Z", "2099-01-01T00:00:00.123456789Z"):
        answer = await b.ok(call("PAUSE", consumer), {"pause_until": until})
        assert answer["pause_until"] == until
        assert (await consumer.info())["config"]["pause_until"] == until


@pause("wrong", "PAUSE with a time that is none, or with another field, is refused")
async def pause_wrong(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer()
    for body in ({"pause_until": "soon"}, {"pause_until": ""}, {"pause_until": 5}, {"until": 5}, [1]):
        answer = await b.api(call("PAUSE", consumer), body)
        assert (answer["error"]["err_code"], answer["paused"]) == (10025, False)
        assert answer["pause_until"] == ZERO_TIME


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


@calls(
    "step-down.nobody", "a consumer's leader does not step down for servers that there are not", on=CLUSTERS
)
async def step_down_nobody(b: Bench) -> None:
    consumer = await (await b.stream()).consumer()
    for placement in ({"preferred": "nobody"}, {"tags": ["nothing"]}, {"cluster": "nowhere"}):
        answer = await b.api(call("LEADER.STEPDOWN", consumer), {"placement": placement})
        assert (answer["error"]["code"], answer["error"]["err_code"]) == (400, 10005), placement


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
