"""The credentials that clients present, by label: the connections with each, and the last time it was
presented.

During a rotation an old password is removed when no client presents it any more. A client presents its
credential from its CONNECT until it is closed, and a call of the monitoring port presents one for a moment.
Credentials that are not in force leave no trace.
"""

from __future__ import annotations

from collections.abc import Callable, KeysView, Mapping
from typing import TypeAlias

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.auth.users import User
from supercluster.broker.net.clients.client import Client

Key: TypeAlias = "tuple[str, str, str]"
"""Account, name of the user or public key, label."""


def key_of(user: User) -> Key:
    return user.account, user.name, user.credential


class ShownCredentials:
    """Of one broker. `now_ms` is the machine's clock."""

    def __init__(self, credentials: Credentials, now_ms: Callable[[], int]) -> None:
        self._credentials = credentials
        self._now_ms = now_ms
        self._present: dict[Key, dict[int, Client]] = {}
        self._key_of: dict[int, Key] = {}
        self._shown_ms: dict[Key, int] = {}
        self._users: tuple[User, ...] = ()
        self._in_force: frozenset[Key] = frozenset()
        """Those of `_users`."""

    @property
    def in_force(self) -> frozenset[Key]:
        if self._users is not self._credentials.users:
            self._users = self._credentials.users
            self._in_force = frozenset(map(key_of, self._users))
            self._shown_ms = {key: at_ms for key, at_ms in self._shown_ms.items() if key in self._in_force}
        return self._in_force

    @property
    def keys(self) -> KeysView[Key]:
        """Of the clients that are here."""
        return self._present.keys()

    def clients(self, key: Key) -> Mapping[int, Client]:
        """Those that show it, in the order in which they came."""
        return self._present.get(key, {})

    def shows(self, client: Client) -> None:
        """The client is here by its `credential` from now on."""
        user = client.credential
        key = key_of(user) if user is not None else None
        if client.closed or key == self._key_of.get(client.id):
            return
        self.left(client)
        if key is not None:
            self._present.setdefault(key, {})[client.id] = client
            self._key_of[client.id] = key

    def left(self, client: Client) -> None:
        """The client is closed, or here by another one."""
        key = self._key_of.pop(client.id, None)
        if key is None:
            return
        del self._present[key][client.id]
        if not self._present[key]:
            del self._present[key]
        self._note(key)

    def seen(self, user: User) -> None:
        """Somebody has shown it who is no client."""
        self._note(key_of(user))

    def idle_ms(self, key: Key) -> int | None:
        """For how long nobody has shown it; None: nobody has since this process started, or since it came into force."""
        if key in self._present:
            return 0
        at_ms = self._shown_ms.get(key) if key in self.in_force else None
        return max(0, self._now_ms() - at_ms) if at_ms is not None else None

    def _note(self, key: Key) -> None:
        if key in self.in_force:
            self._shown_ms[key] = self._now_ms()
