"""broker.json: the configuration of every broker of a cluster (docs/broker-process.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from supercluster.api import Cluster
from supercluster.api.super_cluster import MigrationDoorStatus, PortTls, TlsStage
from supercluster.api.units import duration_ms, size_bytes
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.tls_ports import CLIENTS, MONITORING

# One that answers is enough: brokers tell each other the addresses of all (gossip).
GATEWAY_SEEDS_MAX = 3


# In the folder that brokers are given by --tls-dir, by the names that Secrets of the type kubernetes.io/tls have.
TLS_FILES = {"certFile": "tls.crt", "keyFile": "tls.key", "caFile": "ca.crt"}

_PAIR = {"certFile": TLS_FILES["certFile"], "keyFile": TLS_FILES["keyFile"]}
BULK_CACHE_BYTES_MIN = 32 << 20
PORT_KEYS = {CLIENTS: "clientTls", MONITORING: "monitorTls"}
# nats-py begins with the handshake where TLS is not required of it. Clients that wait for INFO get it after this time, in which a busy one
# has to have begun: a program that publishes 10,000 messages a second in the same loop took more than nats-server's 50 ms.
PORT_TLS: Mapping[str, Mapping[str, Any]] = {
    CLIENTS: {**_PAIR, "handshakeFirst": True, "firstWaitMs": 300},
    MONITORING: _PAIR,
}

CREDENTIALS_FOLDER = "/etc/supercluster/credentials"
# Each side trusts the authorities of both; whose certificate it is, the migration says.
MIGRATION_TLS = {
    **TLS_FILES,
    # Below --tls-dir, beside which the credentials are mounted: processes of the embedded plane see their mounts elsewhere.
    "caFile": f"../credentials/{naming.MIGRATION_AUTHORITIES}",
}

MOVE_BYTES_PER_S_MAX = 1 << 50

# What a broker takes, where the schema of a Cluster can't say it: sizes and durations are texts there. A broker that
# gets something else does not start. (section, key) → field of the spec, least, greatest.
BOUNDS: Mapping[tuple[str, str], tuple[str, int, int]] = {
    ("limits", "maxPayloadBytes"): ("limits.maxPayload", 1, 32 << 20),
    ("limits", "maxPendingBytes"): ("limits.maxPending", 64 << 10, 1 << 30),
    ("limits", "pingIntervalMs"): ("limits.pingInterval", 100, 3_600_000),
    ("limits", "windowBytesPerStream"): ("limits.streamWindow", 64 << 10, 1 << 30),
    ("limits", "windowWaitMs"): ("limits.streamWindowWait", 100, 600_000),
    ("storage", "maxFileBytes"): ("diskLimits.maxFile", 0, 1 << 60),
    ("storage", "maxMemoryBytes"): ("diskLimits.maxMemory", 0, 1 << 50),
    ("storage", "segmentBytes"): ("diskLimits.segment", 64 << 10, 1 << 31),
    ("raft", "electionTimeoutMs"): ("raft.electionTimeout", 50, 60_000),
}
LINK_PORTS = ("clusterTls", "gatewayTls")
# What becomes of plain links, by the stage of TLS between brokers. Required is a broker's default, and is not written.
PLAIN: Mapping[TlsStage, str] = {"AcceptBoth": "dialled", "DialTls": "accepted"}
# What brokers take over while they run.
HOT = frozenset({"clientTls", "gateways", "jetstream", "joinOnly", "monitorTls", "moves", "peers", "tags"})
HOT_IN: Mapping[str, frozenset[str]] = {
    "limits": frozenset(
        {"maxPayloadBytes", "maxConnections", "maxPendingBytes", "pingIntervalMs", "pingsOutMax"}
    ),
    "storage": frozenset({"maxFileBytes", "maxMemoryBytes"}),
    **{port: frozenset({"plain"}) for port in LINK_PORTS},
}
_SIZES = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_DURATIONS = (("h", 3_600_000), ("m", 60_000), ("s", 1_000))


def broker_config(
    cluster: Cluster,
    identity: str,
    replicas: int,
    meta_voters: tuple[str, ...],
    siblings: tuple[Cluster, ...] = (),
    move_bytes_per_s: int = 0,
    *,
    join_only: bool = False,
    tls_name: str = "",
    tls_stage: TlsStage = "Off",
    ports: Mapping[str, PortTls] | None = None,
    migration: MigrationDoorStatus | None = None,
) -> dict[str, Any]:
    """The file's content. It is the same for all brokers, so that one ConfigMap serves them. `move_bytes_per_s`: the limit of
    a move that a client starts. `join_only`: the map of streams was begun before. `tls_name`: what certificates of brokers are for.
    `tls_stage`: how far TLS on links is turned on. `ports`: the same for clients and monitoring. `migration`: what brokers have for links with another super-cluster."""
    spec, name = cluster.spec, cluster.metadata.name
    domain = _domain(cluster)
    plain = {"plain": PLAIN[tls_stage]} if tls_stage in PLAIN else {}
    return {
        "superCluster": spec.super_cluster,
        "identity": identity,
        "cluster": name,
        "peers": {
            broker: f"{broker}.{domain}:{spec.ports.cluster}" for broker in naming.brokers(name, replicas)
        },
        "gateways": {
            each.metadata.name: _seeds(each)
            for each in sorted(siblings, key=lambda each: each.metadata.name)
            if each.metadata.name != name
        },
        "tags": list(spec.tags),
        "metaVoters": list(meta_voters),
        "ports": {
            "client": spec.ports.client,
            "cluster": spec.ports.cluster,
            "gateway": spec.ports.gateway,
            "monitor": spec.ports.monitor,
            **({"migration": spec.ports.migration_port} if migration is not None and migration.port else {}),
        },
        "limits": {
            "maxPayloadBytes": size_bytes(spec.limits.max_payload),
            "maxConnections": spec.limits.max_connections,
            "maxPendingBytes": size_bytes(spec.limits.max_pending),
            "pingIntervalMs": duration_ms(spec.limits.ping_interval),
            "pingsOutMax": spec.limits.pings_out_max,
            "windowBytesPerStream": size_bytes(spec.limits.stream_window),
            "windowWaitMs": duration_ms(spec.limits.stream_window_wait),
        },
        "storage": {
            "maxFileBytes": size_bytes(spec.disk_limits.max_file),
            "maxMemoryBytes": size_bytes(spec.disk_limits.max_memory),
            "syncIntervalMs": duration_ms(spec.fsync_interval),
            "segmentBytes": size_bytes(spec.disk_limits.segment),
        },
        **(
            {
                "bulk": {
                    "port": spec.ports.bulk,
                    "quotaBytes": max(BULK_CACHE_BYTES_MIN, size_bytes(spec.disk_limits.bulk_cache)),
                }
            }
            if spec.ports.bulk
            else {}
        ),
        "raft": {
            "heartbeatMs": duration_ms(spec.raft.heartbeat),
            "electionTimeoutMs": duration_ms(spec.raft.election_timeout),
        },
        # Written only when true: a file without it is the one of before.
        **({"joinOnly": True} if join_only else {}),
        **(
            {key: {**TLS_FILES, "serverName": tls_name, **plain} for key in LINK_PORTS}
            if tls_stage != "Off"
            else {}
        ),
        **{
            PORT_KEYS[port]: {**PORT_TLS[port], **({"allowPlain": True} if stage == "Optional" else {})}
            for port, stage in (ports or {}).items()
            if stage != "Off"
        },
        **({"migrationTls": MIGRATION_TLS} if migration is not None and migration.tls else {}),
        **({"moves": {"bytesPerS": min(move_bytes_per_s, MOVE_BYTES_PER_S_MAX)}} if move_bytes_per_s else {}),
    }


def _domain(cluster: Cluster) -> str:
    return f"{naming.headless_service(cluster.metadata.name)}.{cluster.metadata.namespace}.svc"


def _seeds(cluster: Cluster) -> list[str]:
    count = min(cluster.spec.replicas, GATEWAY_SEEDS_MAX)
    domain, port = _domain(cluster), cluster.spec.ports.gateway
    return [f"{broker}.{domain}:{port}" for broker in naming.brokers(cluster.metadata.name, count)]


def migration_seeds(cluster: Cluster) -> list[str]:
    """Migration ports of some brokers, for those of another super-cluster."""
    count = min(cluster.spec.replicas, GATEWAY_SEEDS_MAX)
    domain, port = _domain(cluster), cluster.spec.ports.migration_port
    return [f"{broker}.{domain}:{port}" for broker in naming.brokers(cluster.metadata.name, count)]


def restart_worthy(config: dict[str, Any]) -> dict[str, Any]:
    """What brokers must be restarted to take over: all that is not in their own list of what they take over while they run
    (`settings/reload.py`; a test compares the two)."""
    return {
        section: {key: part for key, part in value.items() if key not in HOT_IN.get(section, ())}
        if section in HOT_IN
        else value
        for section, value in config.items()
        if section not in HOT
    }


def out_of_range(cluster: Cluster) -> str | None:
    """What of the spec no broker takes, with the bounds; None when all can be used."""
    config = broker_config(cluster, "", 1, ())
    for (section, key), (path, low, high) in BOUNDS.items():
        if low <= config[section][key] <= high:
            continue
        given: Any = cluster.spec.to_object()
        for part in path.split("."):
            given = given[part]
        units, rest = (_DURATIONS, "ms") if key.endswith("Ms") else (_SIZES, "")
        return f"spec.{path} is {given}; it has to be from {_text(low, units, rest)} to {_text(high, units, rest)}"
    return None


def _text(number: int, units: tuple[tuple[str, int], ...], rest: str) -> str:
    unit, factor = next((unit for unit in units if number and number % unit[1] == 0), (rest, 1))
    return f"{number // factor}{unit}"


def config_text(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=1, sort_keys=True) + "\n"


def file_digest(config: dict[str, Any]) -> str:
    """The fingerprint of the file by which brokers say that they took it over."""
    return hashlib.sha256(config_text(config).encode()).hexdigest()[:16]


def voters_in(config_map: Any) -> tuple[str, ...]:
    """The voters that a ConfigMap of ours was written with; empty when it can't be read."""
    voters = _told(config_map, "metaVoters")
    return tuple(voter for voter in voters if isinstance(voter, str)) if isinstance(voters, list) else ()


