"""Moves over HTTP: plan, start, watch and cancel (`/admin/streams/<account>/<stream>/move`).

Thin: the core judges the call and says status and answer; here is only the waiting for it, with a bound.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from supercluster.broker.monitor.app import Monitor
    from supercluster.broker.runtime.process import BrokerProcess

log = logging.getLogger(__name__)

PATH = "streams/{account}/{name}/move"
METHODS = ("GET", "POST", "DELETE")
# The core gives a request up before this.
WAIT_S = 10.0


def register(monitor: Monitor, process: BrokerProcess) -> None:
    """Serve the calls of this broker's core."""
    for method in METHODS:
        monitor.register_admin(method, PATH, partial(_call, process, method))


async def _call(process: BrokerProcess, method: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
    if process.core is None:
        return 404, {"error": "this broker has no streams"}
    account, name = query["account"], query["name"]
    answered: asyncio.Future[tuple[int, Any]] = process.loop.create_future()

    def then(status: int, document: Any) -> None:
        if not answered.done():
            answered.set_result((status, document))

    process.core.move_call(method, account, name, body, then)
    process.turn.want()
    try:
        status, document = await asyncio.wait_for(answered, WAIT_S)
    except TimeoutError:
        status, document = 503, {"error": f"nobody answered within {WAIT_S:.0f} s"}
    if method != "GET":
        log.info("admin: %s of a move of %s in account %s: %d", method, name, account, status)
    return status, document
