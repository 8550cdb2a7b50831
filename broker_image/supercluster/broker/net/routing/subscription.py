"""A client's subscription, and the account that it lives in."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from supercluster.broker.protocol.parser import Message
from supercluster.broker.protocol.sublist import Sublist

if TYPE_CHECKING:
    from supercluster.broker.net.clients.connection import ClientConnection
    from supercluster.broker.net.routing.account_imports import AccountRoutes


class Subscription:
    """SUB of one client. `middle` is what stands between subject and sizes in a MSG line."""

    __slots__ = ("aside", "connection", "delivered", "max_messages", "middle", "queue", "sid", "subject")

    def __init__(self, connection: ClientConnection, subject: bytes, queue: bytes, sid: bytes) -> None:
        self.connection = connection
        self.subject = subject
        self.queue = queue
        self.sid = sid
        self.middle = b" " + sid + b" "
        self.max_messages = 0
        """UNSUB with a maximum: the subscription ends after so many; 0: no end."""
        self.delivered = 0
        self.aside: Callable[[Message], Message | None] | None = None
        """What becomes of a message instead of its delivery: None, it went elsewhere or must not be delivered."""

    def receiver(self) -> Subscription:
        """Who gets what a stream delivers to it."""
        return self

    def withhold(self, withheld: Callable[[bytes], bool] | None) -> None:
        """Which subjects the user must not get, though the subscription matches them."""
        self.aside = None if withheld is None else lambda message: None if withheld(message[0]) else message


class Account:
    """Subscriptions of one account, and how many of them each subject and queue has on this broker."""

    __slots__ = ("beyond", "interest", "name", "sublist")

    def __init__(self, name: str, far: Collection[str] = frozenset()) -> None:
        self.name = name
        self.sublist: Sublist[Subscription] = Sublist(far)
        self.interest: dict[tuple[bytes, bytes], int] = {}
        """(subject, queue) → local subscriptions: what links are told."""
        self.beyond: AccountRoutes | None = None
        """What it has to do with other accounts."""

    def add(self, subscription: Subscription) -> int:
        """Insert; returns how many there are now on its subject and queue."""
        key = (subscription.subject, subscription.queue)
        count = self.interest[key] = self.interest.get(key, 0) + 1
        self.sublist.insert(subscription.subject, subscription.queue, subscription)
        return count

    def discard(self, subscription: Subscription) -> int:
        """Remove; returns how many are left on its subject and queue."""
        key = (subscription.subject, subscription.queue)
        count = self.interest[key] - 1
        if count:
            self.interest[key] = count
        else:
            del self.interest[key]
        self.sublist.remove(subscription.subject, subscription.queue, subscription)
        return count
