"""Republishing (`republish`): the leader publishes a stored message under another subject once it is
committed.

At most once, as with NATS: the next leader does not republish messages that its predecessor committed but did
not publish. A message that comes back over other streams goes no second round: two streams that republish to each
other would never end (SF-36).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from supercluster.broker.jetstream.config.transforms import Republish, SubjectMap
from supercluster.broker.jetstream.encoding.timestamps import format_time
from supercluster.broker.jetstream.publish.stand_ins import ComingStream, HeldCapture
from supercluster.broker.jetstream.publish.window import Window
from supercluster.broker.jetstream.state.log_reader import Message, decode_stored
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.raft.entry import Entry

# Republished messages that wait for room in another stream's window; beyond that they are dropped, with an event.
HELD_MAX = 4096

Publication = tuple[bytes, bytes, bytes]
"""Subject, header, payload."""


class Republisher:
    """A stream leader's side: from an entry to what is published again."""

    def __init__(self) -> None:
        self._config: Republish | None = None
        self._map = SubjectMap(None)

    def of_entry(self, state: StreamState, entry: Entry) -> list[Publication]:
        """What a committed entry has published; called before it is applied."""
        config = state.config.republish
        if config is None or not entry.count:
            return []
        if config is not self._config:
            self._config, self._map = config, SubjectMap(config.compiled())
        decoded = decode_stored(entry)
        came_back = b"\r\nNats-Stream: %b\r\n" % state.config.name.encode()
        found: list[Publication] = []
        last_seqs: dict[bytes, int] = {}
        for seq in range(decoded.first_seq, decoded.first_seq + decoded.count):
            message = decoded.message(seq)
            if not message.subject:
                continue  # A mirror's origin has nothing there.
            subject = self._map.find(message.subject, seq)
            if subject is not None and message.header and came_back in message.header:
                subject = None
            last_seq = last_seqs.get(message.subject, -1)
            if last_seq < 0:
                last_seq = state.subjects.last_seq(message.subject)
            last_seqs[message.subject] = seq
            if subject is not None:
                header = _header(state.config.name, message, last_seq, headers_only=config.headers_only)
                found.append((subject, header, b"" if config.headers_only else message.payload))
        return found


def _header(stream: str, message: Message, last_seq: int, *, headers_only: bool) -> bytes:
    lines = (
        f"Nats-Stream: {stream}\r\nNats-Subject: {message.subject.decode('utf-8', 'replace')}\r\n"
        f"Nats-Sequence: {message.seq}\r\nNats-Time-Stamp: {format_time(message.time_ns)}\r\n"
        f"Nats-Last-Sequence: {last_seq}\r\n"
    )
    if headers_only:
        lines += f"Nats-Msg-Size: {len(message.payload)}\r\n"
    return (message.header[:-2] if message.header else b"NATS/1.0\r\n") + lines.encode() + b"\r\n"


class RepublishedMessages:
    """A broker's side: what is republished may be captured by another stream. Stands for the client that publishes it."""

    def __init__(
        self,
        capture: Callable[[str, bytes], Window | HeldCapture | ComingStream | None],
        event: Callable[[str, str, str], None],
    ) -> None:
        self._capture = capture
        self._event = event
        self._held: deque[tuple[str, Publication]] = deque()
        self.dropped_total = 0

    def is_captured(self, account: str, subject: bytes) -> bool:
        """Would a stream get it?"""
        return self._capture(account, subject) is not None

    def publish(self, account: str, message: Publication) -> None:
        """Offer a message to the stream that captures its subject, behind those that wait."""
        if self._held or not self._offer(account, message):
            self._hold(account, message)

    def _hold(self, account: str, message: Publication) -> None:
        if len(self._held) < HELD_MAX:
            self._held.append((account, message))
            return
        self.dropped_total += 1
        if self.dropped_total & (self.dropped_total - 1) == 0:
            subject = message[0].decode("utf-8", "replace")
            self._event(
                "",
                "RepublishDropped",
                f"{subject}: the stream that captures it takes no more ({self.dropped_total} messages so far)",
            )

    def _offer(self, account: str, message: Publication) -> bool:
        subject, header, payload = message
        window = self._capture(account, subject)
        return window is None or window.take(self, subject, b"", header, payload)

    # ---- ports.Publisher --------------------------------------------------------------------------------------------

    def pause(self, stream: str) -> None:
        """Nothing is read from anywhere: what comes is held."""

    def resume(self, stream: str) -> None:
        """A window takes messages again."""
        while self._held:
            account, message = self._held[0]
            if not self._offer(account, message):
                return
            self._held.popleft()

    def error(self, text: str) -> None:
        """A message was refused by the stream that captures it."""
        self._event("", "RepublishRefused", text)
