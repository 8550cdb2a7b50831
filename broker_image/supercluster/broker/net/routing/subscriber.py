"""A client as a receiver: its subscriptions, what it may hear, and its output, collected and written once per turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from supercluster.broker.protocol.parser import Message
from supercluster.broker.protocol.permission_gate import PermissionGate


class Subscription:
    """SUB of one client. `middle` is what stands between subject and sizes in a MSG line."""

    __slots__ = (
        "delivered",
        "interceptor",
        "max_messages",
        "middle",
        "queue",
        "sid",
        "subject",
        "subscriber",
    )

    def __init__(self, subscriber: Subscriber, subject: bytes, queue: bytes, sid: bytes) -> None:
        self.subscriber = subscriber
        self.subject = subject
        self.queue = queue
        self.sid = sid
        self.middle = b" " + sid + b" "
        self.max_messages = 0
        """UNSUB with a maximum: the subscription ends after so many; 0: no end."""
        self.delivered = 0
        self.interceptor: Callable[[Message], Message | None] | None = None
        """What becomes of a message instead of its delivery: None, it went elsewhere or must not be delivered."""

    def receiver(self) -> Subscription:
        """Who gets what a stream delivers to it."""
        return self

    def withhold(self, withheld: Callable[[bytes], bool] | None) -> None:
        """Which subjects the user must not get, though the subscription matches them."""
        self.interceptor = (
            None if withheld is None else lambda message: None if withheld(message[0]) else message
        )


class Connection(Protocol):
    """The socket of a subscriber."""

    def write(self, data: bytes) -> None:
        """Send what a turn collected."""

    def unsent_bytes(self) -> int:
        """Bytes that the client has not taken yet."""

    def unsubscribed(self, subscription: Subscription) -> None:
        """A subscription ended."""


class Subscriber:
    """One client. Routing puts messages into `out`, and this into `Turn.dirty` when `out` was empty."""

    __slots__ = (
        "_connection",
        "congested",
        "gate",
        "headers",
        "id",
        "name",
        "out",
        "out_bytes",
        "out_messages",
        "slow_for",
        "solicited",
        "solicited_bytes",
        "subscriptions",
    )

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.id = 0
        self.name = ""
        """As the client calls itself."""
        self.gate: PermissionGate | None = None
        """What the user may do; None: everything."""
        self.headers = False
        self.subscriptions: dict[bytes, Subscription] = {}
        self.out: list[Any] = []
        self.out_messages = 0
        self.out_bytes = 0
        """Of messages: headers and payloads."""
        self.congested = False
        self.solicited = False
        """What waits to be sent was asked for by pull requests, which are served at the client's pace."""
        self.solicited_bytes = 0
        """Of it, what was collected since the last write."""
        self.slow_for: set[tuple[str, str, bytes]] = set()
        """(broker, account, inbox) that were told that this client takes too little."""

    def flush(self) -> None:
        """Write what was collected."""
        if self.out:
            data = b"".join(self.out)
            self.out.clear()
            self.solicited_bytes = 0
            self._connection.write(data)

    def pending_bytes(self) -> int:
        """Bytes that wait to be taken by the client; of those collected in this turn only what pull requests get."""
        return self._connection.unsent_bytes() + self.solicited_bytes

    def end(self, subscription: Subscription) -> None:
        """Take a subscription out."""
        if self.subscriptions.pop(subscription.sid, None) is not None:
            self._connection.unsubscribed(subscription)
