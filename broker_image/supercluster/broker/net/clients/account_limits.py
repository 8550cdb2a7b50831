"""What the clients of one account may have here: how many of them there may be, and what each may subscribe to and send.

Each broker counts its own clients. A client counts from its CONNECT until it is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from supercluster.broker.auth.credentials import NO_CLIENT_LIMITS, ClientLimits
from supercluster.broker.protocol.parser import Publishes

if TYPE_CHECKING:
    from supercluster.broker.net.clients.connection import ClientConnection

TOO_MANY = "maximum account active connections exceeded"


class Allowance:
    """What one client may have: by the broker's limits, and by its account's where they are lower."""

    def __init__(self, client: ClientConnection) -> None:
        self._client = client
        self._limits = NO_CLIENT_LIMITS
        self._owes_info = False
        """It was told of another max_payload: INFO follows the next PONG, as with nats-server. While a client connects some expect
        nothing else before it."""

    @property
    def subscriptions_max(self) -> int:
        most, own = self._client.server.limits.max_subscriptions, self._limits.subscriptions_max
        return most if own < 0 else min(most, own)

    @property
    def payload_bytes_max(self) -> int:
        """Of one message, with its headers."""
        most, own = self._client.server.limits.max_payload_bytes, self._limits.payload_bytes_max
        return most if own < 0 else min(most, own)

    def change(self, limits: ClientLimits) -> None:
        """Hold it to these limits of its account from now on."""
        before, self._limits = self.payload_bytes_max, limits
        if self.payload_bytes_max != before:
            self._client.limit_payload(self.payload_bytes_max)
            self._owes_info = True
            if self._client.has_come:
                self.notify()

    def notify(self) -> None:
        """Send INFO, if what it was told is not true any more."""
        client = self._client
        if self._owes_info and client.wants_info and not client.closed:
            self._owes_info = False
            client.push(client.server.info_line(client))

    def within_payload(self, messages: Publishes) -> Publishes:
        """Those before the first that is too large for its account: what was read along with CONNECT was parsed before that
        was known."""
        if self._limits.payload_bytes_max < 0:
            return messages
        most = self.payload_bytes_max
        for at, (_, _, header, payload) in enumerate(messages):
            if len(header) + len(payload) > most:
                return messages[:at]
        return messages


class AccountLimits:
    """Clients by account, in the order in which they came."""

    def __init__(self, limits: Callable[[], Mapping[str, ClientLimits]]) -> None:
        self._limits = limits
        self._present: dict[str, dict[int, ClientConnection]] = {}
        self._account_of: dict[int, str] = {}

    def enter(self, client: ClientConnection) -> bool:
        """The client is of its account from now on, and of no other one; False: there are as many as may be."""
        account = client.account.name
        limits = self._limits().get(account, NO_CLIENT_LIMITS)
        if self._account_of.get(client.id) != account:
            self.leave(client)
            if 0 <= limits.connections_max <= len(self._present.get(account, ())):
                return False
            self._present.setdefault(account, {})[client.id] = client
            self._account_of[client.id] = account
        client.allowance.change(limits)
        return True

    def leave(self, client: ClientConnection) -> None:
        """The client is gone."""
        account = self._account_of.pop(client.id, None)
        if account is None:
            return
        del self._present[account][client.id]
        if not self._present[account]:
            del self._present[account]

    def changed(self) -> None:
        """Other limits are in force: clients are held to them, and of those that are too many the last to come have to go."""
        for account, present in list(self._present.items()):
            limits = self._limits().get(account, NO_CLIENT_LIMITS)
            kept = len(present) if limits.connections_max < 0 else limits.connections_max
            for at, client in enumerate(list(present.values())):
                if at < kept:
                    client.allowance.change(limits)
                else:
                    client.close(TOO_MANY)
