"""Calls over HTTP about clients that are redirected to another super-cluster (`/admin/redirects`; BG-12)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from supercluster.broker.monitor.broker import Network
from supercluster.broker.monitor.monitor import AdminHandler
from supercluster.broker.net.clients.redirection import Redirection

PATH = "redirects"


class RedirectCalls:
    """Of one broker."""

    def __init__(self, network: Network, redirection: Redirection) -> None:
        self._network = network
        self._redirection = redirection

    def routes(self) -> Iterator[tuple[str, str, AdminHandler]]:
        """Method, path and handler of each call."""
        yield "GET", PATH, self._state

    async def _state(self, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        told = {"node": self._network.place.name, "cluster": self._network.settings.cluster}
        return 200, told | self._redirection.report()
