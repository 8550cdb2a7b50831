"""An ordinary JetStream client that publishes into one stream: each message is repeated with its id until it
is acknowledged.

The stream's duplicate window refuses repeats. The messages of one call stay in order unless the stream
refuses one for a while.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from supercluster.spark.client import NO_RESPONDERS, ClientConnection, ConnectionFailedError
from supercluster.spark.jetstream import UNAVAILABLE, ApiRefusedError, JetStreamSession, UnansweredError
from supercluster.spark.wire import HEADER_LINE, Message, Row, status_of

ROWS_PER_PUBLISH = 500
BYTES_PER_PUBLISH = 1024 * 1024
ACK_SECONDS = 5.0
"""A connection without an acknowledgement for so long is given up."""
PAUSE_SECONDS = 0.2
ID_HEADER = "Nats-Msg-Id"
STREAM_HEADER = "Nats-Expected-Stream"
ERR_OTHER_STREAM = 10060
_SPACES = frozenset(b" \t\r\n")

Outgoing = tuple[str, Row]
"""A message with its id."""


class OtherStreamError(Exception):
    """Another stream captures a message's subject; it did not take the message."""

    def __init__(self, subject: bytes, stream: str) -> None:
        super().__init__(
            f"subject {_shown(subject)} is captured by another stream than {stream!r}; write to that stream, or under a subject"
            f" of {stream!r}"
        )


class SubjectError(ValueError):
    """Nobody can publish under such a subject."""

    def __init__(self, subject: bytes) -> None:
        super().__init__(f"subject {_shown(subject)} has spaces or is empty; publish under another one")


def bounded(messages: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
    """Lists of a bounded number and size, at least one message each. Pure."""
    batch: list[Outgoing] = []
    size = 0
    for message in messages:
        batch.append(message)
        size += sum(map(len, message[1]))
        if len(batch) >= ROWS_PER_PUBLISH or size >= BYTES_PER_PUBLISH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class Publisher:
    """To one stream, over one session."""

    def __init__(
        self,
        session: JetStreamSession,
        stream: str,
        *,
        patience_seconds: float,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._session = session
        self._stream = stream
        self._patience_seconds = patience_seconds
        self._wait = wait

    def publish(self, messages: Sequence[Outgoing]) -> list[int]:
        """Publish all; the sequences of those that the stream took before, from this call or an earlier one.

        Raises:
            ApiRefusedError: the stream refuses a message for good.
            OtherStreamError: another stream captures a message.
            SubjectError: a message has no subject that can be said.
            UnansweredError: nothing was acknowledged for `patience_seconds`.
        """
        left = dict(enumerate(messages))
        repeats: list[int] = []
        moved_at = time.monotonic()
        while left:
            before = len(left)
            try:
                connection = self._session.connection(time.monotonic() + self._patience_seconds)
                self._once(connection, left, repeats)
                last = "some messages were not acknowledged"
            except ConnectionFailedError as failure:
                last = str(failure)
            if left:
                self._session.drop()
                if len(left) < before:
                    moved_at = time.monotonic()
                elif time.monotonic() - moved_at > self._patience_seconds:
                    _, (subject, _, _) = next(iter(left.values()))
                    raise UnansweredError(
                        f"rows for stream {self._stream!r} got no acknowledgement for {self._patience_seconds:g} s; check that"
                        f" the stream captures subject {_shown(subject)}, or raise patienceSeconds; last: {last}"
                    )
                self._wait(PAUSE_SECONDS)
        return repeats

    def _once(self, connection: ClientConnection, left: dict[int, Outgoing], repeats: list[int]) -> None:
        """Send what is left over one connection, and take off what is acknowledged, also when the connection fails."""
        inbox = f"_INBOX.{secrets.token_hex(8)}"
        frames = [self._frame(message, f"{inbox}.{at}") for at, message in left.items()]
        sid = connection.subscribe(f"{inbox}.*")
        connection.write(b"".join(frames))
        waiting = set(left)
        while waiting:
            answers = connection.read(time.monotonic() + ACK_SECONDS)
            if not answers:
                break
            for answer in answers:
                if answer[0] != sid:
                    continue
                at = int(answer[1].rpartition(b".")[2])
                waiting.discard(at)
                if at in left and (ack := self._acknowledgement(left[at], answer)) is not None:
                    del left[at]
                    if ack.get("duplicate"):
                        repeats.append(int(ack["seq"]))
        connection.unsubscribe(sid)

    def _frame(self, message: Outgoing, reply: str) -> bytes:
        message_id, (subject, header, payload) = message
        if not subject or _SPACES & set(subject):
            raise SubjectError(subject)
        lines = header[:-2] if header else HEADER_LINE + b"\r\n"
        added = f"{ID_HEADER}: {message_id}\r\n{STREAM_HEADER}: {self._stream}\r\n\r\n"
        head = lines + added.encode()
        sizes = len(head), len(head) + len(payload)
        return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply.encode(), *sizes, head, payload)

    def _acknowledgement(self, message: Outgoing, answer: Message) -> dict[str, Any] | None:
        """None when the message is to be sent again."""
        if status_of(answer[3])[0] == NO_RESPONDERS:
            return None
        try:
            found = json.loads(answer[4])
        except ValueError:
            return None
        error = found.get("error")
        if error and error.get("err_code") == ERR_OTHER_STREAM:
            raise OtherStreamError(message[1][0], self._stream)
        if error and error.get("code") != UNAVAILABLE:
            raise ApiRefusedError("PUBLISH", error)
        return None if error else dict(found)


def _shown(subject: bytes) -> str:
    return repr(subject.decode("utf-8", "replace"))
