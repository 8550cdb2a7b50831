"""Clients that are here when credentials change: who stays, what they may do from now on, and who has to go (CL-5).

Who is known by what the client has shown stays, as with nats-server, whatever became of the permissions: those of now are in
force at once, and subscriptions that they do not allow are taken away. A user that is gone, or of another account, loses the
connection without -ERR: clients take -ERR of this kind for the end, and the end of a connection for a reason to come again.
"""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.net.clients.client import Client
from supercluster.broker.protocol.permission_gate import PermissionGate
from supercluster.broker.protocol.permissions import Permissions

VIOLATION = "Authorization Violation"
GONE = "Client Closed"


class Reauthorization:
    """One change of credentials, for all clients."""

    def __init__(
        self, credentials: Credentials, now_ms: Callable[[], int], shows: Callable[[Client], None]
    ) -> None:
        """`shows` is called with clients whose credential is another one now, perhaps by its label alone."""
        self._credentials = credentials
        self._named = {user.named for user in credentials.users}
        self._anonymous = credentials.anonymous
        self._now_ms = now_ms
        self._shows = shows

    def judge(self, client: Client) -> None:
        """The client stays under the permissions of now, or it is closed."""
        user = client.credential
        if user is None:
            if client.authenticated and self._named:
                client.close(VIOLATION)
            return
        found = self._credentials.successor(user)
        if not self._named or (client.showed_nothing and found != self._anonymous(client.connection_type)):
            client.close(GONE, tell=False)  # It may come again, as whoever shows nothing is now.
        elif found is not None and found.may_come_by(client.connection_type):
            client.credential = found
            self._shows(client)
            if found.permissions != user.permissions:
                self._permit(client, found.permissions)
        elif found is not None or user.token or user.named in self._named:
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
