"""Publishers at once on a thread: plain, acknowledged, and repeated under a Nats-Msg-Id.

They keep one pace together, which does not depend on answers; what brokers do not take any more (back-pressure) waits in
a bounded buffer, and then nothing is offered until there is room: the rate that was reached says so. Plain and
acknowledged publishers have a broker that stays up (SF-2), and it is an error when it goes. The one that repeats
begins at a broker that may be killed, goes to the next one, and sends again whatever was not answered.
"""

from __future__ import annotations

import itertools
import json
import secrets
import select
import socket
import threading
import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.load import worst_gap_ms
from e2e.moves.ledger import MODES, PLAIN, REPEATED, Sent, payload

from supercluster.spark.client import Address, Credentials
from supercluster.spark.wire import WireParser

CONNECT_SECONDS = 5.0
BACK_SECONDS = 30.0
"""For so long a publisher that repeats looks for a broker that takes it."""
REPEAT_SECONDS = 1.0
WAITING_BYTES_MAX = 1 << 20
UNANSWERED_MAX = 20_000
"""What the publisher that repeats has open at most."""
BURST_SECONDS = 0.25
"""What was missed by more than this (a busy machine) is not made up for."""
TICK_SECONDS = 0.005
SETTLE_SECONDS = 60.0
READ_BYTES = 1 << 18


class PublisherError(Exception):
    """A publisher met what should not happen to it."""


def new_inbox() -> bytes:
    """A subject for answers that nobody else listens to; what is asked has its number behind it."""
    return b"_INBOX.%b." % secrets.token_hex(6).encode()


def dial(url: str, login: Credentials, inbox: bytes) -> socket.socket:
    """A connection after its handshake, which hears what comes to the inbox and does not block any more.

    Raises:
        OSError: there is none.
    """
    address = Address.parse(url)
    sock = socket.create_connection((address.host, address.port), CONNECT_SECONDS)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "e2e"}
        hello |= {"version": "1", "protocol": 1, **login.connect_fields()}
        sock.sendall(b"CONNECT %b\r\nSUB %b* 1\r\nPING\r\n" % (json.dumps(hello).encode(), inbox))
        seen = b""
        while b"PONG\r\n" not in seen:
            data = sock.recv(READ_BYTES)
            if not data or b"-ERR" in seen:
                raise ConnectionError(f"{url}: no handshake; it said {seen[-120:]!r}")
            seen += data
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


@dataclass(frozen=True, slots=True)
class Counts:
    """Messages of a publisher."""

    sent: int = 0
    answered: int = 0
    refused: int = 0

    def went_on_since(self, before: Counts) -> bool:
        """Was it served meanwhile: at least half of what it sent is answered, and nothing refused?"""
        sent, answered = self.sent - before.sent, self.answered - before.answered
        return self.refused == before.refused and 0 < sent <= 2 * answered


