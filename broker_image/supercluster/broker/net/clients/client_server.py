"""The clients of a broker: those that are connected, the limit on their number, and messages to all of them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.auth.users import User
from supercluster.broker.net.clients.admission import Admission
from supercluster.broker.net.clients.adoption import Adoption
from supercluster.broker.net.clients.certificates import ClientCertificates
from supercluster.broker.net.clients.client import Client, Redirecting
from supercluster.broker.net.clients.counts import ServerCounts
from supercluster.broker.net.clients.info import ServerFacts, info_line
from supercluster.broker.net.clients.reauthorization import Reauthorization
from supercluster.broker.net.clients.shared_limits import SharedLimits
from supercluster.broker.net.clients.shown_credentials import ShownCredentials
from supercluster.broker.net.clients.strangers import PendingConnections, RationedLog
from supercluster.broker.net.routing.account_imports import AccountImports
from supercluster.broker.net.routing.router import DEFAULT_ACCOUNT, Router
from supercluster.broker.net.routing.turn import Turn
from supercluster.broker.ports import Clock
from supercluster.broker.protocol.websocket import NO_RULES
from supercluster.broker.settings.settings import Limits

log = logging.getLogger(__name__)

HELD_CHECK_S = 0.25
"""How often it is checked whether held messages have waited too long; only while some are held."""

CONNECTIONS_MAX = 1 << 20
"""`limits.max_connections` is no more."""

TLS_REQUIRED = "Secure Connection - TLS Required"
"""In nats-server's words."""

LINGERING_BYTES_MAX = 64 << 20
LINGERING_MAX = 4096
"""Messages of clients that are gone, and such clients, that wait for streams without room: who comes, publishes and goes makes a
broker keep no more. Beyond it those of the first to go are refused."""


@dataclass(slots=True)
class Traffic:
    """Of clients that are gone, from the broker's side."""

    connections: int = 0
    in_messages: int = 0
    in_bytes: int = 0
    out_messages: int = 0
    out_bytes: int = 0
    slow_consumers: int = 0

    def add(self, client: Client) -> None:
        """And of this one."""
        self.connections += 1
        self.in_messages += client.in_messages
        self.in_bytes += client.in_bytes
        self.out_messages += client.subscriber.out_messages
        self.out_bytes += client.subscriber.out_bytes
        self.slow_consumers += client.close_reason == "Slow Consumer"


class ClientWatch(Protocol):
    """Hears of clients that come and go."""

    def came(self, client: Client) -> None:
        """A client has shown its credentials."""

    def went(self, client: Client) -> None:
        """A client is gone that had come."""

    def refused(self, client: Client, user: str) -> None:
        """A client had wrong credentials."""


