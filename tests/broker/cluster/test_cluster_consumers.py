"""Pull consumers through real processes and nats-py."""

from __future__ import annotations

import asyncio

import nats
import pytest
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy
from nats.js.errors import NotFoundError
from tests.support.local_clusters import Fleet, until

pytestmark = pytest.mark.e2e


async def seqs(messages: list[Msg]) -> list[int]:
    """Acknowledge, and tell the stream sequences."""
    for message in messages:
        await message.ack()
    return [message.metadata.sequence.stream for message in messages]


async def fill(js: JetStreamContext, subject: str, count: int) -> None:
    await asyncio.gather(*(js.publish(subject, b"%d" % number) for number in range(count)))


@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.long), 3])
async def test_fetch_acknowledge_nak_term_and_progress(fleet: Fleet, replicas: int) -> None:
    await fleet.start(replicas)
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s"], num_replicas=replicas)
    await fill(js, "s", 10)
    # A machine that stands still for less than the ack wait has nothing come again before it is answered.
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=1, max_deliver=3)
    consumer = await js.pull_subscribe("s", durable="d", config=config)
    assert await seqs(await consumer.fetch(4)) == [1, 2, 3, 4]

    nak, term, held, silent = await consumer.fetch(4)
    await nak.nak()
    await term.term()
    await held.in_progress()
    again = (await consumer.fetch(1))[0]
    assert (again.metadata.sequence.stream, again.metadata.num_delivered) == (5, 2)
    await again.ack_sync()
    redelivered: dict[int, int] = {}

    async def gone_for_good() -> bool:
        """7 and 8 come again until they were delivered three times; 6 was terminated."""
        try:
            for message in await consumer.fetch(5, timeout=0.2):
                redelivered[message.metadata.sequence.stream] = message.metadata.num_delivered
        except TimeoutError:
            # Of nats-py or of asyncio: where the time is over between its two requests, it raises the latter.
            pass
        info = await js.consumer_info("S", "d")
        return redelivered.get(7) == 3 and redelivered.get(8) == 3 and info.num_redelivered is not None

    await until(gone_for_good, "three deliveries of what is never acknowledged")
    assert 6 not in redelivered
    assert held.metadata.sequence.stream == 7
    assert silent.metadata.sequence.stream == 8


async def test_filters_start_positions_and_ephemeral_consumers(fleet: Fleet) -> None:
    await fleet.start(1)
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s.>"])
    for number in range(12):
        await js.publish(f"s.{'abc'[number % 3]}.{number % 2}", b"%d" % number)
    wanted = {
        "all": (ConsumerConfig(), list(range(1, 13))),
        "one": (ConsumerConfig(filter_subject="s.a.*"), [1, 4, 7, 10]),
        "two": (ConsumerConfig(filter_subjects=["s.a.0", "s.c.>"]), [1, 3, 6, 7, 9, 12]),
        "last": (ConsumerConfig(deliver_policy=DeliverPolicy.LAST), [12]),
        "from": (ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=11), [11, 12]),
        "each": (
            ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject="s.>"),
            [7, 8, 9, 10, 11, 12],
        ),
    }
    for name, (config, expected) in wanted.items():
        config.ack_policy = AckPolicy.EXPLICIT
        info = await js.add_consumer("S", config, name=name, durable_name=name)
        assert info.num_pending == len(expected), name
        consumer = await js.pull_subscribe_bind(name, "S")
        assert await seqs(await consumer.fetch(len(expected), timeout=60)) == expected, name
    ephemeral = await js.add_consumer("S", ConsumerConfig(inactive_threshold=0.2, ack_policy=AckPolicy.NONE))
    assert len(await js.consumers_info("S")) == len(wanted) + 1

    async def is_gone() -> bool:
        try:
            await js.consumer_info("S", ephemeral.name)
        except NotFoundError:
            return True
        return False

    await until(is_gone, "the end of an ephemeral consumer that nobody uses")
    assert await js.delete_consumer("S", "one")
    with pytest.raises(NotFoundError):
        await js.consumer_info("S", "one")


async def test_no_wait_expires_heartbeats_and_refused_pulls_are_statuses(fleet: Fleet) -> None:
    await fleet.start(1)
    client = await fleet.client()
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    await js.add_consumer("S", ConsumerConfig(durable_name="d", ack_policy=AckPolicy.EXPLICIT))
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)

    async def pull(body: bytes, consumer: str = "d", stream: str = "S") -> Msg:
        await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", body, reply=inbox)
        return await answers.next_msg(timeout=30)

    async def status(body: bytes, consumer: str = "d", stream: str = "S") -> str:
        message = await pull(body, consumer, stream)
        assert message.data == b""
        return (message.headers or {})["Status"]

    assert await status(b'{"batch":5,"no_wait":true}') == "404"
    assert await status(b'{"batch":5,"expires":100000000}') == "408"
    assert await status(b'{"batch":5,"expires":2000000000,"idle_heartbeat":200000000}') == "100"
    # An error in JSON would be taken for a message of the stream.
    assert await status(b'{"batch":1}', consumer="nobody") == "503"
    assert await status(b'{"batch":1}', stream="NOTHING") == "503"
    await js.publish("s", b"wakes the one that waits")
    assert (await answers.next_msg(timeout=30)).data == b"wakes the one that waits"


