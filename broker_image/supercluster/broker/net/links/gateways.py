"""Links to brokers of other clusters: discovery, the dialling side, and gossip (CL-6).

Every broker is linked with every broker of every cluster. The settings name some gateway addresses to begin
with (seeds, perhaps stale, perhaps of a service in front of many brokers). A short connection to each
*introduces* this broker and returns the other one's name and the addresses that it knows. From then on
brokers are known by name, and of a pair the smaller name dials, as inside a cluster. Linked brokers exchange
the names of their links (GATEWAYS), so that a broker that knows one soon knows all. A broker that may not
dial and is not dialled introduces itself again: it may be the only one of the two that knows an address.

Attempts are spaced by a bounded, jittered back-off; an error is logged when it changes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass

from supercluster.broker.net.links.address_book import AddressBook
from supercluster.broker.net.links.broker_facts import BrokerFacts
from supercluster.broker.net.links.dialler import Dialler
from supercluster.broker.net.links.door import Door, Expected
from supercluster.broker.net.links.link import Link, LinkEnvironment
from supercluster.broker.net.links.link_keeper import BACKOFF_FIRST_S, LinkKeeper, Pace, Target
from supercluster.broker.net.links.routes import Routes
from supercluster.broker.ports import Channel
from supercluster.broker.protocol import frames
from supercluster.broker.protocol.frames import FrameType, GatewayAddress, Hello

log = logging.getLogger(__name__)

SEED_BACKOFF_MAX_S = 5.0
PATIENCE_S = 1.0
"""Who may not dial waits so long to be dialled before it introduces itself; twice as long each time."""
PATIENCE_MAX_S = 10.0
SEED_CHECK_S = 1.0
"""How often it is looked whether the last link to a seed's cluster is gone."""


@dataclass(slots=True)
class Seed:
    """An address of the settings, and what came of asking there."""

    cluster: str
    address: str
    node: str = ""
    error: str = ""


