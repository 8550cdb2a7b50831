"""Calls that are asked in order, a few of them on their way at once.

A call without a good answer is repeated by the session, and so is each one behind it, in order. Every call has to bear being repeated.
"""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from supercluster.spark.client import ClientConnection, ConnectionFailedError
from supercluster.spark.jetstream import ANSWER_SECONDS, JetStreamSession

IN_FLIGHT_MAX = 4


@dataclass(frozen=True, slots=True)
class _Call:
    body: dict[str, Any]
    tail: bytes = field(repr=False)
    reply: bytes


class CallsInFlight:
    """To one subject, over one session, which nobody else uses meanwhile."""

    def __init__(self, session: JetStreamSession, subject: str) -> None:
        self._session = session
        self._subject = subject
        self._waiting: deque[_Call] = deque()
        """Their replies come over the session's connection."""
        self._connection: ClientConnection | None = None

    def put(self, body: dict[str, Any], tail: bytes) -> None:
        """Ask, once at most `IN_FLIGHT_MAX` - 1 calls are not answered.

        Raises: what `JetStreamSession.ask` raises, of this call or an earlier one.
        """
        while len(self._waiting) >= IN_FLIGHT_MAX:
            self._take()
        reply = b""
        try:
            connection = self._session.broker() if self._connection is None else self._connection
            reply = connection.send(self._subject, json.dumps(body).encode() + tail)
            self._connection = connection
        except (ConnectionFailedError, TimeoutError):
            self._session.drop()
        self._waiting.append(_Call(body, tail, reply))
        if not reply:
            self._repeat()

    def end(self) -> None:
        """Wait for all answers.

        Raises: the same.
        """
        while self._waiting:
            self._take()

    def _take(self) -> None:
        """The oldest call is answered, or repeated."""
        assert self._connection is not None
        try:
            answer = self._connection.answer(self._waiting[0].reply, time.monotonic() + ANSWER_SECONDS)
            is_good = "error" not in json.loads(answer)
        except (ConnectionFailedError, TimeoutError):
            self._session.drop()
            is_good = False
        except ValueError:
            is_good = False
        if is_good:
            self._waiting.popleft()
        else:
            self._repeat()

    def _repeat(self) -> None:
        if self._connection is not None:
            self._connection.forget()
            self._connection = None
        while self._waiting:
            call = self._waiting[0]
            self._session.ask(self._subject, call.body, tail=call.tail)
            self._waiting.popleft()
