"""Clients on their way to another super-cluster: the brokers' counts of them, and the orders of the map.

During a migration each broker of blue sends its clients' counts to all others every second. The broker that
is asked adds them up. The network handles the connections, and sets the functions here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.migration import Migration
from supercluster.broker.jetstream.meta.redirect_orders import (
    GreenLinks,
    RedirectOrder,
    is_watched,
    redirect_orders,
)
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.migration.worlds import world_of
from supercluster.broker.ports import PeerInfo
from supercluster.broker.protocol.client_reports import (
    AccountClients,
    ClientReport,
    added,
    decode_report,
    encode_report,
)

REPORT_MS = 1000
# Three reports: what a broker said before that says nothing of its clients now.
FRESH_MS = 3500


class FarClients:
    """See the module. One per broker."""

    def __init__(self, env: Environment, peers: Peers, map_view: MapView) -> None:
        self._env = env
        self._peers = peers
        self._map = map_view
        self._reports: dict[str, tuple[ClientReport, int]] = {}
        """By broker: what it said, and when."""
        self._next_ms: int | None = None
        self.orders: Mapping[str, RedirectOrder] = {}
        """In force at this broker, by migration."""
        self.report: Callable[[], ClientReport] = ClientReport
        """What this broker's network knows of its own clients."""
        self.linked: Callable[[], frozenset[str]] = frozenset
        """The worlds all of whose known brokers are linked with this one."""
        self.orders_changed: Callable[[], None] = lambda: None
        self.handlers: dict[int, Callable[[str, memoryview, int], None]] = {Frame.CLIENTS: self._on_clients}

    def far_changed(self) -> None:
        """Brokers of other super-clusters came or went."""
        self._look()

    # ---- what brokers tell each other -----------------------------------------------------------------------------

    def _on_clients(self, node: str, body: memoryview, now_ms: int) -> None:
        report, asks = decode_report(body)
        self._reports[node] = report, now_ms
        if asks:
            self._peers.post(node, Frame.CLIENTS, [encode_report(self.report(), asks=False)])
        self._look()

    def ask(self) -> None:
        """Have all brokers in contact say which clients they have."""
        self._tell_all(asks=True)

    def _tell_all(self, *, asks: bool) -> None:
        own = self.report()
        self._reports[self._env.node] = own, self._env.clock.monotonic_ms()
        body = encode_report(own, asks=asks)
        for node in self._peers.linked:
            self._peers.post(node, Frame.CLIENTS, [body])

    def clients_of(self, migration: Migration) -> AccountClients:
        """Those in scope, of all brokers whose word is fresh."""
        return added(
            row
            for report in self._fresh().values()
            for account, row in sorted(report.accounts.items())
            if migration.covers(account)
        )

    def takes(self, world: str) -> tuple[bool, bool]:
        """Whether that super-cluster's port for clients takes TLS, and clients without it. Both, while no broker of it is linked."""
        far = [peer for peer in self._peers.far.values() if world_of(peer.node) == world]
        return not far or any(peer.client_tls for peer in far), not far or any(
            peer.client_plain for peer in far
        )

    def silent(self) -> list[str]:
        """Brokers that are in the map and have not said of late which clients they have."""
        known = self._map.replica.state.brokers if self._map.replica is not None else {}
        return sorted(known.keys() - self._fresh().keys())

    def left(self, migration: Migration) -> str:
        """Why clients of the scope are still to go, in words; empty: nobody is. Who cannot go, or came back too often, is left where the
        migration bridges such clients."""
        silent = self.silent()
        if silent:
            return f"{silent[0]} has not said which clients it has"
        found = self.clients_of(migration)
        stays = 0 if migration.bridges else found.staying
        count = found.waiting + stays
        if not count:
            return ""
        names = ", ".join(filter(None, found.staying_names[:3] if stays else found.failing[:3]))
        return f"{count} clients are still to go to the other super-cluster" + (
            f" ({names})" if names else ""
        )

    def _fresh(self) -> dict[str, ClientReport]:
        since_ms = self._env.clock.monotonic_ms() - FRESH_MS
        return {node: report for node, (report, at_ms) in self._reports.items() if at_ms >= since_ms}

    # ---- orders ---------------------------------------------------------------------------------------------------

    def map_changed(self) -> None:
        """The map of streams moved on."""
        state = self._map.replica.state if self._map.replica is not None else None
        if state is None or not is_watched(state):
            self._next_ms = None
        elif self._next_ms is None:
            self._next_ms = self._env.clock.monotonic_ms()
        if state is not None and (state.migrations or self.orders):
            self._look()

    def tick(self, now_ms: int) -> None:
        if self._next_ms is None or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + REPORT_MS
        self._tell_all(asks=False)
        self._look()

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._next_ms

    def _look(self) -> None:
        """Are other orders in force now?"""
        if self._map.replica is None:
            return
        found = redirect_orders(self._map.replica.state, self._green_links(), self.orders)
        if found != self.orders:
            self.orders = found
            self.orders_changed()

    def _green_links(self) -> GreenLinks:
        far = [peer for peer in self._peers.far.values() if peer.client_url]
        urls = _urls(peer for peer in far if peer.client_plain)
        tls_urls = _urls(peer for peer in far if peer.client_tls)
        own = self.linked()
        fresh = self._fresh()
        by_all = {
            world
            for world in own
            if all(node in fresh and world in fresh[node].linked for node in self._peers.linked)
        }
        return GreenLinks(urls, own, by_all, tls_urls)


def _urls(peers: Iterable[PeerInfo]) -> dict[str, tuple[str, ...]]:
    """By world."""
    found: dict[str, set[str]] = {}
    for peer in peers:
        found.setdefault(world_of(peer.node), set()).add(peer.client_url)
    return {world: tuple(sorted(urls)) for world, urls in found.items()}
