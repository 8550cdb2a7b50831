"""A raw-socket client that costs as little as it can, so that a server's figures are not the client's.

One thread, one blocking socket, no object per message: messages to publish are one prepared block of bytes, answers are
counted by a pattern that each has exactly once. What is counted is checked: an error among the answers fails the run.
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self
from urllib.parse import urlsplit

READ_BYTES = 1 << 18
BUFFER_BYTES = 4 << 20
ANSWER_SECONDS = 10.0
BLOCK_MESSAGES = 5_000
STALLED_SECONDS = 60.0
"""A socket that is silent for so long fails the run."""
CONNECT = {
    "verbose": False,
    "pedantic": False,
    "headers": True,
    "no_responders": True,
    "lang": "bench",
    "version": "1",
    "protocol": 1,
}


class BenchError(Exception):
    """A run that measured something else than it should have."""


class Counter:
    """Counts a pattern in chunks of bytes, also where a chunk's end cuts it in two."""

    __slots__ = ("_keep", "_pattern", "_tail", "total")

    def __init__(self, pattern: bytes) -> None:
        self._pattern = pattern
        self._keep = len(pattern) - 1
        self._tail = b""
        self.total = 0

    def feed(self, data: bytes) -> None:
        joined = self._tail + data
        self.total += joined.count(self._pattern)
        # Shorter than the pattern, so that nothing is counted twice.
        self._tail = joined[-self._keep :] if self._keep else b""


class RawClient:
    """A connection with requests for setting up, and its socket for measuring."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self.socket = socket.create_connection(
            (address.hostname or "127.0.0.1", address.port or 4222), timeout=STALLED_SECONDS
        )
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self.socket.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        self._requests = 0
        self._read_until(b"\r\n")
        self.socket.sendall(b"CONNECT %b\r\nPING\r\n" % json.dumps(CONNECT).encode())
        self._read_until(b"PONG\r\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _read_until(self, end: bytes) -> bytes:
        data = b""
        while end not in data:
            chunk = self.socket.recv(READ_BYTES)
            if not chunk:
                raise BenchError(f"the server closed the connection; it sent {data[-200:]!r}")
            data += chunk
        return data

    def request(
        self, subject: str, body: dict[str, Any] | None = None, *, seconds: float = ANSWER_SECONDS
    ) -> dict[str, Any]:
        """One request on a quiet connection; its JSON answer.

        Raises:
            BenchError: an error, or no answer in time.
        """
        answer = self.try_request(subject, body, seconds=seconds)
        if answer is None:
            raise BenchError(f"{subject}: no answer within {seconds:g} s")
        if answer.get("error"):
            raise BenchError(f"{subject}: {answer['error']}")
        return answer

    def try_request(
        self, subject: str, body: dict[str, Any] | None = None, *, seconds: float = ANSWER_SECONDS
    ) -> dict[str, Any] | None:
        """The same, with errors in the answer left to the caller; None when there is none, or nobody listens."""
        self._requests += 1
        inbox, sid = f"_INBOX.bench.{id(self)}.{self._requests}".encode(), b"r%d" % self._requests
        payload = json.dumps(body).encode() if body else b""
        self.socket.sendall(
            b"SUB %b %b\r\nUNSUB %b 1\r\nPUB %b %b %d\r\n%b\r\n"
            % (inbox, sid, sid, subject.encode(), inbox, len(payload), payload)
        )
        self.socket.settimeout(seconds)
        try:
            data = b""
            head = b"MSG %b %b " % (inbox, sid)
            while True:
                start = data.find(head)
                if start >= 0:
                    end = data.find(b"\r\n", start)
                    if end >= 0:
                        sizes = data[start + len(head) : end].split()
                        size = int(sizes[-1])
                        if len(data) >= end + 4 + size:
                            if data[start - 1 : start] == b"H":
                                return None
                            parsed: dict[str, Any] = json.loads(data[end + 2 : end + 2 + size])
                            return parsed
                chunk = self.socket.recv(READ_BYTES)
                if not chunk:
                    raise BenchError(f"the server closed the connection during {subject}")
                data += chunk
        except TimeoutError:
            return None
        finally:
            self.socket.settimeout(STALLED_SECONDS)


def wait_for_jetstream(url: str, seconds: float = 60.0) -> None:
    """Until the API answers without an error: a cluster has its meta leader then.

    Raises:
        BenchError: it does not.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with RawClient(url) as client:
            answer = client.try_request("$JS.API.INFO", seconds=1.0)
            if answer is not None and not answer.get("error"):
                return
        time.sleep(0.1)
    raise BenchError(f"{url}: JetStream does not answer for {seconds:g} s")


def stream_config(name: str, subjects: list[str], replicas: int, storage: str = "file") -> dict[str, Any]:
    """A stream without limits, for either server."""
    return {
        "name": name,
        "subjects": subjects,
        "retention": "limits",
        "storage": storage,
        "num_replicas": replicas,
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "discard": "old",
        "duplicate_window": 120_000_000_000,
    }


def make_stream(
    url: str, name: str, subjects: list[str], replicas: int, *, storage: str = "file", seconds: float = 60.0
) -> None:
    """Create a stream, as soon as the servers are ready for that.

    Raises:
        BenchError: they are not, in time.
    """
    config = stream_config(name, subjects, replicas, storage)
    deadline = time.monotonic() + seconds
    said: object = "nothing"
    with RawClient(url) as client:
        while time.monotonic() < deadline:
            answer = client.try_request(f"$JS.API.STREAM.CREATE.{name}", config, seconds=5.0)
            if answer is not None and not answer.get("error"):
                return
            said = answer
            time.sleep(0.2)
    raise BenchError(f"stream {name} with {replicas} replicas could not be created; last answer: {said}")