@dataclass(slots=True)
class Publisher:
    """One connection, and what it knows of its messages."""

    mode: int
    subject: bytes
    urls: Sequence[str]
    login: Credentials
    sock: socket.socket = field(init=False)
    sent: int = 0
    answered: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    resent: set[int] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    answer_times: array[float] = field(default_factory=lambda: array("d"))
    connections: int = 1
    pongs: int = 0
    _inbox: bytes = field(default_factory=new_inbox)
    """Its own: all publishers number from 1, and answers to one must not count for another."""
    _out: bytearray = field(default_factory=bytearray)
    _waiting: deque[tuple[float, int]] = field(default_factory=deque)
    _parser: WireParser = field(default_factory=WireParser)

    def __post_init__(self) -> None:
        self.sock = dial(self.urls[0], self.login, self._inbox)

    def _wire(self, number: int) -> bytes:
        body = payload(self.mode, number)
        if self.mode == PLAIN:
            return b"PUB %b %d\r\n%b\r\n" % (self.subject, len(body), body)
        if self.mode != REPEATED:
            return b"PUB %b %b%d %d\r\n%b\r\n" % (self.subject, self._inbox, number, len(body), body)
        header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number
        sizes = b"%d %d" % (len(header), len(header) + len(body))
        return b"HPUB %b %b%d %b\r\n%b%b\r\n" % (self.subject, self._inbox, number, sizes, header, body)

    @property
    def has_room(self) -> bool:
        return len(self._out) < WAITING_BYTES_MAX and len(self._waiting) < UNANSWERED_MAX

    @property
    def is_writing(self) -> bool:
        return bool(self._out)

    @property
    def is_answered(self) -> bool:
        return self.mode != REPEATED or len(self.answered) == self.sent

    def offer(self, count: int, now: float) -> None:
        numbers = range(self.sent + 1, self.sent + count + 1)
        self.sent += count
        if self.mode == REPEATED:
            self._waiting.extend((now, number) for number in numbers)
        self._out += b"".join(map(self._wire, numbers))

    def ping(self) -> None:
        self._out += b"PING\r\n"

    def repeat(self, now: float) -> None:
        """Send again what is unanswered for too long."""
        again = []
        while self._waiting and (now - self._waiting[0][0] > REPEAT_SECONDS or self._head_is_answered):
            _, number = self._waiting.popleft()
            if number not in self.answered:
                again.append(number)
                self._waiting.append((now, number))
        self._send_again(again)

    @property
    def _head_is_answered(self) -> bool:
        return self._waiting[0][1] in self.answered

    def _send_again(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.resent.add(number)
            self._out += self._wire(number)

    def write(self) -> None:
        try:
            while self._out:
                del self._out[: self.sock.send(bytes(self._out[:READ_BYTES]))]
        except BlockingIOError:
            pass
        except OSError as error:
            self._lost(str(error))

    def read(self) -> None:
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(str(error))
            return
        if not data:
            self._lost("closed by the broker")
            return
        self._take(data, time.monotonic())

    def _take(self, data: bytes, now: float) -> None:
        before = len(self.answered)
        for found in self._parser.feed(data):
            number, body = int(found[1].rpartition(b".")[2]), found[4]
            if not body or b'"error"' in body:
                self.refused.add(number)  # 503: nobody takes it at present. Who repeats tries again.
            else:
                self._note_answer(number, now)
        if len(self.answered) > before:
            self.answer_times.append(now)
        self.pongs += self._parser.pongs
        self.errors += self._parser.errors
        self._parser.errors.clear()
        if self._parser.pings:
            self._out += b"PONG\r\n" * self._parser.pings
        self._parser.pings = self._parser.pongs = 0

    def _note_answer(self, number: int, now: float) -> None:
        self.answered.add(number)

    def _lost(self, why: str) -> None:
        """Go to the next broker and send again what was not answered, in order.

        Raises:
            PublisherError: it does not repeat, so its broker was to stay up; or no broker takes it.
        """
        self.sock.close()
        if self.mode != REPEATED:
            raise PublisherError(f"the {MODES[self.mode]} publisher lost a broker that was to stay up: {why}")
        self._dial_again()
        self._send_unanswered()

    def _dial_again(self) -> None:
        """Connect to the first broker that takes it, the next one first.

        Raises:
            PublisherError: none does.
        """
        deadline = time.monotonic() + BACK_SECONDS
        for url in self._next_urls():
            try:
                self.sock = dial(url, self.login, self._inbox)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise PublisherError(
                        f"no broker takes the {MODES[self.mode]} publisher; {url}: {error}"
                    ) from None
                time.sleep(0.02)
        self.connections += 1
        self._parser = WireParser()
        self._out.clear()

    def _next_urls(self) -> Iterator[str]:
        """Without end."""
        yield from itertools.cycle([*self.urls[1:], self.urls[0]])

    def _send_unanswered(self) -> None:
        now = time.monotonic()
        left = sorted(number for _, number in self._waiting if number not in self.answered)
        self._waiting = deque((now, number) for number in left)
        self._send_again(left)

    def report(self) -> Sent:
        refused = frozenset(self.refused - self.answered if self.mode != REPEATED else ())
        return Sent(self.sent, refused, frozenset(self.resent), len(self.errors))


class Load(threading.Thread):
    """All publishers. `stop` returns when everything that has to be answered was; `error` is what went wrong."""

    def __init__(
        self,
        subject: str,
        urls: Mapping[int, Sequence[str]],
        rate: float,
        login: Credentials | None = None,
        make: type[Publisher] = Publisher,
    ) -> None:
        super().__init__(daemon=True, name="publishers")
        login = login or Credentials()
        self.rate = rate
        self.publishers = {mode: make(mode, subject.encode(), found, login) for mode, found in urls.items()}
        self.error: Exception | None = None
        self.started = self.ended = time.monotonic()
        self._stopping, self._abandoned = threading.Event(), threading.Event()

    @property
    def sent(self) -> int:
        return sum(publisher.sent for publisher in self.publishers.values())

    @property
    def answered(self) -> int:
        return sum(len(publisher.answered) for publisher in self.publishers.values())

    @property
    def progress(self) -> int:
        """Messages answered; where nobody is answered, messages sent."""
        return self.answered if set(self.publishers) != {PLAIN} else self.sent

    def counts(self) -> dict[int, Counts]:
        """Of each publisher that is answered, so far."""
        found = {mode: publisher for mode, publisher in self.publishers.items() if mode != PLAIN}
        return {mode: Counts(one.sent, len(one.answered), len(one.refused)) for mode, one in found.items()}

    @property
    def rate_reached(self) -> float:
        return self.sent / max(0.001, self.ended - self.started)

    def run(self) -> None:
        try:
            self.started = self.ended = due_at = time.monotonic()
            while not self._stopping.is_set():
                self.ended = now = time.monotonic()
                due_at = max(due_at, now - BURST_SECONDS)
                count = int((now - due_at) * self.rate) // len(self.publishers)
                if count and all(publisher.has_room for publisher in self.publishers.values()):
                    due_at += count * len(self.publishers) / self.rate
                    for publisher in self.publishers.values():
                        publisher.offer(count, now)
                self._turn()
            self._finish()
        except Exception as error:
            self.error = error
        finally:
            for publisher in self.publishers.values():
                publisher.sock.close()

    def _turn(self) -> None:
        now = time.monotonic()
        found = list(self.publishers.values())
        for publisher in found:
            if publisher.mode == REPEATED:
                publisher.repeat(now)
            if publisher.is_writing:
                publisher.write()
        by_socket = {publisher.sock: publisher for publisher in found}
        writing = [publisher.sock for publisher in found if publisher.is_writing]
        readable, _, _ = select.select(list(by_socket), writing, [], TICK_SECONDS)
        for sock in readable:
            by_socket[sock].read()

    def _finish(self) -> None:
        """Until everything that is repeated was answered, and the brokers have read every plain message."""
        deadline = time.monotonic() + SETTLE_SECONDS
        pinged = False
        while not self._abandoned.is_set():
            answered = all(publisher.is_answered for publisher in self.publishers.values())
            if answered and not pinged:
                pinged = True
                for publisher in self.publishers.values():
                    publisher.pongs = 0
                    publisher.ping()
            if pinged and all(publisher.pongs for publisher in self.publishers.values()):
                return
            if time.monotonic() > deadline:
                raise PublisherError(f"publishers wait in vain for {SETTLE_SECONDS:g} s: {self._open()}")
            self._turn()

    def _open(self) -> str:
        return ", ".join(
            f"{MODES[mode]}: {found.sent} sent, {len(found.answered)} answered, last PING {'' if found.pongs else 'not '}answered"
            for mode, found in self.publishers.items()
        )

    def stopping(self) -> None:
        """No more messages."""
        self._stopping.set()

    def stop(self) -> None:
        """No more messages; returns when the last ones are settled.

        Raises:
            PublisherError: they are not, or something went wrong before.
        """
        self._stopping.set()
        self.join(SETTLE_SECONDS + BACK_SECONDS)
        if self.error is not None:
            raise self.error
        if self.is_alive():
            raise PublisherError("the publishers do not end")

    def abandon(self) -> None:
        """End in any case; does nothing after `stop`."""
        self._abandoned.set()
        self._stopping.set()
        self.join(CONNECT_SECONDS)

    def reports(self) -> dict[int, Sent]:
        return {mode: publisher.report() for mode, publisher in self.publishers.items()}

    def longest_stall_ms(self, since: float) -> float:
        """The longest time without an answer to one of the publishers, from `since` until publishing ended; 0 where all
        are plain."""
        answered = (found.answer_times for mode, found in self.publishers.items() if mode != PLAIN)
        return worst_gap_ms(answered, since, self.ended)
