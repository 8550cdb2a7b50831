"""Streams that are wide: many subjects, and many consumers."""

from __future__ import annotations

import re
import statistics
import time

from benchmarks.client import (
    BLOCK_MESSAGES,
    BenchError,
    RawClient,
    block_of,
    make_stream,
    publish_block,
    stream_config,
    wait_for_jetstream,
)
from benchmarks.course import Course
from benchmarks.footprint import start_and_time
from benchmarks.table import Row, Target

STORED = 1_000_000
SUBJECTS = 100_000
LOOKUPS = 2_000
CONSUMERS = 10_000
PUBLISHED = 100_000
TAKEN = 50_000
PAYLOAD = b"x" * 128
STREAM = "W"
_REPLY = re.compile(rb"\$JS\.ACK\.\S+")


def _messages(subjects: int, count: int) -> list[bytes]:
    return [
        b"PUB w.%d _INBOX.acks.all %d\r\n%b\r\n" % (number % subjects, len(PAYLOAD), PAYLOAD)
        for number in range(count)
    ]


def _publish(url: str, subjects: int, count: int) -> float:
    """Messages a second, in blocks of so many subjects that all get their share."""
    block = block_of(_messages(subjects, max(subjects, BLOCK_MESSAGES)))
    return publish_block(url, block, count)


def many_subjects(course: Course) -> list[Row]:
    """A million messages on 100,000 subjects: the last of one, and how soon all are there after a start."""
    last = Row("last message of one of 100,000 subjects: request and answer", "ms", Target(1, at_least=False))
    ready = Row(
        "ready after its start, 1 M messages on 100,000 subjects on disk", "s", Target(2, at_least=False)
    )
    for kind, fleet_type in course.fleets.items():
        fleet = fleet_type(course.directory / kind, 1)
        try:
            start_and_time(fleet)
            url = fleet.urls[0]
            wait_for_jetstream(url)
            with RawClient(url) as client:
                client.request(
                    f"$JS.API.STREAM.CREATE.{STREAM}",
                    {**stream_config(STREAM, ["w.>"], 1), "allow_direct": True},
                )
            _publish(url, SUBJECTS, STORED)
            for _ in range(course.runs):
                last.add(kind, _last_by_subject_ms(url))
                fleet.brokers[0].stop()
                ready.add(kind, start_and_time(fleet))
                with RawClient(url) as client:
                    state = client.request(f"$JS.API.STREAM.INFO.{STREAM}")["state"]
                if (state["messages"], state["num_subjects"]) != (STORED, SUBJECTS):
                    raise BenchError(
                        f"{kind}: after a restart there are {state} of {STORED} on {SUBJECTS} subjects"
                    )
        finally:
            fleet.close()
    return [last, ready]


def _last_by_subject_ms(url: str) -> float:
    """Median of one request after the other, by the API, whose answer has the message."""
    took: list[float] = []
    with RawClient(url) as client:
        for number in range(LOOKUPS):
            subject = f"w.{number * 7919 % SUBJECTS}"
            began = time.perf_counter()
            found = client.request(f"$JS.API.STREAM.MSG.GET.{STREAM}", {"last_by_subj": subject})
            took.append((time.perf_counter() - began) * 1000)
            if found["message"]["subject"] != subject:
                raise BenchError(f"{subject} was asked for, {found['message']['subject']} came")
    return statistics.median(took)


def many_consumers(course: Course) -> list[Row]:
    """Publishing to a stream with 10,000 consumers of a subject each, beside the same without any; and with interest
    retention, while one of them takes what it is for."""
    alone = Row("publish, no consumer on the stream", "msg/s")
    beside = Row("publish, 10,000 consumers with a filter each on the stream", "msg/s")
    share = Row("the same, as a part of publishing without them", "of 1", Target(0.8, at_least=True))
    beside.note = "nats-server 2.15.1 refuses a stream's 1,001st consumer at its defaults, so it is not asked"
    few, many = (
        Row(f"interest retention, {count}: publish, pull, acknowledge, remove", "msg/s")
        for count in ("1 consumer", "10,000 consumers with a filter each")
    )
    kept = Row("the same, as a part of what it is with 1 consumer", "of 1", Target(0.8, at_least=True))
    for kind, fleet_type in course.fleets.items():
        for run in range(course.runs if kind == "supercluster" else 0):
            with fleet_type(course.directory / f"{kind}-{run}", 1) as fleet:
                url = fleet.urls[0]
                wait_for_jetstream(url)
                make_stream(url, STREAM, ["w.>"], 1)
                before = _publish(url, CONSUMERS, PUBLISHED)
                _make_consumers(url)
                after = _publish(url, CONSUMERS, PUBLISHED)
            with fleet_type(course.directory / f"{kind}-interest-{run}", 1) as fleet:
                url = fleet.urls[0]
                wait_for_jetstream(url)
                with RawClient(url) as client:
                    config = {**stream_config(STREAM, ["w.>"], 1), "retention": "interest"}
                    client.request(f"$JS.API.STREAM.CREATE.{STREAM}", config)
                _make_consumers(url, 1)
                by_one = _take_all(url)
                _make_consumers(url)
                by_many = _take_all(url)
            alone.add(kind, before)
            beside.add(kind, after)
            share.add(kind, after / before)
            few.add(kind, by_one)
            many.add(kind, by_many)
            kept.add(kind, by_many / by_one)
    return [alone, beside, share, few, many, kept]


def _take_all(url: str) -> float:
    """Messages a second that are published for one consumer, pulled, acknowledged and so removed."""
    block = block_of([b"PUB w.0 _INBOX.acks.all %d\r\n%b\r\n" % (len(PAYLOAD), PAYLOAD)] * BLOCK_MESSAGES)
    began = time.perf_counter()
    publish_block(url, block, TAKEN)
    _take(url, "c0", TAKEN)
    took_s = time.perf_counter() - began
    with RawClient(url) as client:
        deadline = time.monotonic() + 30
        while left := client.request(f"$JS.API.STREAM.INFO.{STREAM}")["state"]["messages"]:
            if time.monotonic() > deadline:
                raise BenchError(f"{left} of {TAKEN} messages are still there after all were acknowledged")
    return TAKEN / took_s


def _take(url: str, consumer: str, count: int) -> None:
    """Pull and acknowledge so many messages."""
    ask = b'{"batch":1000,"expires":30000000000}'
    ask = b"PUB $JS.API.CONSUMER.MSG.NEXT.%b.%b _INBOX.pull %d\r\n%b\r\n" % (
        *(STREAM.encode(), consumer.encode()),
        *(len(ask), ask),
    )
    with RawClient(url) as client:
        client.socket.sendall(b"SUB _INBOX.pull 1\r\n")
        taken, asked, data = 0, 0, b""
        while taken < count:
            if asked == taken:
                client.socket.sendall(ask)
                asked += 1000
            data += client.socket.recv(1 << 20)
            whole = data.rfind(b"\n") + 1
            replies = _REPLY.findall(data, 0, whole)
            data = data[whole:]
            taken += len(replies)
            client.socket.sendall(b"".join(b"PUB %b 0\r\n\r\n" % reply for reply in replies))


def _make_consumers(url: str, count: int = CONSUMERS) -> None:
    with RawClient(url) as client:
        for number in range(count):
            name = f"c{number}"
            config = {
                "durable_name": name,
                "ack_policy": "explicit",
                "filter_subject": f"w.{number}",
                "deliver_policy": "new",
            }
            client.request(
                f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.{name}", {"stream_name": STREAM, "config": config}
            )
