"""Connected clients when credentials change: those that stay, their new permissions, and those that are
closed (CL-5).

A client whose credential is still valid stays, as with nats-server, even if its permissions changed. The new
permissions are in force at once, and subscriptions that they do not allow are removed. A client whose user is
gone, or has another account, is closed without -ERR: client libraries treat -ERR of this kind as final, but
reconnect after a closed connection. If a plain password was replaced by hashes, a comparison decides later
whether one matches it (`adoption.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.auth.users import User
from supercluster.broker.net.clients.client import Client
from supercluster.broker.protocol.permission_gate import PermissionGate
from supercluster.broker.protocol.permissions import Permissions

VIOLATION = "Authorization Violation"
GONE = "Client Closed"


class Reauthorization:
    """Of the clients of one broker."""

    def __init__(
        self,
        credentials: Credentials,
        now_ms: Callable[[], int],
        shows: Callable[[Client], None],
        adopt: Callable[[Client, User], None],
    ) -> None:
        """`shows` is called with clients whose credential is another one now, perhaps by its label alone, and `adopt` with those whose
        plain password may be there as a hash."""
        self._credentials = credentials
        self._now_ms = now_ms
        self._shows = shows
        self._adopt = adopt

    def judge(self, client: Client) -> None:
        """The client stays under the permissions of now, or it is closed, or it waits for the answer of a comparison."""
        credentials = self._credentials
        user = client.credential
        if user is None:
            if client.authenticated and credentials.users:
                client.close(VIOLATION)
            return
        found = credentials.successor(user)
        is_anonymous = client.showed_nothing and found != credentials.anonymous(client.connection_type)
        if not credentials.users or is_anonymous:
            client.close(GONE, tell=False)  # It may come again, as whoever shows nothing is now.
        elif found is not None:
            self.take_over(client, found)
        elif credentials.may_be_hashed(user):
            self._adopt(client, user)
        else:
            self.refuse(client, is_wrong=bool(user.token) or credentials.has_other(user))

    def take_over(self, client: Client, found: User) -> None:
        """The client is known by this one."""
        if not found.may_come_by(client.connection_type):
            client.close(VIOLATION)
            return
        before, client.credential = client.credential, found
        self._shows(client)
        if before is None or found.permissions != before.permissions:
            self._permit(client, found.permissions)

    def refuse(self, client: Client, is_wrong: bool) -> None:
        """The client is known by nothing any more. `is_wrong`: its user is there, so it would come again in vain."""
        if is_wrong:
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
