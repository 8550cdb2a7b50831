"""A broker's description of itself for other brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """For HELLO."""

    node: str
    cluster: str
    super_cluster: str
    identity: str
    incarnation: str
    process: str
    client_url: str
    client_tls: Callable[[], bool]
    """Does the port for clients take clients with TLS? Asked at every handshake."""
    client_plain: Callable[[], bool]
    """And clients without TLS?"""
    meta_state: Callable[[], int]
    """0: no meta log on the volume; otherwise its last index. Asked at every handshake."""
    lineage: Callable[[], str] = str
    """Of the map of streams; empty before it was ever recovered by force. Asked at every handshake."""
    bootstrap_id: Callable[[], str] = str
    """Which beginning the map of streams goes back to. Asked at every handshake."""
    map_level: Callable[[], int] = int
    """What a broker has to speak to read the map of streams. Asked at every handshake."""
    tags: tuple[str, ...] = ()
    gateway_url: Callable[[], str] = str
    """host:port of the gateway port; empty when there is none."""
    migration_url: Callable[[], str] = str
    """host:port of the migration port; empty when there is none."""
    process_count: int = 0
    """The number of the process on the volume."""
    route_url: Callable[[], str] = str
    """host:port of the cluster port, for brokers of the own cluster that know each other by address alone."""
