"""The two publishers of the demo, both with nats-py.

`PlainPublisher` sends and never asks; it keeps one connection to a broker that stays up. `AcknowledgedPublisher` sends
through the stream's leader with a Nats-Msg-Id and a bounded number in flight, and sends again what stays unanswered.
Both measure their longest stall.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
from e2e.demo.flights import Flight
from nats.aio.client import Client
from nats.aio.msg import Msg

FLUSH_EVERY = 200
"""Plain messages between two PINGs: the publisher's pace is then the broker's."""
FLUSH_SECONDS = 60
IN_FLIGHT_MAX = 1_000
UNANSWERED_SECONDS = 2.0
REPEAT_CHECK_SECONDS = 0.25
DRAIN_SECONDS = 60.0


class PublishError(Exception):
    """A publisher cannot keep its promise."""


@dataclass(frozen=True, slots=True)
class Login:
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: Path | None = None
    """The authorities of the brokers' certificates; None: clients connect in plain."""
    tls_name: str = ""
    """The name in the certificates."""
    begins: bool = False
    """It begins with the handshake, as nats-py has to where TLS is not required. A busy loop may begin too late."""

    @property
    def scheme(self) -> str:
        """Of URLs."""
        return "nats" if self.ca_file is None else "tls"

    def options(self) -> dict[str, Any]:
        """For nats.connect."""
        found: dict[str, Any] = {"user": self.user, "password": self.password} if self.user else {}
        if self.ca_file is not None:
            context = ssl.create_default_context(cafile=self.ca_file)
            found |= {"tls": context, "tls_hostname": self.tls_name, "tls_handshake_first": self.begins}
        return found


@dataclass(slots=True)
class PlainPublisher:
    """Publishes without acknowledgement over a connection that must not break."""

    login: Login
    sent: int = 0
    stall_seconds: float = 0.0
    errors: list[str] = field(default_factory=list)
    connection_starts: list[int] = field(default_factory=list)
    """The number of the last flight before each move to another connection, plus one."""
    _client: Client | None = None
    _broken: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    """Of the broker that it is connected to."""
    _wanted_url: str = ""
    _shows_former: bool = False
    """Its connection was made with another login than `login`."""

    async def connect(self, url: str) -> None:
        async def note(error: Exception) -> None:
            self.errors.append(f"{url}: {error or type(error).__name__}")

        async def broke() -> None:
            self._broken.set()

        self._client = await nats.connect(
            url,
            name="demo-plain",
            allow_reconnect=False,
            error_cb=note,
            disconnected_cb=broke,
            **self.login.options(),
        )
        self._broken.clear()
        self.url = self._wanted_url = url
        self._shows_former = False

    def move(self, url: str) -> None:
        """Go on through another broker from the next pause on."""
        self._wanted_url = url

    def show(self, login: Login) -> None:
        """Go on with another login from the next pause on."""
        self.login = login
        self._shows_former = True

    @property
    def is_settled(self) -> bool:
        return self.url == self._wanted_url and not self._shows_former

    async def run(self, flights: Iterable[Flight]) -> None:
        """Send all of them.

        Raises:
            PublishError: the broker refused one or broke the connection; -ERR is never passed over.
        """
        since = time.monotonic()
        for flight in flights:
            assert self._client is not None
            try:
                await self._client.publish(flight.subject, flight.payload)
            except nats.errors.Error as error:
                raise PublishError(
                    f"plain publisher, after {self.sent:,d} messages: {self.url}: {error or type(error).__name__}"
                ) from error
            self.sent += 1
            if self.sent % FLUSH_EVERY == 0:
                await self._flush()
                now = time.monotonic()
                self.stall_seconds = max(self.stall_seconds, now - since)
                since = now
                if not self.is_settled:
                    await self._client.close()
                    await self.connect(self._wanted_url)
                    self.connection_starts.append(flight.number + 1)
        await self._flush()
        await self.close()

    async def _flush(self) -> None:
        """Wait until the broker has read all that was sent.

        Raises:
            PublishError: it never will, or it refused something.
        """
        assert self._client is not None
        flushed = asyncio.ensure_future(self._client.flush(timeout=FLUSH_SECONDS))
        broken = asyncio.ensure_future(self._broken.wait())
        await asyncio.wait({flushed, broken}, return_when=asyncio.FIRST_COMPLETED)
        if broken.done():
            self.errors.append(f"{self.url}: the connection broke, and this broker was to stay up")
            flushed.cancel()
        broken.cancel()
        for error in (await asyncio.gather(flushed, broken, return_exceptions=True))[:1]:
            if isinstance(error, Exception):
                self.errors.append(f"{self.url}: {error or type(error).__name__}")
        if self.errors:
            raise PublishError(
                f"plain publisher, after {self.sent:,d} messages: {'; '.join(self.errors[:3])}"
            )

    async def close(self) -> None:
        if self._client is not None and not self._client.is_closed:
            await self._client.close()