class ClientServer:
    """All clients of a broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        router: Router,
        turn: Turn,
        limits: Limits,
        credentials: Credentials,
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.router = router
        self.turn = turn
        self.limits = limits
        self.credentials = credentials
        self.counts = ServerCounts()
        self.shown_credentials = ShownCredentials(credentials, clock.machine_ms)
        self.admission = Admission(
            loop, clock, credentials, router.account, self.counts, self.shown_credentials.shows
        )
        self.shared_limits = SharedLimits(credentials)
        self._reauthorization = Reauthorization(
            credentials,
            clock.monotonic_ms,
            self.shown_credentials.shows,
            self._adopt,
        )
        judged = self._reauthorization
        self._adoption = Adoption(
            loop, self.admission.comparisons, credentials, judged.judge, judged.take_over, judged.refuse
        )
        self.default_account = DEFAULT_ACCOUNT
        self.imports = AccountImports(router)
        self.log_stranger = RationedLog(log.info, clock.monotonic_ms)
        """Of clients whose CONNECT was not taken."""
        self.clients: dict[int, Client] = {}
        self._strangers: PendingConnections[Client] = PendingConnections(CONNECTIONS_MAX, CONNECTIONS_MAX)
        """Have not said CONNECT; where all places are taken the oldest of the address with the most makes room."""
        self.lame_duck = False
        self.started_ms: int | None = None
        """Since when it has taken clients, by the machine's clock."""
        self.facts: ServerFacts | None = None
        self.watch: ClientWatch | None = None
        self.redirecting: Redirecting | None = None
        self.gone: dict[str, Traffic] = {}
        """By account."""
        self._lingering: dict[Client, None] = {}
        """Gone clients with messages that still wait for their streams."""
        self.tls: ClientCertificates | None = None
        self.websocket_tls: ClientCertificates | None = None
        self.web_rules = NO_RULES
        """For clients that come by WebSocket."""
        self.listeners: list[asyncio.Server] = []
        """Of its ports (`listener.py`)."""
        self._peer_urls: list[str] = []
        self._loads: dict[str, int] = {}
        self._last_id = 0
        self._held_timer: asyncio.TimerHandle | None = None

    @property
    def auth_required(self) -> bool:
        """Do clients need credentials?"""
        return self.admission.is_needed

    def handshake_failed(self, reason: str) -> None:
        """TLS with somebody came to nothing."""
        self.counts.tls_failures += 1
        self.log_stranger("a client was not let in: %s", reason)

    async def start(self, facts: ServerFacts) -> None:
        """Accept clients from now on (SF-14: once the broker knows the streams)."""
        self.facts = facts
        for listener in self.listeners:
            await listener.start_serving()
        self.started_ms = self.clock.machine_ms()

    @property
    def has_headers(self) -> bool:
        """Do clients have headers?"""
        return self.facts is None or self.facts.headers

    def change_limits(self, limits: Limits) -> None:
        """Hold clients to other limits from now on: those that are here too, except that none is sent away because there
        are more than may be."""
        before, self.limits = self.limits, limits
        for client in self.clients.values():
            client.limits_changed()
        if self.facts is not None and limits.max_payload_bytes != before.max_payload_bytes:
            self.push_info()

    def change_tls(self, tls: ClientCertificates | None) -> None:
        """TLS of clients that come from now on. Where it is required of them, those that are here in plain are sent away."""
        self.tls = tls
        self.push_info()
        if tls is None or tls.settings.allow_plain:
            return
        for client in list(self.clients.values()):
            if client.has_come and not client.is_websocket and client.tls is None:
                client.close(TLS_REQUIRED)

    def stop_accepting(self) -> None:
        """Close the ports; the clients stay."""
        for listener in self.listeners:
            listener.close()
        self.listeners.clear()

    # Connections

    def connected(self, client: Client) -> str:
        """A client came; returns why it can't stay, or an empty text."""
        self._last_id += 1
        client.subscriber.id = self._last_id
        self.counts.connections_total += 1
        full = len(self.clients) >= self.limits.max_connections
        if full and self._strangers:
            self._strangers.evict().close("maximum connections exceeded")
            full = False
        self.clients[client.id] = client
        if self.auth_required and not full:
            self._strangers.add(client, client.peer[0])
        return "maximum connections exceeded" if full else ""

    def disconnected(self, client: Client) -> None:
        """A client's socket is gone."""
        self.clients.pop(client.id, None)
        self._strangers.discard(client)
        if self.redirecting is not None:
            self.redirecting.went(client)
        self.counts.in_messages += client.in_messages
        self.counts.in_bytes += client.in_bytes
        self.counts.out_messages += client.subscriber.out_messages
        self.counts.out_bytes += client.subscriber.out_bytes
        if client.has_come:
            self.gone.setdefault(client.account.name, Traffic()).add(client)
            if self.watch is not None:
                self.watch.went(client)
        if client.held.total_bytes or client.waits_for_room:
            self._lingering[client] = None
            self._bound_lingering()
            self.holding()
        else:
            client.foreign.clear()

    def declare_accounts(self) -> None:
        """What the credentials say of accounts' imports and exports is in force from now on."""
        accounts = self.credentials.accounts
        if accounts != self.router.declared_accounts:
            present = (
                (client.account, found)
                for client in self.clients.values()
                for found in client.subscriber.subscriptions.values()
            )
            self.imports.declare(accounts, present)

    def let_in(self, client: Client) -> None:
        """Its credentials are right, or it needs none."""
        self._strangers.discard(client)

    def came(self, client: Client) -> bool:
        """A client's CONNECT was taken. False: it is sent away."""
        self.let_in(client)
        if self.redirecting is not None and not self.redirecting.came(client):
            return False
        client.has_come = True
        if self.watch is not None:
            self.watch.came(client)
        return True

    def refused(self, client: Client, user: str) -> None:
        """A client's credentials are wrong."""
        self.counts.auth_failures += 1
        if self.watch is not None:
            self.watch.refused(client, user)

    def credentials_changed(self) -> None:
        """Clients that are known by them still go on under the permissions of now; the others are cut off (CL-5)."""
        self.declare_accounts()
        for client in list(self.clients.values()):
            self._reauthorization.judge(client)
        self.shared_limits.changed()

    def _adopt(self, client: Client, user: User) -> None:
        self._adoption.ask(client, user)

    # INFO

    @property
    def urls(self) -> list[str]:
        """Where clients may connect: here, and at the others of the cluster."""
        own = self.facts.client_url if self.facts is not None else ""
        return [url for url in (own, *self._peer_urls) if url]

    def info_line(self, client: Client) -> bytes:
        assert self.facts is not None
        return self._info(client, lame_duck=self.lame_duck)

    def _urls_for(self, client: Client, *, lame_duck: bool) -> list[str]:
        if client.is_websocket:
            return []
        found = self.redirecting.urls(client) if self.redirecting is not None else None
        if found is not None:
            return found
        return self._urls_to_leave_for() if lame_duck else self.urls

    def _info(self, client: Client, *, lame_duck: bool) -> bytes:
        assert self.facts is not None
        urls = self._urls_for(client, lame_duck=lame_duck)
        credentials = self.credentials
        tls = self.websocket_tls if client.is_websocket else self.tls
        return info_line(
            self.facts,
            client.id,
            client.peer[0],
            urls,
            max_payload_bytes=client.allowance.payload_bytes_max,
            auth_required=self.auth_required and credentials.anonymous(client.connection_type) is None,
            lame_duck=lame_duck,
            tls=tls.settings if tls is not None else None,
            nonce=client.nonce if credentials.has_nkeys else "",
        )

    def set_load(self, url: str, clients: int) -> None:
        """How many clients another broker of the cluster says it has."""
        if url in self._loads:
            self._loads[url] = clients

    def _urls_to_leave_for(self) -> list[str]:
        """The others, least loaded first (CL-7); whoever was named first counts as having one client more, so that not
        all go to the same."""
        urls = sorted(self._peer_urls, key=lambda url: (self._loads.get(url, 0), url))
        if urls:
            self._loads[urls[0]] = self._loads.get(urls[0], 0) + 1
        return urls

    def set_peer_urls(self, urls: list[str]) -> None:
        """The brokers of the cluster came or went: tell the clients (CL-4)."""
        if urls == self._peer_urls:
            return
        self._peer_urls = urls
        self._loads = {url: self._loads.get(url, 0) for url in urls}
        self.push_info()

    def push_info(self) -> None:
        """Send INFO to all that take it at any time."""
        for client in self.clients.values():
            if client.wants_info and not client.closed:
                client.push(self.info_line(client))

    # Held messages

    def holding(self) -> None:
        if self._held_timer is None:
            self._held_timer = self.loop.call_later(HELD_CHECK_S, self._check_held)

    @property
    def held_bytes(self) -> int:
        """All that is held for full streams."""
        return sum(client.held.total_bytes for client in (*self.clients.values(), *self._lingering))

    @property
    def is_routing(self) -> bool:
        """Is something that was read of clients still to be routed?"""
        return any(client.waits_for_room for client in (*self.clients.values(), *self._lingering))

    def stood_still(self) -> None:
        """This process did nothing for a while: what is held begins to wait now (SF-29)."""
        now_ms = self.clock.monotonic_ms()
        for client in (*self.clients.values(), *self._lingering):
            client.held.be_patient(now_ms)

    def _bound_lingering(self) -> None:
        """Refuse at once what the first of too many that are gone have waiting, as past its time."""
        held_bytes = sum(client.held.total_bytes for client in self._lingering)
        for client in list(self._lingering):
            if held_bytes <= LINGERING_BYTES_MAX and len(self._lingering) <= LINGERING_MAX:
                return
            if not client.waits_for_room:
                held_bytes -= client.held.total_bytes
                client.refuse_held(self.clock.monotonic_ms(), 0)
                del self._lingering[client]

    def _check_held(self) -> None:
        self._held_timer = None
        now_ms = self.clock.monotonic_ms()
        again = False
        for client in (*self.clients.values(), *self._lingering):
            if client.held.total_bytes:
                client.refuse_held(now_ms, self.limits.window_wait_ms)
                again |= client.held.total_bytes > 0
        self._lingering = {
            client: None for client in self._lingering if client.held.total_bytes or client.waits_for_room
        }
        again |= bool(self._lingering)
        if again:
            self.holding()

    # Leaving

    @property
    def others(self) -> dict[str, int]:
        """The other brokers of the cluster that take clients, and how many each said it has."""
        return dict(self._loads)

    def ask_to_leave(self, client: Client) -> None:
        """Ask one client to go to another broker (CL-7), as a lame duck asks all; what it still sends is taken (SF-16)."""
        self.tell_to_leave(client)
        client.finish()

    def tell_to_leave(self, client: Client) -> None:
        """Tell one client by INFO where to go; it is served as before."""
        client.push(self._info(client, lame_duck=True))

    def begin_lame_duck(self) -> None:
        """Take no one in any more, and ask those that are here to leave."""
        self.lame_duck = True
        self.stop_accepting()
        self.push_info()

    def abort(self) -> None:
        """Close whatever is left."""
        self.stop_accepting()
        if self._held_timer is not None:
            self._held_timer.cancel()
            self._held_timer = None
        self._adoption.close()
        self.admission.comparisons.close()
        for client in list(self.clients.values()):
            client.close("Server Shutdown", tell=False)
