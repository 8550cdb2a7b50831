"""Authenticates a client by its CONNECT: at once, or in a thread if a hash has to be compared."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.auth.users import Shown, User
from supercluster.broker.net.clients.client import Client
from supercluster.broker.net.clients.comparisons import Comparisons
from supercluster.broker.net.clients.counts import ServerCounts
from supercluster.broker.net.clients.strangers import RationedLog
from supercluster.broker.net.routing.account import Account
from supercluster.broker.net.routing.router import DEFAULT_ACCOUNT
from supercluster.broker.ports import ClientInfo, Clock
from supercluster.broker.protocol.permission_gate import PermissionGate

log = logging.getLogger(__name__)


class Admission:
    """Judges clients of one broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        credentials: Credentials,
        account: Callable[[str], Account],
        counts: ServerCounts,
        shows: Callable[[Client], None],
    ) -> None:
        """`shows` is called with clients that are here by their credential from now on."""
        self.credentials = credentials
        self.comparisons = Comparisons(loop, clock, credentials)
        self._clock = clock
        self._account = account
        self._counts = counts
        self._shows = shows
        self._log = RationedLog(log.warning, clock.monotonic_ms)

    @property
    def is_needed(self) -> bool:
        """Do clients need credentials?"""
        return bool(self.credentials.users)

    def judge(self, client: Client, options: Mapping[str, Any], then: Callable[[bool], None]) -> bool | None:
        """May the client stay? It has its account and permissions then. None: it takes a while, and `then` is called with
        the answer."""
        if not self.is_needed:
            self._admit(client, None, DEFAULT_ACCOUNT)
            return True
        shown = self._shown(client, options)
        if not self.credentials.takes_long(shown):
            return self._judged(client, shown, self.credentials.find(shown), options)

        def done(user: User | None) -> None:
            if user is not None and user not in self.credentials.users:  # Changed meanwhile, or gone.
                user = self.credentials.successor(user)
            then(self._judged(client, shown, user, options))

        address = client.peer[0]
        if not self.comparisons.compare(address, shown, lambda: not client.closed, done):
            self._log("client %d (%s): too many wrong passwords came from its address", client.id, address)
            self._counts.auth_failures += 1
            client.close("Authentication Timeout", tell=False)  # Told, it would not come again.
        return None

    def takes_without(self, client: Client) -> bool:
        """May the client stay that begins without CONNECT, as whoever shows nothing?"""
        user = self.credentials.anonymous(client.connection_type)
        if user is None or client.cookies or client.mapped_certificate is not None:
            return False
        if not user.may_come_by(client.connection_type):
            return False
        client.showed_nothing = True
        self._admit(client, user, user.account)
        return True

    def _shown(self, client: Client, options: Mapping[str, Any]) -> Shown:
        names = ("user", "pass", "auth_token", "nkey", "sig")
        user, password, token, nkey, signature = (
            found if isinstance(found := options.get(name), str) and found else client.cookies.get(name, "")
            for name in names
        )
        return Shown(
            user,
            password,
            token,
            nkey,
            signature,
            client.nonce,
            client.mapped_certificate,
            client.connection_type,
        )

    def _judged(self, client: Client, shown: Shown, found: User | None, options: Mapping[str, Any]) -> bool:
        if found is None:
            by_jwt = bool(options.get("jwt")) and not (shown.user or shown.token)
            self._log(
                "client %d (%s): %s",
                client.id,
                client.peer[0],
                "it presented a JWT, and accounts by JWT are not supported"
                if by_jwt
                else "wrong or missing credentials, or a user who may not use this kind of connection",
            )
            return False
        client.showed_nothing = shown.is_nothing
        self._admit(client, found, found.account)
        return True

    def _admit(self, client: Client, user: User | None, account: str) -> None:
        """Give the client its account and what it may do there."""
        client.credential = user
        self._shows(client)
        allowed = user.permissions if user is not None else None
        subscriber = client.subscriber
        subscriber.gate = PermissionGate(allowed, self._clock.monotonic_ms) if allowed is not None else None
        if account != client.account.name:
            for subscription in list(subscriber.subscriptions.values()):
                subscriber.end(subscription)
            client.account = self._account(account)
        name = user.name if user is not None else ""
        is_system = user is not None and user.is_system
        client.info = ClientInfo(account, name, user is None or user.is_operator, is_system)
