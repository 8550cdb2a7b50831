"""A durable pull consumer at work during a move: every message comes at least once, and never again once its
acknowledgement was confirmed (SF-2); its position stays within its stream (MV-10)."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Sequence
from typing import Any

from supercluster.spark.client import Address, ClientConnection, ConnectionFailedError, Credentials, Servers
from supercluster.spark.jetstream import JetStreamSession
from supercluster.spark.wire import ACK_PREFIX, Message, delivery

BATCH = 500
EXPIRES_SECONDS = 1.0
ACK_WAIT_SECONDS = 3.0
CONNECT_SECONDS = 30.0
CATCH_UP_SECONDS = 60.0
PAUSE_SECONDS = 0.05
NAME = "reader"
EXAMPLES_MAX = 5


class Reader(threading.Thread):
    """Fetches and acknowledges, asking for each acknowledgement to be confirmed, until `stop`."""

    def __init__(self, stream: str, subject: str, urls: Sequence[str], login: Credentials) -> None:
        super().__init__(daemon=True, name="reader")
        self._stream = stream
        self._servers = Servers([Address.parse(url) for url in urls], login)
        self._stopping = threading.Event()
        self.delivered: dict[int, int] = {}
        """How often each sequence came."""
        self.confirmed: set[int] = set()
        self.again: list[int] = []
        """What came although its acknowledgement had been confirmed."""
        self.error: Exception | None = None
        config: dict[str, Any] = {
            "durable_name": NAME,
            "name": NAME,
            "filter_subject": subject,
            "deliver_policy": "all",
        }
        config |= {
            "ack_policy": "explicit",
            "ack_wait": int(ACK_WAIT_SECONDS * 1e9),
            "max_ack_pending": 5 * BATCH,
        }
        self._ask(f"CONSUMER.CREATE.{stream}.{NAME}.{subject}", {"stream_name": stream, "config": config})

    def _ask(self, call: str, body: Any = None) -> dict[str, Any]:
        session = JetStreamSession(self._servers, patience_seconds=CONNECT_SECONDS)
        try:
            return session.ask(f"$JS.API.{call}", body or {})
        finally:
            session.drop()

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._read(self._servers.connect(time.monotonic() + CONNECT_SECONDS))
                except ConnectionFailedError:
                    time.sleep(PAUSE_SECONDS)  # Its broker was killed: the next one will do.
        except Exception as error:
            self.error = error

    def _read(self, connection: ClientConnection) -> None:
        inbox = f"_INBOX.{secrets.token_hex(8)}"
        try:
            connection.subscribe(f"{inbox}.>")
            while not self._stopping.is_set():
                body = json.dumps({"batch": BATCH, "expires": int(EXPIRES_SECONDS * 1e9)}).encode()
                connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{NAME}", f"{inbox}.m", body)
                left, deadline = BATCH, time.monotonic() + 2 * EXPIRES_SECONDS
                while left > 0:
                    messages = connection.read(deadline)
                    if not messages:
                        break  # A leader that was killed gives nothing back.
                    left -= self._take(connection, inbox, messages)
        finally:
            connection.close()

    def _take(self, connection: ClientConnection, inbox: str, messages: list[Message]) -> int:
        """How much of the request that used up; a status uses up all of it."""
        taken, acks = 0, []
        for _, subject, reply, _, _ in messages:
            if reply.startswith(ACK_PREFIX):
                sequence = delivery(reply).sequence
                self.delivered[sequence] = self.delivered.get(sequence, 0) + 1
                if sequence in self.confirmed:
                    self.again.append(sequence)
                acks.append(b"PUB %b %b.a.%d 4\r\n+ACK\r\n" % (reply, inbox.encode(), sequence))
                taken += 1
            elif subject.endswith(b".m"):
                taken = BATCH
                self._stopping.wait(PAUSE_SECONDS)
            else:
                self.confirmed.add(int(subject.rpartition(b".")[2]))
        if acks:
            connection.write(b"".join(acks))
        return taken

    def stop(self, sequences: set[int]) -> list[str]:
        """Let it read what is there of these sequences; what is wrong then. An acknowledgement that was taken, and whose
        confirmation went with the leader, is no wrong: the message does not come again, and the consumer goes on behind it."""
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while True:
            info = self._ask(f"CONSUMER.INFO.{self._stream}.{NAME}")
            is_done = not info["num_pending"] and not info["num_ack_pending"]
            if is_done or time.monotonic() > deadline or not self.is_alive():
                break
            time.sleep(PAUSE_SECONDS)
        self.abandon()
        wrongs = (
            [] if self.error is None else [f"the reader failed: {type(self.error).__name__}: {self.error}"]
        )
        for what, found in (
            ("never came", sequences - self.delivered.keys()),
            ("came again after their acknowledgement was confirmed", set(self.again)),
            ("are none of the stream's", self.delivered.keys() - sequences),
        ):
            if found:
                wrongs.append(f"consumer: {len(found)} messages {what}: {sorted(found)[:EXAMPLES_MAX]} …")
        floor, last = info["ack_floor"]["stream_seq"], max(sequences, default=0)
        if not is_done or floor != last:
            wrongs.append(f"the consumer stands at {floor} of {last}: {info}")
        return wrongs

    def abandon(self) -> None:
        """End in any case."""
        self._stopping.set()
        if self.ident is not None:
            self.join(2 * CONNECT_SECONDS)
