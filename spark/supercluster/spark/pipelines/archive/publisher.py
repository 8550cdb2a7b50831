"""An ordinary JetStream client that publishes batches: each message is acknowledged, and repeated with its id until it is."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from supercluster.spark.client import NO_RESPONDERS, ClientConnection, ConnectionFailedError
from supercluster.spark.jetstream import UNAVAILABLE, ApiRefusedError, JetStreamSession, UnansweredError
from supercluster.spark.wire import HEADER_LINE, Message, status_of

ACK_SECONDS = 5.0
"""A connection without an acknowledgement for so long is given up."""
PAUSE_SECONDS = 0.2
ID_HEADER = "Nats-Msg-Id"
STREAM_HEADER = "Nats-Expected-Stream"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish; `id` makes the stream take it once."""

    subject: str
    id: str
    stream: str
    """It alone takes the message; a message that another one captures is refused."""
    headers: tuple[tuple[str, str], ...]
    payload: bytes

    def frame(self, reply: str) -> bytes:
        """Raises ValueError when a header would break the block."""
        lines = [HEADER_LINE.decode(), f"{ID_HEADER}: {self.id}", f"{STREAM_HEADER}: {self.stream}"]
        for name, value in self.headers:
            if {"\r", "\n"} & set(name + value) or ":" in name:
                raise ValueError(f"message {self.id}: header {name!r} cannot be published")
            lines.append(f"{name}: {value}")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        total = len(head) + len(self.payload)
        return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (
            self.subject.encode(),
            reply.encode(),
            len(head),
            total,
            head,
            self.payload,
        )


class Publisher:
    """Publishes into streams. Messages of one batch stay in order unless the stream refuses one for a while."""

    def __init__(
        self,
        session: JetStreamSession,
        *,
        patience_seconds: float,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._session = session
        self._patience_seconds = patience_seconds
        self._wait = wait

    def publish(self, messages: Sequence[Outgoing]) -> int:
        """Publish all; how many the stream had already.

        Raises:
            ApiRefusedError: the stream refuses a message for good.
            UnansweredError: nothing was acknowledged for the session's patience.
        """
        left = dict(enumerate(messages))
        repeats = 0
        moved_at = time.monotonic()
        while left:
            before = len(left)
            try:
                connection = self._session.connection(time.monotonic() + self._patience_seconds)
                repeats += self._once(connection, left)
                said = "some messages were not acknowledged"
            except ConnectionFailedError as failure:
                said = str(failure)
            if left:
                self._session.drop()
                if len(left) < before:
                    moved_at = time.monotonic()
                elif time.monotonic() - moved_at > self._patience_seconds:
                    raise UnansweredError(
                        f"publish of {next(iter(left.values())).id} was not acknowledged for {self._patience_seconds:g} s; check that a"
                        f" stream takes subject {next(iter(left.values())).subject!r}; last: {said}"
                    )
                self._wait(PAUSE_SECONDS)
        return repeats

    def _once(self, connection: ClientConnection, left: dict[int, Outgoing]) -> int:
        """Send what is left over one connection, and take off what is acknowledged."""
        inbox = f"_INBOX.{secrets.token_hex(8)}"
        sid = connection.subscribe(f"{inbox}.*")
        connection.write(b"".join(message.frame(f"{inbox}.{at}") for at, message in left.items()))
        waiting = set(left)
        repeats = 0
        while waiting:
            answers = connection.read(time.monotonic() + ACK_SECONDS)
            if not answers:
                break
            for answer in answers:
                if answer[0] != sid:
                    continue
                at = int(answer[1].rpartition(b".")[2])
                waiting.discard(at)
                ack = _acknowledgement(answer)
                if ack is not None and left.pop(at, None) is not None:
                    repeats += bool(ack.get("duplicate"))
        connection.unsubscribe(sid)
        return repeats


def _acknowledgement(answer: Message) -> dict[str, object] | None:
    """None when the message is to be sent again."""
    if status_of(answer[3])[0] == NO_RESPONDERS:
        return None
    try:
        found = json.loads(answer[4])
    except ValueError:
        return None
    error = found.get("error")
    if error and error.get("code") != UNAVAILABLE:
        raise ApiRefusedError("PUBLISH", error)
    return None if error else dict(found)
