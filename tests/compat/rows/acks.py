"""Acknowledgements, and what is delivered again without one."""

from __future__ import annotations

from typing import Any

import pytest
from nats.errors import NoRespondersError
from tests.compat.bench import Bench, ConsumerOfRow
from tests.compat.six import six
from tests.compat.table import Group

acks = Group("acks")

SECOND = 1_000_000_000

MS = 1_000_000


async def _first(b: Bench, **config: Any) -> tuple[ConsumerOfRow, Any, Any]:
    """A consumer that has delivered the first message of six: it, its answers and the message."""
    consumer = await (await six(b)).consumer(**config)
    answers = await consumer.ask({"batch": 1, "expires": 5 * SECOND})
    return consumer, answers, await answers.next()


# The acknowledgement, and what is left: pending, floor of the stream's sequence.
ACKS: dict[str, tuple[bytes, int, int]] = {
    "ack": (b"+ACK", 0, 1),
    "empty": (b"", 0, 1),
    "term": (b"+TERM", 0, 1),
    "term.reason": (b"+TERM broken beyond repair", 0, 1),
    "progress": (b"+WPI", 1, 0),
}


def _ack(name: str, payload: bytes, pending: int, floor: int) -> None:
    @acks(name, f"after {payload!r} {pending} are pending, and the floor is {floor}")
    async def ack(b: Bench) -> None:
        consumer, answers, message = await _first(b)
        await answers.acknowledge(message, payload)
        info = await consumer.info()
        assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (pending, floor)


for _name, (_payload, _pending, _floor) in ACKS.items():
    _ack(_name, _payload, _pending, _floor)


@acks("double", "an acknowledgement with a reply is confirmed by an empty message")
async def double(b: Bench) -> None:
    _, answers, message = await _first(b)
    confirmed = await answers.subscription._conn.request(message.reply, b"+ACK", timeout=5)
    assert (confirmed.data, confirmed.headers) == (b"", None)


@acks("nak", "a message that was refused is delivered again")
async def nak(b: Bench) -> None:
    consumer, answers, message = await _first(b)
    await answers.acknowledge(message, b"-NAK")
    again = await consumer.next()
    assert (again.data, again.reply.split(".")[4]) == (b"0", "2")
    assert (await consumer.info())["num_redelivered"] == 1


@acks("nak.delay", "a message that was refused with a delay is delivered again after it")
async def nak_delay(b: Bench) -> None:
    consumer, answers, message = await _first(b)
    await answers.acknowledge(message, b'-NAK {"delay": 300000000}')
    assert (await consumer.next()).data == b"1"
    answers = await consumer.ask({"batch": 10, "expires": 3 * SECOND})
    got = [(await answers.next()).data for _ in range(5)]
    assert got == [b"2", b"3", b"4", b"5", b"0"]


@acks("next", "+NXT acknowledges and asks for the next message")
async def next_one(b: Bench) -> None:
    consumer, answers, message = await _first(b)
    client = answers.subscription._conn
    await client.publish(message.reply, b"+NXT", reply=answers.subscription.subject)
    assert (await answers.next()).data == b"1"
    assert (await consumer.info())["ack_floor"]["stream_seq"] == 1


@acks("next.batch", "+NXT asks for as many as it says")
async def next_batch(b: Bench) -> None:
    _, answers, message = await _first(b)
    client = answers.subscription._conn
    body = b'+NXT {"batch": 2, "expires": 1000000000}'
    await client.publish(message.reply, body, reply=answers.subscription.subject)
    assert [(await answers.next()).data for _ in range(2)] == [b"1", b"2"]


@acks("all", "with ack all one acknowledgement is for all before it")
async def ack_all(b: Bench) -> None:
    consumer = await (await six(b)).consumer(ack_policy="all")
    answers = await consumer.ask({"batch": 4, "expires": SECOND})
    got = [await answers.next() for _ in range(4)]
    await answers.acknowledge(got[2])
    info = await consumer.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (1, 3)


