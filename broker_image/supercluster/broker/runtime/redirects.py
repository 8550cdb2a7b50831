"""Connects the redirection of a broker's clients with the map that orders it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supercluster.broker.jetstream.meta.redirect_orders import RedirectOrder
from supercluster.broker.jetstream.node.far_clients import FarClients
from supercluster.broker.jetstream.publish.windows import PublishWindows
from supercluster.broker.net.clients.redirect.orders import Order, Phase, Policy
from supercluster.broker.net.clients.redirection import Redirection
from supercluster.broker.net.links.mesh import Mesh
from supercluster.broker.protocol.client_reports import ClientReport


class MapOrders:
    """`RedirectOrders` by the map of streams."""

    def __init__(
        self, orders: Callable[[], Mapping[str, RedirectOrder]], system_account: Callable[[], str]
    ) -> None:
        self._orders = orders
        self._system_account = system_account

    def order_of(self, account: str) -> Order | None:
        """See `RedirectOrders`. A migration that runs stands before one that is over."""
        if account in ("$SYS", self._system_account()):
            return None
        found = [order for order in self._orders().values() if order.account in ("", account)]
        return _order(found[-1]) if found else None

    def order_for_all(self) -> Order | None:
        """See `RedirectOrders`."""
        found = [order for order in self._orders().values() if not order.account]
        return _order(found[-1]) if found else None


def _order(told: RedirectOrder) -> Order:
    return Order(
        told.migration,
        Phase.REDIRECT if told.asks else Phase.ANNOUNCE,
        told.urls,
        told.tls_urls,
        Policy.BRIDGE if told.bridges else Policy.REFUSE,
        told.world,
    )


def connect(
    redirection: Redirection,
    far_clients: FarClients,
    windows: PublishWindows,
    mesh: Callable[[], Mesh | None],
    system_account: Callable[[], str],
) -> None:
    """From now on the map's orders are carried out, and the other brokers hear of this one's clients."""

    def linked() -> frozenset[str]:
        found = mesh()
        return found.far.complete_worlds() if found is not None else frozenset()

    far_clients.linked = linked
    far_clients.report = lambda: ClientReport(linked(), redirection.counted())
    windows.passed_on = redirection.passed_on
    redirection.waiting_for_green = windows.waiting_for_green
    far_clients.orders_changed = redirection.orders_changed
    redirection.set_orders(MapOrders(lambda: far_clients.orders, system_account))
