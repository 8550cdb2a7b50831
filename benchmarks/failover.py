"""The leader is killed with 3,500 messages a second coming in: the stall, and what was lost or repeated.

Half of the messages are plain and half are acknowledged under a Nats-Msg-Id, all through brokers that stay up. One thread
keeps the pace, so that the offered load does not depend on the answers.
"""

from __future__ import annotations

import json
import select
import time
from collections import deque
from dataclasses import dataclass, field

from benchmarks.client import BenchError, RawClient, leader_of, make_stream, wait_for_jetstream
from benchmarks.course import Course
from benchmarks.servers import Fleet
from benchmarks.table import Row, Target

from supercluster.spark.client import Address, Credentials, Servers
from supercluster.spark.jetstream import Session
from supercluster.spark.reader import read_range
from supercluster.spark.wire import MessageParser

RATE = 3_500
BEFORE_SECONDS, AFTER_SECONDS = 4.0, 10.0
TICK_SECONDS = 0.01
REPEAT_SECONDS = 1.0
SETTLE_SECONDS = 30.0
QUIET_SECONDS = 5.0
"""A stream that has not grown for so long will not get what is wanting."""
PAYLOAD_BYTES = 128


@dataclass(slots=True)
class Load:
    """What was sent and answered."""

    acknowledged: RawClient
    plain: RawClient
    sent: int = 0
    answered: set[int] = field(default_factory=set)
    waiting: deque[tuple[float, int]] = field(default_factory=deque)
    stall_seconds: float = 0.0
    last_answer: float = 0.0
    parser: MessageParser = field(default_factory=MessageParser)
    plain_errors: bytes = b""
    plain_pongs: int = 0

    def offer(self, count: int, now: float) -> None:
        """Send the next `count` messages: odd ones plain, even ones to be answered."""
        plain, acknowledged = [], []
        for number in range(self.sent + 1, self.sent + count + 1):
            if number % 2:
                plain.append(b"PUB f.x %d\r\n%b\r\n" % (PAYLOAD_BYTES, payload(number)))
            else:
                acknowledged.append(with_id(number))
                self.waiting.append((now, number))
        self.sent += count
        self.plain.socket.sendall(b"".join(plain))
        self.acknowledged.socket.sendall(b"".join(acknowledged))

    def repeat(self, now: float) -> None:
        """Send again what is unanswered for too long."""
        again = []
        while self.waiting and now - self.waiting[0][0] > REPEAT_SECONDS:
            _, number = self.waiting.popleft()
            if number not in self.answered:
                again.append(with_id(number))
                self.waiting.append((now, number))
        if again:
            self.acknowledged.socket.sendall(b"".join(again))

    def listen(self, seconds: float) -> None:
        readable, _, _ = select.select([self.acknowledged.socket, self.plain.socket], [], [], seconds)
        if self.plain.socket in readable:
            self._drain_plain()
        if self.acknowledged.socket not in readable:
            return
        now = time.monotonic()
        for message in self.parser.feed(self.acknowledged.socket.recv(1 << 18)):
            if not message[4]:
                continue  # 503: nobody takes it at present, so it is repeated
            answer = json.loads(message[4])
            if "error" in answer:
                continue
            self.answered.add(int(message[1].rpartition(b".")[2]))
            self.stall_seconds = max(self.stall_seconds, now - self.last_answer)
            self.last_answer = now
        if self.parser.pings:
            self.acknowledged.socket.sendall(b"PONG\r\n" * self.parser.pings)
            self.parser.pings = 0

    def _drain_plain(self) -> None:
        data = self.plain.socket.recv(1 << 16)
        if not data:
            raise BenchError("the broker that was to stay up closed the plain publisher's connection")
        if b"PING\r\n" in data:
            self.plain.socket.sendall(b"PONG\r\n")
        self.plain_pongs += data.count(b"PONG\r\n")
        if b"-ERR" in data:
            self.plain_errors += data

    def finish(self, deadline: float) -> None:
        """Make sure that the broker has read every plain message: what it has not read, nobody promised to keep."""
        self.plain.socket.sendall(b"PING\r\n")
        before = self.plain_pongs
        while self.plain_pongs == before:
            if time.monotonic() > deadline:
                raise BenchError("the plain publisher's broker does not answer its last PING")
            self.listen(TICK_SECONDS)

    @property
    def is_answered(self) -> bool:
        return len(self.answered) == self.sent // 2


