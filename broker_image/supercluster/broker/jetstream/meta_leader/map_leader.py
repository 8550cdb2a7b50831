"""The map's leader, as an interface for the JetStream API and the admin API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.map_replica import MapReplica
from supercluster.broker.jetstream.meta.move_record import MoveEnd
from supercluster.broker.jetstream.meta_leader.account_requests import AccountRequests
from supercluster.broker.jetstream.meta_leader.broker_requests import BrokerRequests
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.migrations import Migrations
from supercluster.broker.jetstream.meta_leader.recoveries import Recoveries
from supercluster.broker.jetstream.meta_leader.stream_request import StreamRequest


class MapLeader(MapReplica, Protocol):
    """See the module. Callers know whether it serves."""

    host: MetaHost
    accounts: AccountRequests
    brokers: BrokerRequests
    recoveries: Recoveries
    migrations: Migrations

    def request(self, request: StreamRequest) -> None:
        """Queue a request about a stream for the next turn."""

    def refusal_of(self, request: StreamRequest) -> ApiError | None:
        """Why such a request would be refused now; None: it would not. Nothing is changed, and nobody is answered."""

    def rooms(self, storage: str) -> Mapping[str, int]:
        """Node → room for streams of that storage; of others nothing is known, and of all where this replica does not serve."""

    def why_failed(self, node: str, group: str) -> str:
        """What the broker said of its copy; empty: nothing, or it is not known here."""

    def on_failed_copies(self, node: str, copies: Mapping[str, str], now_ms: int) -> None:
        """A broker's report: of those that it does not name it says that they are usable."""

    def copy_lost(self, node: str, group: str, member: str, now_ms: int) -> None:
        """A broker says that its copy of a stream in memory is gone, or one that was to join."""

    def move_ended(self, end: MoveEnd) -> None:
        """A stream's leader says how a move ended."""
