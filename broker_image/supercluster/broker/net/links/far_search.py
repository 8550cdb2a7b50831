"""Finds the brokers of another super-cluster that a migration names, and keeps a link with each.

A short connection to an address of the migration returns its broker's name and the addresses of that broker's
neighbours, as between clusters (`gateways.py`). This side always dials, whatever the names are: the other
side may not know of the migration.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence

from supercluster.broker.migration.worlds import far_name, world_id
from supercluster.broker.net.links.address_book import AddressBook
from supercluster.broker.net.links.dialler import Dialler
from supercluster.broker.net.links.door import Door, Expected
from supercluster.broker.net.links.link import Link, LinkEnvironment
from supercluster.broker.net.links.link_keeper import BACKOFF_FIRST_S, LinkKeeper, Target
from supercluster.broker.ports import FarSuperCluster
from supercluster.broker.protocol.frames import GatewayAddress, Hello

log = logging.getLogger(__name__)

ASK_BACKOFF_MAX_S = 5.0
ASK_CHECK_S = 1.0
"""How often it is looked whether the last link with the super-cluster is gone."""


class FarSearch:
    """For one super-cluster."""

    def __init__(
        self,
        environment: LinkEnvironment,
        dialler: Dialler,
        door: Door,
        wanted: FarSuperCluster,
        links: Mapping[str, Link],
    ) -> None:
        """`links`: those with brokers of other super-clusters, by their far names."""
        self.wanted = wanted
        self.world = world_id(wanted.identity)
        self.errors: dict[str, str] = {}
        """Address of the migration → what came of asking there; empty: somebody answered."""
        self.book = AddressBook("", "")
        self._environment = environment
        self._dialler = dialler
        self._door = door
        self._links = links
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._keeper = LinkKeeper(environment, dialler, self.book, links, self._target)
        self._ask_all()

    def change(self, wanted: FarSuperCluster) -> None:
        """Migrations name it in another way."""
        self.wanted = wanted
        for address in self._asking.keys() - set(wanted.addresses):
            self._asking.pop(address).cancel()
            self.errors.pop(address, None)
        self._ask_all()

    async def stop(self) -> None:
        """Dial no one any more."""
        asking = list(self._asking.values())
        self._asking.clear()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, *self._keeper.cancel(), return_exceptions=True)

    @property
    def is_linked(self) -> bool:
        """Is there a link with any of its brokers?"""
        return any(link.peer.node.endswith(self._mark) for link in self._links.values())

    @property
    def is_complete(self) -> bool:
        """Is there a link with each of its brokers that an address is known of?"""
        names = [far_name(node, self.world) for node in self.book.nodes]
        return bool(names) and all(name in self._links for name in names)

    @property
    def _mark(self) -> str:
        return far_name("", self.world)

    def linked(self, hello: Hello) -> None:
        """A broker of it was dialled, and says where it can be reached."""
        self.book.said_itself(hello.node, hello.cluster, hello.gateway_url)
        self._keeper.keep_all()

    def told(self, teller: str, entries: Sequence[GatewayAddress]) -> None:
        """A linked broker of it says which others there are now."""
        self.book.on_addresses(teller, entries)
        self._keeper.keep_all()

    def introduced(self, hello: Hello, entries: Sequence[GatewayAddress]) -> None:
        """A broker that was asked says who it is, and which others there are."""
        self.book.said_itself(hello.node, hello.cluster, hello.gateway_url)
        self.book.on_addresses(hello.node, entries)
        self.book.teller_lost(hello.node)  # Without a link nobody hears when it is no longer true.
        self._keeper.keep_all()

    def link_down(self, node: str) -> None:
        """The link with a broker of it, by its own name, is lost."""
        self.book.teller_lost(node)

    # ---- asking and dialling --------------------------------------------------------------------------------------

    def _ask_all(self) -> None:
        for address in self.wanted.addresses:
            if address not in self._asking:
                self._asking[address] = self._environment.loop.create_task(self._ask(address))

    def _expected(self, node: str = "") -> Expected:
        return Expected(node, self.wanted.identity, self.wanted.tls_name)

    async def _ask(self, address: str) -> None:
        wait_s = 0.0
        while True:
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
            if self.is_linked and self.errors.get(address) == "":
                wait_s = ASK_CHECK_S
                continue
            wait_s = min(max(2 * wait_s, BACKOFF_FIRST_S), ASK_BACKOFF_MAX_S)
            dial = self._dialler.introduce(self._door, address, self._expected())
            hello, error = await self._dialler.attempt(f"asking at {address}", dial)
            if error not in ("", self.errors.get(address)):
                log.warning(
                    "super-cluster %s: no broker answers at %s: %s", self.wanted.identity, address, error
                )
            self.errors[address] = error
            if hello is not None:
                # It was reached there, wherever it believes to be.
                self.book.said_itself(hello.node, hello.cluster, address)
                self._keeper.keep_all()

    def _target(self, node: str) -> Target:
        name = far_name(node, self.world)

        async def dial(address: str) -> Link:
            cluster = far_name(self.book.cluster_of(node) or "", self.world)
            return await self._dialler.dial(self._door, self._expected(node), address, name, cluster)

        return Target(name, dial)