def is_join_only(config_map: Any) -> bool:
    """Whether a ConfigMap of ours forbids its brokers to begin a map."""
    return _told(config_map, "joinOnly") is True


def stage_told(config_map: Any, stateful_set: Any) -> TlsStage | None:
    """The stage of TLS between brokers that a ConfigMap of ours was written with. Where it is gone, a StatefulSet says whether there are
    certificates, and `DialTls` links with each stage that has some. None: neither is there."""
    if config_map is not None:
        tls = _told(config_map, LINK_PORTS[0])
        if not isinstance(tls, Mapping):
            return "Off"
        return next((stage for stage, plain in PLAIN.items() if plain == tls.get("plain")), "Required")
    if stateful_set is None:
        return None
    volumes = stateful_set["spec"]["template"]["spec"].get("volumes") or ()
    return "DialTls" if any(each.get("name") == "tls" for each in volumes) else "Off"


def port_told(config_map: Any, port: str) -> PortTls:
    """The stage of TLS on a port that a ConfigMap of ours was written with."""
    tls = _told(config_map, PORT_KEYS[port])
    if not isinstance(tls, Mapping):
        return "Off"
    return "Optional" if tls.get("allowPlain") else "Required"


def _told(config_map: Any, name: str) -> Any:
    try:
        return json.loads(config_map["data"]["broker.json"])[name]
    except (KeyError, TypeError, ValueError):
        return None
