"""Whose worker an event wakes: the resource itself, and those whose plans read it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from supercluster.api import Cluster, ReplicaPolicy, Stream, StreamMove
from supercluster.api.cluster import APPROVE_RESTART, RELEASE_RESTART
from supercluster.api.recovery import BEGIN_MAP_ANEW, FORCE_RECOVER, FORCE_RECOVER_META
from supercluster.api.super_cluster import EXCHANGE_AUTHORITY
from supercluster.reconcilers.observe.cache import ObjectCache, key_of
from supercluster.reconcilers.planners.plan import LABEL_CLUSTER, LABEL_SUPER_CLUSTER
from supercluster.reconcilers.ports import Key, mapping


def concerned(cache: ObjectCache, body: Mapping[str, Any]) -> Iterator[Key]:
    """Keys of the workers that a change of this object concerns."""
    key, spec = key_of(body), mapping(body.get("spec"))
    labels = mapping(mapping(body.get("metadata")).get("labels"))
    if key.kind == "SuperCluster":
        yield key
        yield from _members(cache, key.namespace, key.name)
        yield from (_key(each) for each in cache.of_super_cluster(StreamMove, key.namespace, key.name))
    elif key.kind in ("Cluster", "Stream"):
        yield key
        super_cluster = str(spec.get("superCluster", ""))
        yield Key("SuperCluster", key.namespace, super_cluster)
        if key.kind == "Cluster":
            yield from _members(cache, key.namespace, super_cluster)
        else:
            name = str(spec.get("name") or key.name)
            yield from (_key(rival) for rival in cache.claimants(key.namespace, super_cluster, name))
            yield from (_key(each) for each in cache.of_super_cluster(Cluster, key.namespace, super_cluster))
            yield from (_key(each) for each in cache.moves_about(key.namespace, super_cluster, key.name))
    elif key.kind == "StreamMove":
        yield key
        super_cluster = str(spec.get("superCluster", ""))
        yield Key("SuperCluster", key.namespace, super_cluster)
        if spec.get("streamRef"):
            yield Key("Stream", key.namespace, str(spec["streamRef"]))
    elif key.kind == "ReplicaPolicy":
        yield key
        super_cluster = str(spec.get("superCluster", ""))
        yield Key("SuperCluster", key.namespace, super_cluster)
        yield from (_key(each) for each in cache.of_super_cluster(Stream, key.namespace, super_cluster))
        yield from (
            _key(each) for each in cache.of_super_cluster(ReplicaPolicy, key.namespace, super_cluster)
        )
    elif LABEL_CLUSTER in labels:
        yield Key("Cluster", key.namespace, str(labels[LABEL_CLUSTER]))
        if key.kind == "Secret":
            yield Key("SuperCluster", key.namespace, str(labels.get(LABEL_SUPER_CLUSTER, "")))
        if key.kind == "Pod" and mapping(body.get("metadata")).get("deletionTimestamp"):
            # Of a drain the brokers have to hear before it is over: while one is away they may not take a first cordon.
            yield Key("SuperCluster", key.namespace, str(labels.get(LABEL_SUPER_CLUSTER, "")))
    elif LABEL_SUPER_CLUSTER in labels:
        super_cluster = str(labels[LABEL_SUPER_CLUSTER])
        yield Key("SuperCluster", key.namespace, super_cluster)
        yield from (_key(each) for each in cache.of_super_cluster(Cluster, key.namespace, super_cluster))


def placed(super_cluster: Mapping[str, Any]) -> frozenset[tuple[Key, Any]]:
    """StreamMoves that have a place in its budget, with the ticket that it was given to."""
    namespace = str(mapping(super_cluster.get("metadata")).get("namespace", ""))
    places = map(mapping, mapping(super_cluster.get("status")).get("moves") or ())
    return frozenset(
        (Key("StreamMove", namespace, str(each.get("name", ""))), each.get("ticket")) for each in places
    )


def _members(cache: ObjectCache, namespace: str, super_cluster: str) -> Iterator[Key]:
    yield from (_key(each) for each in cache.of_super_cluster(Cluster, namespace, super_cluster))
    yield from (_key(each) for each in cache.of_super_cluster(Stream, namespace, super_cluster))
    yield from (_key(each) for each in cache.of_super_cluster(ReplicaPolicy, namespace, super_cluster))


def _key(resource: Cluster | Stream | StreamMove | ReplicaPolicy) -> Key:
    return Key(type(resource).__name__, resource.metadata.namespace, resource.metadata.name)


def matters(body: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a custom resource can change somebody's plan. Figures in its status don't: they are written by us, and
    waking for them would make a stream under load look at itself without end."""
    metadata, status = mapping(body.get("metadata")), mapping(body.get("status"))
    ready = [
        mapping(c).get("status")
        for c in status.get("conditions") or ()
        if mapping(c).get("type") in ("Ready", "Whole")
    ]
    return (
        metadata.get("uid"),
        metadata.get("generation"),
        metadata.get("deletionTimestamp"),
        # A ReplicaPolicy selects Streams by them.
        json.dumps(metadata.get("labels"), sort_keys=True) if body.get("kind") == "Stream" else None,
        tuple(metadata.get("finalizers") or ()),
        mapping(metadata.get("annotations")).get(FORCE_RECOVER) if body.get("kind") == "Stream" else None,
        mapping(metadata.get("annotations")).get(APPROVE_RESTART) if body.get("kind") == "Cluster" else None,
        mapping(metadata.get("annotations")).get(RELEASE_RESTART) if body.get("kind") == "Cluster" else None,
        mapping(metadata.get("annotations")).get(FORCE_RECOVER_META)
        if body.get("kind") == "SuperCluster"
        else None,
        mapping(metadata.get("annotations")).get(BEGIN_MAP_ANEW)
        if body.get("kind") == "SuperCluster"
        else None,
        mapping(metadata.get("annotations")).get(EXCHANGE_AUTHORITY)
        if body.get("kind") == "SuperCluster"
        else None,
        status.get("replicas") if body.get("kind") == "Cluster" else None,
        status.get("readyReplicas") if body.get("kind") == "Cluster" else None,
        status.get("founder") if body.get("kind") == "SuperCluster" else None,
        (status.get("phase"), status.get("ticket")) if body.get("kind") == "StreamMove" else None,
        bool(status.get("metaVoters")) if body.get("kind") == "Cluster" else None,
        tuple(ready),
    )
