"""What differs of consumers: requests, deliveries, acknowledgements and resets."""

from __future__ import annotations

from typing import Any

import nats.errors
import pytest
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from tests.compat.bench import Answers, Bench, eventually
from tests.compat.differences import Differs
from tests.compat.rows.used_up import used_up

wildcard_interest = Differs(
    "push.wildcard",
    "a wildcard subscription and a push consumer's deliver subject",
    nats="only a subscription to just the deliver subject makes the consumer deliver",
    ours="any subscription that would get the messages does",
    reason="every client that would get the messages has a subscription for them",
)


async def _wildcard_listener(b: Bench) -> Subscription:
    """A subscription to `<subject>.*`, and a push consumer that delivers to `<subject>.deliver`."""
    stream = await b.stream()
    await stream.fill("a")
    subject = b.subject()
    inbox = await b.subscribe(f"{subject}.*")
    await stream.consumer(deliver_subject=f"{subject}.deliver")
    return inbox


@wildcard_interest
async def _wildcard_nats(b: Bench) -> None:
    inbox = await _wildcard_listener(b)
    with pytest.raises(nats.errors.TimeoutError):
        await inbox.next_msg(timeout=0.5)


@wildcard_interest.ours
async def _wildcard_ours(b: Bench) -> None:
    inbox = await _wildcard_listener(b)
    assert (await inbox.next_msg(timeout=5)).data == b"a"


durable_update = Differs(
    "consumer.durable-update",
    "an update of a durable consumer that does not say that it is one",
    nats="it is no durable consumer any more",
    ours="it stays a durable one",
    reason="it was to stay until it is deleted: an update about something else does not end that",
)


async def _updated(b: Bench) -> dict[str, Any]:
    stream = await b.stream()
    call, body = f"CONSUMER.CREATE.{stream.name}.c", {"name": "c", "ack_policy": "explicit"}
    await b.ok(call, {"stream_name": stream.name, "config": {**body, "durable_name": "c"}})
    await b.ok(call, {"stream_name": stream.name, "config": {**body, "description": "d"}})
    config: dict[str, Any] = (await b.ok(f"CONSUMER.INFO.{stream.name}.c"))["config"]
    return config


@durable_update
async def _durable_no_more(b: Bench) -> None:
    assert "durable_name" not in await _updated(b)


@durable_update.ours
async def _durable_still(b: Bench) -> None:
    assert (await _updated(b))["durable_name"] == "c"


@Differs(
    "pull.even-bytes",
    "a pull request whose bytes come out even before its batch is complete",
    nats="ends without a word",
    ours="ends with 409 Message Size Exceeds MaxBytes, and says how many messages it did not get",
    reason="every end says its reason; who does not count bytes would wait for the request to expire",
)
async def _silent_even_bytes(b: Bench) -> None:
    with pytest.raises(nats.errors.TimeoutError):
        await _behind_even_bytes(b, 0.5)


@_silent_even_bytes.ours
async def _told_even_bytes(b: Bench) -> None:
    headers = (await _behind_even_bytes(b, 5)).headers or {}
    assert (headers["Status"], headers["Description"]) == ("409", "Message Size Exceeds MaxBytes")
    assert (headers["Nats-Pending-Messages"], headers["Nats-Pending-Bytes"]) == ("4", "0")


async def _behind_even_bytes(b: Bench, wait_s: float) -> Msg:
    """What comes behind the one message that fits just so."""
    stream = await b.stream()
    await stream.fill("a", "b")
    first = await (await stream.consumer("A")).next()
    size = len(first.subject) + len(first.reply) + len(first.data)
    consumer = await stream.consumer("B")
    answers = await consumer.ask({"batch": 5, "max_bytes": size, "expires": 30_000_000_000})
    assert (await answers.next()).data == b"a"
    return await answers.next(wait_s)


