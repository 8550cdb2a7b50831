"""The broker's process: builds clock, network, core and monitor, starts them in order and stops them in
order.

Start: all ports are bound first (an address in use ends the process at once), links come up, and clients are
let in last, when the core knows the streams (SF-14). Stop: clients are asked to leave and sent FIN, their
remaining messages are accepted and committed, then links and files are closed (SF-16).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.bulk.server import NO_FIGURES, BulkServer
from supercluster.broker.bulk.transcoder import is_possible
from supercluster.broker.monitor import views
from supercluster.broker.monitor.admin_calls import AdminCalls
from supercluster.broker.monitor.credentials_calls import CredentialsCalls
from supercluster.broker.monitor.monitor import Monitor
from supercluster.broker.monitor.rebalance_calls import RebalanceCalls
from supercluster.broker.monitor.redirect_calls import RedirectCalls
from supercluster.broker.monitor.system_documents import SystemDocuments
from supercluster.broker.monitor.system_requests import SystemRequests
from supercluster.broker.net.clients import listener
from supercluster.broker.net.clients.certificates import (
    ClientCertificates,
    GatewayCertificates,
    Loaded,
)
from supercluster.broker.net.clients.client_server import ClientServer
from supercluster.broker.net.clients.farewell import say_farewell
from supercluster.broker.net.clients.info import ServerFacts
from supercluster.broker.net.clients.rebalance import Rebalance
from supercluster.broker.net.clients.redirection import OVERDUE_MS, Redirection
from supercluster.broker.net.hooks import Core
from supercluster.broker.net.links.broker_facts import BrokerFacts
from supercluster.broker.net.links.mesh import Mesh
from supercluster.broker.net.links.resolver import Resolver
from supercluster.broker.net.listen_address import opened, shown
from supercluster.broker.net.routing.router import Router
from supercluster.broker.net.routing.turn import Turn
from supercluster.broker.ports import ClientInfo, Publisher
from supercluster.broker.runtime import founders
from supercluster.broker.runtime.clock import SystemClock
from supercluster.broker.runtime.collector import Collector
from supercluster.broker.settings.place import Place
from supercluster.broker.settings.reload import Reload
from supercluster.broker.settings.settings import ClientTls, GatewayTls, Settings, SettingsError
from supercluster.broker.version import VERSION

log = logging.getLogger(__name__)

REFRESH_S = 1.0
"""How often changed credentials, certificates and settings are looked for."""

READY_CHECK_S = 0.01
ROUTES_WAIT_MS = 2000
"""How long a broker that is ready otherwise waits for routes that nobody has answered yet."""
DRAIN_CHECK_S = 0.02


class BrokerProcess:
    """One broker. `make_core` opens the volume and builds the core; None: a plain NATS server. `collector`: for a
    process of its own, whose garbage it looks after. `credentials`: in place of those of the directory."""

    def __init__(
        self,
        settings: Settings,
        place: Place,
        make_core: Callable[[BrokerProcess], Core] | None = None,
        collector: Collector | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.settings = settings
        self.place = place
        self.loop = asyncio.get_running_loop()
        self.clock = SystemClock()
        self.credentials = credentials or Credentials(place.credentials_dir)
        self.turn = Turn(self.loop, self.clock)
        self.router = Router(self.turn, random.Random(), self.clock)
        self.server = ClientServer(
            self.loop, self.clock, self.router, self.turn, settings.limits, self.credentials
        )
        self.resolver = Resolver(place.hosts_file)
        self.process_id = f"{random.SystemRandom().getrandbits(128):032x}"
        documents = SystemDocuments(self)
        self.monitor = Monitor(self, documents)
        self.bulk: BulkServer | None = None
        """None: the port is not open."""
        self.rebalance = Rebalance(self.server, self._awaiting)
        self.redirection = self.server.redirecting = Redirection(
            self.server, self._awaiting, self._unsettled, self._overdue
        )
        self.system = SystemRequests(self, self.turn, documents)
        self.core: Core | None = None
        self._make_core = make_core
        self.mesh: Mesh | None = None
        self.failure: asyncio.Future[BaseException] = self.loop.create_future()
        self.client_port = 0
        self.websocket_port = 0
        self.cluster_port = 0
        self.gateway_port = 0
        """0: none is open."""
        self.migration_port = 0
        """0: none is open."""
        self.monitor_port = 0
        self.bulk_port = 0
        """0: none is open."""
        self.accepting = False
        self.started_ns = self.clock.now_ns()
        self._collector = collector
        self._gateway_certificates: GatewayCertificates | None = None
        self._migration_certificates: GatewayCertificates | None = None
        self._of_links: dict[str, GatewayCertificates] = {}
        self._of_ports: dict[str, ClientCertificates] = {}
        """Both by the names of the settings."""
        self._refresher: asyncio.Task[None] | None = None
        self._has_other_credentials = False
        """They were read again, and clients and links are still to follow."""
        self._owed: Settings | None = None
        """Changed ones with files of certificates that could not be used so far."""
        has_file = not place.is_alone and place.routes is None
        self.reload = Reload(place.config if has_file else None, settings)

    @property
    def advertised_client_url(self) -> str:
        """host:port that clients and brokers are told; empty: clients have nowhere else to go, and brokers there are none."""
        if self.place.is_alone:
            return self.place.advertise
        if self.place.client_advertise:
            return self.place.client_advertise
        return shown(self.place.advertise, self.client_port)

    async def start(self) -> None:
        """Bring everything up.

        Raises:
            OSError: an address can't be bound.
            CredentialsError: a credentials file can't be used.
            SettingsError: the files of `gatewayTls`, `migrationTls`, `clientTls`, `websocketTls` or the monitoring port can't be used.
        """
        if self.settings.gateway_tls is not None:
            self._gateway_certificates = self._link_certificates("gatewayTls", self.settings.gateway_tls)
        if self.settings.migration_tls is not None:
            self._migration_certificates = self._link_certificates(
                "migrationTls", self.settings.migration_tls
            )
        ports = self.settings.ports
        host = self.place.host
        self.credentials.load()
        self.server.declare_accounts()
        client_tls = self._client_certificates("clientTls", self.settings.client_tls)
        self.client_port = await opened(
            "clients", host, ports.client, listener.listen(self.server, host, ports.client, client_tls)
        )
        if ports.websocket >= 0:
            websocket_tls = self._client_certificates("websocketTls", self.settings.websocket_tls)
            self.server.web_rules = self.place.web_rules
            at = self.place.websocket_host or host, ports.websocket
            listening = listener.listen_websocket(self.server, *at, websocket_tls)
            self.websocket_port = await opened("websocket clients", *at, listening)
        if self.place.is_monitored:
            self.monitor.port.tls = self._client_certificates("monitorTls", self.settings.monitor_tls)
            at = self.place.monitor_host or host, ports.monitor
            self.monitor_port = await opened("monitoring", *at, self.monitor.start(*at))
        self.monitor.register_routes(RebalanceCalls(self, self.rebalance).routes())
        self.monitor.register_routes(RedirectCalls(self, self.redirection).routes())
        self.monitor.register_routes(CredentialsCalls(self).routes())
        if self._make_core is not None:
            core = self.core = self._make_core(self)
            core.invalidate_captures = self.router.invalidate_captures
            core.far_changed = self._far_changed
            self.monitor.register_routes(AdminCalls(core, self.turn, self._security, self._identity).routes())
        await self._open_mesh(host)
        await self._open_migration_port(host)
        await self._open_bulk_port(host)
        self.router.attach(self.core)
        self.router.serve_domain(self.settings.domain)
        self.turn.start(self.core, self._core_failed)
        assert self.mesh is not None
        await self.mesh.start(self.core, self._other_peers(self.settings))
        if self.mesh.routes is not None:
            self.mesh.routes.start()
        if self.settings.gateways is not None:
            self.mesh.gateways.set_seeds(self.settings.gateways)
        self._far_changed()
        self._refresher = self.loop.create_task(self._refresh())
        log.info(
            "%s starts: brokers on %s, other clusters on %s, monitoring on %d",
            self.place.name,
            shown(host, self.cluster_port),
            self.gateway_port or "no port",
            self.monitor_port,
        )
        while self.core is not None and not self.core.accepts_clients and not self.failure.done():
            await asyncio.sleep(READY_CHECK_S)
        await self._find_others()
        await self.server.start(
            ServerFacts(
                server_id=self.process_id,
                name=self.place.name,
                cluster=self.settings.cluster,
                super_cluster=self.settings.super_cluster,
                host=host,
                port=self.client_port,
                client_url=self.advertised_client_url,
                jetstream=self.core is not None,
                domain=self.settings.domain,
                bulk_port=self.bulk_port,
                headers=self.place.has_headers,
            )
        )
        self.accepting = True
        self.system.events.start()
        log.info("%s is ready: clients on %s", self.place.name, shown(host, self.client_port))

    async def _find_others(self) -> None:
        """Give the brokers that routes lead to a moment, so that the first client hears of all of them (CL-4)."""
        routes = self.mesh.routes if self.mesh is not None else None
        give_up_ms = self.clock.monotonic_ms() + ROUTES_WAIT_MS
        while routes is not None and not routes.is_settled and self.clock.monotonic_ms() < give_up_ms:
            await asyncio.sleep(READY_CHECK_S)

    def _client_certificates(self, name: str, tls: ClientTls | None) -> ClientCertificates | None:
        if tls is None:
            return None
        found = self._of_ports[name] = ClientCertificates(tls, name, self.place.tls_dir)
        return found

    def _link_certificates(self, name: str, tls: GatewayTls) -> GatewayCertificates:
        found = self._of_links[name] = GatewayCertificates(tls, name, self.place.tls_dir)
        return found

    @property
    def loaded_certificates(self) -> dict[str, Loaded]:
        return {name: found.loaded for name, found in self._of_links.items()}

    def _identity(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "superCluster": settings.super_cluster,
            "identity": settings.identity,
            "version": VERSION,
            "timeNs": self.clock.now_ns(),
            "migrationPort": self.migration_port or None,
            "greens": self._greens(),
        }

    def _greens(self) -> list[str]:
        """Identities of super-clusters that have streams of this one, or are to get some."""
        wanted = self.core.wanted_far() if self.core is not None else {}
        return [identity for identity, found in sorted(wanted.items()) if found.has_streams]

    def _security(self) -> dict[str, Any]:
        return {
            "config": views.config(self),
            "tls": views.certificates(self),
            "links": views.encryption_of_links(self),
            "ports": views.encryption_of_ports(self, self.monitor.port.tls),
        }

    async def _open_mesh(self, host: str) -> None:
        """Bind the ports for brokers."""
        settings = self.settings
        facts = BrokerFacts(
            node=self.place.name,
            cluster=settings.cluster,
            super_cluster=settings.super_cluster,
            identity=settings.identity,
            incarnation=self.core.incarnation if self.core is not None else self.process_id,
            process=self.process_id,
            process_count=self.core.process_count if self.core is not None else 0,
            client_url=self.advertised_client_url,
            client_tls=lambda: self.settings.client_tls is not None,
            client_plain=lambda: self.settings.client_tls is None or self.settings.client_tls.allow_plain,
            meta_state=lambda: self.core.meta_state if self.core is not None else 0,
            lineage=lambda: self.core.lineage if self.core is not None else "",
            bootstrap_id=lambda: self.core.bootstrap_id if self.core is not None else "",
            map_level=lambda: self.core.map_level if self.core is not None else 0,
            tags=settings.tags,
            gateway_url=self._gateway_url,
            migration_url=self._migration_url,
            route_url=lambda: (
                self.place.route_advertise or shown(self.place.cluster_host or host, self.cluster_port)
            ),
        )
        mesh = self.mesh = Mesh(
            self.loop,
            self.clock,
            self.router,
            self.server,
            self.turn,
            self.credentials,
            self.resolver,
            facts,
            settings.limits.auth_timeout_ms,
            self.redirection,
        )
        if settings.link_faults:
            for method in ("GET", "PUT"):
                self.monitor.register_admin(method, "faults", mesh.faults.admin)
        mesh.set_plain(settings.cluster_tls, settings.gateway_tls)
        if self.place.is_alone:
            return
        if self.place.routes is not None:
            mesh.find_by_routes(self.place.routes, self._peers_found, self._all_found)
        if settings.cluster_tls is not None:
            mesh.cluster_door.tls = self._link_certificates("clusterTls", settings.cluster_tls)
        if self.place.has_cluster_port:
            if not self.credentials.links.accept and not self.credentials.links.is_open:
                log.warning("there is no cluster.json, so no other broker is let in")
            elif not self.credentials.links.accept and self.credentials.users:
                log.warning("the cluster port lets any broker in: its routes have no authorization")
            at = self.place.cluster_host or host, settings.ports.cluster
            listening = mesh.handshakes.listen(mesh.cluster_door, *at)
            self.cluster_port = await opened("brokers", *at, listening)
        if settings.gateways is None:
            return
        if not self.credentials.gateways.accept and not self.credentials.gateways.is_open:
            log.warning("there is no gateway.json, so no broker of another cluster is let in")
        mesh.gateway_door.tls = self._gateway_certificates
        at = self.place.gateway_host or host, settings.ports.gateway
        listening = mesh.handshakes.listen(mesh.gateway_door, *at)
        self.gateway_port = await opened("brokers of other clusters", *at, listening)

    def _gateway_url(self) -> str:
        """host:port for brokers of other clusters; empty: there is no such port."""
        told = self.place.gateway_advertise or self.place.advertise
        has_port = ":" in told.rpartition("]")[2]
        return f"{told}{'' if has_port else f':{self.gateway_port}'}" if self.gateway_port else ""

    async def _open_migration_port(self, host: str) -> None:
        """For brokers of other super-clusters; this broker dials theirs by the same certificates and credentials."""
        settings, mesh, certificates = self.settings, self.mesh, self._migration_certificates
        assert mesh is not None
        mesh.migration_door.tls = certificates
        if settings.ports.migration < 0 or self.place.is_alone:
            return
        if not self.credentials.migrations.accept:
            log.warning("there is no migration.json, so no broker of another super-cluster is let in")
        listening = mesh.handshakes.listen(mesh.migration_door, host, settings.ports.migration)
        self.migration_port = await opened(
            "brokers of other super-clusters", host, settings.ports.migration, listening
        )

    def bulk_figures(self) -> dict[str, int]:
        return self.bulk.figures() if self.bulk is not None else NO_FIGURES

    async def _open_bulk_port(self, host: str) -> None:
        """For readers of whole streams."""
        port = self.settings.bulk.port
        if port < 0 or self.core is None:
            return
        if not is_possible():
            log.error("the bulk port stays closed: pyarrow is not installed")
            return
        self.bulk = BulkServer(self)
        self.bulk.port.tls = self._of_ports.get("clientTls")
        self.bulk_port = await opened("bulk reads", host, port, self.bulk.start(host, port))

    def _migration_url(self) -> str:
        return shown(self.place.advertise, self.migration_port) if self.migration_port else ""

    def _far_changed(self) -> None:
        """The map of streams names other super-clusters."""
        if self.core is not None and self.mesh is not None:
            self.mesh.far.want(self.core.wanted_far())

    def _peers_found(self, others: Mapping[str, str]) -> None:
        """Routes lead to these brokers."""
        own = {self.place.name: self.settings.peers[self.place.name]}
        self.settings = replace(self.settings, peers={**own, **others})
        if self.mesh is not None:
            self.mesh.set_peers(others)

    def _all_found(self, names: tuple[str, ...]) -> None:
        """Nobody is lacking: with these the map of streams may begin, unless it is there already, or another cluster's to begin.
        No names: that is so no more."""
        cluster, others = self.settings.cluster, self.settings.gateways or ()
        voters = founders.voters(names, cluster, others)
        if names:
            log.info(
                "the cluster has %s; %s begins the map of streams",
                ", ".join(names),
                founders.first((cluster, *others)),
            )
        self.settings = replace(self.settings, meta_voters=voters)
        if self.core is not None:
            self.core.settings_changed(self.settings)
            self.turn.want()

    async def lame_duck(self) -> None:
        """Let the clients go without losing what they sent, within a bound (SF-16). Leaderships are handed over meanwhile."""
        log.info("%s is leaving: clients are asked to go elsewhere", self.place.name)
        self.accepting = False
        self.system.events.leaves()
        self.server.begin_lame_duck()
        if self.mesh is not None:
            self.mesh.leave()
        if self.core is not None:
            self.core.leave()
            self.turn.want()
        await asyncio.sleep(0)
        limits = self.settings.limits
        await say_farewell(self.server, limits.lame_duck_grace_ms, limits.lame_duck_duration_ms)
        deadline_ms = self.clock.machine_ms() + self.settings.limits.drain_ms
        while self.server.clients and self.clock.machine_ms() < deadline_ms:
            await asyncio.sleep(DRAIN_CHECK_S)
        if self.server.clients:
            log.warning("%d clients have not gone within the time limit", len(self.server.clients))
        while not self._is_drained() and self.clock.machine_ms() < deadline_ms:
            await asyncio.sleep(DRAIN_CHECK_S)
        if not self._is_drained():
            log.warning("not all messages of clients were committed within the time limit")

    async def stop(self) -> None:
        """Close everything."""
        if self._refresher is not None:
            self._refresher.cancel()
        self.rebalance.close()
        self.redirection.close()
        await self.system.stop()
        if self.bulk is not None:
            await self.bulk.stop()
        self.server.abort()
        self.turn.stop()
        if self.mesh is not None:
            await self.mesh.stop()
        if self.core is not None and not self.failure.done():
            self.core.close(clean=True)
        await self.monitor.stop()
        log.info("%s has stopped", self.place.name)

    def _awaiting(self, clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        return self.core.awaiting_answers(clients) if self.core is not None else set()

    def _unsettled(self, clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        return self.core.unsettled(clients) if self.core is not None else set()

    def _overdue(self, clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        return self.core.overdue(clients, OVERDUE_MS) if self.core is not None else set()

    def _is_drained(self) -> bool:
        is_taken = not self.server.held_bytes and not self.server.is_routing
        return is_taken and (self.core is None or self.core.is_drained)

    def _core_failed(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_result(error)

    async def _refresh(self) -> None:
        """Take over changed credentials and settings; look for garbage."""
        while True:
            await asyncio.sleep(REFRESH_S)
            if self._collector is not None:
                self._collector.look(self.turn.count, self.clock.monotonic_ms())
            try:
                if self.bulk is not None:
                    self.bulk.look()
                self._refresh_once()
            except Exception:
                # A file that nobody thought of must not leave users in who were removed from the next one.
                log.exception("credentials, certificates and settings stay as they were")

    def _refresh_once(self) -> None:
        self._has_other_credentials |= self.credentials.refresh()
        if self._has_other_credentials:
            log.info("credentials were read again")
            if self.mesh is not None:
                self.mesh.credentials_changed()
            self.server.credentials_changed()
            self._has_other_credentials = False  # What fails above is tried again.
            self.server.push_info()
        self._refresh_certificates()
        changed = self.reload.look(self.settings) or self._owed
        if changed is not None:
            self.take_over(changed)

    def _refresh_certificates(self) -> None:
        for name, certificates in (*self._of_links.items(), *self._of_ports.items()):
            try:
                if certificates.refresh():
                    log.info("%s: the files were read again", name)
            except SettingsError as error:
                log.error("certificates stay as they were: %s", error)

    def take_over(self, changed: Settings) -> None:
        """What a running broker takes over of changed settings (`settings/reload.py`)."""
        before, self.settings = self.settings, self._with_certificates(changed)
        self.monitor.port.tls = self._of_ports.get("monitorTls")
        if self.bulk is not None:
            self.bulk.port.tls = self._of_ports.get("clientTls")
        if self.settings.client_tls != before.client_tls:
            self.server.change_tls(self._of_ports.get("clientTls"))
        if changed.limits != before.limits:
            self.server.change_limits(changed.limits)
        if self.core is not None:
            self.core.settings_changed(changed)
        if self.mesh is not None:
            if changed.tags != before.tags:
                self.mesh.set_tags(changed.tags)
            self.mesh.set_plain(changed.cluster_tls, changed.gateway_tls)
            self.mesh.set_peers(self._other_peers(changed))
            if changed.gateways is not None and self.gateway_port:
                self.mesh.gateways.set_seeds(changed.gateways)
        self.turn.want()
        log.info("changed settings are in force: %s", self.reload.digest)

    def _with_certificates(self, changed: Settings) -> Settings:
        """The changed settings, with the TLS of before where the files of the changed one can't be used."""
        tls = {"clientTls": "client_tls", "websocketTls": "websocket_tls", "monitorTls": "monitor_tls"}
        kept: dict[str, Any] = {}
        for name, field in tls.items():
            found, wanted = self._of_ports.get(name), getattr(changed, field)
            try:
                if wanted is None:
                    self._of_ports.pop(name, None)
                elif found is None:
                    self._client_certificates(name, wanted)
                elif wanted != found.settings:
                    found.replace(wanted)
            except SettingsError as error:
                log.error("certificates stay as they were: %s", error)
                kept[field] = found.settings if found is not None else None
        self._owed = changed if kept else None
        return replace(changed, **kept)

    def _other_peers(self, settings: Settings) -> dict[str, str]:
        return {node: address for node, address in settings.peers.items() if node != self.place.name}
