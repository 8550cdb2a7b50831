"""Brokers, and those that go for good, over HTTP (`/admin/brokers` and `/admin/brokers/<node>`)."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from supercluster.broker.monitor.asking import ask_core

if TYPE_CHECKING:
    from supercluster.broker.monitor.app import Monitor
    from supercluster.broker.runtime.process import BrokerProcess

log = logging.getLogger(__name__)

ALL_PATH = "brokers"
PATH = "brokers/{node}"
METHODS = ("GET", "POST", "DELETE")
CORDON_PATH = "brokers/{node}/cordon"
CORDON_METHODS = ("PUT", "DELETE")


def register(monitor: Monitor, process: BrokerProcess) -> None:
    """Serve the calls of this broker's core."""
    for method in METHODS:
        monitor.register_admin(method, PATH, partial(_call, process, method))
    monitor.register_admin("GET", ALL_PATH, partial(_call, process, "GET"))
    for method in CORDON_METHODS:
        monitor.register_admin(method, CORDON_PATH, partial(_cordon, process, method))


async def _call(process: BrokerProcess, method: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
    node = query.get("node", "")
    status, document = await ask_core(process, lambda core, then: core.calls.broker(method, node, then))
    if method != "GET":
        log.info("admin: %s of broker %s: %d", method, node, status)
    return status, document


async def _cordon(process: BrokerProcess, method: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
    node = query.get("node", "")
    status, document = await ask_core(process, lambda core, then: core.calls.cordon(method, node, body, then))
    log.info("admin: %s of the cordon of broker %s: %d", method, node, status)
    return status, document
