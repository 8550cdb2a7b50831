"""Answers to one client's PINGs. The first may have to wait, because the client publishes after it (rule 10)."""

from __future__ import annotations

from supercluster.broker.net.clients.client import Client


class Pongs:
    """Of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting = 0
        """PINGs that are not answered yet."""

    def pinged(self) -> None:
        client, redirecting = self._client, self._client.host.redirecting
        is_held = self._waiting > 0
        if not client.has_ponged and not is_held and redirecting is not None and client.has_come:
            is_held = redirecting.holds_pong(client)
        self._waiting += 1
        if not is_held:
            self.send()

    def send(self) -> None:
        """Answer all of them now."""
        client = self._client
        count, self._waiting = self._waiting, 0
        if client.closed or not count:
            return
        client.push(b"PONG\r\n" * count)
        is_first, client.has_ponged = not client.has_ponged, True
        client.notify()
        if is_first and client.host.redirecting is not None:
            client.host.redirecting.ponged(client)
