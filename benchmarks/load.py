"""Publishers at once on one thread: plain, acknowledged without a retry, and repeated under a Nats-Msg-Id.

Together they keep one pace, which does not depend on the answers, so that an event hits all alike. Every message says
who sent it and its number there: the stream itself tells afterwards what was lost, repeated or out of order.
"""

from __future__ import annotations

import itertools
import select
import time
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.client import BenchError, RawClient

from supercluster.spark.client import Address, Credentials, Servers
from supercluster.spark.jetstream import Session
from supercluster.spark.reader import read_range
from supercluster.spark.wire import MessageParser

PLAIN, ACKNOWLEDGED, REPEATED = 0, 1, 2
MODES = ("plain", "acknowledged, no retry", "Nats-Msg-Id with retry")
SUBJECT = b"f.x"
PAYLOAD_BYTES = 128
HEAD_BYTES = 13
"""One digit of the mode and twelve of the number."""
REPEAT_SECONDS = 1.0
SETTLE_SECONDS = 30.0
QUIET_SECONDS = 5.0
"""A stream that has not grown for so long will not get what is wanting."""


def payload(mode: int, number: int) -> bytes:
    return b"%d%012d" % (mode, number) + b"x" * (PAYLOAD_BYTES - HEAD_BYTES)


def message(mode: int, number: int) -> bytes:
    """What goes over the wire for message `number` of a mode."""
    body = payload(mode, number)
    if mode == PLAIN:
        return b"PUB %b %d\r\n%b\r\n" % (SUBJECT, len(body), body)
    if mode == ACKNOWLEDGED:
        return b"PUB %b _INBOX.t.%d %d\r\n%b\r\n" % (SUBJECT, number, len(body), body)
    header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number
    return b"HPUB %b _INBOX.t.%d %d %d\r\n%b%b\r\n" % (
        SUBJECT,
        number,
        len(header),
        len(header) + len(body),
        header,
        body,
    )


@dataclass(slots=True)
class Stream:
    """One publisher: its connection, and what it knows of its messages."""

    mode: int
    client: RawClient
    sent: int = 0
    sent_at: array[float] = field(default_factory=lambda: array("d"))
    answered_at: dict[int, float] = field(default_factory=dict)
    waiting: deque[tuple[float, int]] = field(default_factory=deque)
    refused: int = 0
    parser: MessageParser = field(default_factory=MessageParser)

    def offer(self, count: int, now: float) -> None:
        first = self.sent + 1
        self.sent += count
        self.sent_at.extend([now] * count)
        if self.mode == REPEATED:
            self.waiting.extend((now, number) for number in range(first, first + count))
        self.client.socket.sendall(
            b"".join(message(self.mode, number) for number in range(first, first + count))
        )

    def repeat(self, now: float) -> None:
        """Send again what is unanswered for too long."""
        again = []
        while self.waiting and now - self.waiting[0][0] > REPEAT_SECONDS:
            _, number = self.waiting.popleft()
            if number not in self.answered_at:
                again.append(message(self.mode, number))
                self.waiting.append((now, number))
        if again:
            self.client.socket.sendall(b"".join(again))

    def read(self) -> None:
        data = self.client.socket.recv(1 << 18)
        if not data:
            raise BenchError(f"the broker that was to stay up closed the connection: {MODES[self.mode]}")
        now = time.monotonic()
        for found in self.parser.feed(data):
            body = found[4]
            if not body or b'"error"' in body:
                self.refused += 1  # 503: nobody takes it at present.
                continue
            self.answered_at.setdefault(int(found[1].rpartition(b".")[2]), now)
        if self.parser.pings:
            self.client.socket.sendall(b"PONG\r\n" * self.parser.pings)
            self.parser.pings = 0

    @property
    def is_answered(self) -> bool:
        return self.mode != REPEATED or len(self.answered_at) == self.sent


