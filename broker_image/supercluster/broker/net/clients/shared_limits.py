"""Limits that the clients of one account, or of one user, share: their number, their subscriptions and their
messages.

If both have limits the smaller ones count. Each broker counts its own clients. A client counts from its
CONNECT until it is closed, whichever of its user's credentials it presented.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.auth.users import NO_CLIENT_LIMITS, ClientLimits, User
from supercluster.broker.net.clients.client import Client

TOO_MANY = "maximum account active connections exceeded"
"""Also for those of a user: nats-server has no such limit, nor a text for it."""

Group: TypeAlias = "tuple[str, str]"
"""An account, and the name of a user, or an empty text for all of the account."""


class SharedLimits:
    """Clients by account and by user, in the order in which they came."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._present: dict[Group, dict[int, Client]] = {}
        self._groups_of: dict[int, tuple[Group, ...]] = {}
        self._known: tuple[object, object] = (None, None)
        self._limits: Mapping[Group, ClientLimits] = {}
        """Made of `_known`."""
        self._applied: Mapping[Group, ClientLimits] = {}
        """What clients were held to when limits changed last."""

    def enter(self, client: Client) -> bool:
        """The client is of its account and user from now on, and of no others; False: there are as many as may be."""
        groups = groups_of(client)
        if self._groups_of.get(client.id) != groups:
            self.leave(client)
            for group in groups:
                if 0 <= self._of(group).connections_max <= len(self._present.get(group, ())):
                    return False
            for group in groups:
                self._present.setdefault(group, {})[client.id] = client
            self._groups_of[client.id] = groups
        client.hold_to(self._of_all(groups))
        return True

    def leave(self, client: Client) -> None:
        """The client is gone."""
        for group in self._groups_of.pop(client.id, ()):
            del self._present[group][client.id]
            if not self._present[group]:
                del self._present[group]

    def changed(self) -> None:
        """Other limits may be in force: clients are held to them, and of those that are too many the last to come have to go."""
        before, self._applied = self._applied, self._in_force
        changed = [group for group in self._present if before.get(group) != self._applied.get(group)]
        for group in changed:
            most = self._of(group).connections_max
            for client in list(self._present.get(group, {}).values())[most:] if most >= 0 else ():
                client.close(TOO_MANY)
        for group in changed:
            for client in self._present.get(group, {}).values():
                client.hold_to(self._of_all(self._groups_of[client.id]))

    def of(self, account: str, user: str = "") -> ClientLimits:
        """Of one user's clients."""
        return self._of_all(((account, ""), (account, user)) if user else ((account, ""),))

    def _of_all(self, groups: tuple[Group, ...]) -> ClientLimits:
        found = NO_CLIENT_LIMITS
        for group in groups:
            found = found.within(self._of(group))
        return found

    def _of(self, group: Group) -> ClientLimits:
        return self._in_force.get(group, NO_CLIENT_LIMITS)

    @property
    def _in_force(self) -> Mapping[Group, ClientLimits]:
        accounts, users = self._credentials.client_limits, self._credentials.users
        if self._known[0] is not accounts or self._known[1] is not users:
            self._known = accounts, users
            self._limits = {(account, ""): limits for account, limits in accounts.items()} | limits_of(users)
        return self._limits


def groups_of(client: Client) -> tuple[Group, ...]:
    account = client.account.name
    user = client.credential.name if client.credential is not None else ""
    return ((account, ""), (account, user)) if user else ((account, ""),)


def limits_of(users: tuple[User, ...]) -> dict[Group, ClientLimits]:
    """By user; of several entries of one user the smallest count."""
    found: dict[Group, ClientLimits] = {}
    for user in users:
        if user.name and user.limits != NO_CLIENT_LIMITS:
            group = user.account, user.name
            found[group] = found.get(group, NO_CLIENT_LIMITS).within(user.limits)
    return found
