"""Moves over HTTP: plan, start, watch and cancel (`/admin/streams/<account>/<stream>/move`), and all that run (`/admin/moves`)."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from supercluster.broker.monitor.asking import NO_CORE, ask_core

if TYPE_CHECKING:
    from supercluster.broker.monitor.app import Monitor
    from supercluster.broker.runtime.process import BrokerProcess

log = logging.getLogger(__name__)

ALL_PATH = "moves"
PATH = "streams/{account}/{name}/move"
METHODS = ("GET", "POST", "DELETE")


def register(monitor: Monitor, process: BrokerProcess) -> None:
    """Serve the calls of this broker's core."""
    for method in METHODS:
        monitor.register_admin(method, PATH, partial(_call, process, method))
    monitor.register_admin("GET", ALL_PATH, partial(_running, process))


async def _running(process: BrokerProcess, query: dict[str, str], body: Any) -> tuple[int, Any]:
    return process.core.calls.running_moves() if process.core is not None else NO_CORE


async def _call(process: BrokerProcess, method: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
    account, name = query["account"], query["name"]
    if method == "DELETE" and "id" in query:
        body = {"id": query["id"]}
    status, document = await ask_core(
        process, lambda core, then: core.calls.move(method, account, name, body, then)
    )
    if method != "GET":
        log.info("admin: %s of a move of %s in account %s: %d", method, name, account, status)
    return status, document