@Differs(
    "reset.position",
    "what CONSUMER.RESET to a sequence outside of the stream shows as delivered",
    nats="the sequence before, whether the stream has had it or not",
    ours="what is nearest to it in the stream; what is delivered next is the same",
    reason="a position names a message that was, so that floors and lags that are shown are true",
)
async def _positions_as_asked(b: Bench) -> None:
    assert await _positions_of_resets(b) == [0, 8]


@_positions_as_asked.ours
async def _positions_within(b: Bench) -> None:
    assert await _positions_of_resets(b) == [2, 4]


async def _positions_of_resets(b: Bench) -> list[int]:
    """Where a consumer of the messages 3 and 4 stands after resets to 1 and to 9."""
    stream = await b.stream()
    await stream.fill("a", "b", "c", "d")
    await b.ok(f"STREAM.PURGE.{stream.name}", {"seq": 3})
    consumer = await stream.consumer()
    call = f"CONSUMER.RESET.{stream.name}.{consumer.name}"
    answers = [await b.ok(call, {"seq": seq}) for seq in (1, 9)]
    assert [answer["ack_floor"] for answer in answers] == [answer["delivered"] for answer in answers]
    return [answer["delivered"]["stream_seq"] for answer in answers]


@Differs(
    "reset.unknown",
    "CONSUMER.RESET of a consumer that is not there",
    nats="is not answered",
    ours="is refused with 10014",
    reason="every error says its reason, and PAUSE of such a consumer is refused so by both",
)
async def _reset_unanswered(b: Bench) -> None:
    stream = await b.stream()
    with pytest.raises(nats.errors.TimeoutError):
        await b.nc.request(f"$JS.API.CONSUMER.RESET.{stream.name}.nobody", b"", timeout=0.3)


@_reset_unanswered.ours
async def _reset_refused(b: Bench) -> None:
    stream = await b.stream()
    call = f"CONSUMER.RESET.{stream.name}.nobody"
    await b.refused(call, code=404, err_code=10014, text="consumer not found")


@Differs(
    "consumer.ack-flow-control",
    "a push consumer with ack_policy: flow_control",
    nats="is created; answers to flow control that say up to where acknowledge, as servers give them that take messages from there",
    ours="is refused with 10025, which names the policies there are",
    reason="it is for origins that are read by a consumer; here who takes messages keeps the position itself (docs/adr/mirrors-and-sources.md)",
)
async def _acks_by_flow_control(b: Bench) -> None:
    inbox = await b.subscribe()
    answer = await _ask_flow_control(b, inbox.subject)
    assert "error" not in answer
    stream = answer["stream_name"]
    await b.nc.request(f"{stream}.a", b"x", timeout=30)
    message = await inbox.next_msg(timeout=5)
    await b.nc.publish(message.reply, b"+ACK")
    await b.nc.flush()
    info = f"CONSUMER.INFO.{stream}.{answer['name']}"
    assert (await b.ok(info))["num_ack_pending"] == 1, "messages are not acknowledged one by one"
    while not (asked := await inbox.next_msg(timeout=10)).reply.startswith("$JS.FC."):
        pass
    told = {"Nats-Last-Consumer": "1", "Nats-Last-Stream": "1"}
    await b.nc.publish(asked.reply, b"", headers=told)

    async def acknowledged() -> bool:
        return bool((await b.ok(info))["num_ack_pending"] == 0)

    await eventually(acknowledged, "the acknowledgement by flow control")


@_acks_by_flow_control.ours
async def _no_acks_by_flow_control(b: Bench) -> None:
    error = (await _ask_flow_control(b, b.subject()))["error"]
    assert (error["code"], error["err_code"]) == (400, 10025)
    assert "one of none, all, explicit" in error["description"]


async def _ask_flow_control(b: Bench, deliver_subject: str) -> dict[str, Any]:
    stream, name = await b.stream(), b.name("C")
    config = {
        "durable_name": name,
        "ack_policy": "flow_control",
        "deliver_subject": deliver_subject,
        "flow_control": True,
        "idle_heartbeat": 1_000_000_000,
    }
    body = {"stream_name": stream.name, "config": config}
    return await b.api(f"CONSUMER.DURABLE.CREATE.{stream.name}.{name}", body)


