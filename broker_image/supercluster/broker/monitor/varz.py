"""VARZ in NATS's format: under `$SYS.REQ`, and on the page of a drop-in server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from supercluster.broker.monitor import views
from supercluster.broker.monitor.broker import Broker
from supercluster.broker.net.clients.info import RUNTIME
from supercluster.broker.version import NATS_VERSION, VERSION

Json = dict[str, Any]


def of(broker: Broker, cpu_percent: float, jetstream: Json, page_requests: Mapping[str, int]) -> Json:
    """One broker; `page_requests` are those for each page. What is false, or that it does not have, is left out where nats-server leaves it out."""
    told = views.varz(broker, {})
    place, settings = broker.place, broker.settings
    slow, stale = told["slow_consumers"], told["stale_connections"]
    tls, limits = settings.client_tls, broker.server.limits
    found: Json = {
        "server_id": told["server_id"],
        "server_name": told["server_name"],
        "version": NATS_VERSION,
        "proto": told["proto"],
        "git_commit": f"supercluster-{VERSION}",
        "go": RUNTIME,
        "host": told["host"],
        "port": told["port"],
        "connect_urls": list(broker.server.urls),
        **_some(told, "max_connections", "ping_interval", "ping_max"),
        "http_host": place.monitor_host or place.host,
        "http_port": 0 if settings.monitor_tls is not None else broker.monitor_port,
        "http_base_path": "",
        "https_port": broker.monitor_port if settings.monitor_tls is not None else 0,
        "auth_timeout": limits.auth_timeout_ms / 1000,
        **_some(told, "max_control_line", "max_payload", "max_pending"),
        "cluster": _cluster(broker),
        "gateway": _gateway(broker),
        "leaf": {},
        "mqtt": {},
        "websocket": _websocket(broker),
        "jetstream": jetstream,
        "tls_timeout": tls.timeout_ms / 1000 if tls is not None else 0,
        "write_deadline": limits.write_deadline_ms * 1_000_000,
        **_some(told, "start", "now"),
        "uptime": views.span_of((broker.clock.now_ns() - broker.started_ns) // 1_000_000),
        "mem": told["mem"],
        "cores": os.cpu_count() or 1,
        "cpu": cpu_percent,
        **_some(told, "connections", "total_connections", "routes", "remotes"),
        "leafnodes": 0,
        **_some(told, "in_msgs", "out_msgs", "in_bytes", "out_bytes"),
        "in_client_msgs": told["in_msgs"],
        "out_client_msgs": told["out_msgs"],
        "in_client_bytes": told["in_bytes"],
        "out_client_bytes": told["out_bytes"],
        "slow_consumers": slow,
        "stale_connections": stale,
        "stalled_clients": told["reading_paused"],
        "subscriptions": told["subscriptions"],
        "http_req_stats": dict(page_requests),
        "config_load_time": views.time_of(broker.started_ns),
        "config_digest": broker.reload.digest,
        "system_account": broker.credentials.system_account,
        "slow_consumer_stats": {"clients": slow, "routes": 0, "gateways": 0, "leafs": 0},
        "stale_connection_stats": {"clients": stale, "routes": 0, "gateways": 0, "leafs": 0},
    }
    optional = {name: told[name] for name in ("auth_required", "tls_required", "tls_verify")}
    optional["tags"] = list(settings.tags)
    return found | {name: value for name, value in optional.items() if value}


def _some(told: Json, *names: str) -> Json:
    return {name: told[name] for name in names}


def _cluster(broker: Broker) -> Json:
    if broker.place.is_alone:
        return {}
    return {
        "name": broker.settings.cluster,
        "addr": broker.place.cluster_host or broker.place.host,
        "cluster_port": broker.cluster_port,
        **({"tls_required": True} if broker.settings.cluster_tls is not None else {}),
    }


def _gateway(broker: Broker) -> Json:
    if not broker.gateway_port:
        return {}
    return {
        "name": broker.settings.cluster,
        "host": broker.place.gateway_host or broker.place.host,
        "port": broker.gateway_port,
        **({"tls_required": True} if broker.settings.gateway_tls is not None else {}),
    }


def _websocket(broker: Broker) -> Json:
    if not broker.websocket_port:
        return {}
    return {"host": broker.place.websocket_host or broker.place.host, "port": broker.websocket_port}
