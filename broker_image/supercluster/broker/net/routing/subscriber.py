"""A client as a receiver: its subscriptions, its subscribe permissions, and its output, collected and written
once per turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from supercluster.broker.protocol.parser import Message
from supercluster.broker.protocol.permission_gate import PermissionGate


@dataclass(slots=True, eq=False)
class Subscription:
    """SUB of one client. `middle` is what stands between subject and sizes in a MSG line."""

    subscriber: Subscriber
    subject: bytes
    queue: bytes
    sid: bytes
    middle: bytes = field(init=False)
    max_messages: int = 0
    """UNSUB with a maximum: the subscription ends after so many; 0: no end."""
    delivered: int = 0
    interceptor: Callable[[Message], Message | None] | None = None
    """What becomes of a message instead of its delivery: None, it went elsewhere or must not be delivered."""

    def __post_init__(self) -> None:
        self.middle = b" " + self.sid + b" "

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


@dataclass(slots=True, eq=False)
class Subscriber:
    """One client. Routing puts messages into `out`, and this into `Turn.dirty` when `out` was empty."""

    _connection: Connection
    id: int = 0
    name: str = ""
    """As the client calls itself."""
    gate: PermissionGate | None = None
    """What the user may do; None: everything."""
    headers: bool = False
    subscriptions: dict[bytes, Subscription] = field(default_factory=dict)
    out: list[Any] = field(default_factory=list)
    out_messages: int = 0
    out_bytes: int = 0
    """Of messages: headers and payloads."""
    congested: bool = False
    solicited: bool = False
    """What waits to be sent was asked for by pull requests, which are served at the client's pace."""
    solicited_bytes: int = 0
    """Of it, what was collected since the last write."""
    slow_for: set[tuple[str, str, bytes]] = field(default_factory=set)
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
