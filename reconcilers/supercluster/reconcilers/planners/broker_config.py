"""broker.json: what every broker of a cluster is told (ARCHITECTURE.md, "a broker's process")."""

from __future__ import annotations

import json
from typing import Any

from supercluster.api import Cluster
from supercluster.api.units import duration_ms, size_bytes
from supercluster.reconcilers.planners import naming

VOTERS_MAX = 5


def choose_meta_voters(cluster: str, replicas: int) -> tuple[str, ...]:
    """Brokers that start the meta group: an odd number, at most five. Chosen once; see ClusterStatus.meta_voters."""
    count = min(replicas, VOTERS_MAX)
    return naming.brokers(cluster, count if count % 2 else count - 1)


def broker_config(
    cluster: Cluster, identity: str, replicas: int, meta_voters: tuple[str, ...]
) -> dict[str, Any]:
    """The file's content. It is the same for all brokers, so that one ConfigMap serves them."""
    spec, name = cluster.spec, cluster.metadata.name
    domain = f"{naming.headless_service(name)}.{cluster.metadata.namespace}.svc"
    return {
        "superCluster": spec.super_cluster,
        "identity": identity,
        "cluster": name,
        "peers": {
            broker: f"{broker}.{domain}:{spec.ports.cluster}" for broker in naming.brokers(name, replicas)
        },
        "metaVoters": list(meta_voters),
        "ports": {
            "client": spec.ports.client,
            "cluster": spec.ports.cluster,
            "monitor": spec.ports.monitor,
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
        "raft": {
            "heartbeatMs": duration_ms(spec.raft.heartbeat),
            "electionTimeoutMs": duration_ms(spec.raft.election_timeout),
        },
    }


def config_text(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=1, sort_keys=True) + "\n"


def voters_in(config_map: Any) -> tuple[str, ...]:
    """The voters that a ConfigMap of ours was written with; empty when it can't be read."""
    try:
        voters = json.loads(config_map["data"]["broker.json"])["metaVoters"]
    except (KeyError, TypeError, ValueError):
        return ()
    return tuple(voter for voter in voters if isinstance(voter, str)) if isinstance(voters, list) else ()
