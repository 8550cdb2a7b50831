"""What the clients of one account may have here: how many of them there may be, and what each may subscribe to and send.

Each broker counts its own clients. A client counts from its CONNECT until it is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supercluster.broker.auth.credentials import NO_CLIENT_LIMITS, ClientLimits
from supercluster.broker.net.clients.client import Client

TOO_MANY = "maximum account active connections exceeded"


class AccountLimits:
    """Clients by account, in the order in which they came."""

    def __init__(self, limits: Callable[[], Mapping[str, ClientLimits]]) -> None:
        self._limits = limits
        self._present: dict[str, dict[int, Client]] = {}
        self._account_of: dict[int, str] = {}

    def enter(self, client: Client) -> bool:
        """The client is of its account from now on, and of no other one; False: there are as many as may be."""
        account = client.account.name
        limits = self._limits().get(account, NO_CLIENT_LIMITS)
        if self._account_of.get(client.id) != account:
            self.leave(client)
            if 0 <= limits.connections_max <= len(self._present.get(account, ())):
                return False
            self._present.setdefault(account, {})[client.id] = client
            self._account_of[client.id] = account
        client.hold_to(limits)
        return True

    def leave(self, client: Client) -> None:
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
                    client.hold_to(limits)
                else:
                    client.close(TOO_MANY)
