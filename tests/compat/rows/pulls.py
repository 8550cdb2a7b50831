"""Pull requests: what they deliver, and the statuses that they end with."""

from __future__ import annotations

from typing import Any

import pytest
from nats.errors import NoRespondersError
from tests.compat.bench import Bench, status_of
from tests.compat.six import of, six
from tests.compat.table import Group

pulls = Group("pull")

SECOND = 1_000_000_000

MS = 1_000_000

# The configuration, and the payloads that are delivered.
DELIVERED: dict[str, tuple[dict[str, Any], list[bytes]]] = {
    "all": ({}, [b"0", b"1", b"2", b"3", b"4", b"5"]),
    "last": ({"deliver_policy": "last"}, [b"5"]),
    "last.filter": ({"deliver_policy": "last", "filter_subject": "$a"}, [b"3"]),
    "new": ({"deliver_policy": "new"}, []),
    "last-per-subject": (
        {"deliver_policy": "last_per_subject", "filter_subject": "$*"},
        [b"3", b"4", b"5"],
    ),
    "sequence": ({"deliver_policy": "by_start_sequence", "opt_start_seq": 4}, [b"3", b"4", b"5"]),
    "sequence.beyond": ({"deliver_policy": "by_start_sequence", "opt_start_seq": 99}, []),
    "time": (
        {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
        [b"0", b"1", b"2", b"3", b"4", b"5"],
    ),
    "time.behind": ({"deliver_policy": "by_start_time", "opt_start_time": "2099-01-01T00:00:00Z"}, []),
    "filter": ({"filter_subject": "$a"}, [b"0", b"3"]),
    "filter.none": ({"filter_subject": "$z"}, []),
    "filters": ({"filter_subjects": ["$a", "$c"]}, [b"0", b"2", b"3", b"5"]),
}


def _delivered(name: str, config: dict[str, Any], wanted: list[bytes]) -> None:
    @pulls(f"delivered.{name}", f"a consumer with {config or 'nothing said'} delivers {len(wanted)} of six")
    async def delivered(b: Bench) -> None:
        stream = await six(b)
        consumer = await stream.consumer(**of(stream, config))
        assert consumer.created["num_pending"] == len(wanted)
        assert [message.data for message in await consumer.fetch(10)] == wanted
        assert (await consumer.info())["num_pending"] == 0


for _name, (_given, _payloads) in DELIVERED.items():
    _delivered(_name, _given, _payloads)


@pulls("reply", "a delivery's reply names stream, consumer, count, sequences, time and what is pending")
async def reply(b: Bench) -> None:
    stream = await six(b)
    consumer = await stream.consumer("worker")
    await consumer.fetch(1)
    message = await consumer.next()
    words = message.reply.split(".")
    assert words[:3] == ["$JS", "ACK", stream.name]
    assert (words[3], words[4], words[5], words[6], words[8]) == ("worker", "1", "2", "2", "4")
    assert message.subject == f"{stream.name}.b"


@pulls("headers-only", "headers_only leaves the payload out and says its size")
async def headers_only(b: Bench) -> None:
    stream = await b.stream()
    await stream.publish("a", b"12345", {"K": "v"})
    consumer = await stream.consumer(headers_only=True)
    message = await consumer.next()
    assert message.data == b""
    assert message.headers == {"K": "v", "Nats-Msg-Size": "5"}


@pulls("one", "a request without a body asks for one message")
async def one(b: Bench) -> None:
    stream = await six(b)
    consumer = await stream.consumer()
    for body in (b"", b"1", {"batch": 1}):
        answers = await consumer.ask(body)
        assert (await answers.next()).data
    assert (await consumer.info())["delivered"]["consumer_seq"] == 3


@pulls("no-wait.empty", "a request that does not wait is told 404 when there is nothing")
async def no_wait(b: Bench) -> None:
    consumer = await (await b.stream()).consumer()
    answers = await consumer.ask({"batch": 1, "no_wait": True})
    assert await answers.status() == ("404", "No Messages")


@pulls("no-wait.some", "a request that does not wait gets what is there, then a status")
async def no_wait_some(b: Bench) -> None:
    stream = await six(b)
    consumer = await stream.consumer()
    answers = await consumer.ask({"batch": 10, "no_wait": True})
    assert [(await answers.next()).data for _ in range(6)] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert status_of(await answers.next()) in ("404", "408")


@pulls("expires", "a request ends when it expires, and says what it lacked")
async def expires(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    consumer = await stream.consumer()
    answers = await consumer.ask({"batch": 5, "expires": 200 * MS})
    assert (await answers.next()).data == b"a"
    status = await answers.next()
    headers = status.headers or {}
    assert (headers["Status"], headers["Description"]) == ("408", "Request Timeout")
    assert (headers["Nats-Pending-Messages"], headers["Nats-Pending-Bytes"]) == ("4", "0")


@pulls("waits", "a waiting request gets what comes")
async def waits(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer()
    answers = await consumer.ask({"batch": 2, "expires": 5 * SECOND})
    assert (await consumer.info())["num_waiting"] == 1
    await stream.fill("a", "b")
    assert [(await answers.next()).data for _ in range(2)] == [b"a", b"b"]


@pulls("max-bytes", "a request's max_bytes bounds what it gets")
async def max_bytes(b: Bench) -> None:
    stream = await b.stream()
    for _ in range(5):
        await stream.publish("a", b"x" * 1000)
    consumer = await stream.consumer()
    answers = await consumer.ask({"batch": 5, "max_bytes": 2500, "expires": SECOND})
    got = [await answers.next() for _ in range(3)]
    assert [len(message.data) for message in got[:2]] == [1000, 1000]
    headers = got[2].headers or {}
    assert (headers["Status"], headers["Description"]) == ("409", "Message Size Exceeds MaxBytes")
    assert headers["Nats-Pending-Messages"] == "3"


@pulls("max-bytes.batch", "who asked for bytes is told that the batch is complete, and what is left of them")
async def max_bytes_batch(b: Bench) -> None:
    consumer = await (await six(b)).consumer()
    for more in ({"expires": 5 * SECOND}, {"no_wait": True}):
        answers = await consumer.ask({"batch": 2, "max_bytes": 10_000, **more})
        got = [await answers.next() for _ in range(2)]
        last = await answers.next()
        assert status_of(last) == "409"
        headers = last.headers or {}
        assert headers["Description"] == "Batch Completed"
        taken = sum(len(each.subject) + len(each.reply) + len(each.data) for each in got)
        shown = [headers[f"Nats-Pending-{what}"] for what in ("Messages", "Bytes")]
        assert shown == ["0", str(10_000 - taken)]


@pulls("max-bytes.none", "a request for too few bytes is told so at once")
async def max_bytes_none(b: Bench) -> None:
    consumer = await (await six(b)).consumer()
    answers = await consumer.ask({"batch": 1, "max_bytes": 5, "expires": 5 * SECOND})
    assert await answers.status(2) == ("409", "Message Size Exceeds MaxBytes")
    assert (await consumer.next()).data == b"0"


@pulls("heartbeat", "a waiting request is told that the consumer lives")
async def heartbeat(b: Bench) -> None:
    consumer = await (await b.stream()).consumer()
    answers = await consumer.ask({"batch": 1, "expires": SECOND, "idle_heartbeat": 100 * MS})
    for _ in range(2):
        message = await answers.next()
        headers = message.headers or {}
        assert (headers["Status"], headers["Description"]) == ("100", "Idle Heartbeat")
        assert headers["Nats-Last-Consumer"] == "0"


@pulls("not-a-number", "a request that is neither a document nor a number asks for one message")
async def not_a_number(b: Bench) -> None:
    consumer = await (await six(b)).consumer()
    for number, body in enumerate((b"-1", b"x", b"5x", b"[]")):
        answers = await consumer.ask(body)
        assert (await answers.next()).data == b"%d" % number


# The body, and the status.
STATUSES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, str]]] = {
    "batch": ({"max_batch": 2}, {"batch": 3}, ("409", "Exceeded MaxRequestBatch of 2")),
    "expires": (
        {"max_expires": SECOND},
        {"batch": 1, "expires": 2 * SECOND},
        ("409", "Exceeded MaxRequestExpires of 1s"),
    ),
    "bytes": (
        {"max_bytes": 200},
        {"batch": 1, "max_bytes": 201, "expires": SECOND},
        ("409", "Exceeded MaxRequestMaxBytes of 200"),
    ),
    "time-is-over": ({}, {"batch": 3, "expires": -5}, ("408", "Request Timeout")),
    "time-is-over-at-once": ({}, {"batch": 3, "expires": -5, "no_wait": True}, ("408", "Request Timeout")),
    "heartbeat-without-expires": (
        {},
        {"batch": 1, "idle_heartbeat": 100 * MS},
        ("400", "Bad Request - heartbeat value too large"),
    ),
    "heartbeat-too-long": (
        {},
        {"batch": 1, "idle_heartbeat": 150 * MS, "expires": 200 * MS},
        ("400", "Bad Request - heartbeat value too large"),
    ),
}


