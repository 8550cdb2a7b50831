"""What each thing that a client or a link makes a broker keep costs in memory: `docs/limits.md`.

A broker of its own for each row; its resident memory before and after, over the number of things. Sessions of a stream's
publishers are measured in this process: there is one for each broker.
"""

from __future__ import annotations

import json
import socket
import time
import tracemalloc
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack

import psutil
from benchmarks.client import (
    BenchError,
    Block,
    Counter,
    RawClient,
    block_of,
    make_stream,
    publish_block,
    wait_for_jetstream,
)
from benchmarks.course import Course
from benchmarks.servers import Fleet
from benchmarks.table import Row

from supercluster.broker.jetstream.encoding.sections import SessionKey, VerdictRun
from supercluster.broker.jetstream.state.publish_sessions import SessionState

SETTLE_S = 1.5
CONNECTIONS, SUBSCRIPTIONS, STREAMS, CONSUMERS = 2_000, 100_000, 300, 1_000
MESSAGES, PENDING, SESSIONS = 200_000, 100_000, 10_000
UNREAD_BYTES = 48 << 20
PIECE_BYTES = 64 << 10

Made = Callable[[Fleet, ExitStack], int]
"""Makes things that stay as long as the stack is open; returns how many."""


def costs(course: Course) -> list[Row]:
    """A row for each thing."""
    rows: list[Row] = []
    for number, (what, prepare, make) in enumerate(THINGS):
        row = Row(what, "bytes")
        for run in range(course.runs):
            for kind, fleet_type in course.fleets.items():
                name = f"{number}-{kind}-{run}"
                with fleet_type(course.directory / name, 1) as fleet, ExitStack() as stack:
                    wait_for_jetstream(fleet.urls[0])
                    if prepare is not None:
                        prepare(fleet, stack)
                    before = resident(fleet)
                    count = make(fleet, stack)
                    row.add(kind, (resident(fleet) - before) / count)
        rows.append(row)
    rows += [interest(course), link(course)]
    session = Row("session of a broker's publishers with a stream", "bytes")
    for _ in range(course.runs):
        session.add("supercluster", session_bytes())
    return [*rows, session]


def resident(fleet: Fleet) -> int:
    time.sleep(SETTLE_S)
    return int(psutil.Process(fleet.brokers[0].pid).memory_info().rss)


def connections(fleet: Fleet, stack: ExitStack) -> int:
    for _ in range(CONNECTIONS):
        stack.enter_context(RawClient(fleet.urls[0]))
    return CONNECTIONS


def subscribe(url: str, stack: ExitStack, subject: str) -> int:
    client = stack.enter_context(RawClient(url))
    lines = [f"SUB {subject.format(number)} {number}\r\n" for number in range(SUBSCRIPTIONS - 1)]
    client.socket.sendall("".join(lines).encode())
    client.request("$JS.API.INFO", seconds=60)
    return SUBSCRIPTIONS


