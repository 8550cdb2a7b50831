"""The operator's calls to the core, over HTTP (`/admin/…`).

The core judges a call and returns status and answer, perhaps after it asked other brokers. This module only
waits for that, within a bound. It logs every call that changes something (RP-8).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from supercluster.broker.monitor.monitor import AdminHandler
from supercluster.broker.net.hooks import CallHooks, Core
from supercluster.broker.net.routing.turn import Turn

log = logging.getLogger(__name__)

# The core gives a request up before this.
WAIT_S = 10.0

Then = Callable[[int, Any], None]
CoreCall = Callable[[CallHooks, Then], None]
Answer = tuple[int, Any]


async def ask_core(core: Core, turn: Turn, call: CoreCall) -> Answer:
    """Status and document of the core's answer to `call`."""
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def then(status: int, document: Any) -> None:
        if not answered.done():
            answered.set_result((status, document))

    call(core.calls, then)
    turn.want()
    try:
        return await asyncio.wait_for(answered, WAIT_S)
    except TimeoutError:
        return 503, {"error": f"no broker answered within {WAIT_S:.0f} s"}


class AdminCalls:
    """Of one core. `security` gives the settings and certificates in force, for whoever waits for a restart; `identity` says which
    super-cluster this is."""

    def __init__(
        self,
        core: Core,
        turn: Turn,
        security: Callable[[], dict[str, Any]],
        identity: Callable[[], dict[str, Any]],
    ) -> None:
        self._core = core
        self._ask = partial(ask_core, core, turn)
        self._security = security
        self._identity = identity

    def routes(self) -> Iterator[tuple[str, str, AdminHandler]]:
        """Method, path and handler of each call."""
        for path, methods, handler in (
            ("accounts", ("GET",), self._account),
            ("accounts/{account}", ("GET", "PUT", "DELETE"), self._account),
            ("brokers", ("GET",), self._broker),
            ("brokers/{node}", ("GET", "POST", "DELETE"), self._broker),
            ("brokers/{node}/cordon", ("PUT", "DELETE"), self._cordon),
            ("identity", ("GET",), self._say_identity),
            ("meta/recover", ("GET", "POST"), self._map_recovery),
            ("migrations", ("GET",), partial(self._migration, "list")),
            ("migrations", ("POST",), partial(self._migration, "start")),
            ("migrations/handed", ("GET",), partial(self._migration, "handed")),
            ("migrations/preflight", ("POST",), partial(self._migration, "preflight")),
            ("migrations/{id}", ("GET",), partial(self._migration, "status")),
            ("migrations/{id}/streams", ("GET",), partial(self._migration, "streams")),
            ("migrations/{id}/abort", ("POST",), partial(self._migration, "abort")),
            ("migrations/{id}/takeback", ("POST",), partial(self._migration, "takeback")),
            ("migrations/{id}/discard", ("POST",), partial(self._migration, "discard")),
            ("migrations/{id}/finalize", ("POST",), partial(self._migration, "finalize")),
            ("moves", ("GET",), self._running_moves),
            ("restart", ("GET", "POST", "DELETE"), self._restart),
            ("streams/{account}/{name}/move", ("GET", "POST", "DELETE"), self._move),
            ("streams/{account}/{name}/recover", ("GET", "POST"), self._recovery),
        ):
            for method in methods:
                yield method, path, partial(handler, method)

    async def _account(self, method: str, query: dict[str, str], body: Any) -> Answer:
        account = query.get("account", "")
        answer = await self._ask(lambda calls, then: calls.account(method, account, body, then))
        return _logged(method, f"account {account}", answer)

    async def _broker(self, method: str, query: dict[str, str], body: Any) -> Answer:
        node = query.get("node", "")
        answer = await self._ask(lambda calls, then: calls.broker(method, node, then, body))
        return _logged(method, f"broker {node}", answer)

    async def _cordon(self, method: str, query: dict[str, str], body: Any) -> Answer:
        node = query["node"]
        answer = await self._ask(lambda calls, then: calls.cordon(method, node, body, then))
        return _logged(method, f"the cordon of broker {node}", answer)

    async def _say_identity(self, method: str, query: dict[str, str], body: Any) -> Answer:
        return 200, self._identity()

    async def _migration(self, act: str, method: str, query: dict[str, str], body: Any) -> Answer:
        migration_id = query.get("id", "")
        if act == "streams":
            body = {"after": query.get("after", "")}
        answer = await self._ask(lambda calls, then: calls.migration(act, migration_id, body, then))
        if act in ("start", "abort", "finalize", "takeback", "discard"):
            log.warning("admin: %s of migration %r asked for, %r: %d", act, migration_id, body, answer[0])
        return answer

    async def _running_moves(self, method: str, query: dict[str, str], body: Any) -> Answer:
        return self._core.calls.running_moves()

    async def _move(self, method: str, query: dict[str, str], body: Any) -> Answer:
        account, name = query["account"], query["name"]
        if method == "DELETE" and "id" in query:
            body = {"id": query["id"]}
        answer = await self._ask(lambda calls, then: calls.move(method, account, name, body, then))
        return _logged(method, f"a move of {name} in account {account}", answer)

    async def _recovery(self, method: str, query: dict[str, str], body: Any) -> Answer:
        account, name = query["account"], query["name"]
        answer = await self._ask(lambda calls, then: calls.stream_recovery(method, account, name, body, then))
        if method == "POST":
            log.warning(
                "admin: forced recovery of %s in account %s asked for, %r: %d", name, account, body, answer[0]
            )
        return answer

    async def _map_recovery(self, method: str, query: dict[str, str], body: Any) -> Answer:
        answer = await self._ask(lambda calls, then: calls.map_recovery(method, body, then))
        if method == "POST":
            log.warning("admin: forced recovery of the map of streams asked for, %r: %d", body, answer[0])
        return answer

    async def _restart(self, method: str, query: dict[str, str], body: Any) -> Answer:
        answer = await self._ask(lambda calls, then: calls.restart(method, body, then))
        status, document = _logged(method, "the restart", answer)
        return status, document if status >= 400 else {**document, **self._security()}


def _logged(method: str, subject: str, answer: Answer) -> Answer:
    if method != "GET":
        log.info("admin: %s of %s: %d", method, subject, answer[0])
    return answer
