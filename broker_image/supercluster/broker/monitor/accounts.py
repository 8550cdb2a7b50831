"""Accounts and their limits, over HTTP (`/admin/accounts` and `/admin/accounts/<account>`)."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from supercluster.broker.monitor.asking import ask_core

if TYPE_CHECKING:
    from supercluster.broker.monitor.app import Monitor
    from supercluster.broker.runtime.process import BrokerProcess

log = logging.getLogger(__name__)

ALL_PATH = "accounts"
PATH = "accounts/{account}"
METHODS = ("GET", "PUT", "DELETE")


def register(monitor: Monitor, process: BrokerProcess) -> None:
    """Serve the calls of this broker's core."""
    for method in METHODS:
        monitor.register_admin(method, PATH, partial(_call, process, method))
    monitor.register_admin("GET", ALL_PATH, partial(_call, process, "GET"))


async def _call(process: BrokerProcess, method: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
    account = query.get("account", "")
    status, document = await ask_core(
        process, lambda core, then: core.calls.account(method, account, body, then)
    )
    if method != "GET":
        log.info("admin: %s of account %s: %d", method, account, status)
    return status, document
