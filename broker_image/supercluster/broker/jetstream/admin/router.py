"""The operator's and people's calls, which JetStream has none for (`docs/admin.md`): each is answered once, with a status and JSON.

What a call does is in the module of its subject; the broker that is asked passes it on to whoever decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream.admin import accounts as account_calls
from supercluster.broker.jetstream.admin import brokers as broker_calls
from supercluster.broker.jetstream.admin import cordons as cordon_calls
from supercluster.broker.jetstream.admin import map_recovery as map_calls
from supercluster.broker.jetstream.admin import moves as move_calls
from supercluster.broker.jetstream.admin import restart as restart_calls
from supercluster.broker.jetstream.admin import stream_recovery as recovery_calls

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core.broker import BrokerCore


class OperatorCalls:
    """Of one broker."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core

    def move(
        self, method: str, account: str, name: str, body: object, then: Callable[[int, Any], None]
    ) -> None:
        """The operator's call about a move."""
        move_calls.call(self._core, method, account, name, body, then)

    def running_moves(self) -> tuple[int, dict[str, Any]]:
        """All moves that run, for the operator."""
        return move_calls.running(self._core)

    def stream_recovery(
        self, method: str, account: str, name: str, body: object, then: Callable[[int, Any], None]
    ) -> None:
        """A person's call about a stream that lost its majority."""
        recovery_calls.call(self._core, method, account, name, body, then)

    def restart(self, method: str, body: object, then: Callable[[int, Any], None]) -> None:
        """The operator's call before it restarts this broker, or another one."""
        restart_calls.call(self._core, method, body, then)

    def account(self, method: str, account: str, body: object, then: Callable[[int, Any], None]) -> None:
        """The operator's call about an account's limits."""
        account_calls.call(self._core, method, account, body, then)

    def map_recovery(self, method: str, body: object, then: Callable[[int, Any], None]) -> None:
        """A person's call about a map of streams that lost its majority."""
        map_calls.call(self._core, method, body, then)

    def broker(self, method: str, node: str, then: Callable[[int, Any], None]) -> None:
        """The operator's call about a broker that goes for good."""
        broker_calls.call(self._core, method, node, then)

    def cordon(self, method: str, node: str, body: object, then: Callable[[int, Any], None]) -> None:
        """The operator's call about a broker that is to get no new copies."""
        cordon_calls.call(self._core, method, node, body, then)
