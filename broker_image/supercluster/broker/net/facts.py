"""What a broker says of itself to others."""

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
    meta_state: Callable[[], int]
    """0: no meta log on the volume; otherwise its last index. Asked at every handshake."""
