"""Events of a broker in the system account: clients that connect and disconnect, and its statistics at
intervals.

They are built only if there is a subscriber; otherwise an event costs one look-up.
"""

from __future__ import annotations

import asyncio
import json
from hashlib import blake2b

from supercluster.broker.monitor import views
from supercluster.broker.monitor.broker import Network
from supercluster.broker.monitor.system_documents import Json, SystemDocuments
from supercluster.broker.net.clients.client import Client

STATS_EVERY_S = 10.0


class SystemEvents:
    """Of one broker."""

    def __init__(self, network: Network, documents: SystemDocuments) -> None:
        self._network = network
        self._documents = documents
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Tell the broker's figures from now on."""
        self._timer = asyncio.get_running_loop().call_later(STATS_EVERY_S, self._tell_stats)

    def stop(self) -> None:
        """Say goodbye."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def came(self, client: Client) -> None:
        account = client.account.name
        if not self._is_watched():
            return
        self._tell_connections(account)
        subject = f"$SYS.ACCOUNT.{account}.CONNECT"
        if self._has_listeners(subject):
            self._tell(subject, self.event("client_connect", {"client": self._client(client)}))

    def went(self, client: Client) -> None:
        """A client is gone."""
        account = client.account.name
        if not self._is_watched():
            return
        self._tell_connections(account)
        self._tell_end(f"$SYS.ACCOUNT.{account}.DISCONNECT", client, client.close_reason or "Client Closed")

    def leaves(self) -> None:
        """The broker is about to ask its clients to go elsewhere."""
        subject = f"$SYS.SERVER.{self._network.process_id}.LAMEDUCK"
        if self._is_watched() and self._has_listeners(subject):
            self._tell(subject, self._documents.server())

    def refused(self, client: Client, user: str) -> None:
        if self._is_watched():
            subject = f"$SYS.SERVER.{self._network.process_id}.CLIENT.AUTH.ERR"
            self._tell_end(subject, client, "Authentication Failure", user)

    def event(self, kind: str, body: Json) -> Json:
        """With NATS's head."""
        self._number += 1
        seed = f"{self._network.process_id} {self._number}"
        return {
            "type": f"io.nats.server.advisory.v1.{kind}",
            "id": blake2b(seed.encode(), digest_size=11).hexdigest(),
            "timestamp": self._documents.now(),
            "server": self._documents.server(),
            **body,
        }

    def _tell_end(self, subject: str, client: Client, reason: str, user: str = "") -> None:
        if not self._has_listeners(subject):
            return
        body: Json = {
            "client": {**self._client(client), "stop": self._documents.now()},
            "sent": {"msgs": client.subscriber.out_messages, "bytes": client.subscriber.out_bytes},
            "received": {"msgs": client.in_messages, "bytes": client.in_bytes},
            "reason": reason,
        }
        if user:
            body["client"]["user"] = user
        self._tell(subject, self.event("client_disconnect", body))

    def _tell_connections(self, account: str) -> None:
        subjects = [f"$SYS.ACCOUNT.{account}.SERVER.CONNS", f"$SYS.SERVER.ACCOUNT.{account}.CONNS"]
        wanted = [subject for subject in subjects if self._has_listeners(subject)]
        if wanted:
            stats = self._documents.account_stats(account)
            body = self.event("account_connections", stats)
            for subject in wanted:
                self._tell(subject, body)

    def _tell_stats(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(STATS_EVERY_S, self._tell_stats)
        subject = f"$SYS.SERVER.{self._network.process_id}.STATSZ"
        if self._has_listeners(subject):
            documents = self._documents
            self._tell(subject, {"server": documents.server(), "statsz": documents.statsz()})

    def _client(self, client: Client) -> Json:
        clock = self._network.clock
        began_ns = clock.now_ns() - (clock.machine_ms() - client.started_ms) * 1_000_000
        account = client.account.name
        told: Json = {
            "start": views.time_of(began_ns),
            "host": client.peer[0],
            "id": client.id,
            "acc": account,
            "user": client.info.user,
            "name": client.name,
            "lang": client.language,
            "ver": client.library_version,
            "name_tag": account,
            "kind": "Client",
            "client_type": "websocket" if client.is_websocket else "nats",
        }
        return {name: value for name, value in told.items() if value != ""}

    def _is_watched(self) -> bool:
        """Is anybody in the system account, here or at another broker?"""
        return self._network.credentials.system_account in self._network.router.accounts

    def _has_listeners(self, subject: str) -> bool:
        account = self._network.router.accounts.get(self._network.credentials.system_account)
        return account is not None and account.sublist.lookup(subject.encode()).anyone

    def _tell(self, subject: str, body: Json) -> None:
        account = self._network.credentials.system_account
        text = json.dumps(body, separators=(",", ":"))
        self._network.router.publish(account, subject.encode(), b"", b"", text.encode())