@pytest.mark.covers("SF-2")
async def test_consumer_info_is_answered_behind_earlier_acknowledgements_of_the_connection(
    fleet: Fleet,
) -> None:
    await fleet.start(3)
    setup = await fleet.js()
    await setup.add_stream(name="S", subjects=["s"], num_replicas=3)
    await fill(setup, "s", 20)
    leader = await fleet.leader("S")
    for at, broker in enumerate((leader, next(other for other in fleet.running if other is not leader))):
        js = await fleet.js(broker)
        consumer = await js.pull_subscribe("s", durable=f"d{at}")
        for seq in range(1, 11):
            (message,) = await consumer.fetch(1)
            await message.ack()
            info = await js.consumer_info("S", f"d{at}")
            assert info.ack_floor is not None
            assert (info.ack_floor.stream_seq, info.num_ack_pending) == (seq, 0)


@pytest.mark.covers("MV-10", "CL-1")
async def test_a_pull_that_waits_at_a_broker_that_stops_ends_with_a_status(fleet: Fleet) -> None:
    [broker] = await fleet.start(1)
    client = await fleet.client()
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    await js.add_consumer("S", ConsumerConfig(durable_name="d", ack_policy=AckPolicy.EXPLICIT))
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.d", b'{"batch":5,"expires":60000000000}', reply=inbox)
    assert (await js.consumer_info("S", "d")).num_waiting == 1
    broker.terminate()
    headers = (await answers.next_msg(timeout=30)).headers or {}
    assert (headers["Status"], headers["Description"]) == ("409", "Server Shutdown")
    assert headers["Nats-Pending-Messages"] == "5"
    assert await broker.exited() == 0


@pytest.mark.covers("MV-10", "CL-1")
async def test_an_ordered_consumer_goes_on_over_a_restart(fleet: Fleet) -> None:
    [broker] = await fleet.start(1)
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s"])
    await fill(js, "s", 5)
    ordered = await js.subscribe("s", ordered_consumer=True)
    seen = [(await ordered.next_msg(timeout=30)).metadata.sequence.stream for _ in range(5)]
    broker.terminate()
    assert await broker.exited() == 0
    broker.start()
    await broker.ready()

    async def published() -> bool:
        (answer,) = await asyncio.gather(js.publish("s", b"later", timeout=1), return_exceptions=True)
        return not isinstance(answer, BaseException)

    await until(published, "the client to be back")
    seen.append((await ordered.next_msg(timeout=30)).metadata.sequence.stream)
    assert seen == [1, 2, 3, 4, 5, 6]


async def test_work_queues_and_interest_drop_what_is_done(fleet: Fleet) -> None:
    await fleet.start(1)
    js = await fleet.js()
    await js.add_stream(name="W", subjects=["w"], retention=RetentionPolicy.WORK_QUEUE)
    await fill(js, "w", 6)
    worker = await js.pull_subscribe("w", durable="worker")
    messages = await worker.fetch(4)
    for message in messages[1:]:
        await message.ack_sync()
    state = (await js.stream_info("W")).state
    assert (state.messages, state.first_seq, state.num_deleted) == (3, 1, 3)
    await messages[0].ack_sync()
    state = (await js.stream_info("W")).state
    assert (state.messages, state.first_seq) == (2, 5)

    await js.add_stream(name="I", subjects=["i.*"], retention=RetentionPolicy.INTEREST)
    assert (await js.publish("i.a", b"nobody is interested")).seq == 1
    assert (await js.stream_info("I")).state.messages == 0
    one = await js.pull_subscribe("i.a", durable="one", stream="I")
    two = await js.pull_subscribe("i.>", durable="two", stream="I")
    await js.publish("i.a", b"both")
    await js.publish("i.b", b"two alone")
    assert (await js.stream_info("I")).state.messages == 2
    for message in await two.fetch(2):
        await message.ack_sync()
    assert (await js.stream_info("I")).state.messages == 1
    await (await one.fetch(1))[0].ack_sync()
    assert (await js.stream_info("I")).state.messages == 0


@pytest.mark.covers("SF-2", "SF-1")
async def test_a_consumer_goes_on_when_its_leader_is_killed_and_keeps_what_was_confirmed(
    fleet: Fleet,
) -> None:
    await fleet.start(3)
    setup = await fleet.js()
    await setup.add_stream(name="S", subjects=["s"], num_replicas=3)
    await fill(setup, "s", 300)
    await setup.add_consumer("S", ConsumerConfig(durable_name="d", ack_policy=AckPolicy.EXPLICIT, ack_wait=1))
    leader = await fleet.leader("S")
    stays = next(broker for broker in fleet.running if broker is not leader)
    js = await fleet.js(stays)
    consumer = await js.pull_subscribe_bind("d", "S")
    confirmed: set[int] = set()
    for message in await consumer.fetch(100):
        await message.ack_sync()
        confirmed.add(message.metadata.sequence.stream)
    leader.kill()
    seen: set[int] = set()

    async def all_seen() -> bool:
        try:
            for message in await consumer.fetch(100, timeout=1):
                seen.add(message.metadata.sequence.stream)
                await message.ack()
        except (nats.errors.Error, TimeoutError):
            pass
        return len(seen) >= 200

    await until(all_seen, "every message that was not confirmed")
    assert seen == set(range(1, 301)) - confirmed
