"""INFO: a broker's description of itself and of the others in its cluster for its clients (CL-4)."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from typing import Any

from supercluster.broker.jetstream.config.api_level import LEVEL
from supercluster.broker.settings.settings import ClientTls
from supercluster.broker.version import NATS_VERSION, VERSION

RUNTIME = f"{platform.python_implementation().lower()}{platform.python_version()}"
"""What nats-server says of its Go runtime. Clients show it, and some do not connect where it is missing."""

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
    jetstream: bool
    domain: str = ""
    """JetStream's; empty: it has none."""
    bulk_port: int = 0
    """0: none is open."""
    headers: bool = True
    """Do clients have headers?"""


def info_line(
    facts: ServerFacts,
    client_id: int,
    client_ip: str,
    urls: list[str],
    *,
    max_payload_bytes: int,
    auth_required: bool,
    lame_duck: bool,
    tls: ClientTls | None = None,
    nonce: str = "",
) -> bytes:
    """INFO for one client; `tls` is that of its port, `nonce` what users by nkey sign."""
    info: dict[str, Any] = {
        "server_id": facts.server_id,
        "server_name": facts.name,
        "version": NATS_VERSION,
        "proto": PROTOCOL,
        "git_commit": f"supercluster-{VERSION}",
        "go": RUNTIME,
        "host": facts.host,
        "port": facts.port,
        "headers": facts.headers,
        "max_payload": max_payload_bytes,
        "client_id": client_id,
        "client_ip": client_ip,
        "cluster": facts.cluster,
        "api_lvl": LEVEL,
    }
    if facts.jetstream:
        info["jetstream"] = True
        if facts.domain:
            info["domain"] = facts.domain
    if facts.bulk_port:
        info["bulk_port"] = facts.bulk_port
    if auth_required:
        info["auth_required"] = True
    if tls is not None:
        if tls.allow_plain:
            info["tls_available"] = True
        else:
            info["tls_required"] = True
        if tls.asks_certificate:
            info["tls_verify"] = True
    if nonce:
        info["nonce"] = nonce
    if urls:
        info["connect_urls"] = urls
    if lame_duck:
        info["ldm"] = True
    return b"INFO " + json.dumps(info, separators=(",", ":")).encode() + b"\r\n"