@acks("none", "with ack none a delivery is its acknowledgement")
async def ack_none(b: Bench) -> None:
    consumer = await (await six(b)).consumer(ack_policy="none")
    await consumer.fetch(3, ack=None)
    info = await consumer.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (0, 3)


@acks("none.confirmed", "with ack none nobody is there to confirm an acknowledgement")
async def ack_none_confirmed(b: Bench) -> None:
    consumer = await (await six(b)).consumer(ack_policy="none")
    answers = await consumer.ask({"batch": 1, "expires": SECOND})
    message = await answers.next()
    for ack in (b"+ACK", b"-NAK", b"+NXT"):
        with pytest.raises(NoRespondersError):
            await answers.acknowledge(message, ack)


@acks("unknown", "what is no acknowledgement is answered, and the message waits for one as before")
async def ack_unknown(b: Bench) -> None:
    consumer, answers, message = await _first(b)
    for ack in (b"+FOO", b"foo", b"+ACK x"):
        await answers.acknowledge(message, ack)
    assert (await consumer.info())["num_ack_pending"] == 1


@acks("next.not-a-number", "an acknowledgement that asks for more than it can say gets one message")
async def next_not_a_number(b: Bench) -> None:
    consumer, answers, message = await _first(b)
    await b.nc.publish(message.reply, b"+NXT x", reply=answers.subscription.subject)
    assert (await answers.next()).data == b"1"
    info = await consumer.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (1, 1)


@acks("order", "acknowledgements out of order move the floor when the hole closes")
async def ack_order(b: Bench) -> None:
    consumer = await (await six(b)).consumer()
    answers = await consumer.ask({"batch": 3, "expires": SECOND})
    got = [await answers.next() for _ in range(3)]
    await answers.acknowledge(got[1])
    await answers.acknowledge(got[2])
    assert (await consumer.info())["ack_floor"]["stream_seq"] == 0
    await answers.acknowledge(got[0])
    info = await consumer.info()
    assert (info["ack_floor"], info["num_ack_pending"]) == (
        {**info["ack_floor"], "stream_seq": 3, "consumer_seq": 3},
        0,
    )


@acks("wait", "a message that nobody acknowledges in time is delivered again")
async def ack_wait(b: Bench) -> None:
    consumer, _, _ = await _first(b, ack_wait=300 * MS, max_ack_pending=1)
    again = await consumer.next()
    assert (again.data, again.reply.split(".")[4]) == (b"0", "2")


@acks("progress.wait", "work in progress makes the time begin again")
async def progress_wait(b: Bench) -> None:
    _, answers, message = await _first(b, ack_wait=400 * MS)
    for _ in range(4):
        await answers.acknowledge(message, b"+WPI")
    await answers.acknowledge(message)


@acks("max-deliver", "a message is delivered max_deliver times at most")
async def max_deliver(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    consumer = await stream.consumer(max_deliver=2)
    for _ in range(2):
        answers = await consumer.ask({"batch": 1, "expires": SECOND})
        await answers.acknowledge(await answers.next(), b"-NAK")
    answers = await consumer.ask({"batch": 1, "expires": 300 * MS})
    assert (await answers.status())[0] == "408"


@acks("backoff", "back-off says how long each delivery is waited for")
async def backoff(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    consumer = await stream.consumer(backoff=[100 * MS, 200 * MS], max_deliver=3)
    counts = [(await consumer.next()).reply.split(".")[4] for _ in range(3)]
    assert counts == ["1", "2", "3"]


@acks("late", "a late acknowledgement counts")
async def late(b: Bench) -> None:
    consumer, answers, message = await _first(b, ack_wait=200 * MS)
    await consumer.next()
    await answers.acknowledge(message)
    assert (await consumer.info())["ack_floor"]["stream_seq"] == 1
