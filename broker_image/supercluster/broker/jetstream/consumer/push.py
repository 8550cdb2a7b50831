"""The delivery side of a push consumer: subscribers of its deliver subject, idle heartbeats, and how far its
client is behind.

All of it is volatile state of one leader. Clients compare the status texts, so these are NATS's own.
"""

from __future__ import annotations

from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.consumer.pull import Delivery, Item, status

# So many bytes may be on their way to a client under flow control; the allowance begins at a part of it and doubles with
# each answer.
WINDOW_BYTES_MAX = 32 * 1024 * 1024
WINDOW_BYTES_FIRST = WINDOW_BYTES_MAX // 16
FLOW_PREFIX = "$JS.FC."


def parse_flow_subject(subject: bytes) -> tuple[str, str] | None:
    """Stream and consumer of an answer to a flow control request; None when it is none."""
    tokens = subject.split(b".")
    if len(tokens) != 5 or tokens[:2] != [b"$JS", b"FC"] or not all(tokens):
        return None
    try:
        return tokens[2].decode(), tokens[3].decode()
    except UnicodeDecodeError:
        return None


def item_bytes(item: Item) -> int:
    """What a delivered message counts for."""
    return len(item[0]) + len(item[1]) + len(item[2]) + len(item[3])


class FlowControl:
    """How much went to the client that it did not say it has."""

    __slots__ = ("_asked_bytes", "_sent_bytes", "_window_bytes", "asked")

    def __init__(self) -> None:
        self._window_bytes = WINDOW_BYTES_FIRST
        self._sent_bytes = 0
        self._asked_bytes = 0
        self.asked = b""
        """The request that is not answered yet; empty: none."""

    @property
    def room_bytes(self) -> int:
        """What may still go: nothing once more than the window is under way."""
        return max(0, self._window_bytes - self._sent_bytes + 1)

    def sent(self, size: int) -> bool:
        """A message went out. True: ask the client now."""
        self._sent_bytes += size
        return not self.asked and self._sent_bytes > self._window_bytes // 2

    def ask(self, subject: bytes) -> None:
        self.asked, self._asked_bytes = subject, self._sent_bytes

    def answered(self, subject: bytes) -> bool:
        """The client has everything up to the request. False: that was not what it was asked."""
        if not self.asked or subject != self.asked:
            return False
        self._window_bytes = min(self._window_bytes * 2, WINDOW_BYTES_MAX)
        self._sent_bytes = max(0, self._sent_bytes - self._asked_bytes)
        self.asked, self._asked_bytes = b"", 0
        return True

    def take_back(self, items: list[Item]) -> None:
        """These never left this broker."""
        for item in items:
            if item[1] and item[1] == self.asked:
                self.asked, self._asked_bytes = b"", 0
            elif item[1]:
                self._sent_bytes = max(0, self._sent_bytes - item_bytes(item))


class PushTarget:
    """The deliver subject of one push consumer. It stands where a pull request does for what hands messages out."""

    __slots__ = (
        "_every_ns",
        "_prefix",
        "bytes_left",
        "flow",
        "heartbeat_ns",
        "inbox",
        "is_bound",
        "left",
        "queue",
    )

    def __init__(self, stream: str, consumer: str, config: ConsumerConfig) -> None:
        self.inbox = config.deliver_subject.encode()
        self.queue = config.deliver_group.encode()
        self.left = 1 << 62
        """Nothing ends it: the field is what a pull request's is."""
        self.bytes_left = 0
        self.is_bound = False
        """Does somebody listen?"""
        self.flow = FlowControl() if config.flow_control else None
        self._prefix = (stream, consumer)
        self._every_ns = config.idle_heartbeat_ns
        self.heartbeat_ns = 0

    def bind(self, now_ns: int, *, is_bound: bool) -> None:
        """Somebody listens from now on, or nobody does."""
        self.is_bound = is_bound
        self.flow = FlowControl() if self.flow is not None else None
        self.put_off_heartbeat(now_ns)

    @property
    def room_bytes(self) -> int:
        """What may go in one go."""
        return self.flow.room_bytes if self.flow is not None else 1 << 62

    def sent(self, items: list[Item], cseq: int) -> list[Item]:
        """The messages, and among them what asks the client whether it has them. `cseq`: of the last one."""
        flow = self.flow
        if flow is None:
            return items
        found: list[Item] = []
        for behind, item in enumerate(items, 1 - len(items)):
            found.append(item)
            if flow.sent(item_bytes(item)):
                stream, consumer = self._prefix
                reply = f"{FLOW_PREFIX}{stream}.{consumer}.{cseq + behind}".encode()
                flow.ask(reply)
                found.append((self.inbox, reply, b"NATS/1.0 100 FlowControl Request\r\n\r\n", b""))
        return found

    def take_back(self, delivery: Delivery) -> None:
        """The delivery never left this broker."""
        if self.flow is not None:
            self.flow.take_back(delivery.items)

    def put_off_heartbeat(self, now_ns: int) -> None:
        """Something else told the client that the consumer lives."""
        self.heartbeat_ns = now_ns + self._every_ns if self.is_bound and self._every_ns else 0

    def heartbeat(self, now_ns: int, cseq: int, sseq: int) -> Delivery | None:
        """The heartbeat that is due; it names the flow control request that nothing came back for."""
        if not self.heartbeat_ns or now_ns < self.heartbeat_ns:
            return None
        self.put_off_heartbeat(now_ns)
        headers: list[tuple[str, object]] = [("Nats-Last-Consumer", cseq), ("Nats-Last-Stream", sseq)]
        if self.flow is not None and self.flow.asked:
            headers.append(("Nats-Consumer-Stalled", self.flow.asked.decode()))
        return Delivery(self.inbox, [status(self.inbox, 100, "Idle Heartbeat", *headers)])