given_up_floor = Differs(
    "acks.used-up.floor",
    "the floor of a consumer whose messages were given up (max_deliver), in a stream with limits retention",
    nats="stays before them for good, also when they are acknowledged after all",
    ours="passes them; in work queues and under interest it stays until they are acknowledged, as there",
    reason="nothing depends on that acknowledgement there, and what waits for it for ever would grow with the stream",
)


async def _floor_of_given_up(b: Bench) -> int:
    _, consumer, answers, got = await used_up(b, "limits")
    for message in got:
        await answers.acknowledge(message)
    info = await consumer.info()
    assert info["num_ack_pending"] == 0
    floor: int = info["ack_floor"]["stream_seq"]
    return floor


@given_up_floor
async def _floor_stays(b: Bench) -> None:
    assert await _floor_of_given_up(b) == 0


@given_up_floor.ours
async def _floor_passes(b: Bench) -> None:
    assert await _floor_of_given_up(b) == 3


no_room = Differs(
    "pull.no-room",
    "a pull request with no_wait while max_ack_pending is used up",
    nats="is not answered",
    ours="ends with 404 No Messages",
    reason="who does not want to wait is told at once that there is nothing",
)


async def _asked_without_room(b: Bench) -> Answers:
    stream = await b.stream()
    await stream.fill("a", "b")
    consumer = await stream.consumer(max_ack_pending=1)
    await consumer.fetch(1, ack=None)
    return await consumer.ask({"batch": 1, "no_wait": True})


@no_room
async def _silent_without_room(b: Bench) -> None:
    answers = await _asked_without_room(b)
    with pytest.raises(nats.errors.TimeoutError):
        await answers.next(0.5)


@no_room.ours
async def _told_without_room(b: Bench) -> None:
    assert await (await _asked_without_room(b)).status() == ("404", "No Messages")


start_ahead = Differs(
    "create.position",
    "where a consumer stands that begins at a sequence which the stream does not have yet",
    nats="at the sequence before, whether the stream has had it or not",
    ours="at the stream's last one; what is delivered first is the same",
    reason="a position names a message that was, so that floors and lags that are shown are true",
)


async def _stands_at(b: Bench) -> int:
    """Of a consumer that begins at the fifth message, when there are two; the fifth is what it gets."""
    stream = await b.stream()
    await stream.fill("a", "b")
    consumer = await stream.consumer(deliver_policy="by_start_sequence", opt_start_seq=5)
    await stream.fill("c", "d", "e")
    assert [message.data for message in await consumer.fetch(5)] == [b"e"]
    assert consumer.created["ack_floor"] == consumer.created["delivered"]
    found: int = consumer.created["delivered"]["stream_seq"]
    return found


@start_ahead
async def _stands_before(b: Bench) -> None:
    assert await _stands_at(b) == 4


@start_ahead.ours
async def _stands_at_the_last(b: Bench) -> None:
    assert await _stands_at(b) == 2


no_group = Differs(
    "priority.no-document",
    "a pull request that is no JSON object (nothing, or a number), of a consumer with priority groups",
    nats="is served, though it names no group",
    ours="is refused with 400 Bad Request - Priority Group missing, as a JSON object without a group is by both",
    reason="a policy holds for every request: else an empty request would pass the client that is pinned",
)


async def _without_group(b: Bench) -> Msg:
    stream = await b.stream()
    await stream.fill("a")
    consumer = await stream.consumer(priority_policy="overflow", priority_groups=["A"])
    return await (await consumer.ask(b"1")).next()


@no_group
async def _is_served(b: Bench) -> None:
    assert (await _without_group(b)).data == b"a"


@no_group.ours
async def _has_to_name_one(b: Bench) -> None:
    headers = (await _without_group(b)).headers or {}
    assert (headers["Status"], headers["Description"]) == ("400", "Bad Request - Priority Group missing")
