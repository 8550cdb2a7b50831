"""Clients that are here when credentials change: who stays, what they may do from now on, and who has to go (CL-5).

Who is known by what the client has shown stays, as with nats-server, whatever became of the permissions: those of now are in
force at once, and subscriptions that they do not allow are taken away. A user that is gone, or of another account, loses the
connection without -ERR: clients take -ERR of this kind for the end, and the end of a connection for a reason to come again.
"""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.auth.credentials import Credentials, User
from supercluster.broker.net.clients.client import Client
from supercluster.broker.protocol.permission_gate import PermissionGate
from supercluster.broker.protocol.permissions import Permissions

VIOLATION = "Authorization Violation"
GONE = "Client Closed"

_Known = tuple[str, str, str, str, str, str]


class Reauthorization:
    """One change of credentials, for all clients."""

    def __init__(self, credentials: Credentials, now_ms: Callable[[], int]) -> None:
        # Of several that show the same the first counts, as in `Credentials.find`.
        self._users = {_known_by(user): user for user in reversed(credentials.users)}
        self._named = {_named(user) for user in credentials.users}
        self._anonymous = credentials.anonymous
        self._now_ms = now_ms

    def successor(self, user: User) -> User | None:
        """The user of now that is known by the same credentials."""
        return self._users.get(_known_by(user))

    def judge(self, client: Client) -> None:
        """The client stays under the permissions of now, or it is closed."""
        user = client.credential
        if user is None:
            if client.authenticated and self._users:
                client.close(VIOLATION)
            return
        found = self.successor(user)
        if not self._users or (client.showed_nothing and found != self._anonymous(client.connection_type)):
            client.close(GONE, tell=False)  # It may come again, as whoever shows nothing is now.
        elif found is not None and found.may_come_by(client.connection_type):
            client.credential = found
            if found.permissions != user.permissions:
                self._permit(client, found.permissions)
        elif found is not None or user.token or _named(user) in self._named:
            client.close(VIOLATION)
        else:
            client.close(GONE, tell=False)

    def _permit(self, client: Client, permissions: Permissions | None) -> None:
        subscriber = client.subscriber
        gate: PermissionGate | None = None
        if permissions is not None:
            before = subscriber.gate
            gate = (
                before.under(permissions) if before is not None else PermissionGate(permissions, self._now_ms)
            )
        subscriber.gate = gate
        for subscription in list(subscriber.subscriptions.values()):
            subject, queue = subscription.subject, subscription.queue
            if gate is None:
                subscription.withhold(None)
            elif gate.may_subscribe(subject, queue):
                subscription.withhold(gate.withheld(subject))
            else:
                subscriber.end(subscription)
                sid = subscription.sid.decode(errors="replace")
                client.refuse("Subscription", subject, queue, note=f' (sid "{sid}")')


def _known_by(user: User) -> _Known:
    """What has to be the same for a client to stay: all but what it may do, and by which ways it may come."""
    return user.account, user.role, user.user, user.password, user.token, user.nkey


def _named(user: User) -> tuple[str, str, str, str]:
    return user.account, user.role, user.user, user.nkey
