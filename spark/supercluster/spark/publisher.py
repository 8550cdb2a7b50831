"""Rows published one by one with acknowledgements: at least once, for brokers that cannot do better.

A message that is repeated within an attempt has the same Nats-Msg-Id. Another attempt's have others: a retried task's rows may
come in another order, and a message id that stood for a place among them would have a row thrown away.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from itertools import islice

from supercluster.spark.client import ConnectionFailedError
from supercluster.spark.jetstream import UNAVAILABLE, ApiRefusedError, JetStreamSession, UnansweredError

ROWS_IN_FLIGHT = 256
ANSWER_SECONDS = 5.0

Row = tuple[bytes, bytes, bytes]


class OtherStreamError(Exception):
    """A subject is another stream's."""

    def __init__(self, subject: bytes, stream: str, wanted: str) -> None:
        super().__init__(
            f"supercluster sink: subject {subject.decode('utf-8', 'replace')!r} goes to stream {stream!r}, not to {wanted!r};"
            " check the options stream and subject"
        )


class Publisher:
    """To one stream, over one session."""

    def __init__(self, session: JetStreamSession, stream: str, *, patience_seconds: float) -> None:
        self._session = session
        self._stream = stream
        self._patience_seconds = patience_seconds

    def publish(self, token: str, rows: Iterable[Row]) -> int:
        """Returns how many, when all are acknowledged.

        Raises:
            ApiRefusedError: the stream does not take a row.
            OtherStreamError: another one did.
            UnansweredError: nobody acknowledged for as long as the session is patient.
        """
        count, left = 0, iter(rows)
        while some := list(islice(left, ROWS_IN_FLIGHT)):
            self._publish([_with_id(row, f"{token}-{count + at}") for at, row in enumerate(some)])
            count += len(some)
        return count

    def _publish(self, messages: Sequence[Row]) -> None:
        deadline = time.monotonic() + self._patience_seconds
        pause_seconds = 0.02
        while True:
            try:
                answers = self._session.connection(deadline).request_all(messages, ANSWER_SECONDS)
                if not self._refusal(messages, answers):
                    return
                last: Exception | str = "the stream has no leader"
            except (ConnectionFailedError, TimeoutError, ValueError) as failure:
                last = failure
                self._session.drop()
            if time.monotonic() >= deadline:
                raise UnansweredError(
                    f"rows for stream {self._stream!r} got no acknowledgement for {self._patience_seconds:g} s; check that a"
                    f" stream captures their subjects, or raise patienceSeconds; last: {last}"
                )
            time.sleep(pause_seconds)
            pause_seconds = min(0.5, pause_seconds * 2)

    def _refusal(self, messages: Sequence[Row], answers: Sequence[bytes]) -> bool:
        """Are they to be repeated?"""
        is_again = False
        for (subject, _, _), raw in zip(messages, answers, strict=True):
            answer = json.loads(raw)
            error = answer.get("error")
            if error and error.get("code") != UNAVAILABLE:
                raise ApiRefusedError("PUBLISH", error)
            is_again |= bool(error)
            if not error and answer.get("stream") != self._stream:
                raise OtherStreamError(subject, str(answer.get("stream")), self._stream)
        return is_again


def _with_id(row: Row, message_id: str) -> Row:
    subject, header, payload = row
    lines = header[:-2] if header else b"NATS/1.0\r\n"
    return subject, b"%bNats-Msg-Id: %b\r\n\r\n" % (lines, message_id.encode()), payload
