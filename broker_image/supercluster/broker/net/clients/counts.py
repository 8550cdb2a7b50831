"""Counters about clients, for /varz and /metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ServerCounts:
    """Of one broker."""

    connections_total: int = 0
    slow_consumers: int = 0
    stale_connections: int = 0
    auth_failures: int = 0
    tls_failures: int = 0
    permission_violations: int = 0
    protocol_errors: int = 0
    errors_sent: int = 0
    reading_paused: int = 0
    held_refused: int = 0
    in_messages: int = 0
    in_bytes: int = 0
    out_messages: int = 0
    out_bytes: int = 0