def unread(fleet: Fleet, stack: ExitStack) -> int:
    slow = stack.enter_context(RawClient(fleet.urls[0]))
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.socket.sendall(b"SUB unread 1\r\n")
    publisher = stack.enter_context(RawClient(fleet.urls[0]))
    piece = b"PUB unread %d\r\n%b\r\n" % (PIECE_BYTES, bytes(PIECE_BYTES))
    for _ in range(UNREAD_BYTES // PIECE_BYTES):
        publisher.socket.sendall(piece)
    publisher.request("$JS.API.INFO", seconds=60)
    return UNREAD_BYTES


def streams(fleet: Fleet, stack: ExitStack) -> int:
    for number in range(STREAMS):
        make_stream(fleet.urls[0], f"S{number}", [f"s{number}.>"], 1)
    return STREAMS


def messages(fleet: Fleet, stack: ExitStack) -> int:
    return publish(fleet, lambda number: b"PUB b.x _INBOX.acks.all 128\r\n")


def subjects(fleet: Fleet, stack: ExitStack) -> int:
    return publish(fleet, lambda number: b"PUB b.%06d _INBOX.acks.all 128\r\n" % number)


def message_ids(fleet: Fleet, stack: ExitStack) -> int:
    header = b"NATS/1.0\r\nNats-Msg-Id: %016d\r\n\r\n"
    size = len(header % 0)
    return publish(
        fleet,
        lambda number: b"HPUB b.x _INBOX.acks.all %d %d\r\n%b" % (size, size + 128, header % number),
    )


def publish(fleet: Fleet, head: Callable[[int], bytes]) -> int:
    make_stream(fleet.urls[0], "B", ["b.>"], 1)
    block: Block = block_of([head(number) + bytes(128) + b"\r\n" for number in range(MESSAGES)])
    publish_block(fleet.urls[0], block, MESSAGES)
    return MESSAGES


def consumers(fleet: Fleet, stack: ExitStack) -> int:
    make_stream(fleet.urls[0], "B", ["b.>"], 1)
    client = stack.enter_context(RawClient(fleet.urls[0]))
    for number in range(CONSUMERS):
        make_consumer(client, f"c{number}")
    return CONSUMERS


def make_consumer(client: RawClient, name: str) -> None:
    config = {
        "durable_name": name,
        "ack_policy": "explicit",
        "max_ack_pending": PENDING,
        "ack_wait": 3600 * 10**9,
    }
    client.request(f"$JS.API.CONSUMER.CREATE.B.{name}", {"stream_name": "B", "config": config})


def pending(fleet: Fleet, stack: ExitStack) -> int:
    client = stack.enter_context(RawClient(fleet.urls[0]))
    make_consumer(client, "c")
    client.socket.sendall(b"SUB _INBOX.pull 1\r\n")
    body = json.dumps({"batch": 1000, "expires": 30 * 10**9}).encode()
    got = Counter(b" $JS.ACK.")
    for asked in range(1000, PENDING + 1, 1000):
        client.socket.sendall(
            b"PUB $JS.API.CONSUMER.MSG.NEXT.B.c _INBOX.pull %d\r\n%b\r\n" % (len(body), body)
        )
        while got.total < asked:
            data = client.socket.recv(1 << 18)
            if not data:
                raise BenchError(f"the server closed the connection after {got.total} messages")
            got.feed(data)
    return PENDING


def interest(course: Course) -> Row:
    """What a broker keeps of the subscriptions at another one."""
    row = Row("subject that clients of another broker subscribe to", "bytes")
    for run in range(course.runs):
        for kind, fleet_type in course.fleets.items():
            with fleet_type(course.directory / f"interest-{kind}-{run}", 3) as fleet, ExitStack() as stack:
                wait_for_jetstream(fleet.urls[0])
                before = resident(fleet)
                count = subscribe(fleet.urls[1], stack, "s.{}")
                row.add(kind, (resident(fleet) - before) / count)
    return row


def link(course: Course) -> Row:
    """Idle brokers of three and alone: two links, and the map's replication."""
    row = Row("link, idle", "KiB")
    for run in range(course.runs):
        for kind, fleet_type in course.fleets.items():
            found = []
            for size in (1, 3):
                with fleet_type(course.directory / f"link-{kind}-{run}-{size}", size) as fleet:
                    wait_for_jetstream(fleet.urls[0])
                    found.append(resident(fleet))
            row.add(kind, (found[1] - found[0]) / 2 / 1024)
    return row


def session_bytes() -> float:
    """Of one with a window of verdicts that were not confirmed yet."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept: deque[SessionState] = deque()
    for number in range(SESSIONS):
        state = SessionState(SessionKey(f"east-{number}", f"{number:032x}", number))
        state.record(VerdictRun(1, 100, number), 0)
        kept.append(state)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / len(kept)


THINGS: tuple[tuple[str, Made | None, Made], ...] = (
    ("connection, idle", None, connections),
    (
        "subscription, each to a subject of its own",
        None,
        lambda fleet, stack: subscribe(fleet.urls[0], stack, "s.{}"),
    ),
    ("subscription, all to one subject", None, lambda fleet, stack: subscribe(fleet.urls[0], stack, "s")),
    ("byte that a client has not taken", None, unread),
    ("stream, R1 file, empty", None, streams),
    ("message of 128 B, all on one subject", None, messages),
    ("message of 128 B, each on a subject of its own", None, subjects),
    ("message of 128 B, each with a message id", None, message_ids),
    ("consumer, durable, idle", None, consumers),
    ("pending message of a consumer", messages, pending),
)
