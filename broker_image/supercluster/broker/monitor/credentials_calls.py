"""The credentials of this broker over HTTP (`/admin/credentials`; CL-5).

The answer gives the digests of the files in force, the credentials that clients present, and the logins by
which links were made. The operator plans each step of a rotation from it (`docs/adr/users.md`). It contains
no secret, and everything is bounded.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from supercluster.broker.monitor.broker import Network
from supercluster.broker.monitor.monitor import AdminHandler, AdminQuery
from supercluster.broker.net.clients.shown_credentials import Key, key_of

PATH = "credentials"

SHOWN_MAX = 4096
"""Credentials in one answer; the rest is counted."""
USERS_MAX = 16
"""Users whose clients are asked for at once."""
CLIENTS_MAX = 16
"""Clients that are named for a credential."""
CLIENTS_LOOKED_MAX = 16384
"""Connections that are looked at for one answer to name clients: it takes a few milliseconds of the loop."""


class CredentialsCalls:
    """Of one broker."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def routes(self) -> Iterator[tuple[str, str, AdminHandler]]:
        """Method, path and handler of each call."""
        yield "GET", PATH, self._state

    async def _state(self, query: AdminQuery, body: Any) -> tuple[int, Any]:
        wanted = query.listed("user")
        if len(wanted) > USERS_MAX:
            return 400, {
                "error": f"user is there {len(wanted)} times; at most {USERS_MAX} users can be asked for"
            }
        network = self._network
        started_ms = network.server.started_ms
        shown = list(self._shown(frozenset(wanted)))
        return 200, {
            "broker": network.place.name,
            "process": network.process_id,
            "upMs": network.clock.machine_ms() - started_ms if started_ms is not None else 0,
            "files": {
                name: {"digest": file.digest, "problem": file.problem}
                for name, file in network.credentials.files.items()
            },
            "shown": shown[:SHOWN_MAX],
            "shownMore": len(shown[SHOWN_MAX:]),
            "links": network.mesh.logins() if network.mesh is not None else {"cluster": {}, "gateway": {}},
        }

    def _shown(self, wanted: frozenset[str]) -> Iterator[dict[str, Any]]:
        tracker = self._network.server.shown_credentials
        in_force: dict[Key, bool] = {}
        """Key → is it a public key's?"""
        digests: dict[Key, str] = {}
        for user in self._network.credentials.users:
            if user.credential or user.is_operator:
                in_force.setdefault(key_of(user), bool(user.nkey))
                digests.setdefault(key_of(user), user.digest)
        gone = {
            key: bool(credential.nkey)
            for key in tracker.keys - tracker.in_force
            if (credential := next(iter(tracker.clients(key).values())).credential) is not None
            and (credential.credential or credential.is_operator)
        }
        several = Counter((account, name) for account, name, _ in tracker.in_force)
        room = CLIENTS_LOOKED_MAX
        for key, is_nkey in (in_force | gone).items():
            account, name, label = key
            clients = tracker.clients(key)
            row: dict[str, Any] = {
                "account": account,
                "nkey" if is_nkey else "user": name,
                "credential": label,
                "inForce": key in in_force,
                "digest": digests.get(key, ""),
                "connections": len(clients),
                "idleMs": tracker.idle_ms(key),
            }
            if several[account, name] > 1 or f"{account}/{name}" in wanted:
                looked = list(islice(clients.values(), room))
                room -= len(looked)
                named = Counter(
                    (client.peer[0], client.name, client.language, client.library_version)
                    for client in looked
                )
                most = heapq.nlargest(CLIENTS_MAX, named.items(), key=lambda found: found[1])
                row["clients"] = [
                    {
                        "address": address,
                        "name": client,
                        "language": language,
                        "version": version,
                        "connections": count,
                    }
                    for (address, client, language, version), count in most
                ]
                row["clientsMore"] = len(clients) - sum(count for _, count in most)
            yield row
