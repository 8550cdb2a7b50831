"""What a change of a consumer that is there may do to others of its stream, and to what it has handed out already."""

from __future__ import annotations

from nats.aio.msg import Msg
from tests.compat.bench import Bench, StreamOfRow, status_of
from tests.compat.table import Group

rows = Group("consumers.update")


def delivery_of(message: Msg) -> int:
    """Which delivery of the message it is."""
    return int(message.reply.split(".")[4])


async def _work_queue(b: Bench) -> StreamOfRow:
    """A work queue with a consumer of `.a` and one of `.b`."""
    stream = await b.stream(retention="workqueue")
    for name in ("a", "b"):
        await stream.consumer(name, filter_subject=f"{stream.name}.{name}")
    return stream


@rows("workqueue.filters", "no update lets two consumers of a work queue read the same message")
async def workqueue_filters(b: Bench) -> None:
    stream = await _work_queue(b)
    text = "filtered consumer not unique on workqueue stream"
    for wanted in ("a", "*", ">"):
        await stream.consumer_refused(
            durable_name="b", filter_subject=f"{stream.name}.{wanted}", code=400, err_code=10100, text=text
        )
    both = [f"{stream.name}.c", f"{stream.name}.a"]
    await stream.consumer_refused(durable_name="b", filter_subjects=both, code=400, err_code=10100, text=text)
    await stream.fill("a")
    inbox = await b.connect()
    found = await inbox.request(f"$JS.API.CONSUMER.MSG.NEXT.{stream.name}.b", b'{"batch":1,"no_wait":true}')
    assert status_of(found) == "404"


@rows("workqueue.given-up", "a subject that a consumer of a work queue has given up is another's to take")
async def workqueue_given_up(b: Bench) -> None:
    stream = await _work_queue(b)
    await stream.consumer("a", filter_subject=f"{stream.name}.c")
    changed = await stream.consumer("b", filter_subject=f"{stream.name}.a")
    assert changed.created["config"]["filter_subject"] == f"{stream.name}.a"


@rows(
    "workqueue.order",
    "of an update of a work queue's consumer, first its filters are judged, then what may not change",
)
async def workqueue_order(b: Bench) -> None:
    stream = await _work_queue(b)
    await stream.consumer_refused(
        durable_name="b",
        filter_subject=f"{stream.name}.b",
        deliver_policy="new",
        code=500,
        err_code=10012,
        text="deliver policy can not be updated",
    )
    await stream.consumer_refused(
        durable_name="b",
        filter_subject=f"{stream.name}.a",
        deliver_policy="new",
        code=400,
        err_code=10100,
        text="filtered consumer not unique on workqueue stream",
    )


MINUTE = 60 * 1_000_000_000
SHORT = 200_000_000


@rows("ack-wait", "a shorter ack_wait holds for a message that waits for its acknowledgement already")
async def ack_wait(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    consumer = await stream.consumer(ack_wait=MINUTE)
    await consumer.next()
    await stream.consumer(consumer.name, ack_wait=SHORT)
    assert delivery_of(await consumer.next()) == 2


@rows("backoff", "a changed backoff holds for a message that waits for its acknowledgement already")
async def backoff(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    consumer = await stream.consumer(backoff=[MINUTE, MINUTE], max_deliver=5)
    await consumer.next()
    await stream.consumer(consumer.name, backoff=[SHORT, MINUTE], max_deliver=5)
    assert delivery_of(await consumer.next()) == 2


@rows("ack-wait.nak", "a changed ack_wait moves the time that a client has asked for as well")
async def ack_wait_nak(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    consumer = await stream.consumer(ack_wait=MINUTE)
    delay = f'-NAK {{"delay": {MINUTE}}}'
    await consumer.fetch(1, ack=delay.encode())
    await stream.consumer(consumer.name, ack_wait=SHORT)
    assert delivery_of(await consumer.next()) == 2
