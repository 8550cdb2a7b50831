"""The operator's calls to the core, over HTTP: the core judges a call and says status and answer, perhaps after it asked
other brokers; here is only the waiting for it, with a bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from supercluster.broker.net.hooks import Core
    from supercluster.broker.runtime.process import BrokerProcess

# The core gives a request up before this.
WAIT_S = 10.0
NO_CORE = (404, {"error": "this broker has no streams"})

Then = Callable[[int, Any], None]


async def ask_core(process: BrokerProcess, call: Callable[[Core, Then], None]) -> tuple[int, Any]:
    """Status and document of the core's answer to `call`."""
    if process.core is None:
        return NO_CORE
    answered: asyncio.Future[tuple[int, Any]] = process.loop.create_future()

    def then(status: int, document: Any) -> None:
        if not answered.done():
            answered.set_result((status, document))

    call(process.core, then)
    process.turn.want()
    try:
        return await asyncio.wait_for(answered, WAIT_S)
    except TimeoutError:
        return 503, {"error": f"nobody answered within {WAIT_S:.0f} s"}
