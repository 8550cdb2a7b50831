"""The four publishers of a cutover, each over a connection of its own, by nats-py's calls for applications.

They keep a pace that does not depend on answers, up to a window. What is unanswered for too long is given up, as an application gives
it up, but for the one that has message ids: it sends again.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

import nats.errors
import nats.js.errors
from e2e.cutover.connections import Connection
from e2e.cutover.kinds import BY_NAME, MODES, PLAIN, REPEATED, SINGLE, WINDOWED, stream_of
from e2e.cutover.ledger import Sent, payload
from nats.js.api import PubAck

TICK_SECONDS = 0.005
BURST_SECONDS = 0.25
"""What was missed by more than this (a busy machine) is not made up for."""
GIVE_UP_SECONDS = 20.0
REPEAT_SECONDS = 3.0
REFUSED_SECONDS = 0.25
"""A publish that was refused is repeated after this, where it is repeated at all."""
SETTLE_SECONDS = 60.0
SHARES = {WINDOWED: 0.3, REPEATED: 0.3, PLAIN: 0.3, SINGLE: 0.1}
# What nats-py answers a publish with that nobody took.
REFUSALS = (nats.js.errors.APIError, nats.js.errors.NoStreamResponseError)


@dataclass(slots=True)
class Publisher:
    """What all have in common; `_send` differs."""

    mode: int
    connection: Connection
    rate: float
    sent: int = 0
    confirmed: dict[int, int] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    resent: set[int] = field(default_factory=set)
    answer_times: array[float] = field(default_factory=lambda: array("d"))
    complaints: list[str] = field(default_factory=list)
    """Different things that refusals said, in the order in which they came first."""

    @property
    def name(self) -> str:
        return MODES[self.mode]

    def report(self) -> Sent:
        refused = frozenset(self.refused - self.confirmed.keys())
        unnamed = dict(self.connection.not_stored)
        return Sent(self.mode, self.sent, dict(self.confirmed), refused, frozenset(self.resent), unnamed)

    @property
    def progress(self) -> int:
        """Messages answered; of a plain one, sent."""
        return len(self.confirmed)

    @property
    def is_settled(self) -> bool:
        """Nothing is waited for."""
        return True

    async def _send(self, number: int) -> None:
        raise NotImplementedError

    async def _tend(self) -> None:
        """Between the messages: give up, or repeat."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Publish until told to stop, then wait until everything is settled.

        Raises:
            TimeoutError: it does not settle.
        """
        due = time.monotonic()
        while not stopping.is_set():
            now = time.monotonic()
            due = max(due, now - BURST_SECONDS)
            while due <= now and not stopping.is_set():
                due += 1 / self.rate
                self.sent += 1
                await self._send(self.sent)
            await self._tend()
            await asyncio.sleep(TICK_SECONDS)
        deadline = time.monotonic() + SETTLE_SECONDS
        while not self.is_settled:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the publisher '{self.name}' waits in vain for {SETTLE_SECONDS:g} s")
            await self._tend()
            await asyncio.sleep(TICK_SECONDS)
        await self._finish()

    async def _finish(self) -> None:
        pass

    def _subject(self, number: int) -> str:
        return BY_NAME[stream_of(self.mode, number)].subject(number)

    def _confirm(self, number: int, sequence: int) -> None:
        self.confirmed[number] = sequence
        self.answer_times.append(time.monotonic())

    def _complain(self, error: BaseException) -> None:
        text = f"{type(error).__name__}: {error}"
        if text not in self.complaints and len(self.complaints) < 20:
            self.complaints.append(text)


@dataclass(slots=True)
class Plain(Publisher):
    """Publishes without asking for answers."""

    @property
    def progress(self) -> int:
        return self.sent

    async def _send(self, number: int) -> None:
        while True:
            try:
                await self.connection.client.publish(self._subject(number), payload(self.mode, number))
                return
            except nats.errors.OutboundBufferLimitError as error:  # It was not sent.
                self._complain(error)
                await asyncio.sleep(TICK_SECONDS)

    async def _finish(self) -> None:
        await self.connection.client.flush(timeout=int(SETTLE_SECONDS))


@dataclass(slots=True)
class Single(Publisher):
    """Waits for each answer before it publishes the next message; every other one is a revision of a key."""

    async def _send(self, number: int) -> None:
        try:
            ack = await self.connection.js().publish(self._subject(number), payload(self.mode, number))
            self._confirm(number, ack.seq)
        except REFUSALS as error:
            self._complain(error)
            self.refused.add(number)
        except (nats.errors.Error, TimeoutError, OSError) as error:
            self._complain(error)


@dataclass(slots=True)
class Windowed(Publisher):
    """Has a window of messages open."""

    _open: dict[int, tuple[float, asyncio.Future[PubAck]]] = field(default_factory=dict)
    _js: object = None

    @property
    def is_settled(self) -> bool:
        return not self._open

    def _headers(self, number: int) -> dict[str, str] | None:
        return None

    async def _send(self, number: int) -> None:
        if self._js is None:
            self._js = self.connection.js()
        try:
            answer = await self._js.publish_async(  # type: ignore[attr-defined]
                self._subject(number),
                payload(self.mode, number),
                wait_stall=TICK_SECONDS,
                headers=self._headers(number),
            )
        except nats.js.errors.TooManyStalledMsgsError:
            await self._stalled(number)
            return
        except (nats.errors.Error, OSError) as error:
            self._complain(error)
            self._failed(number)
            return
        self._open[number] = (time.monotonic(), answer)
        answer.add_done_callback(lambda done: self._answered(number, done))

    async def _stalled(self, number: int) -> None:
        """The window is full: nothing was sent."""
        self.sent = number - 1
        await self._tend()
        await asyncio.sleep(TICK_SECONDS)

    def _failed(self, number: int) -> None:
        """Whether it was sent is not known."""

    def _answered(self, number: int, done: asyncio.Future[PubAck]) -> None:
        if self._open.get(number, (0.0, None))[1] is done:
            del self._open[number]
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._confirm(number, done.result().seq)
        else:
            self._complain(error)
            self.refused.add(number)

    async def _tend(self) -> None:
        self._expire(GIVE_UP_SECONDS, lambda number: None)

    def _expire(self, after: float, then: Callable[[int], None]) -> None:
        """Wait no more for answers that are overdue."""
        limit = time.monotonic() - after
        overdue = []
        for number, (since, _) in self._open.items():
            if since > limit:
                break  # They are in the order in which they were sent.
            overdue.append(number)
        for number in overdue:
            _, answer = self._open.pop(number)
            answer.cancel()
            then(number)


@dataclass(slots=True)
class Repeated(Windowed):
    """Sends again, under the same Nats-Msg-Id, until it is confirmed."""

    _again: dict[int, float] = field(default_factory=dict)
    """When to send those that were given up or refused."""

    @property
    def is_settled(self) -> bool:
        return not self._open and not self._again

    def _headers(self, number: int) -> dict[str, str] | None:
        return {"Nats-Msg-Id": f"{self.mode}-{number}"}

    async def _stalled(self, number: int) -> None:
        if number in self.resent:
            self._again[number] = time.monotonic()
        else:
            self.sent = number - 1
        await asyncio.sleep(TICK_SECONDS)

    def _failed(self, number: int) -> None:
        self._again[number] = time.monotonic() + REFUSED_SECONDS

    def _answered(self, number: int, done: asyncio.Future[PubAck]) -> None:
        # Explicit: a dataclass with slots is another class than the one that `super()` would find.
        Windowed._answered(self, number, done)
        if number in self.refused and number not in self.confirmed:
            self.refused.discard(number)
            self._failed(number)

    async def _tend(self) -> None:
        now = time.monotonic()
        self._expire(REPEAT_SECONDS, lambda number: self._again.__setitem__(number, now))
        due = [number for number, at in self._again.items() if at <= now]
        for number in due[:200]:
            del self._again[number]
            if number not in self.confirmed:
                self.resent.add(number)
                await self._send(number)


KINDS: dict[int, type[Publisher]] = {WINDOWED: Windowed, REPEATED: Repeated, PLAIN: Plain, SINGLE: Single}
