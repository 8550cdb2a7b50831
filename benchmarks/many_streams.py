"""How soon many streams take messages: one acknowledged message to each, repeated under a Nats-Msg-Id until it is stored."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

from benchmarks.client import BenchError, RawClient

from supercluster.spark.wire import WireParser

REPEAT_SECONDS = 1.0
SECONDS_MAX = 120.0
REFUSED_PAUSE_SECONDS = 0.1
"""Who is told that nobody takes it now asks again after this."""


def all_take(url: str, subject: Callable[[int], str], count: int, round_: str) -> list[float]:
    """Seconds until each of `count` streams has stored a message, in rising order.

    Raises:
        BenchError: one has not, in time.
    """
    with RawClient(url) as client:
        client.socket.sendall(b"SUB _INBOX.m.* 1\r\n")
        began = time.monotonic()
        due = dict.fromkeys(range(count), began)
        took: list[float] = []
        parser = WireParser()
        while due:
            now = time.monotonic()
            if now > began + SECONDS_MAX:
                raise BenchError(f"{len(due)} of {count} streams take no messages for {SECONDS_MAX:g} s")
            again = [number for number, at in due.items() if at <= now]
            if again:
                client.socket.sendall(b"".join(_message(subject(number), number, round_) for number in again))
                due.update(dict.fromkeys(again, now + REPEAT_SECONDS))
            if select.select([client.socket], [], [], 0.02)[0]:
                _read(client, parser, due, took, began)
        return took


def _message(subject: str, number: int, round_: str) -> bytes:
    header = f"NATS/1.0\r\nNats-Msg-Id: {round_}-{number}\r\n\r\n".encode()
    return b"HPUB %b _INBOX.m.%d %d %d\r\n%bx\r\n" % (
        subject.encode(),
        number,
        len(header),
        len(header) + 1,
        header,
    )


def _read(
    client: RawClient, parser: WireParser, due: dict[int, float], took: list[float], began: float
) -> None:
    data = client.socket.recv(1 << 18)
    if not data:
        raise BenchError("the broker that was to stay up closed the connection")
    now = time.monotonic()
    for found in parser.feed(data):
        number = int(found[1].rpartition(b".")[2])
        if number not in due:
            continue
        if not found[4] or b'"error"' in found[4]:
            due[number] = now + REFUSED_PAUSE_SECONDS
        else:
            del due[number]
            took.append(now - began)
    if parser.pings:
        client.socket.sendall(b"PONG\r\n" * parser.pings)
        parser.pings = 0