def _status(name: str, config: dict[str, Any], body: dict[str, Any], wanted: tuple[str, str]) -> None:
    @pulls(f"status.{name}", f"a request is refused with {' '.join(wanted)}")
    async def status(b: Bench) -> None:
        consumer = await (await six(b)).consumer(**config)
        assert await (await consumer.ask(body)).status() == wanted


for _name, (_config, _given, _pair) in STATUSES.items():
    _status(_name, _config, _given, _pair)


@pulls("max-waiting", "more requests than max_waiting are refused")
async def max_waiting(b: Bench) -> None:
    consumer = await (await b.stream()).consumer(max_waiting=1)
    await consumer.ask({"batch": 1, "expires": 5 * SECOND})
    answers = await consumer.ask({"batch": 1, "expires": SECOND})
    assert await answers.status() == ("409", "Exceeded MaxWaiting")


@pulls("max-ack-pending", "no more than max_ack_pending are out at once")
async def max_ack_pending(b: Bench) -> None:
    consumer = await (await six(b)).consumer(max_ack_pending=2)
    answers = await consumer.ask({"batch": 5, "expires": 5 * SECOND})
    got = [await answers.next() for _ in range(2)]
    info = await consumer.info()
    assert (info["num_ack_pending"], info["num_pending"]) == (2, 4)
    await answers.acknowledge(got[0])
    assert (await answers.next()).data == b"2"


@pulls("deleted", "who waits is told that the consumer was deleted")
async def deleted(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer()
    answers = await consumer.ask({"batch": 1, "expires": 5 * SECOND})
    await consumer.info()
    await b.ok(f"CONSUMER.DELETE.{stream.name}.{consumer.name}")
    assert await answers.status() == ("409", "Consumer Deleted")


@pulls("no-consumer", "nobody responds for a consumer that is not there")
async def no_consumer(b: Bench) -> None:
    stream = await b.stream()
    with pytest.raises(NoRespondersError):
        await b.nc.request(f"$JS.API.CONSUMER.MSG.NEXT.{stream.name}.none", b"", timeout=5)


@pulls("purged", "a purge leaves nothing to deliver")
async def purged(b: Bench) -> None:
    stream = await six(b)
    consumer = await stream.consumer()
    await b.ok(f"STREAM.PURGE.{stream.name}")
    assert (await consumer.info())["num_pending"] == 0
    await stream.fill("a")
    message = await consumer.next()
    assert message.reply.split(".")[5] == "7"