@dataclass(slots=True)
class AcknowledgedPublisher:
    """Publishes with acknowledgement; what is not answered is repeated under the same Nats-Msg-Id."""

    login: Login
    prefix: str
    """Of the message ids: unique per run."""
    sent: int = 0
    answered: int = 0
    repeats: int = 0
    duplicates: int = 0
    """Repeats whose first copy was stored: the brokers said so."""
    stall_seconds: float = 0.0
    errors: list[str] = field(default_factory=list)
    _client: Client | None = None
    _inbox: str = ""
    _in_flight: dict[int, tuple[Flight, float]] = field(default_factory=dict)
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    _last_answer: float = 0.0

    async def connect(self, urls: list[str]) -> None:
        """Connect to the first of `urls`; the others are for when it is gone."""

        async def again() -> None:
            for number, (flight, _) in list(self._in_flight.items()):
                self._in_flight[number] = (flight, 0.0)

        self._client = await nats.connect(
            urls,
            name="demo-acknowledged",
            dont_randomize=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.05,
            connect_timeout=2,
            reconnected_cb=again,
            error_cb=self._ignore,
            **self.login.options(),
        )
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        await self._client.subscribe(f"{self._inbox}.*", cb=self._on_answer, pending_msgs_limit=-1)

    async def _ignore(self, _: Exception) -> None:
        """A broken connection is expected here: its broker is going to be killed."""

    async def reconnect(self, urls: list[str]) -> None:
        """Go on through another broker; what is in flight is sent again there."""
        old, self._client = self._client, None
        await self.connect(urls)
        for number, (flight, _) in list(self._in_flight.items()):
            self._in_flight[number] = (flight, 0.0)
        if old is not None:
            await old.close()

    async def show(self, login: Login, urls: list[str]) -> None:
        """Go on with another login, unless all was sent."""
        self.login = login
        if self._client is None or not self._client.is_closed:
            await self.reconnect(urls)

    @property
    def connected_url(self) -> str:
        return (
            ""
            if self._client is None or self._client.connected_url is None
            else self._client.connected_url.netloc
        )

    async def run(self, flights: Iterable[Flight]) -> None:
        """Send all of them and wait until all are answered.

        Raises:
            PublishError: one was refused for good, or nothing is answered any more.
        """
        self._last_answer = time.monotonic()
        repeater = asyncio.create_task(self._repeat())
        try:
            for flight in flights:
                while len(self._in_flight) >= IN_FLIGHT_MAX:
                    await self._wait_for_room(repeater)
                self._in_flight[flight.number] = (flight, time.monotonic())
                await self._send(flight)
                self.sent += 1
            while self._in_flight:
                await self._wait_for_room(repeater)
        finally:
            repeater.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await repeater
            await self.close()

    async def _wait_for_room(self, repeater: asyncio.Task[None]) -> None:
        if self.errors:
            raise PublishError(f"acknowledged publisher: {'; '.join(self.errors[:3])}")
        if repeater.done():
            repeater.result()
        self._room.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._room.wait(), 1.0)
        if time.monotonic() - self._last_answer > DRAIN_SECONDS:
            raise PublishError(
                f"acknowledged publisher: no answer for {DRAIN_SECONDS:g} s, {len(self._in_flight)} are waiting"
            )

    async def _send(self, flight: Flight) -> None:
        client = self._client
        if client is None or client.is_reconnecting:
            return  # it stays in flight, and the repeater sends it
        with contextlib.suppress(nats.errors.Error, OSError):
            await client.publish(
                flight.subject,
                flight.payload,
                reply=f"{self._inbox}.{flight.number}",
                headers={"Nats-Msg-Id": f"{self.prefix}-{flight.number}"},
            )

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(REPEAT_CHECK_SECONDS)
            if self._client is None or not self._client.is_connected:
                continue
            now = time.monotonic()
            for number, (flight, sent_at) in list(self._in_flight.items()):
                if now - sent_at > UNANSWERED_SECONDS and number in self._in_flight:
                    self._in_flight[number] = (flight, now)
                    self.repeats += 1
                    await self._send(flight)

    async def _on_answer(self, message: Msg) -> None:
        number = int(message.subject.rpartition(".")[2])
        if number not in self._in_flight or not message.data:
            return  # answered already, or the status 503: repeated when its time comes
        answer = json.loads(message.data)
        error = answer.get("error")
        if error:
            if error.get("code") != 503:
                self.errors.append(f"flight {number} was refused: {error}")
            return
        now = time.monotonic()
        self.stall_seconds = max(self.stall_seconds, now - self._last_answer)
        self._last_answer = now
        del self._in_flight[number]
        self.answered += 1
        self.duplicates += bool(answer.get("duplicate"))
        self._room.set()

    async def close(self) -> None:
        if self._client is not None and not self._client.is_closed:
            await self._client.close()
