"""Push consumers: who gets their messages, and the heartbeats and flow control that clients answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import ConsumerConfig
from tests.compat.bench import Answers, Bench, ConsumerOfRow, StreamOfRow, eventually, status_of
from tests.compat.table import CLUSTERS, SINGLES, Group

rows = Group("push")

SECOND = 1_000_000_000
QUIET_S = 0.4
"""Nothing came in so long a time."""


async def push(
    stream: StreamOfRow, nc: Client | None = None, queue: str = "", **config: Any
) -> tuple[ConsumerOfRow, Subscription]:
    """A push consumer and the subscription on its deliver subject."""
    subscription = await stream.bench.subscribe(queue=queue, nc=nc)
    consumer = await stream.consumer(deliver_subject=subscription.subject, **config)
    return consumer, subscription


async def payloads(subscription: Subscription, count: int, *, ack: bool = True) -> list[bytes]:
    """The next messages, acknowledged with confirmation."""
    found = []
    for _ in range(count):
        message = await Answers(subscription).next()
        assert not status_of(message), message.headers
        found.append(message.data)
        if ack:
            await Answers(subscription).acknowledge(message)
    return found


async def is_quiet(subscription: Subscription) -> bool:
    """Nothing comes for a while."""
    try:
        await subscription.next_msg(timeout=QUIET_S)
    except nats.errors.TimeoutError:
        return True
    return False


def description(message: Msg) -> str:
    return (message.headers or {})["Description"]


def tokens(message: Msg) -> list[str]:
    return message.reply.split(".")


@rows("delivers", "messages that are there and those that come are sent to the deliver subject, in order")
async def delivers(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    consumer, inbox = await push(stream)
    assert await payloads(inbox, 2) == [b"a", b"b"]
    await stream.fill("c")
    assert await payloads(inbox, 1) == [b"c"]
    info = await consumer.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"], info["num_pending"]) == (0, 3, 0)


@rows("reply", "the subject stays the stored one, and the reply says where the message stands")
async def reply(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    consumer, inbox = await push(stream)
    message = await Answers(inbox).next()
    assert message.subject == f"{stream.name}.a"
    assert tokens(message)[:7] == ["$JS", "ACK", stream.name, consumer.name, "1", "1", "1"]
    assert tokens(message)[8] == "1"


@rows("config", "a push consumer is shown as it was asked for, without max_waiting")
async def config(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer(
        deliver_subject="d.x",
        deliver_group="g",
        idle_heartbeat=SECOND,
        flow_control=True,
        rate_limit_bps=1024,
    )
    shown = consumer.created["config"]
    wanted = {
        "deliver_subject": "d.x",
        "deliver_group": "g",
        "idle_heartbeat": SECOND,
        "flow_control": True,
        "rate_limit_bps": 1024,
        "max_ack_pending": 1000,
    }
    assert {name: shown[name] for name in wanted} == wanted
    assert "max_waiting" not in shown
    assert consumer.created["num_waiting"] == 0
    assert "push_bound" not in consumer.created


@rows("bound", "push_bound says whether somebody listens")
async def bound(b: Bench) -> None:
    stream = await b.stream()
    consumer, inbox = await push(stream)

    async def is_bound() -> bool:
        return bool((await consumer.info()).get("push_bound", False))

    await eventually(is_bound, "the subscription is seen")
    await inbox.unsubscribe()
    await inbox._conn.flush()

    async def is_free() -> bool:
        return not await is_bound()

    await eventually(is_free, "the end of the subscription is seen")


@rows("waits", "nothing is delivered while nobody listens, and all of it once somebody does")
async def waits(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    nc = await b.connect()
    subject = nc.new_inbox()
    consumer = await stream.consumer(deliver_subject=subject)
    assert (await consumer.info())["delivered"]["stream_seq"] == 0
    inbox = await b.subscribe(subject, nc=nc)
    assert await payloads(inbox, 2) == [b"a", b"b"]


@rows("gone", "what was not acknowledged by who went away comes again to the next")
async def gone(b: Bench) -> None:
    stream = await b.stream()
    nc = await b.connect()
    _, inbox = await push(stream, nc, ack_wait=SECOND // 2)
    await stream.fill("a")
    assert await payloads(inbox, 1, ack=False) == [b"a"]
    subject = inbox.subject
    await nc.close()
    again = await b.subscribe(subject)
    message = await Answers(again).next()
    assert (message.data, tokens(message)[4]) == (b"a", "2")


@rows("many", "every subscription of a push consumer without a group gets all messages")
async def many(b: Bench) -> None:
    stream = await b.stream()
    _, one = await push(stream, ack_policy="none")
    other = await b.subscribe(one.subject)
    await stream.fill("a", "b")
    assert await payloads(one, 2, ack=False) == [b"a", b"b"]
    assert await payloads(other, 2, ack=False) == [b"a", b"b"]


@rows("group", "the members of a deliver group share the messages")
async def group(b: Bench) -> None:
    stream = await b.stream()
    _, one = await push(stream, queue="g", deliver_group="g", ack_policy="none")
    other = await b.subscribe(one.subject, "g", nc=await b.connect(b.node))
    count = 60
    for number in range(count):
        await stream.publish("a", b"%d" % number)
    found: list[bytes] = []

    async def all_there() -> bool:
        for inbox in (one, other):
            while inbox.pending_msgs:
                found.append((await inbox.next_msg(timeout=1)).data)
        return len(found) >= count

    await eventually(all_there, "all messages")
    assert sorted(found) == sorted(b"%d" % number for number in range(count))


# The consumer's group, the subscriptions' groups (empty: a plain one), whether each gets every message.
MIXED: dict[str, tuple[str, list[str], list[bool]]] = {
    "plain": ("", ["", "g"], [True, True]),
    "group": ("g", ["", "g"], [True, True]),
    "two-groups": ("g", ["g", "h"], [True, True]),
    "other-group": ("g", ["", "h"], [False, False]),
}


def _mixed(name: str, group: str, queues: list[str], wanted: list[bool]) -> None:
    title = f"who gets what of a consumer with group {group!r} that {queues} listen to"

    @rows(f"mixed.{name}", title, on=SINGLES)
    async def mixed(b: Bench) -> None:
        stream, subject = await b.stream(), b.subject()
        inboxes = [await b.subscribe(subject, queue) for queue in queues]
        await stream.consumer(deliver_subject=subject, ack_policy="none", deliver_group=group)
        for _ in range(5):
            await stream.publish("a")
        for inbox, all_of_them in zip(inboxes, wanted, strict=True):
            if all_of_them:
                found = [tokens(await Answers(inbox).next())[5] for _ in range(5)]
                assert found == ["1", "2", "3", "4", "5"]
            assert await is_quiet(inbox)


for _name, _case in MIXED.items():
    _mixed(_name, *_case)


@rows("group.only", "interest of others than the deliver group's members does not count")
async def group_only(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    consumer, inbox = await push(stream, deliver_group="g")
    assert await is_quiet(inbox)
    assert "push_bound" not in await consumer.info()
    member = await b.subscribe(inbox.subject, "g")
    assert await payloads(member, 1) == [b"a"]


@rows("headers", "headers are delivered, and headers_only leaves the payload out and says its size")
async def headers(b: Bench) -> None:
    stream = await b.stream()
    await stream.publish("a", b"12345", {"k": "v"})
    _, inbox = await push(stream, headers_only=True)
    message = await Answers(inbox).next()
    assert (message.headers, message.data) == ({"k": "v", "Nats-Msg-Size": "5"}, b"")


@rows("filter", "filters hold for push consumers, and the count of pending messages follows them")
async def filtered(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "a", "b")
    _, inbox = await push(stream, filter_subject=f"{stream.name}.b")
    first = await Answers(inbox).next()
    assert (first.data, tokens(first)[5], tokens(first)[6], tokens(first)[8]) == (b"b", "2", "1", "1")


@rows("max-ack-pending", "no more than max_ack_pending messages are out unacknowledged")
async def max_ack_pending(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "c")
    _, inbox = await push(stream, max_ack_pending=2)
    first = await Answers(inbox).next()
    assert await payloads(inbox, 1, ack=False) == [b"b"]
    assert await is_quiet(inbox)
    await Answers(inbox).acknowledge(first)
    assert await payloads(inbox, 1) == [b"c"]


@rows("nak", "a message that is refused is delivered again with a higher count")
async def nak(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    _, inbox = await push(stream)
    message = await Answers(inbox).next()
    await Answers(inbox).acknowledge(message, b"-NAK")
    again = await Answers(inbox).next()
    assert (again.data, tokens(again)[4]) == (b"a", "2")


@rows("max-deliver", "a message is given up after max_deliver deliveries")
async def max_deliver(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    _, inbox = await push(stream, max_deliver=2, ack_wait=SECOND // 5)
    assert await payloads(inbox, 2, ack=False) == [b"a", b"a"]
    assert await is_quiet(inbox)


@rows("heartbeat", "an idle consumer sends heartbeats that say how far it is")
async def heartbeat(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    _, inbox = await push(stream, idle_heartbeat=SECOND // 5, ack_policy="none")
    assert await payloads(inbox, 2, ack=False) == [b"a", b"b"]
    beat = await Answers(inbox).next()
    assert beat.subject == inbox.subject
    assert beat.reply == ""
    assert beat.headers == {
        "Status": "100",
        "Description": "Idle Heartbeat",
        "Nats-Last-Consumer": "2",
        "Nats-Last-Stream": "2",
    }


@rows(
    "flow-control",
    "a client that is a megabyte behind is asked whether it has everything, and stalls it if not",
)
async def flow_control(b: Bench) -> None:
    stream = await b.stream()
    count, size = 64, 64 * 1024
    for _ in range(count):
        await stream.publish("a", b"x" * size)
    nc = await b.connect()
    consumer, inbox = await push(
        stream, nc, flow_control=True, idle_heartbeat=SECOND // 5, ack_policy="none", max_ack_pending=0
    )
    messages, request = 0, None
    while True:
        message = await Answers(inbox).next()
        status = status_of(message)
        if not status:
            messages += 1
        elif description(message) == "FlowControl Request":
            assert request is None, "one request at a time"
            request = message
            assert message.headers == {"Status": "100", "Description": "FlowControl Request"}
            assert message.subject == inbox.subject
            assert message.reply.startswith("$JS.FC.")
            assert 16 <= messages <= 17
        else:
            assert description(message) == "Idle Heartbeat"
            break
    assert request is not None
    assert (message.headers or {})["Nats-Consumer-Stalled"] == request.reply
    assert 32 <= messages <= 33
    await nc.publish(request.reply)
    while messages < count:
        message = await Answers(inbox).next()
        if not status_of(message):
            messages += 1
        elif message.reply:
            await nc.publish(message.reply)
    assert (await consumer.info())["delivered"]["consumer_seq"] == count


@rows("rate-limit", "rate_limit_bps bounds what is sent per second, behind a first burst")
async def rate_limit(b: Bench) -> None:
    stream = await b.stream()
    for _ in range(40):
        await stream.publish("a", b"x" * 64 * 1024)
    began = asyncio.get_running_loop().time()
    _, inbox = await push(stream, rate_limit_bps=8 * 1024 * 1024, ack_policy="none")
    assert len(await payloads(inbox, 40, ack=False)) == 40
    took = asyncio.get_running_loop().time() - began
    assert took > 1.0, f"2.5 MiB at 1 MiB/s took {took}"


@rows("replay.original", "replay original keeps the gaps in which messages came")
async def replay_original(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    await asyncio.sleep(0.6)
    await stream.fill("b")
    loop = asyncio.get_running_loop()
    began = loop.time()
    _, inbox = await push(stream, replay_policy="original")
    assert await payloads(inbox, 2) == [b"a", b"b"]
    assert loop.time() - began > 0.5, "the gap is not left out, however late the first one came"


@rows("replay.pull", "replay original holds for pull consumers as well")
async def replay_pull(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    await asyncio.sleep(0.6)
    await stream.fill("b")
    loop = asyncio.get_running_loop()
    began = loop.time()
    consumer = await stream.consumer(replay_policy="original")
    answers = await consumer.ask({"batch": 2, "expires": 60 * SECOND})
    assert (await answers.next()).data == b"a"
    assert (await answers.next()).data == b"b"
    assert loop.time() - began > 0.5


@rows("pull", "a pull request to a push consumer is refused with 409")
async def pull(b: Bench) -> None:
    consumer = await (await b.stream()).consumer(deliver_subject="d.x")
    assert await (await consumer.ask({"batch": 1})).status() == ("409", "Consumer is push based")


@rows("ephemeral", "an ephemeral push consumer goes a while after its client")
async def ephemeral(b: Bench) -> None:
    stream = await b.stream()
    nc = await b.connect()
    inbox = await b.subscribe(nc=nc)
    created = await b.ok(
        f"CONSUMER.CREATE.{stream.name}",
        {
            "stream_name": stream.name,
            "config": {
                "deliver_subject": inbox.subject,
                "inactive_threshold": SECOND // 2,
                "ack_policy": "none",
            },
        },
    )
    await asyncio.sleep(1.2)
    await b.ok(f"CONSUMER.INFO.{stream.name}.{created['name']}")
    await nc.close()

    async def is_gone() -> bool:
        return not (await b.ok(f"CONSUMER.NAMES.{stream.name}"))["consumers"]

    await eventually(is_gone, "the consumer is deleted")


@rows("ephemeral.unbound", "an ephemeral push consumer that nobody ever listens to goes, too")
async def ephemeral_unbound(b: Bench) -> None:
    stream = await b.stream()
    await b.ok(
        f"CONSUMER.CREATE.{stream.name}",
        {
            "stream_name": stream.name,
            "config": {
                "deliver_subject": "nobody.is.here",
                "inactive_threshold": SECOND // 2,
                "ack_policy": "none",
            },
        },
    )

    async def is_gone() -> bool:
        return not (await b.ok(f"CONSUMER.NAMES.{stream.name}"))["consumers"]

    await eventually(is_gone, "the consumer is deleted")


REFUSED: Mapping[str, tuple[dict[str, Any], int, int, str]] = {
    "wildcard": ({"deliver_subject": "d.*"}, 400, 10079, "consumer deliver subject has wildcards"),
    "invalid": ({"deliver_subject": "d..x"}, 400, 10112, "invalid push consumer deliver subject"),
    "max-waiting": (
        {"deliver_subject": "d.x", "max_waiting": 5},
        400,
        10080,
        "consumer in push mode can not set max waiting",
    ),
    "max-ack-pending": (
        {"deliver_subject": "d.x", "ack_policy": "none", "max_ack_pending": 5},
        400,
        10082,
        "consumer requires ack policy for max ack pending",
    ),
    "short-heartbeat": (
        {"deliver_subject": "d.x", "idle_heartbeat": 1000},
        400,
        10083,
        "consumer idle heartbeat needs to be >= 100ms",
    ),
    "flow-without-heartbeat": (
        {"deliver_subject": "d.x", "flow_control": True},
        400,
        10108,
        "consumer with flow control also needs heartbeats",
    ),
    "pull-rate": ({"rate_limit_bps": 9}, 400, 10086, "consumer in pull mode can not have rate limit set"),
    "pull-heartbeat": (
        {"idle_heartbeat": SECOND},
        400,
        10088,
        "consumer idle heartbeat requires a push based consumer",
    ),
    "pull-flow": ({"flow_control": True}, 400, 10089, "consumer flow control requires a push based consumer"),
}


def _refused(name: str, fields: dict[str, Any], code: int, err_code: int, text: str) -> None:
    @rows(f"refused.{name}", f"{fields} is refused: {text}")
    async def refused(b: Bench) -> None:
        await (await b.stream()).consumer_refused(code=code, err_code=err_code, text=text, **fields)


for _name, (_fields, _code, _err_code, _text) in REFUSED.items():
    _refused(_name, _fields, _code, _err_code, _text)


@rows("refused.cycle", "a deliver subject that the stream captures is refused")
async def cycle(b: Bench) -> None:
    stream = await b.stream()
    await stream.consumer_refused(
        code=400,
        err_code=10081,
        text="consumer deliver subject forms a cycle",
        deliver_subject=f"{stream.name}.x",
    )


async def _update_refused(
    b: Bench,
    first: dict[str, Any],
    then: dict[str, Any],
    *,
    text: str,
    code: int = 500,
    err_code: int = 10012,
) -> None:
    stream = await b.stream()
    consumer = await stream.consumer(**first)
    await stream.consumer_refused(durable_name=consumer.name, code=code, err_code=err_code, text=text, **then)


@rows("update.to-pull", "a push consumer cannot become a pull consumer")
async def update_to_pull(b: Bench) -> None:
    await _update_refused(
        b, {"deliver_subject": "d.x"}, {}, text="can not update push consumer to pull based"
    )


@rows("update.to-push", "a pull consumer cannot become a push consumer")
async def update_to_push(b: Bench) -> None:
    await _update_refused(
        b, {}, {"deliver_subject": "d.x"}, text="can not update pull consumer to push based"
    )


@rows("update.heartbeat", "the heartbeat cannot be changed")
async def update_heartbeat(b: Bench) -> None:
    await _update_refused(
        b,
        {"deliver_subject": "d.x"},
        {"deliver_subject": "d.x", "idle_heartbeat": SECOND},
        text="heart beats can not be updated",
    )


@rows("update.flow-control", "flow control cannot be changed")
async def update_flow_control(b: Bench) -> None:
    await _update_refused(
        b,
        {"deliver_subject": "d.x", "idle_heartbeat": SECOND},
        {"deliver_subject": "d.x", "idle_heartbeat": SECOND, "flow_control": True},
        text="flow control can not be updated",
    )


@rows("update.bound", "the deliver subject cannot be changed while somebody listens there")
async def update_bound(b: Bench) -> None:
    stream = await b.stream()
    consumer, _ = await push(stream)

    async def is_bound() -> bool:
        return bool((await consumer.info()).get("push_bound", False))

    await eventually(is_bound, "the subscription is seen")
    await stream.consumer_refused(
        durable_name=consumer.name,
        deliver_subject="elsewhere.x",
        code=400,
        err_code=10013,
        text="consumer name already in use",
    )


@rows("update.free", "the deliver subject can be changed while nobody listens, and messages follow it")
async def update_free(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    consumer = await stream.consumer(deliver_subject="nobody.here")
    inbox = await b.subscribe()
    await stream.consumer(consumer.name, deliver_subject=inbox.subject)
    assert await payloads(inbox, 1) == [b"a"]


@rows("nats-py.push", "nats-py's subscribe makes a push consumer and reads its messages")
async def nats_py_push(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    nc = await b.connect()
    subscription = await nc.jetstream().subscribe(f"{stream.name}.>", durable="d")
    for wanted in (b"a", b"b"):
        message = await subscription.next_msg(timeout=5)
        assert message.data == wanted
        await message.ack()
    with pytest.raises(nats.js.errors.Error, match="already bound"):
        await (await b.connect()).jetstream().subscribe(f"{stream.name}.>", durable="d")


@rows("nats-py.queue", "nats-py's queue subscribers share one consumer")
async def nats_py_queue(b: Bench) -> None:
    stream = await b.stream()
    one = await (await b.connect()).jetstream().subscribe(f"{stream.name}.>", queue="workers")
    other = await (await b.connect()).jetstream().subscribe(f"{stream.name}.>", queue="workers")
    await stream.fill(*"abcdefgh")
    found: list[bytes] = []

    async def all_there() -> bool:
        for subscription in (one, other):
            while subscription.pending_msgs:
                message = await subscription.next_msg(timeout=1)
                await message.ack()
                found.append(message.data)
        return len(found) >= 8

    await eventually(all_there, "all messages")
    assert sorted(found) == [bytes([c]) for c in b"abcdefgh"]


@rows("nats-py.flow", "nats-py answers flow control, and every message arrives")
async def nats_py_flow(b: Bench) -> None:
    stream = await b.stream()
    count = 400
    for _ in range(count):
        await stream.bench.nc.publish(f"{stream.name}.a", b"x" * 16384)
    await stream.bench.nc.flush()
    got = asyncio.Event()
    seen: list[int] = []

    async def take(message: Msg) -> None:
        seen.append(message.metadata.sequence.stream)
        if len(seen) == count:
            got.set()

    nc = await b.connect()
    await nc.jetstream().subscribe(
        f"{stream.name}.>",
        cb=take,
        flow_control=True,
        idle_heartbeat=1,
        config=ConsumerConfig(max_ack_pending=-1),
    )
    async with asyncio.timeout(20):
        await got.wait()
    assert seen == list(range(1, count + 1))


@rows("nats-py.ordered", "nats-py's ordered consumer reads all messages in order")
async def nats_py_ordered(b: Bench) -> None:
    stream = await b.stream()
    nc = await b.connect()
    for number in range(200):
        await b.nc.publish(f"{stream.name}.a", b"%d" % number)
    await b.nc.flush()
    subscription = await nc.jetstream().subscribe(f"{stream.name}.>", ordered_consumer=True)
    for number in range(200):
        assert (await subscription.next_msg(timeout=5)).data == b"%d" % number


@rows("nats-py.ordered.reset", "an ordered consumer that is deleted under its client goes on where it was")
async def nats_py_ordered_reset(b: Bench) -> None:
    stream = await b.stream()
    nc = await b.connect()
    await stream.fill("a")
    subscription = await nc.jetstream().subscribe(
        f"{stream.name}.>", ordered_consumer=True, idle_heartbeat=0.3
    )
    assert (await subscription.next_msg(timeout=5)).data == b"a"
    (name,) = (await b.ok(f"CONSUMER.NAMES.{stream.name}"))["consumers"]
    await b.ok(f"CONSUMER.DELETE.{stream.name}.{name}")
    await stream.fill("b")
    assert (await subscription.next_msg(timeout=10)).data == b"b"


@rows("elsewhere", "a client of another server gets what the leader delivers", on=CLUSTERS)
async def elsewhere(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    inboxes = []
    for node in range(3):
        inbox = await b.subscribe(nc=await b.connect(node))
        await stream.consumer(deliver_subject=inbox.subject)
        inboxes.append(inbox)
    for inbox in inboxes:
        assert await payloads(inbox, 1) == [b"a"]


@rows("elsewhere.group", "members of a deliver group at several servers share its messages", on=CLUSTERS)
async def elsewhere_group(b: Bench) -> None:
    stream = await b.stream()
    subject = b.subject()
    members = [await b.subscribe(subject, "g", nc=await b.connect(node)) for node in range(3)]
    await stream.consumer(deliver_subject=subject, deliver_group="g", ack_policy="none")
    for number in range(60):
        await stream.publish("a", b"%d" % number)
    found: list[bytes] = []

    async def all_there() -> bool:
        for inbox in members:
            while inbox.pending_msgs:
                found.append((await inbox.next_msg(timeout=1)).data)
        return len(found) >= 60

    await eventually(all_there, "all messages")
    assert sorted(found) == sorted(b"%d" % number for number in range(60))


@rows("step-down", "a push consumer goes on when its leader steps down", on=CLUSTERS)
async def step_down(b: Bench) -> None:
    stream = await b.stream()
    _, inbox = await push(stream, ack_wait=2 * SECOND)
    await stream.fill("a")
    assert await payloads(inbox, 1) == [b"a"]
    await b.ok(f"STREAM.LEADER.STEPDOWN.{stream.name}")

    async def published() -> bool:
        try:
            return "error" not in await stream.publish("b", b"b")
        except nats.errors.Error:
            return False

    await eventually(published, "a new leader")
    assert await payloads(inbox, 1) == [b"b"]
