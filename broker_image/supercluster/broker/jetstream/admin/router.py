"""Admin API: operations that the JetStream API does not offer (`docs/admin.md`). Each call is answered once,
with a status and JSON.

Each operation is in the module of its subject. The broker that receives a call forwards it to the one that
decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from supercluster.broker.jetstream.admin import accounts, cordons, stream_recovery
from supercluster.broker.jetstream.admin.broker_calls import BrokerCalls
from supercluster.broker.jetstream.admin.call import Caller
from supercluster.broker.jetstream.admin.green_preflight import GreenPreflight
from supercluster.broker.jetstream.admin.map_recovery import MapRecoveryCalls
from supercluster.broker.jetstream.admin.migration_calls import MigrationCalls
from supercluster.broker.jetstream.admin.moves import MoveCalls
from supercluster.broker.jetstream.admin.restart import RestartCalls
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.drain import LeadershipDrain
from supercluster.broker.jetstream.node.far_clients import FarClients
from supercluster.broker.jetstream.node.lost_clusters import LostClusters
from supercluster.broker.jetstream.node.neighbours import Neighbours
from supercluster.broker.jetstream.node.pending_requests import PendingRequests


class AdminRouter:
    """Of one broker."""

    def __init__(
        self,
        env: Environment,
        peers: Peers,
        copies: Copies,
        map_view: MapView,
        leaderships: Leaderships,
        neighbours: Neighbours,
        drain: LeadershipDrain,
        lost_clusters: LostClusters,
        requests: PendingRequests,
        far_clients: FarClients,
        green_preflight: GreenPreflight,
        map_recoveries: MapRecoveryCalls,
    ) -> None:
        caller = self._caller = Caller(env, map_view, requests, lost_clusters)
        self._map = map_view
        self.brokers = BrokerCalls(env, peers, copies, map_view, lost_clusters, caller)
        self._moves = MoveCalls(env, peers, map_view, neighbours, lost_clusters, caller)
        self._migrations = MigrationCalls(
            env, map_view, neighbours, lost_clusters, far_clients, green_preflight, caller
        )
        self._restarts = RestartCalls(env, peers, copies, leaderships, drain)
        self._map_recoveries = map_recoveries

    def move(
        self, method: str, account: str, name: str, body: object, then: Callable[[int, Any], None]
    ) -> None:
        """The operator's call about a move."""
        self._moves.call(method, account, name, body, then)

    def migration(self, act: str, migration_id: str, body: object, then: Callable[[int, Any], None]) -> None:
        """The operator's call about a migration to another super-cluster."""
        self._migrations.call(act, migration_id, body, then)

    def running_moves(self) -> tuple[int, dict[str, Any]]:
        """All moves that run, for the operator."""
        return self._moves.running()

    def stream_recovery(
        self, method: str, account: str, name: str, body: object, then: Callable[[int, Any], None]
    ) -> None:
        """A person's call about a stream that lost its majority."""
        stream_recovery.call(self._caller, method, account, name, body, then)

    def restart(self, method: str, body: object, then: Callable[[int, Any], None]) -> None:
        """The operator's call before it restarts this broker, or another one."""
        self._restarts.call(method, body, then)

    def account(self, method: str, account: str, body: object, then: Callable[[int, Any], None]) -> None:
        """The operator's call about an account's limits."""
        accounts.call(self._caller, self._map, method, account, body, then)

    def map_recovery(self, method: str, body: object, then: Callable[[int, Any], None]) -> None:
        """A person's call about a map of streams that lost its majority."""
        self._map_recoveries.call(method, body, then)

    def broker(self, method: str, node: str, then: Callable[[int, Any], None], body: object = None) -> None:
        """The operator's call about a broker that goes for good."""
        self.brokers.call(method, node, then, body)

    def cordon(self, method: str, node: str, body: object, then: Callable[[int, Any], None]) -> None:
        """The operator's call about a broker that is to get no new copies."""
        cordons.call(self._caller, method, node, body, then)
