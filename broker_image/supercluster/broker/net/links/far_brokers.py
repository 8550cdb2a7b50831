"""Links with brokers of other super-clusters, over the migration port.

Every broker of the side that gives its streams away is linked with every broker of the side that takes them.
A link carries the core's frames, which the core filters (`jetstream/links/far_frames.py`), and the traffic
that `bridge.py` admits. Brokers of the other side go by their far names, so both sides may have the same
names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from supercluster.broker.migration.worlds import near_name, world_id, world_of
from supercluster.broker.net.links.bridge import Bridge, is_users
from supercluster.broker.net.links.dialler import Dialler
from supercluster.broker.net.links.door import Door
from supercluster.broker.net.links.far_search import FarSearch
from supercluster.broker.net.links.interest import Interest, note_interest, tell_interest
from supercluster.broker.net.links.link import Link, LinkConnection, LinkEnvironment
from supercluster.broker.net.routing.router import Router
from supercluster.broker.ports import Channel, FarSuperCluster, PeerInfo
from supercluster.broker.protocol import frames
from supercluster.broker.protocol.frames import FrameType, GatewayAddress, Hello

log = logging.getLogger(__name__)


class FarHooks(Protocol):
    """What hears of these links (`mesh.py`)."""

    def far_up(self, peer: PeerInfo) -> None:
        """A broker of another super-cluster is linked."""

    def far_down(self, node: str) -> None:
        """It is lost."""

    def far_carries(self, link: Link) -> None:
        """The link is new, or other accounts may cross it."""

    def on_frame(self, link: Link, frame_type: int, body: memoryview) -> None:
        """A frame of such a broker."""


class FarBrokers:
    """See the module. One per broker."""

    def __init__(
        self,
        environment: LinkEnvironment,
        dialler: Dialler,
        near: Mapping[str, Link],
        router: Router,
        system_account: Callable[[], str],
        hooks: FarHooks,
    ) -> None:
        """`near`: the links within this super-cluster."""
        self.links: dict[str, Link] = {}
        self.searches: dict[str, FarSearch] = {}
        """By the identity of the super-cluster."""
        self._environment = environment
        self._dialler = dialler
        self._near = near
        self._router = router
        self._system_account = system_account
        self._hooks = hooks
        self._stopping: set[asyncio.Task[None]] = set()
        self._gossip_due = False
        self._is_closed = False

    def attach(self, door: Door) -> None:
        """Brokers come and go by that door."""
        self._door = door
        door.finder = self

    # ---- whom to link with ----------------------------------------------------------------------------------------

    def want(self, wanted: Mapping[str, FarSuperCluster]) -> None:
        """Be linked with these super-clusters from now on, by identity, and with no others that have not come by themselves."""
        if self._is_closed:
            return
        for identity in self.searches.keys() - wanted.keys():
            stopping = self._environment.loop.create_task(self.searches.pop(identity).stop())
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)
            for link in list(self.links.values()):
                if link.control.dialled and world_of(link.peer.node) == world_id(identity):
                    link.control.close("no migration names its super-cluster any more")
        for identity, found in wanted.items():
            search = self.searches.get(identity)
            if search is None:
                self.searches[identity] = FarSearch(
                    self._environment, self._dialler, self._door, found, self.links
                )
            elif search.wanted != found:
                search.change(found)
        for link in self.links.values():
            self._carry_anew(link)

    def complete_worlds(self) -> frozenset[str]:
        """Of the super-clusters that this broker dials, those all of whose brokers are linked, as far as they are known."""
        return frozenset(search.world for search in self.searches.values() if search.is_complete)

    async def stop(self) -> None:
        """Dial no one any more."""
        self._is_closed = True
        searches, self.searches = self.searches, {}
        for search in searches.values():
            await search.stop()
        await asyncio.gather(*self._stopping, return_exceptions=True)

    def near_changed(self) -> None:
        """Brokers of this super-cluster came or went: others are told of it."""
        self._gossip_due = True

    def gossip(self) -> None:
        """Tell those that dialled whom else of this super-cluster they can dial, when that has changed."""
        if not self._gossip_due:
            return
        self._gossip_due = False
        body = frames.encode_gateways(self._neighbours())
        for link in self.links.values():
            if not link.control.dialled and not link.frame(FrameType.GATEWAYS, [body], Channel.CONTROL):
                self._gossip_due = True

    def _neighbours(self) -> list[GatewayAddress]:
        found = (link.control.hello for link in self._near.values())
        return [
            GatewayAddress(hello.node, hello.cluster, hello.migration_url)
            for hello in found
            if hello is not None and hello.migration_url
        ]

    def met(self, hello: Hello, address: str) -> bytes:
        """See `Finder`."""
        return frames.encode_gateways(self._neighbours())

    def introduced(self, hello: Hello, body: memoryview) -> None:
        """See `Finder`."""
        search = self.searches.get(hello.identity)
        if search is not None:
            search.introduced(hello, frames.decode_gateways(body))

    def on_addresses(self, link: Link, body: memoryview) -> None:
        """GATEWAYS of a linked broker."""
        search = self._search_of(link)
        if search is not None:
            search.told(near_name(link.peer.node), frames.decode_gateways(body))

    def _search_of(self, link: Link) -> FarSearch | None:
        hello = link.control.hello
        return self.searches.get(hello.identity) if hello is not None else None

    # ---- links that come and go -----------------------------------------------------------------------------------

    def up(self, control: LinkConnection, bulk: LinkConnection) -> Link:
        """Both connections of a pair have shaken hands."""
        hello, door = control.hello, control.door
        assert hello is not None
        older = self.links.get(door.broker_of(hello))
        if older is not None:
            older.control.close("a newer link replaces it")
        peer = PeerInfo(
            node=door.broker_of(hello),
            cluster=door.cluster_of(hello),
            incarnation=hello.incarnation,
            process=hello.process,
            client_url=hello.client_url,
            meta_state=hello.meta_state,
            version=min(hello.version, frames.VERSION),
            tags=hello.tags,
            gateway_url=hello.gateway_url,
            client_tls=hello.client_tls,
            client_plain=hello.client_plain,
        )
        identity = hello.identity
        bridge = Bridge(lambda account: self._carries(identity, account))
        self._router.set_other_world(peer.node)
        link = self.links[peer.node] = Link(peer, control, bulk, self._hooks.on_frame, self._down, bridge)
        log.info("linked with %s of super-cluster %s (%s)", peer.node, identity, control.address)
        self._carry_anew(link)
        if not control.dialled:
            self._gossip_due = True
        if (search := self.searches.get(identity)) is not None:
            search.linked(hello)
        self._hooks.far_up(peer)
        faults = self._environment.faults
        for connection in (control, bulk):
            connection.start(link)
            if faults.cuts(peer.node, peer.cluster):
                connection.cut_off()
        self._environment.turn.want()
        return link

    def _down(self, link: Link, reason: str) -> None:
        """One of its connections is gone."""
        node = link.peer.node
        if self.links.get(node) is not link:
            return
        del self.links[node]
        log.warning("link with %s lost: %s", node, reason)
        for other in (link.control, link.bulk):
            other.close(reason)
        for account in link.interest:
            self._forget_interest(link, account)
        link.release()
        if (search := self._search_of(link)) is not None:
            search.link_down(near_name(node))
        self._hooks.far_down(node)
        if not link.down.done():
            link.down.set_result(reason)
        self._environment.turn.want()

    # ---- interest -------------------------------------------------------------------------------------------------

    def _carries(self, identity: str, account: str) -> bool:
        if account.startswith(" ") or account in ("$SYS", self._system_account()):
            return False
        search = self.searches.get(identity)
        accounts = search.wanted.accounts if search is not None else None
        return accounts is None or account in accounts

    def tell_interest(self, account: str, entries: Interest) -> None:
        """Subscriptions of this broker's clients changed."""
        for link in self.links.values():
            bridge = link.bridge
            if bridge is not None and bridge.carries(account):
                bridge.told.add(account)
                tell_interest(link, account, bridge.narrowed(entries))

    def on_interest(self, link: Link, account: str, entries: list[tuple[bytes, bytes, int]]) -> None:
        """Those of a linked broker's clients did; what it says of an account that does not cross is kept until it does."""
        bridge = link.bridge
        note_interest(link, account, entries)
        if bridge is not None and bridge.carries(account):
            bridge.taken.add(account)
            users = [entry for entry in entries if is_users(entry[0])]
            self._router.remote_interest(link.peer.node, account, users)

    def _carry_anew(self, link: Link) -> None:
        """Other accounts may cross from now on: both sides' interest in them is told and taken, or forgotten."""
        self._hooks.far_carries(link)
        bridge = link.bridge
        assert bridge is not None
        for account in list(self._router.accounts.values()):
            if bridge.carries(account.name) and account.name not in bridge.told:
                bridge.told.add(account.name)
                tell_interest(link, account.name, bridge.narrowed(account.interest))
        for name in [name for name in bridge.told if not bridge.carries(name)]:
            bridge.told.discard(name)
            gone = dict.fromkeys(self._router.account(name).interest, 0)
            tell_interest(link, name, bridge.narrowed(gone))
        for name, known in link.interest.items():
            if bridge.carries(name) == (name in bridge.taken):
                continue
            if name in bridge.taken:
                self._forget_interest(link, name)
            else:
                bridge.taken.add(name)
                entries = [(*key, members) for key, members in bridge.narrowed(known).items()]
                self._router.remote_interest(link.peer.node, name, entries)

    def _forget_interest(self, link: Link, account: str) -> None:
        bridge = link.bridge
        if bridge is not None and account in bridge.taken:
            bridge.taken.discard(account)
            gone = [(*key, 0) for key in link.interest[account]]
            self._router.remote_interest(link.peer.node, account, gone)
