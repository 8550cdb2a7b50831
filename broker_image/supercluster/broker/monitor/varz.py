"""VARZ in NATS's fields: under `$SYS.REQ`, and on the page of a server in nats-server's place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from supercluster.broker.monitor import views
from supercluster.broker.net.clients.info import RUNTIME
from supercluster.broker.version import NATS_VERSION, VERSION

if TYPE_CHECKING:
    from supercluster.broker.runtime.process import BrokerProcess

Json = dict[str, Any]


def of(process: BrokerProcess, cpu_percent: float, jetstream: Json) -> Json:
    """One broker. What is false, or that it does not have, is left out where nats-server leaves it out."""
    told = views.varz(process, {})
    place, settings = process.place, process.settings
    slow, stale = told["slow_consumers"], told["stale_connections"]
    tls, limits = settings.client_tls, process.server.limits
    found: Json = {
        "server_id": told["server_id"],
        "server_name": told["server_name"],
        "version": NATS_VERSION,
        "proto": told["proto"],
        "git_commit": f"supercluster-{VERSION}",
        "go": RUNTIME,
        "host": told["host"],
        "port": told["port"],
        "connect_urls": list(process.server.urls),
        "max_connections": told["max_connections"],
        "ping_interval": told["ping_interval"],
        "ping_max": told["ping_max"],
        "http_host": place.monitor_host or place.host,
        "http_port": 0 if place.monitor_tls is not None else process.monitor_port,
        "http_base_path": "",
        "https_port": process.monitor_port if place.monitor_tls is not None else 0,
        "auth_timeout": limits.auth_timeout_ms / 1000,
        "max_control_line": told["max_control_line"],
        "max_payload": told["max_payload"],
        "max_pending": told["max_pending"],
        "cluster": _cluster(process),
        "gateway": _gateway(process),
        "leaf": {},
        "mqtt": {},
        "websocket": _websocket(process),
        "jetstream": jetstream,
        "tls_timeout": tls.timeout_ms / 1000 if tls is not None else 0,
        "write_deadline": limits.write_deadline_ms * 1_000_000,
        "start": told["start"],
        "now": told["now"],
        "uptime": views.span_of((process.clock.now_ns() - process.started_ns) // 1_000_000),
        "mem": told["mem"],
        "cores": os.cpu_count() or 1,
        "cpu": cpu_percent,
        "connections": told["connections"],
        "total_connections": told["total_connections"],
        "routes": told["routes"],
        "remotes": told["remotes"],
        "leafnodes": 0,
        "in_msgs": told["in_msgs"],
        "out_msgs": told["out_msgs"],
        "in_bytes": told["in_bytes"],
        "out_bytes": told["out_bytes"],
        "in_client_msgs": told["in_msgs"],
        "out_client_msgs": told["out_msgs"],
        "in_client_bytes": told["in_bytes"],
        "out_client_bytes": told["out_bytes"],
        "slow_consumers": slow,
        "stale_connections": stale,
        "stalled_clients": told["reading_paused"],
        "subscriptions": told["subscriptions"],
        "http_req_stats": dict(process.monitor.requests),
        "config_load_time": views.time_of(process.started_ns),
        "config_digest": process.reload.digest,
        "system_account": process.credentials.system_account,
        "slow_consumer_stats": {"clients": slow, "routes": 0, "gateways": 0, "leafs": 0},
        "stale_connection_stats": {"clients": stale, "routes": 0, "gateways": 0, "leafs": 0},
    }
    optional = {name: told[name] for name in ("auth_required", "tls_required", "tls_verify")}
    optional["tags"] = list(settings.tags)
    return found | {name: value for name, value in optional.items() if value}


def _cluster(process: BrokerProcess) -> Json:
    if process.place.is_alone:
        return {}
    return {
        "name": process.settings.cluster,
        "addr": process.place.cluster_host or process.place.host,
        "cluster_port": process.cluster_port,
        **({"tls_required": True} if process.settings.cluster_tls is not None else {}),
    }


def _gateway(process: BrokerProcess) -> Json:
    if not process.gateway_port:
        return {}
    return {
        "name": process.settings.cluster,
        "host": process.place.gateway_host or process.place.host,
        "port": process.gateway_port,
        **({"tls_required": True} if process.settings.gateway_tls is not None else {}),
    }


def _websocket(process: BrokerProcess) -> Json:
    if not process.websocket_port:
        return {}
    return {"host": process.place.websocket_host or process.place.host, "port": process.websocket_port}
