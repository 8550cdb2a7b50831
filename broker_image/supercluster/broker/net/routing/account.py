"""An account on this broker: its subscriptions, and its routes to other accounts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from supercluster.broker.net.routing.subscriber import Subscription
from supercluster.broker.protocol.sublist import Match, Sublist


class CrossAccountRoutes(Protocol):
    """What an account has to do with other accounts (`account_imports.py`)."""

    @property
    def maps(self) -> bool:
        """Has it mappings?"""

    def mapping_of(self, subject: bytes) -> Match[Subscription] | None:
        """Where a client's message goes that a mapping is about."""

    def extended(self, subject: bytes, match: Match[Subscription]) -> Match[Subscription]:
        """The route with its ways beyond the account, where there are any."""

    def asked(self, subject: bytes, match: Match[Subscription]) -> Match[Subscription]:
        """The same by imported services alone."""


class Account:
    """Subscriptions of one account, and how many of them each subject and queue has on this broker."""

    __slots__ = ("cross_account", "interest", "name", "sublist")

    def __init__(
        self, name: str, far: Collection[str] = frozenset(), other_worlds: Collection[str] = frozenset()
    ) -> None:
        self.name = name
        self.sublist: Sublist[Subscription] = Sublist(far, other_worlds)
        self.interest: dict[tuple[bytes, bytes], int] = {}
        """(subject, queue) → local subscriptions: what links are told."""
        self.cross_account: CrossAccountRoutes | None = None

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


class Accounts(dict[str, Account]):
    """By name; each is made when it is first asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.far: set[str] = set()
        """Brokers of other clusters."""
        self.other_worlds: set[str] = set()
        """Of these the ones of other super-clusters."""

    def __missing__(self, name: str) -> Account:
        found = self[name] = Account(name, self.far, self.other_worlds)
        return found
