"""What a restart of this broker has to wait for, and the hand-over before it, over HTTP (`/admin/restart`)."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from supercluster.broker.monitor import views
from supercluster.broker.monitor.asking import ask_core

if TYPE_CHECKING:
    from supercluster.broker.monitor.app import Monitor
    from supercluster.broker.runtime.process import BrokerProcess

log = logging.getLogger(__name__)

PATH = "restart"
METHODS = ("GET", "POST", "DELETE")


def register(monitor: Monitor, process: BrokerProcess) -> None:
    """Serve the calls of this broker's core."""
    for method in METHODS:
        monitor.register_admin(method, PATH, partial(_call, process, method))


async def _call(process: BrokerProcess, method: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
    status, document = await ask_core(process, lambda core, then: core.calls.restart(method, body, then))
    if method != "GET":
        log.info("admin: %s of the restart: %d", method, status)
    if status < 400:
        document = {**document, "config": views.config(process), "tls": views.certificates(process)}
    return status, document
