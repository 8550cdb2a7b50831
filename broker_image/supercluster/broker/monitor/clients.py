"""Clients that are asked to go to other brokers of the cluster, over HTTP (`/admin/rebalance`; CL-7).

Thin: `net/clients/rebalance.py` picks and asks them; how many, the caller says, who has looked at all brokers of the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from supercluster.broker.net.clients.rebalance import PER_S, PER_S_MAX, CannotAskError

if TYPE_CHECKING:
    from supercluster.broker.monitor.app import Monitor
    from supercluster.broker.runtime.process import BrokerProcess

log = logging.getLogger(__name__)

PATH = "rebalance"
_BOUNDS = {"clients": (1, 1_000_000), "perS": (1, PER_S_MAX)}


def register(monitor: Monitor, process: BrokerProcess) -> None:
    """Serve the calls."""
    monitor.register_admin("GET", PATH, partial(_state, process))
    monitor.register_admin("POST", PATH, partial(_begin, process))
    monitor.register_admin("DELETE", PATH, partial(_stop, process))


async def _state(process: BrokerProcess, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    rebalance = process.rebalance
    return 200, {
        "node": process.place.name,
        "cluster": process.settings.cluster,
        "clients": len(process.server.clients),
        "movable": rebalance.movable,
        "others": process.server.others,
        "running": rebalance.run.to_json() if rebalance.run is not None else None,
        "last": rebalance.last.to_json() if rebalance.last is not None else None,
    }


async def _begin(process: BrokerProcess, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
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
        process.rebalance.begin(body["clients"], body.get("perS", PER_S))
    except CannotAskError as error:
        return 409, {"error": str(error)}
    log.info("admin: %d clients are asked to go to other brokers", body["clients"])
    return 202, (await _state(process, query, None))[1]


async def _stop(process: BrokerProcess, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    process.rebalance.stop()
    return await _state(process, query, None)
