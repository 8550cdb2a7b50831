"""Clients whose user's plain password was replaced by a hash: they stay if the hash matches that password
(CL-5).

A comparison is slow on purpose, so it runs on the threads of `comparisons.py`, once for all clients that
presented the same password. They stay connected until the result is there, under their former permissions,
but for no longer than `WAIT_S`. If users change meanwhile, the clients are judged again by the new ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.auth.users import KnownBy, User
from supercluster.broker.net.clients.client import Client
from supercluster.broker.net.clients.comparisons import Comparisons

WAIT_S = 60.0
"""Enough for a thousand hashes of people's passwords."""


class Adoption:
    """Of one broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        comparisons: Comparisons,
        credentials: Credentials,
        judge: Callable[[Client], None],
        adopted: Callable[[Client, User], None],
        refused: Callable[[Client, bool], None],
    ) -> None:
        """`adopted` is called with clients that stay and their entry of now, `refused` with those that go, and whether their password
        was wrong. `judge` is for clients whose users have changed again."""
        self._loop = loop
        self._comparisons = comparisons
        self._credentials = credentials
        self._judge = judge
        self._adopted = adopted
        self._refused = refused
        self._waiting: dict[KnownBy, dict[int, Client]] = {}
        self._timers: dict[KnownBy, asyncio.TimerHandle] = {}

    def ask(self, client: Client, user: User) -> None:
        """Find out whether the client may stay: it is `user`, whose password is plain, and there is a hash in its place."""
        key = user.known_by
        if key in self._waiting:
            self._waiting[key][client.id] = client
            return
        users = self._credentials.users
        self._waiting[key] = {client.id: client}

        def answered(found: User | None) -> None:
            for one in self._taken(key):
                if self._credentials.users is not users:
                    self._judge(one)
                elif found is not None:
                    self._adopted(one, found)
                else:
                    self._refused(one, True)

        if not self._comparisons.compare_plain(user, lambda: key in self._waiting, answered):
            self._give_up(key)
            return
        self._timers[key] = self._loop.call_later(WAIT_S, self._give_up, key)

    def close(self) -> None:
        """Nobody is adopted any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._waiting.clear()

    def _taken(self, key: KnownBy) -> list[Client]:
        """Those that waited and are still what they were."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        waited = self._waiting.pop(key, {}).values()
        return [
            client
            for client in waited
            if not client.closed and client.credential is not None and client.credential.known_by == key
        ]

    def _give_up(self, key: KnownBy) -> None:
        for client in self._taken(key):
            self._refused(client, False)
