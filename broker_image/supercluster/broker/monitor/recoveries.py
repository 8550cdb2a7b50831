"""Forced recoveries over HTTP (`/admin/streams/<account>/<stream>/recover`, and `/admin/meta/recover` for the map of streams).
Every call that would force something is logged, with what became of it (RP-8).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from supercluster.broker.monitor.asking import ask_core

if TYPE_CHECKING:
    from supercluster.broker.monitor.app import Monitor
    from supercluster.broker.runtime.process import BrokerProcess

log = logging.getLogger(__name__)

PATH = "streams/{account}/{name}/recover"
MAP_PATH = "meta/recover"
METHODS = ("GET", "POST")


def register(monitor: Monitor, process: BrokerProcess) -> None:
    """Serve the calls of this broker's core."""
    for method in METHODS:
        monitor.register_admin(method, PATH, partial(_call, process, method))
        monitor.register_admin(method, MAP_PATH, partial(_map_call, process, method))


async def _call(process: BrokerProcess, method: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
    account, name = query["account"], query["name"]
    status, document = await ask_core(
        process, lambda core, then: core.calls.stream_recovery(method, account, name, body, then)
    )
    if method == "POST":
        log.warning(
            "admin: forced recovery of %s in account %s asked for, %r: %d", name, account, body, status
        )
    return status, document


async def _map_call(process: BrokerProcess, method: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
    status, document = await ask_core(process, lambda core, then: core.calls.map_recovery(method, body, then))
    if method == "POST":
        log.warning("admin: forced recovery of the map of streams asked for, %r: %d", body, status)
    return status, document