def leader_of(url: str, stream: str, seconds: float = 30.0, answer_seconds: float = 1.0) -> str:
    """The name of the broker that leads the stream.

    Raises:
        BenchError: there is none in time.
    """
    deadline = time.monotonic() + seconds
    with RawClient(url) as client:
        while time.monotonic() < deadline:
            answer = client.try_request(f"$JS.API.STREAM.INFO.{stream}", seconds=answer_seconds) or {}
            leader = (answer.get("cluster") or {}).get("leader")
            if leader:
                return str(leader)
            time.sleep(0.1)
    raise BenchError(f"stream {stream} has no leader for {seconds:g} s")


@dataclass(frozen=True, slots=True)
class Block:
    """Messages prepared as one piece of bytes, of which any run can be sent without touching a message."""

    data: memoryview
    ends: tuple[int, ...]
    """Where each message ends; ends[0] is 0."""

    def __len__(self) -> int:
        return len(self.ends) - 1

    def slice(self, first: int, count: int) -> memoryview:
        """Messages first … first + count - 1, or as many of them as there are before the block's end."""
        last = min(first + count, len(self))
        return self.data[self.ends[first] : self.ends[last]]


def block_of(messages: Sequence[bytes]) -> Block:
    return Block(memoryview(b"".join(messages)), (0, *accumulate(len(message) for message in messages)))


def equal_messages(subject: str, inbox: str, payload_bytes: int, count: int) -> Block:
    """All alike: what a client that only counts its acknowledgements sends."""
    message = f"PUB {subject} {inbox} {payload_bytes}\r\n".encode() + b"x" * payload_bytes + b"\r\n"
    return block_of([message] * count)


def distinct_messages(
    subject: str, inbox: str, payload_bytes: int, count: int, *, subjects: int = 64
) -> Block:
    """Each with a reply subject and a payload of its own, on several subjects: what a NATS library sends."""
    randomness = random.Random(7)
    return block_of(
        [
            f"PUB {subject}.{number % subjects} {inbox}.{number:08x} {payload_bytes}\r\n".encode()
            + randomness.randbytes(payload_bytes)
            + b"\r\n"
            for number in range(count)
        ]
    )


def publish_acknowledged(
    url: str,
    subject: str,
    count: int,
    *,
    payload_bytes: int = 128,
    in_flight: int = 1_000,
    distinct: bool = False,
) -> float:
    """Publish `count` messages with at most `in_flight` unanswered; messages per second.

    Raises:
        BenchError: one was refused, or answers stopped.
    """
    make = distinct_messages if distinct else equal_messages
    block = make(subject, "_INBOX.acks" if distinct else "_INBOX.acks.all", payload_bytes, BLOCK_MESSAGES)
    return publish_block(url, block, count, in_flight=in_flight)


def publish_block(url: str, block: Block, count: int, *, in_flight: int = 1_000) -> float:
    """The same with prepared messages, over and over; their reply subjects are `_INBOX.acks.…`.

    Raises:
        BenchError: one was refused, or answers stopped.
    """
    with RawClient(url) as client:
        sock = client.socket
        sock.sendall(b"SUB _INBOX.acks.* 1\r\n")
        answers, errors = Counter(b'"seq":'), Counter(b'"error"')
        sent = 0
        started = time.perf_counter()
        while answers.total < count:
            room = min(in_flight - (sent - answers.total), count - sent)
            while room > 0:
                first = sent % len(block)
                now = min(room, len(block) - first)
                sock.sendall(block.slice(first, now))
                sent += now
                room -= now
            data = _receive(sock, f"{answers.total} of {count} publishes answered")
            answers.feed(data)
            errors.feed(data)
            if errors.total:
                raise BenchError(f"a publish was refused: {data[-300:]!r}")
        return count / (time.perf_counter() - started)


def pull(url: str, stream: str, count: int, *, batch: int = 1_000, requests_ahead: int = 2) -> float:
    """Read `count` messages with an ephemeral pull consumer without acknowledgements; messages per second.

    Raises:
        BenchError: messages stopped, or more came than were asked for.
    """
    with RawClient(url) as client:
        consumer = "bench"
        config = {
            "name": consumer,
            "deliver_policy": "all",
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": 60_000_000_000,
            "num_replicas": 1,
            "max_deliver": -1,
        }
        client.request(
            f"$JS.API.CONSUMER.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": config}
        )
        sock = client.socket
        inbox = b"_INBOX.pull"
        sock.sendall(b"SUB %b 1\r\n" % inbox)
        ask_body = json.dumps({"batch": batch, "expires": 30_000_000_000}).encode()
        ask = b"PUB $JS.API.CONSUMER.MSG.NEXT.%b.%b %b %d\r\n%b\r\n" % (
            stream.encode(),
            consumer.encode(),
            inbox,
            len(ask_body),
            ask_body,
        )
        messages = Counter(b" $JS.ACK.")
        asked = 0
        started = time.perf_counter()
        while messages.total < count:
            while asked < count and asked - messages.total <= batch * (requests_ahead - 1):
                sock.sendall(ask)
                asked += batch
            messages.feed(_receive(sock, f"{messages.total} of {count} messages delivered"))
        seconds = time.perf_counter() - started
        if messages.total > asked:
            raise BenchError(f"{messages.total} messages were delivered, {asked} were asked for")
        return count / seconds


def _receive(sock: socket.socket, so_far: str) -> bytes:
    try:
        data = sock.recv(READ_BYTES)
    except TimeoutError:
        raise BenchError(f"the server is silent for {STALLED_SECONDS:g} s, with {so_far}") from None
    if not data:
        raise BenchError(f"the server closed the connection, with {so_far}")
    return data
