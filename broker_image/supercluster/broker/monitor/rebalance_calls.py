"""Calls over HTTP that ask clients to move to other brokers of the cluster (`/admin/rebalance`; CL-7).

Thin: `net/clients/rebalance.py` picks the clients and asks them. The caller, which has the counts of all
brokers of the cluster, gives the number.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from supercluster.broker.monitor.broker import Network
from supercluster.broker.monitor.monitor import AdminHandler
from supercluster.broker.net.clients.rebalance import PER_S, PER_S_MAX, CannotAskError, Rebalance

log = logging.getLogger(__name__)

PATH = "rebalance"
_BOUNDS = {"clients": (1, 1_000_000), "perS": (1, PER_S_MAX)}


class RebalanceCalls:
    """Of one broker."""

    def __init__(self, network: Network, rebalance: Rebalance) -> None:
        self._network = network
        self._rebalance = rebalance

    def routes(self) -> Iterator[tuple[str, str, AdminHandler]]:
        """Method, path and handler of each call."""
        for method, handler in (("GET", self._state), ("POST", self._begin), ("DELETE", self._stop)):
            yield method, PATH, handler

    async def _state(self, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        network, rebalance = self._network, self._rebalance
        return 200, {
            "node": network.place.name,
            "cluster": network.settings.cluster,
            "clients": len(network.server.clients),
            "movable": rebalance.movable,
            "others": network.server.others,
            "running": rebalance.run.to_json() if rebalance.run is not None else None,
            "last": rebalance.last.to_json() if rebalance.last is not None else None,
        }

    async def _begin(self, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        if not isinstance(body, dict) or set(body) - set(_BOUNDS) or "clients" not in body:
            return 400, {
                "error": f"the body is an object with clients and, if wanted, perS, not {str(body)[:100]}"
            }
        for name, (least, most) in _BOUNDS.items():
            value = body.get(name, PER_S)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                return 400, {
                    "error": f"{name} is {str(value)[:100]}; it has to be a number from {least} to {most}"
                }
        try:
            self._rebalance.begin(body["clients"], body.get("perS", PER_S))
        except CannotAskError as error:
            return 409, {"error": str(error)}
        log.info("admin: %d clients are asked to go to other brokers", body["clients"])
        return 202, (await self._state(query, None))[1]

    async def _stop(self, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        self._rebalance.stop()
        return await self._state(query, None)
