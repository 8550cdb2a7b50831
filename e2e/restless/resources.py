"""The resources of the run: a SuperCluster of two Clusters of three brokers, four streams, a ReplicaPolicy and a User."""

from __future__ import annotations

from typing import Any

from e2e.moves.plane import NAME, VERSION, resource

REPLICAS = {"orders": 3, "ledger": 1, "events": 3, "scratch": 1}
HOMES = {"orders": "east", "ledger": "west", "events": "west", "scratch": "east"}
GOES_WITH_ITS_RESOURCE = "scratch"
"""The only stream with the deletionPolicy Delete."""


def stream(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "superCluster": NAME,
        "subjects": [f"{name}.>"],
        "replicas": REPLICAS[name],
        "placement": {"cluster": HOMES[name]},
        # An absence of the brokers is no reason for a repeated message.
        "duplicateWindow": "30m",
        # A Stream that is made anew takes over the stream that was retained.
        "adopt": True,
        "deletionPolicy": "Delete" if name == GOES_WITH_ITS_RESOURCE else "Retain",
    }
    found = resource("Stream", name, spec)
    if REPLICAS[name] > 1:
        found["metadata"]["labels"] = {"tier": "gold"}
    return found


def all_of() -> dict[str, dict[str, Any]]:
    """By kind/name, in the order in which they are applied."""
    repair = {"failureRecoveryInterval": "20s", "checkInterval": "1s"}
    budget = {"concurrentMax": 4, "concurrentPerNodeMax": 4}
    found = {f"scl/{NAME}": resource("SuperCluster", NAME, {"tls": {}, "repair": repair, "moves": budget})}
    for name in ("east", "west"):
        spec = {"superCluster": NAME, "replicas": 3, "storage": {"size": "1Gi"}, "deletionPolicy": "Retain"}
        found[f"ncl/{name}"] = resource("Cluster", name, spec)
    policy = {"superCluster": NAME, "selector": {"matchLabels": {"tier": "gold"}}, "minReplicas": 2, **repair}
    found["rpp/steady"] = resource("ReplicaPolicy", "steady", policy)
    # Its deletion waits until every broker has been up for so long without having seen it, and some broker ends every minute.
    found["nu/shop"] = resource("User", "shop", {"superCluster": NAME, "rotation": {"quietTime": "10s"}})
    found |= {f"str/{name}": stream(name) for name in REPLICAS}
    return found


__all__ = ["GOES_WITH_ITS_RESOURCE", "HOMES", "REPLICAS", "VERSION", "all_of", "stream"]