class Load:
    """The publishers."""

    def __init__(self, urls: Mapping[int, str], rate: float) -> None:
        """`urls`: mode → a broker that stays up; `rate`: messages a second, all together."""
        self.rate = rate
        self.streams = {mode: Stream(mode, RawClient(url)) for mode, url in urls.items()}
        self._answered = [stream for mode, stream in self.streams.items() if mode != PLAIN]
        for stream in self._answered:
            stream.client.socket.sendall(b"SUB _INBOX.t.* 1\r\n")
        self.started = time.monotonic()
        self._offered = 0

    @property
    def sent(self) -> int:
        return sum(stream.sent for stream in self.streams.values())

    def close(self) -> None:
        for stream in self.streams.values():
            stream.client.socket.close()

    def step(self, wait_seconds: float) -> float:
        """Send what is due, take what has come; the time now."""
        now = time.monotonic()
        due = (int((now - self.started) * self.rate) - self._offered) // len(self.streams)
        if due > 0:
            self._offered += due * len(self.streams)
            for stream in self.streams.values():
                stream.offer(due, now)
        self._repeat(now)
        self._listen(wait_seconds)
        return now

    def _repeat(self, now: float) -> None:
        if REPEATED in self.streams:
            self.streams[REPEATED].repeat(now)

    def _listen(self, wait_seconds: float) -> None:
        by_socket = {stream.client.socket: stream for stream in self.streams.values()}
        readable, _, _ = select.select(list(by_socket), [], [], wait_seconds)
        for sock in readable:
            by_socket[sock].read()

    def finish(self) -> None:
        """Until everything that is repeated was answered, and the brokers have read every plain message."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline and not all(s.is_answered for s in self.streams.values()):
            self._repeat(time.monotonic())
            self._listen(0.01)
        for stream in self.streams.values():
            before = stream.parser.pongs
            stream.client.socket.sendall(b"PING\r\n")
            while stream.parser.pongs == before:
                if time.monotonic() > deadline + SETTLE_SECONDS:
                    raise BenchError(f"the last PING is not answered: {MODES[stream.mode]}")
                self._listen(0.01)

    # ---- what the answers tell ------------------------------------------------------------------------------------

    def longest_gap_ms(self, since: float, until: float) -> float:
        """The longest time without any answer."""
        times = sorted(
            {at for stream in self._answered for at in stream.answered_at.values() if since <= at <= until}
        )
        edges = [since, *times, until]
        return 1000 * max(after - before for before, after in itertools.pairwise(edges))

    def latencies_ms(self, since: float, until: float) -> Iterator[tuple[float, float]]:
        """(when it was sent, ms until its answer) of the acknowledged messages sent in that time."""
        for stream in self._answered:
            for number, answered in stream.answered_at.items():
                sent = stream.sent_at[number - 1]
                if since <= sent <= until:
                    yield sent, 1000 * (answered - sent)


@dataclass(frozen=True, slots=True)
class Ledger:
    """What became of the messages."""

    lost: Mapping[int, int]
    """By mode."""
    repeated: int
    out_of_order: int
    """Messages of the modes without a retry that stand behind a later one."""


def audit(urls: Sequence[str], name: str, load: Load, preloaded: int = 0) -> Ledger:
    """Read the whole stream behind the first `preloaded` messages and compare it with what was sent."""
    session = Session(Servers([Address.parse(url) for url in urls], Credentials()), patience_seconds=30)
    found: dict[int, dict[int, int]] = {mode: {} for mode in load.streams}
    newest = dict.fromkeys(load.streams, 0)
    out_of_order = 0
    wanted = preloaded + load.sent
    deadline = time.monotonic() + SETTLE_SECONDS
    try:
        state = session.stream_state(name)
        grew_at = time.monotonic()
        while state.messages < wanted and time.monotonic() < min(deadline, grew_at + QUIET_SECONDS):
            time.sleep(0.2)
            before, state = state.messages, session.stream_state(name)
            grew_at = time.monotonic() if state.messages > before else grew_at
        for records in read_range(session, name, preloaded + 1, state.last_sequence, patience_seconds=30):
            for record in records:
                head = bytes(record[4][:HEAD_BYTES])
                mode, number = int(head[:1]), int(head[1:])
                found[mode][number] = found[mode].get(number, 0) + 1
                out_of_order += number < newest[mode] and mode != REPEATED
                newest[mode] = max(newest[mode], number)
    finally:
        session.drop()
    return Ledger(
        lost={mode: stream.sent - len(found[mode]) for mode, stream in load.streams.items()},
        repeated=sum(sum(by_number.values()) - len(by_number) for by_number in found.values()),
        out_of_order=out_of_order,
    )
