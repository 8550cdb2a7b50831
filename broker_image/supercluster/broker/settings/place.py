"""The place and identity of a broker, from its command line and environment, besides the settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from supercluster.broker.protocol.websocket import NO_RULES, WebRules


@dataclass(frozen=True, slots=True)
class Place:
    """Where and as whom the broker runs: what the command line and environment say."""

    name: str
    host: str
    advertise: str
    config: Path
    data_dir: Path
    credentials_dir: Path | None = None
    hosts_file: Path | None = None
    tls_dir: Path = Path()
    """Where files of certificates are that the settings name by relative paths."""
    monitor_host: str = ""
    """Another address for the monitoring port; empty: `host`."""
    websocket_host: str = ""
    """The same for the port of WebSocket clients."""
    web_rules: WebRules = NO_RULES
    """What is looked at in their requests."""
    is_alone: bool = False
    """No other broker ever links up: no port is opened for any, and `advertise` is host:port, or empty. Whoever started it
    says when its configuration is to be read again."""
    is_monitored: bool = True
    shows_nats_pages: bool = False
    """Has the monitoring port nats-server's pages (`monitor/nats_pages.py`) in place of those that the operator reads?"""
    has_headers: bool = True
    """Are messages with headers taken from clients, and given to them?"""
    routes: tuple[str, ...] | None = None
    """Addresses of other brokers of the cluster, and perhaps of this one, where they are not declared by name (`net/links/routes.py`):
    the settings have neither peers nor voters of the map then. Whoever started it says when its configuration is read again."""
    has_cluster_port: bool = True
    """Is there a port for brokers of the own cluster? Without one it has this broker alone."""
    volume_identity: str = ""
    """Whose data the directory may have, where that is not what links have to agree on; empty: the settings' identity."""
    cluster_host: str = ""
    """Another address for the port for brokers; empty: `host`."""
    client_advertise: str = ""
    """host:port that clients are told, in place of `advertise` and the port."""
    route_advertise: str = ""
    """host:port that brokers found by routes are told; empty: where the port is bound."""
    gateway_host: str = ""
    """Another address for the port for brokers of other clusters; empty: `host`."""
    gateway_advertise: str = ""
    """host:port that they are told, or the host alone, where the port is the one that is bound; empty: `advertise`."""
