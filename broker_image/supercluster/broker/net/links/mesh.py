"""The mesh of brokers: the links, the frames on them, announcements of subscriptions, and the loss of a
broker.

There is a link with every broker of every cluster, so a message needs one hop (CL-1, CL-6). Of each pair the
broker with the smaller name dials (`dialler.py`, `gateways.py`). Both sides present credentials and the
identity of their super-cluster within a time limit (CL-3, `handshake.py`). A silent link is given up after a
second, or two between clusters. On a new link both sides first announce all their subscriptions, so that no
message is routed by an older link's announcements.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ParamSpec

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.auth.link_credentials import Login
from supercluster.broker.net.clients.client_server import ClientServer
from supercluster.broker.net.clients.connection import CONGESTED_BYTES
from supercluster.broker.net.clients.redirection import Redirection
from supercluster.broker.net.clients.strangers import RationedLog
from supercluster.broker.net.hooks import CoreHooks
from supercluster.broker.net.links import silence
from supercluster.broker.net.links.bridge import is_users
from supercluster.broker.net.links.broker_facts import BrokerFacts
from supercluster.broker.net.links.dialler import Dialler
from supercluster.broker.net.links.door import Door, cluster_refusal, gateway_refusal, migration_refusal
from supercluster.broker.net.links.far_brokers import FarBrokers
from supercluster.broker.net.links.faults import LinkFaults
from supercluster.broker.net.links.gateways import Gateways
from supercluster.broker.net.links.handshake import Handshakes
from supercluster.broker.net.links.interest import note_interest, tell_interest
from supercluster.broker.net.links.link import Link, LinkConnection, LinkEnvironment
from supercluster.broker.net.links.link_logins import LinkLogins
from supercluster.broker.net.links.open_sockets import OpenSockets
from supercluster.broker.net.links.peers import ClusterPeers
from supercluster.broker.net.links.redirect_links import RedirectLinks
from supercluster.broker.net.links.resolver import Resolver
from supercluster.broker.net.links.routes import Routes
from supercluster.broker.net.links.switch import Switches, go_over
from supercluster.broker.net.routing.origin import ClientOrigin
from supercluster.broker.net.routing.router import Router
from supercluster.broker.net.routing.turn import Turn
from supercluster.broker.own_time import OwnTime, patience_ms
from supercluster.broker.ports import Channel, PeerInfo
from supercluster.broker.protocol import frames
from supercluster.broker.protocol.frames import CORE_TYPES_FROM, FrameError, FrameType
from supercluster.broker.settings.settings import GatewayTls

log = logging.getLogger(__name__)

P = ParamSpec("P")

CHECK_S = 0.1
LOAD_MS = 1000
"""How often brokers of a cluster tell each other how many clients they have, when it changed."""

STOOD_STILL_MS = 500
"""A process that did nothing for so long asks for the map of streams anew: the others give a link up after twice that, and one
that told them of its stalls (PING) is given as much longer as `patience_ms` says."""

STALL_MAX_MS = 2000
"""A link that stays congested for longer holds no publisher back any more: its messages are dropped, and counted, when
its queue is full."""


class Mesh:
    """Links to the other brokers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: OwnTime,
        router: Router,
        server: ClientServer,
        turn: Turn,
        credentials: Credentials,
        resolver: Resolver,
        facts: BrokerFacts,
        handshake_ms: int,
        redirection: Redirection,
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.router = router
        self.server = server
        self.turn = turn
        self.facts = facts
        self.links: dict[str, Link] = {}
        self.sockets = OpenSockets()
        self.faults = LinkFaults(self._cut)
        self.cluster_door = Door(
            "cluster",
            lambda: credentials.links,
            cluster_refusal,
            self.links,
            lambda own: own.route_url(),
            leads_home=True,
        )
        self.gateway_door = Door(
            "gateway",
            lambda: credentials.gateways,
            gateway_refusal,
            self.links,
            lambda own: own.gateway_url(),
        )
        self._link_logins = LinkLogins(loop, self._all_links)
        environment = LinkEnvironment(loop, clock, turn, handshake_ms / 1000, self.faults, self.sockets)
        self.handshakes = Handshakes(environment, facts, self.cluster_of, self._up)
        self._dialler = Dialler(environment, self.handshakes, resolver)
        self._peers = ClusterPeers(environment, self._dialler, self.cluster_door, facts.node, facts.cluster)
        self._switches = Switches(environment, self._dialler, self.links)
        self.gateways = Gateways(environment, self._dialler, self.gateway_door, facts, self.links)
        self.gateway_door.finder = self.gateways
        self.far = FarBrokers(
            environment, self._dialler, self.links, router, lambda: credentials.system_account, self
        )
        self.migration_door = Door(
            "migration",
            lambda: credentials.migrations,
            migration_refusal,
            self.far.links,
            lambda own: own.migration_url(),
            is_far=True,
        )
        self.far.attach(self.migration_door)
        self.redirects = RedirectLinks(self.far.links, self.links, redirection)
        self._log_stall = RationedLog(log.warning, clock.monotonic_ms)
        self._core: CoreHooks | None = None
        self._own_cluster: frozenset[str] = frozenset()
        self._changed: dict[str, dict[tuple[bytes, bytes], int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._awake_ms = 0
        """When this process was last seen at work, by the machine's clock."""
        self._own_stall_ms = 0
        self._stall_told_ms = 0
        """What all others were told of this process's stalls, a round of the loop ago at least."""
        self._load_told = 0
        self._load_at_ms = 0
        router.attach_links(self)

    @property
    def routes(self) -> Routes | None:
        """Where the brokers of the own cluster are not declared by name."""
        return self.gateways.routes

    def find_by_routes(
        self,
        addresses: Sequence[str],
        changed: Callable[[Mapping[str, str]], None],
        complete: Callable[[tuple[str, ...]], None],
    ) -> None:
        """See `Routes`."""
        self.gateways.routes = self.cluster_door.finder = Routes(
            self.loop, self._dialler, self.cluster_door, self.facts, self.links, addresses, changed, complete
        )

    async def start(self, core: CoreHooks | None, peers: Mapping[str, str]) -> None:
        """Accept links and dial the others."""
        self._core = core
        await self.handshakes.start()
        self.set_peers(peers)

    def set_peers(self, peers: Mapping[str, str]) -> None:
        """The other brokers of the cluster and their addresses; may change while running."""
        if not self.handshakes.is_closed:
            self._own_cluster = frozenset(peers)
            self._peers.set_peers(peers)

    def set_tags(self, tags: tuple[str, ...]) -> None:
        """What the broker says of its place to those that it is linked with from now on."""
        self.facts = replace(self.facts, tags=tags)
        self.handshakes.set_facts(self.facts)

    def set_plain(self, cluster: GatewayTls | None, gateway: GatewayTls | None) -> None:
        """What becomes of links without TLS, where there is TLS: they go over to it, or end where they are not allowed."""
        for door, tls in ((self.cluster_door, cluster), (self.gateway_door, gateway)):
            if tls is not None:
                door.plain = tls.plain
        for link in list(self.links.values()):
            if not link.control.door.lets_in(encrypted=link.control.is_encrypted):
                link.control.close("links have to be encrypted from now on")
        self._switches.look()

    def cluster_of(self, node: str) -> str | None:
        """The cluster that has a broker of that name: by the settings, the links, or what the core remembers of brokers
        that are away."""
        if node in self._own_cluster:
            return self.facts.cluster
        link = self.links.get(node)
        if link is not None:
            return link.peer.cluster
        return self._core.cluster_of(node) if self._core is not None else None

    def credentials_changed(self) -> None:
        """Links and those that are on their way follow the logins of now (CL-5)."""
        self.handshakes.credentials_changed()
        self._link_logins.changed()

    def logins(self) -> dict[str, Counter[str]]:
        """By port: by which users links were made, and how many; a link counts for each of the two that its sides showed."""
        found: dict[str, Counter[str]] = {
            door.name: Counter() for door in (self.cluster_door, self.gateway_door)
        }
        for link in self.links.values():
            found[link.control.door.name].update(link.logins)
        return found

    async def stop(self) -> None:
        """Close everything."""
        self.handshakes.refuse_all()
        self._link_logins.close()
        if self.routes is not None:
            await self.routes.stop()
        await self._switches.stop()
        await self._peers.stop()
        await self.gateways.stop()
        await self.far.stop()
        for link in self._all_links():
            link.control.flush()
            link.bulk.flush()
            link.control.close("this broker stops")
        self.handshakes.abandon("this broker stops")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.faults.release()
        await self.sockets.closed()

    def leave(self) -> None:
        """Tell the others that this broker is a lame duck, so that they send no clients here."""
        for link in self.links.values():
            link.frame(FrameType.LEAVING, [], Channel.CONTROL)
        self.turn.want()

    # Sending

    def send(self, node: str, frame_type: int, body: Sequence[frames.Buffer], channel: Channel) -> bool:
        """See `ports.Network.send`."""
        if self._changed:
            self._tell_interest()
        link = self.links.get(node) or self.far.links.get(node)
        if link is None:
            return False
        self.turn.want()
        return link.frame(frame_type, list(body), channel)

    def send_message(
        self,
        node: str,
        account: str,
        plain: bool,
        queues: list[bytes] | tuple[()],
        message: tuple[bytes, bytes, bytes, bytes],
        origin: ClientOrigin | None,
    ) -> bool:
        if self._changed:
            self._tell_interest()
        link = self.links.get(node)
        if link is None:
            link = self.far.links.get(node)
            if link is None or not is_users(message[0]):
                return False
        if link.congested and origin is not None:
            link.stall(origin)
        return link.message(account, plain, queues, message)

    def pending_bytes(self, node: str, account: str, inbox: bytes) -> int:
        """Bytes that wait on the control connection to a broker, and at least as many as that said wait there."""
        link = self.links.get(node) or self.far.links.get(node)
        if link is None:
            return 0
        waiting = link.control.pending_bytes()
        return max(waiting, CONGESTED_BYTES + 1) if (account, inbox) in link.slow else waiting

    def interest_changed(self, account: str, subject: bytes, queue: bytes, members: int) -> None:
        """Tell the brokers, before anything else that is sent from now on."""
        if self.links or self.far.links:
            if not self._changed:
                self.turn.urgent.append(self)
                self.turn.want()
            self._changed.setdefault(account, {})[subject, queue] = members

    def flush(self) -> None:
        """End of the turn: tell what nobody was told yet."""
        self._tell_interest()

    def _tell_interest(self) -> None:
        changed, self._changed = self._changed, {}
        for account, entries in changed.items():
            for link in self.links.values():
                tell_interest(link, account, entries)
            self.far.tell_interest(account, entries)

    # Receiving

    def on_frame(self, link: Link, frame_type: int, body: memoryview) -> None:
        """A frame of a linked broker."""
        bridge = link.bridge
        if frame_type >= CORE_TYPES_FROM:
            core = self._core
            if core is not None:
                self._tell_core(core.on_frame, link.peer.node, frame_type, body)
        elif frame_type == FrameType.MESSAGES:
            account, found = frames.decode_messages(body)
            messages = list(found) if bridge is None else bridge.messages(account, list(found))
            self.router.remote_messages(link.peer.node, account, messages)
        elif frame_type == FrameType.DELIVER_TO:
            account, inbox, plain, queues, items = frames.decode_deliver_to(body)
            if bridge is not None and not bridge.carries(account):
                return
            self.router.deliveries.remote_deliver(
                link.peer.node, account, inbox, items, plain=plain, queues=queues
            )
        elif frame_type == FrameType.INTEREST:
            account, entries = frames.decode_interest(body)
            if bridge is not None:
                self.far.on_interest(link, account, entries)
                return
            note_interest(link, account, entries)
            self.router.remote_interest(link.peer.node, account, entries)
        elif frame_type == FrameType.SLOW:
            account, inbox, slow = frames.decode_slow(body)
            (link.slow.add if slow else link.slow.discard)((account, inbox))
        elif frame_type == FrameType.LOGIN:
            self._link_logins.shown(link, Login(*frames.decode_login(body)))
        elif frame_type == FrameType.LEAVING:
            link.leaving = True
            self._tell_urls()
        elif frame_type == FrameType.GATEWAYS and bridge is not None:
            self.far.on_addresses(link, body)
        elif frame_type == FrameType.GATEWAYS:
            self.gateways.on_addresses(link, body)
        elif frame_type == FrameType.LOAD:
            link.clients = frames.decode_load(body)
            if bridge is not None:
                return
            self.server.set_load(link.peer.client_url, link.clients)
        elif frame_type == FrameType.PING:
            self._peer_pings(link, *frames.decode_ping(body))
        elif bridge is None:
            if not self.redirects.on_near_frame(frame_type, body):
                raise FrameError(f"type {frame_type} is not known")
        elif not self.redirects.on_frame(link, frame_type, body):
            raise FrameError(f"type {frame_type} is not known")

    def _tell_core(self, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            call(*args, **kwargs)
        except Exception as error:
            self.turn.fail(error)

    # Links that come and go

    def _up(self, control: LinkConnection, bulk: LinkConnection) -> Link:
        """Both connections of a pair have shaken hands."""
        hello = control.hello
        assert hello is not None
        self.handshakes.done(control, bulk)
        self._begin_checks()
        if control.door.is_far:
            self._tell_interest()
            link = self.far.up(control, bulk)
            self._link_logins.up(link)
            return link
        if control.replaces:
            link = go_over(self.links, control, bulk)
            self._link_logins.up(link)
            self._cut()
            self.turn.want()
            return link
        older = self.links.get(hello.node)
        if older is not None:
            older.control.close("a newer link replaces it")
        peer = PeerInfo(
            node=hello.node,
            cluster=hello.cluster,
            incarnation=hello.incarnation,
            process=hello.process,
            client_url=hello.client_url,
            meta_state=hello.meta_state,
            version=min(hello.version, frames.VERSION),
            tags=hello.tags,
            gateway_url=hello.gateway_url,
            lineage=hello.lineage,
            bootstrap_id=hello.bootstrap_id,
            process_count=hello.process_count,
        )
        self.router.set_far(peer.node, peer.cluster != self.facts.cluster)
        self._tell_interest()
        link = self.links[peer.node] = Link(peer, control, bulk, self.on_frame, self._down)
        log.info("linked with %s (%s)", peer.node, control.address)
        for account in self.router.accounts.values():
            tell_interest(link, account.name, account.interest)
        if self.server.lame_duck:
            link.frame(FrameType.LEAVING, [], Channel.CONTROL)
        self._load_told = -1
        self.gateways.link_up(link)
        self.far.near_changed()
        if self._core is not None:
            self._tell_core(self._core.on_link_up, peer)
        self._tell_urls()
        for connection in (control, bulk):
            connection.start(link)
            if self.faults.cuts(peer.node, peer.cluster):
                connection.cut_off()
        self._link_logins.up(link)
        self.turn.want()
        return link

    def _down(self, link: Link, reason: str) -> None:
        """One of its connections is gone."""
        if self.links.get(link.peer.node) is not link:
            return
        del self.links[link.peer.node]
        log.warning("link with %s lost: %s", link.peer.node, reason)
        for other in link.connections:
            other.close(reason)
        for account, entries in link.interest.items():
            gone = [(subject, queue, 0) for subject, queue in entries]
            self.router.remote_interest(link.peer.node, account, gone)
        link.release()
        self.gateways.link_down(link)
        self.far.near_changed()
        if self._core is not None:
            self._tell_core(self._core.on_link_down, link.peer.node)
        if not link.down.done():
            link.down.set_result(reason)
        self._tell_urls()
        self.turn.want()

    def _begin_checks(self) -> None:
        if self._timer is None:
            self._awake_ms = self.clock.machine_ms()
            self._timer = self.loop.call_later(CHECK_S, self._check)

    def _all_links(self) -> list[Link]:
        """Also those with brokers of other super-clusters."""
        return [*self.links.values(), *self.far.links.values()]

    def far_up(self, peer: PeerInfo) -> None:
        """See `FarHooks`."""
        if self._core is not None:
            self._tell_core(self._core.on_far_up, peer)

    def far_carries(self, link: Link) -> None:
        """See `FarHooks`."""
        self.redirects.carries(link)

    def far_down(self, node: str) -> None:
        """See `FarHooks`."""
        if self._core is not None:
            self._tell_core(self._core.on_far_down, node)

    def _cut(self) -> None:
        """Other brokers can't be reached now (`faults.py`)."""
        for link in self._all_links():
            for connection in link.connections:
                if self.faults.cuts(link.peer.node, link.peer.cluster):
                    connection.cut_off()
                elif connection.is_cut:
                    connection.heal()

    # Heartbeats

    def wake(self) -> None:
        """Something comes from a client: has this process stood still (stopped, or starved of processor time)?"""
        if self._timer is None:
            return
        now_ms = self.clock.machine_ms()
        still_ms = now_ms - self._awake_ms
        if still_ms > STOOD_STILL_MS + patience_ms(self._stall_told_ms) // 2:
            self._awake_ms = now_ms
            self._log_stall("this process was stopped for %d ms", still_ms)
            self.server.stood_still()
            if self._core is not None:
                self._tell_core(self._core.stood_still)

    def _check(self) -> None:
        """Say something on quiet connections; give up silent ones."""
        self.wake()
        self._timer = None
        now_ms = self.clock.monotonic_ms()
        self._awake_ms = self.clock.machine_ms()
        self.gateways.gossip()
        self.far.gossip()
        self._tell_load(now_ms)
        self._switches.look()
        for link in self._all_links():
            link.retire()
            if link.congested and now_ms - link.congested_ms > STALL_MAX_MS:
                link.release()
            silence.check(link, self.clock, now_ms, is_far=link.peer.cluster != self.facts.cluster)
        if self._core is not None and self._own_stall_ms != self.clock.stall_ms:
            self._own_stall_ms = self.clock.stall_ms
            self._tell_core(self._core.peer_stalls, self.facts.node, self._own_stall_ms)
        told_ms = min((link.stall_told_ms for link in self._all_links()), default=0)
        self._stall_told_ms = min(told_ms, self.clock.stall_ms)
        if self.links or self.far.links:
            self._timer = self.loop.call_later(CHECK_S, self._check)

    def _peer_pings(self, link: Link, stall_ms: int, clock_ns: int) -> None:
        if self._core is not None:
            self._tell_core(self._core.peer_clock, link.peer.node, clock_ns)
        if stall_ms != link.stall_ms:
            link.stall_ms = stall_ms
            if self._core is not None:
                self._tell_core(self._core.peer_stalls, link.peer.node, stall_ms)

    def _tell_load(self, now_ms: int) -> None:
        clients = len(self.server.clients)
        if clients == self._load_told or now_ms - self._load_at_ms < LOAD_MS:
            return
        self._load_told, self._load_at_ms = clients, now_ms
        for link in self.links.values():
            if link.peer.cluster == self.facts.cluster:
                link.frame(FrameType.LOAD, [frames.encode_load(clients)], Channel.CONTROL)

    def _tell_urls(self) -> None:
        urls = [
            link.peer.client_url
            for link in self.links.values()
            if link.peer.cluster == self.facts.cluster and not link.leaving
        ]
        self.server.set_peer_urls(sorted(urls))