def payload(number: int) -> bytes:
    return b"%012d" % number + b"x" * (PAYLOAD_BYTES - 12)


def with_id(number: int) -> bytes:
    header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number
    body = header + payload(number)
    return b"HPUB f.x _INBOX.f.%d %d %d\r\n%b\r\n" % (number, len(header), len(body), body)


def run_once(fleet: Fleet) -> tuple[float, int, int]:
    """(longest stall in seconds, messages lost, messages repeated)."""
    wait_for_jetstream(fleet.urls[0])
    make_stream(fleet.urls[0], "F", ["f.>"], 3)
    leader = leader_of(fleet.urls[0], "F")
    staying = fleet.others(leader)
    with RawClient(staying[0].url) as acknowledged, RawClient(staying[1].url) as plain:
        acknowledged.socket.sendall(b"SUB _INBOX.f.* 1\r\n")
        load = Load(acknowledged, plain)
        started = load.last_answer = time.monotonic()
        killed = False
        end = started + BEFORE_SECONDS + AFTER_SECONDS
        while (now := time.monotonic()) < end:
            due = int((now - started) * RATE) - load.sent
            if due > 0:
                load.offer(due, now)
            load.repeat(now)
            load.listen(TICK_SECONDS)
            if not killed and now - started > BEFORE_SECONDS:
                fleet.by_name(leader).kill()
                killed = True
        deadline = time.monotonic() + SETTLE_SECONDS
        while not load.is_answered and time.monotonic() < deadline:
            load.repeat(time.monotonic())
            load.listen(TICK_SECONDS)
        load.finish(deadline)
    return load.stall_seconds, *count(fleet, leader, load)


def count(fleet: Fleet, killed: str, load: Load) -> tuple[int, int]:
    """(lost, repeated) of everything that was sent, read from the stream itself."""
    addresses = [Address.parse(broker.url) for broker in fleet.others(killed)]
    session = Session(Servers(addresses, Credentials()), patience_seconds=30)
    found: dict[int, int] = {}
    deadline = time.monotonic() + SETTLE_SECONDS
    try:
        state = session.stream_state("F")
        grew_at = time.monotonic()
        while state.messages < load.sent and time.monotonic() < min(deadline, grew_at + QUIET_SECONDS):
            time.sleep(0.2)
            before, state = state.messages, session.stream_state("F")
            grew_at = time.monotonic() if state.messages > before else grew_at
        for records in read_range(session, "F", 1, state.last_sequence, patience_seconds=30):
            for record in records:
                number = int(record[4][:12])
                found[number] = found.get(number, 0) + 1
    finally:
        session.drop()
    return load.sent - len(found), sum(found.values()) - len(found)


def failover(course: Course) -> list[Row]:
    stall = Row(
        "leader killed under 3,500 msg/s: longest time without an answer", "s", Target(1.5, at_least=False)
    )
    lost = Row("the same: messages lost", "messages", Target(0, at_least=False), by_worst=True)
    repeated = Row("the same: messages repeated", "messages", Target(0, at_least=False), by_worst=True)
    for run in range(course.runs):
        for kind, fleet_type in course.fleets.items():
            with fleet_type(course.directory / f"{kind}-{run}", 3) as fleet:
                figures = run_once(fleet)
                for row, value in zip((stall, lost, repeated), figures, strict=True):
                    row.add(kind, value)
    lost.note = (
        "half plain, half acknowledged and repeated, all through brokers that stay up; the worst run counts"
    )
    return [stall, lost, repeated]
