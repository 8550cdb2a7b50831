"""INFO: what a broker tells its clients of itself and of the others in its cluster (CL-4)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from supercluster.broker.version import NATS_VERSION, VERSION

PROTOCOL = 1
"""Clients of this protocol take INFO at any time."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What is the same for every client."""

    server_id: str
    name: str
    cluster: str
    super_cluster: str
    host: str
    port: int
    client_url: str
    max_payload_bytes: int
    jetstream: bool


def info_line(
    facts: ServerFacts, client_id: int, client_ip: str, urls: list[str], auth_required: bool, lame_duck: bool
) -> bytes:
    """INFO for one client."""
    info: dict[str, Any] = {
        "server_id": facts.server_id,
        "server_name": facts.name,
        "version": NATS_VERSION,
        "proto": PROTOCOL,
        "git_commit": f"supercluster-{VERSION}",
        "host": facts.host,
        "port": facts.port,
        "headers": True,
        "max_payload": facts.max_payload_bytes,
        "client_id": client_id,
        "client_ip": client_ip,
        "cluster": facts.cluster,
        "supercluster": facts.super_cluster,
    }
    if facts.jetstream:
        info["jetstream"] = True
    if auth_required:
        info["auth_required"] = True
    if urls:
        info["connect_urls"] = urls
    if lame_duck:
        info["ldm"] = True
    return b"INFO " + json.dumps(info, separators=(",", ":")).encode() + b"\r\n"