class Gateways:
    def __init__(
        self,
        environment: LinkEnvironment,
        dialler: Dialler,
        door: Door,
        facts: BrokerFacts,
        links: Mapping[str, Link],
    ) -> None:
        """`links`: those that there are, by broker."""
        self.book = AddressBook(facts.node, facts.cluster)
        self.seeds: dict[tuple[str, str], Seed] = {}
        self.routes: Routes | None = None
        """Where the brokers of the own cluster are not declared by name."""
        self._environment = environment
        self._dialler = dialler
        self._door = door
        self._facts = facts
        self._links = links
        self._asking: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._keeper = LinkKeeper(environment, dialler, self.book, links, self._target)
        self._gossip_due = False
        self._is_on = False

    @property
    def links(self) -> list[Link]:
        """Links with brokers of other clusters."""
        own = self._facts.cluster
        return [link for link in self._links.values() if link.peer.cluster != own]

    @property
    def troubles(self) -> list[str]:
        """For /healthz: clusters that can't be reached, and names that two clusters claim."""
        linked = {link.peer.cluster for link in self.links}
        apart = sorted({seed.cluster for seed in self.seeds.values()} - linked)
        return [
            *(f"there is no link with any broker of cluster {cluster}" for cluster in apart),
            *self.book.conflicts.values(),
        ]

    def set_seeds(self, seeds: Mapping[str, tuple[str, ...]]) -> None:
        """Ask at these addresses from now on; the own cluster's are passed over (one map serves all clusters)."""
        self._is_on = True
        wanted = {
            (cluster, address)
            for cluster, addresses in seeds.items()
            if cluster != self._facts.cluster
            for address in addresses
        }
        for key in set(self._asking) - wanted:
            self._asking.pop(key).cancel()
            del self.seeds[key]
        for key in wanted - set(self._asking):
            seed = self.seeds[key] = Seed(*key)
            self._asking[key] = self._environment.loop.create_task(self._ask(seed))

    async def stop(self) -> None:
        """Dial no one any more."""
        self._is_on = False
        asking = list(self._asking.values())
        self._asking.clear()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, *self._keeper.cancel(), return_exceptions=True)

    # What the mesh tells

    def link_up(self, link: Link) -> None:
        """Any link, also one of the own cluster: others are told of it."""
        peer = link.peer
        if peer.cluster != self._facts.cluster:
            self.book.said_itself(peer.node, peer.cluster, peer.gateway_url)
            self._keep_all()
        self._gossip_due = True

    def link_down(self, link: Link) -> None:
        """Others are told that this broker vouches for that one no more."""
        self.book.teller_lost(link.peer.node)
        if self.routes is not None:
            self.routes.teller_lost(link.peer.node)
        self._gossip_due = True

    def met(self, hello: Hello, address: str) -> bytes:
        """See `Finder`."""
        self.book.said_itself(hello.node, hello.cluster, hello.gateway_url)
        self._keep_all()
        return frames.encode_gateways(self._known_for(hello.cluster))

    def introduced(self, hello: Hello, body: memoryview) -> None:
        """See `Finder`."""
        if hello.node not in self._links:
            self.book.on_addresses(hello.node, frames.decode_gateways(body))
            self.book.teller_lost(hello.node)  # Without a link nobody hears when it is no longer true.
            self._keep_all()

    def on_addresses(self, link: Link, body: memoryview) -> None:
        """GATEWAYS of a linked broker."""
        entries = frames.decode_gateways(body)
        self.book.on_addresses(link.peer.node, entries)
        if self.routes is not None and link.peer.cluster != self._facts.cluster:
            own = (entry.node for entry in entries if entry.cluster == self._facts.cluster)
            self.routes.heard(link.peer.node, own)
        self._keep_all()

    def gossip(self) -> None:
        """Tell every linked broker whom this one is linked with, when that has changed."""
        if not self._gossip_due:
            return
        self._gossip_due = False
        bodies: dict[str, bytes] = {}
        for link in self._links.values():
            cluster = link.peer.cluster
            if cluster not in bodies:
                bodies[cluster] = frames.encode_gateways(self._known_for(cluster))
            if not link.frame(FrameType.GATEWAYS, [bodies[cluster]], Channel.CONTROL):
                self._gossip_due = True

    def _known_for(self, cluster: str) -> list[GatewayAddress]:
        """Linked brokers that are of another cluster than the one that is told. Where brokers of a cluster find one another by
        routes also those of that one: it may not know them."""
        peers = [link.peer for link in self._links.values()]
        by_routes = self.routes is not None and cluster != self._facts.cluster
        return [
            GatewayAddress(peer.node, peer.cluster, peer.gateway_url)
            for peer in peers
            if peer.gateway_url and (peer.cluster != cluster or by_routes)
        ]

    # Dialling

    def _keep_all(self) -> None:
        if self._is_on:
            self._keeper.keep_all()

    def _target(self, node: str) -> Target:
        """Be linked with it, or see to it that it dials."""
        dials = self._facts.node < node

        async def dial(address: str) -> Link | Hello:
            cluster = self.book.cluster_of(node) or ""
            if dials:
                return await self._dialler.dial(self._door, Expected(node), address, node, cluster)
            return await self._dialler.introduce(self._door, address, Expected(node), node, cluster)

        return Target(node, dial, Pace() if dials else Pace(PATIENCE_S, PATIENCE_S, PATIENCE_MAX_S))

    async def _ask(self, seed: Seed) -> None:
        """Ask who is at a seed's address: at the start, and whenever there is no link with its cluster."""
        wait_s = 0.0
        while True:
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
            if seed.node and any(link.peer.cluster == seed.cluster for link in self._links.values()):
                wait_s = SEED_CHECK_S
                continue
            wait_s = min(max(2 * wait_s, BACKOFF_FIRST_S), SEED_BACKOFF_MAX_S)
            error = await self._ask_once(seed)
            if error not in ("", seed.error):
                log.warning(
                    "no broker to link with at gateways.%s: %s: %s", seed.cluster, seed.address, error
                )
            seed.error = error

    async def _ask_once(self, seed: Seed) -> str:
        dial = self._dialler.introduce(self._door, seed.address, cluster=seed.cluster)
        hello, error = await self._dialler.attempt(f"asking at {seed.address}", dial)
        if hello is None:
            return error
        if hello.cluster != seed.cluster:
            return f"{hello.node} is there, which is of cluster {hello.cluster}, not {seed.cluster}"
        seed.node = hello.node
        self.book.said_itself(hello.node, hello.cluster, hello.gateway_url or seed.address)
        self._keep_all()
        return ""
