"""Views of a broker for the monitoring pages and the answers under `$SYS`.

The process that assembles the parts is a `Broker`; a module asks for the smallest of the three protocols that
it needs.
"""

from __future__ import annotations

from typing import Protocol

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.net.clients.certificates import Loaded
from supercluster.broker.net.clients.client_server import ClientServer
from supercluster.broker.net.clients.redirection import Redirection
from supercluster.broker.net.hooks import Core
from supercluster.broker.net.links.mesh import Mesh
from supercluster.broker.net.routing.router import Router
from supercluster.broker.ports import Clock
from supercluster.broker.settings.place import Place
from supercluster.broker.settings.reload import Reload
from supercluster.broker.settings.settings import Settings


class Identity(Protocol):
    """Its names, and since when it runs."""

    place: Place
    settings: Settings
    """Those in force."""
    process_id: str
    started_ns: int

    @property
    def clock(self) -> Clock: ...


class Network(Identity, Protocol):
    """Its clients, and its links with other brokers."""

    credentials: Credentials
    router: Router
    server: ClientServer
    redirection: Redirection
    mesh: Mesh | None
    """None: no port was opened yet."""


class Broker(Network, Protocol):
    """All of it."""

    core: Core | None
    """None: it has no streams, or is about to start."""
    reload: Reload
    accepting: bool
    client_port: int
    websocket_port: int
    cluster_port: int
    gateway_port: int
    migration_port: int
    monitor_port: int

    def bulk_figures(self) -> dict[str, int]:
        """Of the bulk port, by the names of /metrics."""

    @property
    def loaded_certificates(self) -> dict[str, Loaded]:
        """What new links are made with, by the names of the settings."""
