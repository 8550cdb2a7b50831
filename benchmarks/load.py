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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.client import BenchError, Block, RawClient, block_of

from supercluster.spark.client import Address, Credentials, Servers
from supercluster.spark.jetstream import JetStreamSession
from supercluster.spark.nats.reader import read_range
from supercluster.spark.wire import WireParser

PLAIN, ACKNOWLEDGED, REPEATED = 0, 1, 2
MODES = ("plain", "acknowledged, no retry", "Nats-Msg-Id with retry")
PRELOADED = 9
"""In the mode's place: what was in the stream before the publishers began."""
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


def inbox(mode: int) -> bytes:
    """Where answers go, with the message's number behind it: of each mode by itself, since both number from 1."""
    return b"_INBOX.t%d." % mode


def message(mode: int, number: int) -> bytes:
    """What goes over the wire for message `number` of a mode."""
    body = payload(mode, number)
    if mode == PLAIN:
        return b"PUB %b %d\r\n%b\r\n" % (SUBJECT, len(body), body)
    if mode == ACKNOWLEDGED:
        return b"PUB %b %b%d %d\r\n%b\r\n" % (SUBJECT, inbox(mode), number, len(body), body)
    header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number
    return b"HPUB %b %b%d %d %d\r\n%b%b\r\n" % (
        SUBJECT,
        inbox(mode),
        number,
        len(header),
        len(header) + len(body),
        header,
        body,
    )


def preloaded(
    count: int, *, first: int = 1, payload_bytes: int = PAYLOAD_BYTES, has_ids: bool = False
) -> Block:
    """What is in the stream beforehand, numbered like everything else: it may not be lost either."""
    messages = []
    for number in range(first, first + count):
        body = payload(PRELOADED, number).ljust(payload_bytes, b"x")
        header = b"NATS/1.0\r\nNats-Msg-Id: p%d\r\n\r\n" % number if has_ids else b""
        sizes = b"%d %d" % (len(header), len(header) + len(body)) if has_ids else b"%d" % len(body)
        verb = b"HPUB" if has_ids else b"PUB"
        messages.append(b"%b f.preload _INBOX.acks.all %b\r\n%b%b\r\n" % (verb, sizes, header, body))
    return block_of(messages)


def worst_gap_ms(answered: Iterable[Iterable[float]], since: float, until: float) -> float:
    """The longest time for which one of the publishers had no answer, by the times of each one's answers.

    Of each by itself: while the others are answered, a stall at one publisher's broker would not show in all together.
    """
    worst = 0.0
    for times in answered:
        edges = [since, *sorted({at for at in times if since <= at <= until}), until]
        worst = max(worst, *(after - before for before, after in itertools.pairwise(edges)))
    return 1000 * worst


@dataclass(slots=True)
class Stream:
    """One publisher: its connection, and what it knows of its messages."""

    mode: int
    client: RawClient
    sent: int = 0
    sent_at: array[float] = field(default_factory=lambda: array("d"))
    answered_at: dict[int, float] = field(default_factory=dict)
    waiting: deque[tuple[float, int]] = field(default_factory=deque)
    refused: set[int] = field(default_factory=set)
    parser: WireParser = field(default_factory=WireParser)

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
            number, body = int(found[1].rpartition(b".")[2]), found[4]
            if not body or b'"error"' in body:
                self.refused.add(number)  # 503: nobody takes it at present.
                continue
            self.answered_at.setdefault(number, now)
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
            stream.client.socket.sendall(b"SUB %b* 1\r\n" % inbox(stream.mode))
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
        """The longest time for which one of the publishers had no answer."""
        return worst_gap_ms((stream.answered_at.values() for stream in self._answered), since, until)

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
    """By mode, what was preloaded among them."""
    repeated: int
    out_of_order: int
    """Messages that stand behind a later one of their publisher's. One that was refused and then sent again is none; one
    that was only not answered is: its first sending was lost, or taken in another place."""


def audit(urls: Sequence[str], name: str, load: Load, preloads: int = 0) -> Ledger:
    """Read the whole stream and compare it with what was preloaded and what was sent."""
    session = JetStreamSession(
        Servers([Address.parse(url) for url in urls], Credentials()), patience_seconds=30
    )
    sent = {PRELOADED: preloads, **{mode: stream.sent for mode, stream in load.streams.items()}}
    found: dict[int, dict[int, int]] = {mode: {} for mode in sent}
    newest = dict.fromkeys(sent, 0)
    by_refusal = load.streams[REPEATED].refused if REPEATED in load.streams else set()
    out_of_order = 0
    wanted = sum(sent.values())
    deadline = time.monotonic() + SETTLE_SECONDS
    try:
        state = session.stream_state(name)
        grew_at = time.monotonic()
        while state.messages < wanted and time.monotonic() < min(deadline, grew_at + QUIET_SECONDS):
            time.sleep(0.2)
            before, state = state.messages, session.stream_state(name)
            grew_at = time.monotonic() if state.messages > before else grew_at
        for records in read_range(
            session, name, 1, state.last_sequence, patience_seconds=30, fail_on_data_loss=False
        ):
            for record in records:
                head = bytes(record[4][:HEAD_BYTES])
                mode, number = int(head[:1]), int(head[1:])
                times = found[mode][number] = found[mode].get(number, 0) + 1
                if times > 1 or (mode == REPEATED and number in by_refusal):
                    continue
                out_of_order += number < newest[mode]
                newest[mode] = max(newest[mode], number)
    finally:
        session.drop()
    return Ledger(
        lost={mode: count - len(found[mode]) for mode, count in sent.items()},
        repeated=sum(sum(by_number.values()) - len(by_number) for by_number in found.values()),
        out_of_order=out_of_order,
    )
