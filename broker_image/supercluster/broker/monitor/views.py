"""The contents of the monitoring endpoints, with NATS's field names where NATS has the field."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from supercluster.broker.monitor.broker import Broker, Network
from supercluster.broker.net.clients.certificates import ClientCertificates
from supercluster.broker.net.clients.client import Client
from supercluster.broker.net.links.link import Link
from supercluster.broker.version import NATS_VERSION, VERSION

View: TypeAlias = Callable[[Broker, dict[str, str]], Any]

PROBES = ("live", "startup", "ready")
CONNECTIONS_SHOWN = 1024
_PAGE_BYTES = resource.getpagesize()


def health(broker: Broker, probe: str) -> tuple[int, dict[str, Any]]:
    """live: the loop answers; startup: clients were let in; ready: they are let in now.

    What is wrong with single streams is a warning: a restart or a missing endpoint would not help them.
    """
    if probe not in PROBES:
        return 400, {"status": "error", "error": f"probe is {probe}; it has to be one of {', '.join(PROBES)}"}
    if probe == "live" or (probe == "startup" and broker.server.lame_duck):
        return 200, {"status": "ok"}
    if not broker.accepting:
        text = "the broker is leaving" if broker.server.lame_duck else "the broker is starting"
        return 503, {"status": "unavailable", "error": text}
    troubles = broker.mesh.gateways.troubles if broker.mesh is not None else []
    if broker.core is not None:
        troubles += broker.core.troubles
    return 200, {"status": "ok", **({"warnings": troubles} if troubles else {})}


def varz(broker: Broker, query: dict[str, str]) -> dict[str, Any]:
    """The broker at a glance."""
    server = broker.server
    counts = server.counts
    clients = server.clients.values()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    routes, gateways = links_of(broker, far=False), links_of(broker, far=True)
    return {
        "server_id": broker.process_id,
        "server_name": broker.place.name,
        "version": NATS_VERSION,
        "git_commit": f"supercluster-{VERSION}",
        "proto": 1,
        "host": broker.place.host,
        "port": broker.client_port,
        "auth_required": server.auth_required,
        "tls_required": server.tls is not None and not server.tls.settings.allow_plain,
        "tls_verify": server.tls is not None and server.tls.settings.asks_certificate,
        "max_connections": server.limits.max_connections,
        "max_payload": server.limits.max_payload_bytes,
        "max_control_line": server.limits.max_control_line_bytes,
        "max_pending": server.limits.max_pending_bytes,
        "ping_interval": server.limits.ping_interval_ms * 1_000_000,
        "ping_max": server.limits.pings_out_max,
        "cluster": {"name": broker.settings.cluster, "cluster_port": broker.cluster_port},
        "gateway": {"name": broker.settings.cluster, "port": broker.gateway_port},
        "migration": _migration(broker),
        "super_cluster": {"name": broker.settings.super_cluster, "identity": broker.settings.identity},
        "start": time_of(broker.started_ns),
        "now": time_of(broker.clock.now_ns()),
        "uptime": f"{(broker.clock.now_ns() - broker.started_ns) // 1_000_000_000}s",
        "mem": resident_bytes(),
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "connections": len(server.clients),
        "total_connections": counts.connections_total,
        "routes": len(routes),
        "gateways": len(gateways),
        "remotes": len(routes) + len(gateways),
        "links_refused": broker.mesh.handshakes.refused_total if broker.mesh is not None else 0,
        "in_msgs": counts.in_messages + sum(client.in_messages for client in clients),
        "out_msgs": counts.out_messages + sum(client.subscriber.out_messages for client in clients),
        "in_bytes": counts.in_bytes + sum(client.in_bytes for client in clients),
        "out_bytes": counts.out_bytes + sum(client.subscriber.out_bytes for client in clients),
        "slow_consumers": counts.slow_consumers,
        "stale_connections": counts.stale_connections,
        "auth_failures": counts.auth_failures,
        "tls_failures": counts.tls_failures,
        "permission_violations": counts.permission_violations,
        "protocol_errors": counts.protocol_errors,
        "publish_errors_sent": counts.errors_sent,
        "reading_paused": counts.reading_paused,
        "held_bytes": server.held_bytes,
        "held_refused": counts.held_refused,
        "deliveries_dropped": broker.router.lanes.dropped,
        "subscriptions": sum(account.sublist.local_count for account in broker.router.accounts.values()),
        **broker.redirection.figures,
        "lame_duck": server.lame_duck,
        "config": config(broker),
    }


def config(broker: Broker) -> dict[str, Any]:
    """Which settings are in force: the digest of the file that was taken over last, why the present one was not, and what
    of it is taken over at the next start."""
    reload = broker.reload
    return {"digest": reload.digest, "refused": reload.refused, "atNextStart": list(reload.waiting)}


def certificates(broker: Broker) -> dict[str, Any]:
    """What new links with brokers are made with: fingerprints (SHA-256) of the certificate shown and of the authorities trusted."""
    return {
        name: {"certificate": loaded.certificate, "authorities": list(loaded.authorities)}
        for name, loaded in broker.loaded_certificates.items()
    }


STAGES = {"refused": "Required", "accepted": "DialTls", "dialled": "AcceptBoth"}
"""How far TLS between brokers is turned on, by what becomes of plain links."""


def encryption_of_links(broker: Broker) -> dict[str, Any]:
    """How far TLS is turned on at each port for brokers of this super-cluster, and how many links have it."""
    mesh = broker.mesh
    if mesh is None:
        return {}
    doors = (mesh.cluster_door, *((mesh.gateway_door,) if broker.gateway_port else ()))
    encrypted = [link.control.is_encrypted for link in mesh.links.values()]
    return {
        "stages": {door.name: STAGES[door.plain] if door.tls is not None else "Off" for door in doors},
        "encrypted": sum(encrypted),
        "plain": len(encrypted) - sum(encrypted),
    }


def encryption_of_ports(broker: Broker, monitoring: ClientCertificates | None) -> dict[str, Any]:
    """How far TLS is turned on for clients and for monitoring, and how many clients have it, but for the operator's own connections,
    which follow by themselves."""
    server = broker.server
    encrypted = [
        client.tls is not None
        for client in server.clients.values()
        if client.has_come
        and not client.is_websocket
        and not (client.credential is not None and client.info.is_operator)
    ]
    return {
        "clients": {
            "stage": _stage_of(server.tls),
            "encrypted": sum(encrypted),
            "plain": len(encrypted) - sum(encrypted),
        },
        "monitoring": {"stage": _stage_of(monitoring)},
    }


def _stage_of(tls: ClientCertificates | None) -> str:
    if tls is None:
        return "Off"
    return "Optional" if tls.settings.allow_plain else "Required"


def connz(broker: Network, query: dict[str, str]) -> dict[str, Any]:
    """The clients."""
    server = broker.server
    try:
        offset = max(0, int(query.get("offset", "0")))
        limit = min(max(1, int(query.get("limit", str(CONNECTIONS_SHOWN)))), CONNECTIONS_SHOWN)
    except ValueError:
        offset, limit = 0, CONNECTIONS_SHOWN
    shown = list(server.clients.values())[offset : offset + limit]
    return {
        "server_id": broker.process_id,
        "now": time_of(broker.clock.now_ns()),
        "num_connections": len(shown),
        "total": len(server.clients),
        "offset": offset,
        "limit": limit,
        "connections": [_connection(broker, client) for client in shown],
    }


def _connection(broker: Network, client: Client) -> dict[str, Any]:
    return {
        "cid": client.id,
        "kind": "Client",
        "type": "nats",
        "ip": client.peer[0],
        "port": client.peer[1],
        "uptime": f"{(broker.clock.machine_ms() - client.started_ms) // 1000}s",
        "account": client.account.name,
        "name": client.name,
        "lang": client.language,
        "version": client.library_version,
        **({"tls_version": tls[0], "tls_cipher": tls[1]} if (tls := client.tls) is not None else {}),
        "pending_bytes": client.subscriber.pending_bytes(),
        "held_bytes": client.held.total_bytes,
        "in_msgs": client.in_messages,
        "out_msgs": client.subscriber.out_messages,
        "in_bytes": client.in_bytes,
        "out_bytes": client.subscriber.out_bytes,
        "subscriptions": len(client.subscriber.subscriptions),
        **redirect_of(broker, client),
    }


def redirect_of(broker: Network, client: Client) -> dict[str, Any]:
    """Whether a client is sent to another super-cluster, and how far it is; empty where nothing is migrated."""
    found = broker.redirection.described(client)
    return {"redirect": found} if found else {}


def routez(broker: Network, query: dict[str, str]) -> dict[str, Any]:
    """The links within the cluster."""
    links = links_of(broker, far=False)
    return {
        "server_id": broker.process_id,
        "server_name": broker.place.name,
        "now": time_of(broker.clock.now_ns()),
        "num_routes": len(links),
        "routes": [link_view(link) for link in links],
    }


def gatewayz(broker: Broker, query: dict[str, str]) -> dict[str, Any]:
    """The links with brokers of other clusters, and how they are found: there is one with every broker, dialled here
    (outbound) or there (inbound); messages cross it both ways."""
    links = links_of(broker, far=True)
    outbound: dict[str, list[dict[str, Any]]] = {}
    inbound: dict[str, list[dict[str, Any]]] = {}
    for link in links:
        (outbound if link.control.dialled else inbound).setdefault(link.peer.cluster, []).append(
            link_view(link)
        )
    gateways = broker.mesh.gateways if broker.mesh is not None else None
    linked = {link.peer.node for link in links}
    return {
        "server_id": broker.process_id,
        "server_name": broker.place.name,
        "now": time_of(broker.clock.now_ns()),
        "name": broker.settings.cluster,
        "host": broker.place.gateway_host or broker.place.host,
        "port": broker.gateway_port,
        "tls_required": broker.settings.gateway_tls is not None,
        "num_gateways": len(links),
        "outbound_gateways": outbound,
        "inbound_gateways": inbound,
        "seeds": [
            {"cluster": seed.cluster, "address": seed.address, "answered_by": seed.node, "error": seed.error}
            for seed in (gateways.seeds.values() if gateways is not None else ())
        ],
        "known": [
            {
                "name": shown.node,
                "cluster": shown.cluster,
                "addresses": list(shown.addresses),
                "linked": shown.node in linked,
                "error": shown.error,
            }
            for shown in (gateways.book.shown() if gateways is not None else ())
        ],
        "name_conflicts": dict(gateways.book.conflicts) if gateways is not None else {},
    }


def _migration(broker: Broker) -> dict[str, Any]:
    """Links with brokers of other super-clusters, by their far names, and what came of asking at the addresses of migrations."""
    far = broker.mesh.far if broker.mesh is not None else None
    searches = far.searches.items() if far is not None else ()
    return {
        "port": broker.migration_port,
        "links": [link_view(link) for _, link in sorted(far.links.items())] if far is not None else [],
        "asked": [
            {"identity": identity, "address": address, "error": search.errors.get(address)}
            for identity, search in searches
            for address in search.wanted.addresses
        ],
    }


def links_of(broker: Network, *, far: bool) -> list[Link]:
    """Those with brokers of other clusters, or of the own one."""
    links = broker.mesh.links.values() if broker.mesh is not None else ()
    return [link for link in links if (link.peer.cluster != broker.settings.cluster) is far]


def link_view(link: Link) -> dict[str, Any]:
    return {
        "remote_id": link.peer.process,
        "remote_name": link.peer.node,
        "cluster": link.peer.cluster,
        "incarnation": link.peer.incarnation,
        "tags": list(link.peer.tags),
        "did_solicit": link.control.dialled,
        "ip": link.control.address,
        "client_url": link.peer.client_url,
        "gateway_url": link.peer.gateway_url,
        "tls": link.control.is_encrypted,
        "pending_size": link.control.pending_bytes(),
        "bulk_pending_size": link.bulk.pending_bytes(),
        "in_bytes": link.control.in_bytes + link.bulk.in_bytes,
        "out_bytes": link.control.sent_bytes + link.bulk.sent_bytes,
        "subscriptions": sum(len(entries) for entries in link.interest.values()),
        "clients": link.clients,
        "dropped_msgs": link.dropped_messages,
        "dropped_frames": link.dropped_frames,
        "lame_duck": link.leaving,
    }


def jsz(broker: Broker, query: dict[str, str]) -> dict[str, Any]:
    """Streams and groups, as the core tells it."""
    told = {
        "server_id": broker.process_id,
        "server_name": broker.place.name,
        "now": time_of(broker.clock.now_ns()),
    }
    if broker.core is None:
        return {**told, "disabled": True}
    return {**told, **broker.core.jsz()}


def jsz_streams(broker: Broker, query: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Its streams: all, or `limit` of them from `offset` on."""
    if broker.core is None:
        return iter(())
    try:
        offset = max(0, int(query.get("offset", "0")))
        end = offset + max(0, int(query["limit"])) if "limit" in query else None
    except ValueError:
        offset, end = 0, None
    return islice(broker.core.jsz_streams(), offset, end)


VIEWS: dict[str, View] = {
    "/varz": varz,
    "/connz": connz,
    "/routez": routez,
    "/gatewayz": gatewayz,
}


def figures(broker: Broker) -> dict[str, Any]:
    """Of /varz, and of the core, for /metrics."""
    told = broker.core.jsz() if broker.core is not None else {}
    own = {
        "unusable_copies": len(told.get("unusable_copies", ())),
        "group_faults": told.get("group_faults", 0),
        "far_frames_dropped": told.get("far_frames_dropped", 0),
        "far_links": len(broker.mesh.far.links) if broker.mesh is not None else 0,
    }
    return varz(broker, {}) | own | broker.bulk_figures()


def resident_bytes() -> int:
    """Resident memory of this process."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def span_of(span_ms: int) -> str:
    """As NATS has how long something is there: 1d2h3m4s."""
    minutes, seconds = divmod(span_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s"))
    first = next((at for at, (value, _) in enumerate(parts) if value), 3)
    return "".join(f"{value}{unit}" for value, unit in parts[first:])


def time_of(unix_ns: int) -> str:
    """As NATS has times."""
    seconds, rest = divmod(unix_ns, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest // 1000:06d}Z"
