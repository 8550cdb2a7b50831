"""What a stream that moves is like, and how much processor time its brokers get.

A starved fleet's brokers run at nice 19 beside four busy loops, from when the load begins: the lowest share of processor time that
a pod without a request gets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.client import BenchError, Counter, RawClient, publish_block
from benchmarks.load import PAYLOAD_BYTES, preloaded
from benchmarks.servers import Fleet, die_with_parent

BUSY_LOOPS = 4
NICE = 19
CONSUMERS = 2
PART = 50_000
"""Messages that are prepared at once."""
RATE, STARVED_RATE = 3_500, 150
QUIET_SECONDS, STARVED_QUIET_SECONDS = 5.0, 15.0
EVENT_SECONDS_MAX, STARVED_EVENT_SECONDS_MAX = 60.0, 600.0
PULL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the stream, and of what happens beside it."""

    name: str
    preloads: int = 50_000
    payload_bytes: int = PAYLOAD_BYTES
    has_ids: bool = False
    """Were they published under message ids, which are all within the duplicate window?"""
    pending: int = 0
    """Messages that each of `CONSUMERS` consumers was given and has not acknowledged."""
    is_starved: bool = False

    @property
    def rate(self) -> int:
        """Messages a second."""
        return STARVED_RATE if self.is_starved else RATE

    @property
    def quiet_seconds(self) -> float:
        return STARVED_QUIET_SECONDS if self.is_starved else QUIET_SECONDS

    @property
    def event_seconds_max(self) -> float:
        return STARVED_EVENT_SECONDS_MAX if self.is_starved else EVENT_SECONDS_MAX


PLAIN_SHAPE = Shape("")
_SHAPES = {
    "plain": PLAIN_SHAPE,
    "ids": Shape(" of a stream with 200,000 message ids in its window", preloads=200_000, has_ids=True),
    "large": Shape(" of a stream with 1 M messages of 512 B", preloads=1_000_000, payload_bytes=512),
    "pending": Shape(
        " of a stream whose consumers have 50,000 pending each", preloads=100_000, pending=50_000
    ),
}
SHAPES: dict[str, Shape] = {
    **{f"move-{name}": shape for name, shape in _SHAPES.items() if name != "plain"},
    **{
        f"move-{name}-starved": replace(
            shape,
            name=f"{shape.name}, brokers at nice {NICE} beside {BUSY_LOOPS} busy loops",
            is_starved=True,
        )
        for name, shape in _SHAPES.items()
    },
}
"""What may be asked for, by the name that it is asked for by."""


def small(shape: Shape, part: int) -> Shape:
    """The same with a fraction of the messages, to see that it works."""
    return replace(shape, preloads=max(1, shape.preloads // part), pending=shape.pending // part)


def fill(url: str, stream: str, shape: Shape) -> None:
    """Bring the stream into shape.

    Raises:
        BenchError: a message was refused, or consumers are given too few.
    """
    for first in range(1, shape.preloads + 1, PART):
        count = min(PART, shape.preloads + 1 - first)
        block = preloaded(count, first=first, payload_bytes=shape.payload_bytes, has_ids=shape.has_ids)
        publish_block(url, block, count)
    for number in range(CONSUMERS if shape.pending else 0):
        _leave_pending(url, stream, f"pending{number}", shape.pending)


def _leave_pending(url: str, stream: str, consumer: str, count: int) -> None:
    with RawClient(url) as client:
        config = {
            "durable_name": consumer,
            "ack_policy": "explicit",
            "ack_wait": 3_600_000_000_000,
            "max_ack_pending": count,
        }
        subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{consumer}"
        client.request(subject, {"stream_name": stream, "config": config}, seconds=30)
        sock, inbox = client.socket, b"_INBOX." + consumer.encode()
        ask = json.dumps({"batch": count, "expires": int(PULL_SECONDS * 1e9)}).encode()
        next_ = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}".encode()
        sock.sendall(b"SUB %b 1\r\nPUB %b %b %d\r\n%b\r\n" % (inbox, next_, inbox, len(ask), ask))
        given, deadline = Counter(b" $JS.ACK."), time.monotonic() + PULL_SECONDS
        while given.total < count:
            if time.monotonic() > deadline:
                raise BenchError(f"consumer {consumer} was given {given.total} of {count} messages")
            given.feed(sock.recv(1 << 18))


@contextmanager
def starved(fleet: Fleet, shape: Shape) -> Iterator[None]:
    """While it lasts the brokers get the lowest share of processor time, if the shape says so."""
    if not shape.is_starved:
        yield
        return
    for broker in fleet.brokers:
        # Every thread has a niceness of its own; those that come later have that of the thread that began them.
        for task in Path(f"/proc/{broker.pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(task.name), NICE)
    loop = [sys.executable, "-S", "-c", "while True: pass"]
    loops = [
        subprocess.Popen(loop, preexec_fn=die_with_parent)  # noqa: PLW1509 - one prctl, prepared before the fork
        for _ in range(BUSY_LOOPS)
    ]
    try:
        yield
    finally:
        for process in loops:
            process.kill()
            process.wait()
