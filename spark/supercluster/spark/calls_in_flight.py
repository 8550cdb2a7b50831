"""Calls that are asked in order, a few of them on their way at once.

A call without a good answer is repeated by the session, and so is each one behind it, in order. Every call has to bear being repeated.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from supercluster.spark.client import ClientConnection, ConnectionFailedError
from supercluster.spark.jetstream import ANSWER_SECONDS, JetStreamSession

IN_FLIGHT_MAX = 4


class Channel(Protocol):
    """Another way for the calls; the answers come in their order (`bulk/stages.py`). Sending and answering raise ConnectionFailedError."""

    def send(self, payload: bytes, /) -> None: ...

    def answer(self) -> bytes: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Call:
    body: dict[str, Any]
    tail: bytes = field(repr=False)
    reply: bytes = b""
    """Empty: it is on the channel, or not on its way."""


class CallsInFlight:
    """To one subject, over one session, which nobody else uses meanwhile. From the second one on over a channel, if there is one, until
    a call gets no good answer there: for a single call it would be opened in vain."""

    def __init__(
        self, session: JetStreamSession, subject: str, opened: Callable[[], Channel | None] | None = None
    ) -> None:
        self._session = session
        self._subject = subject
        self._opened = opened
        self._count = 0
        self._channel: Channel | None = None
        self._waiting: deque[_Call] = deque()
        """Their replies come over the channel, or over the session's connection."""
        self._connection: ClientConnection | None = None

    def put(self, body: dict[str, Any], tail: bytes) -> None:
        """Ask, once at most `IN_FLIGHT_MAX` - 1 calls are not answered.

        Raises: what `JetStreamSession.ask` raises, of this call or an earlier one.
        """
        self._count += 1
        if self._count == 2 and self._opened is not None:
            self.end()  # On two ways at once they might change places.
            self._channel = self._opened()
        while len(self._waiting) >= IN_FLIGHT_MAX:
            self._take()
        call = _Call(body, tail)
        self._waiting.append(call)
        if not self._send(call, json.dumps(body).encode() + tail):
            self._repeat()

    def end(self) -> None:
        """Wait for all answers.

        Raises: the same.
        """
        while self._waiting:
            self._take()

    def close(self) -> None:
        """Whatever became of the calls."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _send(self, call: _Call, payload: bytes) -> bool:
        if self._channel is not None:
            with suppress(ConnectionFailedError):
                self._channel.send(payload)
                return True
            return False
        try:
            connection = self._session.broker() if self._connection is None else self._connection
            call.reply = connection.send(self._subject, payload)
            self._connection = connection
        except (ConnectionFailedError, TimeoutError):
            self._session.drop()
        return bool(call.reply)

    def _take(self) -> None:
        """The oldest call is answered, or repeated."""
        try:
            is_good = "error" not in json.loads(self._answer(self._waiting[0]))
        except (ConnectionFailedError, TimeoutError):
            if self._channel is None:
                self._session.drop()
            is_good = False
        except ValueError:
            is_good = False
        if is_good:
            self._waiting.popleft()
        else:
            self._repeat()

    def _answer(self, call: _Call) -> bytes:
        if self._channel is not None:
            return self._channel.answer()
        assert self._connection is not None
        return self._connection.answer(call.reply, time.monotonic() + ANSWER_SECONDS)

    def _repeat(self) -> None:
        self.close()
        if self._connection is not None:
            self._connection.forget()
            self._connection = None
        while self._waiting:
            call = self._waiting[0]
            self._session.ask(self._subject, call.body, tail=call.tail)
            self._waiting.popleft()
