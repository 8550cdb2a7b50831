"""Brokers of the own cluster that are known by address alone, as nats-server's routes name them.

A short connection to each address introduces this broker and returns the other one's name and the brokers
that it knows, as between clusters (`gateways.py`). From then on brokers are known by name, and the mesh dials
them as usual. `complete` is called with all names when every address has answered, and every broker that
these named. It is called without names when that ceases to hold, because a further broker was named that has
not answered yet.

Of brokers that know one another only the one with the smallest name may start the map of streams, so some may
be complete before others. A broker that was asked knows the asking one from then on, and its answer tells
whether it has a map of streams. So of two brokers that know a common third one, at most one starts a map.

Brokers of other clusters may be linked with two brokers that do not know each other. They report that, and
neither of the two is complete.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from supercluster.broker.net.links.broker_facts import BrokerFacts
from supercluster.broker.net.links.dialler import Dialler
from supercluster.broker.net.links.door import Door
from supercluster.broker.net.links.link import Link
from supercluster.broker.protocol import frames
from supercluster.broker.protocol.frames import GatewayAddress, Hello
from supercluster.broker.settings.settings import SettingsError, check_name, split_address

log = logging.getLogger(__name__)

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 1.0
AGAIN_S = 5.0
"""How often an address is asked again whose broker is not linked."""
BROKERS_MAX = 64
"""Of one cluster, by routes."""


class Routes:
    """Finds the brokers of the own cluster."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        dialler: Dialler,
        door: Door,
        facts: BrokerFacts,
        links: Mapping[str, Link],
        addresses: Sequence[str],
        changed: Callable[[Mapping[str, str]], None],
        complete: Callable[[tuple[str, ...]], None],
    ) -> None:
        """`links`: those that there are, by broker. `changed` is handed the others' addresses by name."""
        self.peers: dict[str, str] = {}
        self._loop = loop
        self._dialler = dialler
        self._door = door
        self._facts = facts
        self._links = links
        self._seeds = frozenset(addresses)
        self._changed = changed
        self._complete: Callable[[tuple[str, ...]], None] | None = complete
        self._told: tuple[str, ...] = ()
        """What `complete` was called with last."""
        self._has_begun = False
        """Has somebody a map of streams? Then nobody founds one any more."""
        self._heard: dict[str, frozenset[str]] = {}
        """Linked broker of another cluster → brokers of this cluster that it is linked with."""
        self._found: dict[str, str] = {}
        """Address of the settings → who is there, itself too."""
        self._answered: set[str] = set()
        """Brokers that have said whom they know."""
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._tried: set[str] = set()
        """Addresses that were asked, whether anybody answered or not."""

    def start(self) -> None:
        """Ask everywhere."""
        for address in self._seeds:
            self._ask(address)
        self._judge()

    async def stop(self) -> None:
        """Ask nobody any more."""
        tasks = list(self._asking.values())
        self._asking.clear()
        self._complete = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What the handshakes tell

    def met(self, hello: Hello, address: str) -> bytes:
        """See `Finder`."""
        facts = self._facts
        self._has_begun |= hello.meta_state > 0
        known = [GatewayAddress(node, facts.cluster, url) for node, url in self.peers.items()]
        if hello.process != facts.process and hello.node not in self._links:
            self._learn(hello.node, _reachable(hello.gateway_url, address))
        return frames.encode_gateways(known)

    def introduced(self, hello: Hello, body: memoryview) -> None:
        """See `Finder`."""
        for entry in frames.decode_gateways(body)[:BROKERS_MAX]:
            if entry.cluster == self._facts.cluster and entry.node not in self.peers:
                self._learn(entry.node, entry.url)
        self._answered.add(hello.node)
        self._has_begun |= hello.meta_state > 0

    def heard(self, teller: str, nodes: Iterable[str]) -> None:
        """A linked broker of another cluster is linked with these of this one."""
        self._heard[teller] = frozenset(nodes)
        for node in sorted(self.strangers):
            log.warning(
                "%s is a server of this cluster according to %s, and no route leads there so far",
                node,
                teller,
            )
        self._judge()

    def teller_lost(self, teller: str) -> None:
        """The link with it is gone."""
        if self._heard.pop(teller, None):
            self._judge()

    @property
    def strangers(self) -> set[str]:
        """Brokers of the own cluster that other clusters know, and no route leads to."""
        return set().union(*self._heard.values()) - self.peers.keys() - {self._facts.node}

    @property
    def is_settled(self) -> bool:
        """Was every address of the settings asked once, and is everybody linked who answered?"""
        answered = set(self._found.values()) - {self._facts.node}
        return self._seeds <= self._tried and answered <= self._links.keys()

    # Asking

    def _learn(self, node: str, address: str) -> None:
        if node == self._facts.node or self.peers.get(node) == address:
            return
        if node not in self.peers and len(self.peers) >= BROKERS_MAX:
            log.warning("%s is not linked: %d brokers are known already", node, BROKERS_MAX)
            return
        try:
            check_name("broker", node)
            split_address("route", address)
        except SettingsError as error:
            log.warning("a broker of the cluster can't be linked: %s", error)
            return
        self.peers[node] = address
        self._changed(dict(self.peers))
        self._ask(address)
        self._judge()

    def _ask(self, address: str) -> None:
        if address not in self._asking:
            self._asking[address] = self._loop.create_task(self._keep_asking(address))

    async def _keep_asking(self, address: str) -> None:
        wait_s, said = 0.0, ""
        while True:
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
            node = self._found.get(address, "")
            if node and (node == self._facts.node or node in self._links):
                wait_s = AGAIN_S
                continue
            if address not in self._seeds and address not in self.peers.values():
                del self._asking[address]  # Its broker is somewhere else now.
                return
            wait_s = min(max(2 * wait_s, BACKOFF_FIRST_S), BACKOFF_MAX_S)
            error = await self._ask_once(address)
            self._tried.add(address)
            if error not in ("", said):
                log.warning("no route to %s yet: %s", address, error)
            said = error
            if not error:
                wait_s = AGAIN_S

    async def _ask_once(self, address: str) -> str:
        dial = self._dialler.introduce(self._door, address)
        hello, error = await self._dialler.attempt(f"asking at {address}", dial)
        if hello is None:
            return error
        self._found[address] = hello.node
        if hello.process != self._facts.process:
            # Where it was reached is better than where it believes to be.
            self._learn(hello.node, address)
        self._judge()
        return ""

    def _judge(self) -> None:
        """Has everybody answered?"""
        is_lacking = self._seeds - self._found.keys() or self.peers.keys() - self._answered or self.strangers
        names = () if is_lacking or self._has_begun else tuple(sorted({self._facts.node, *self.peers}))
        if self._complete is not None and names != self._told:
            self._told = names
            self._complete(names)


def _reachable(url: str, address: str) -> str:
    """What a broker says of its port, with the address that it came from where it is bound to all."""
    host, _, port = url.rpartition(":")
    if host.strip("[]") in ("", "0.0.0.0", "::"):
        host = f"[{address}]" if ":" in address else address
    return f"{host}:{port}"
