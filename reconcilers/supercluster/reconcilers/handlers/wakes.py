"""The workers that an event wakes: that of the resource itself, and those whose plans read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from supercluster.api import Cluster, SuperCluster, User
from supercluster.reconcilers.kinds.reconcilers import Reconcilers
from supercluster.reconcilers.observe.cache import ObjectCache, key_of, key_of_resource
from supercluster.reconcilers.planners.plan import LABEL_SUPER_CLUSTER
from supercluster.reconcilers.ports import Key, mapping


def concerned(reconcilers: Reconcilers, cache: ObjectCache, body: Mapping[str, Any]) -> Iterator[Key]:
    """Keys of the workers that a change of this object concerns."""
    key, spec, metadata = key_of(body), mapping(body.get("spec")), mapping(body.get("metadata"))
    own = reconcilers.get(key.kind)
    if own is None:
        yield from _concerned_by_child(reconcilers, cache, key, metadata)
        return
    yield key
    is_whole = own.kind.model is SuperCluster
    super_clusters = (key.name,) if is_whole else own.kind.model.named_super_clusters(spec)
    for each in reconcilers.values():
        if own.kind.model not in each.reads:
            continue
        for super_cluster in super_clusters:
            if each.kind.model is SuperCluster:
                yield Key(each.kind.name, key.namespace, super_cluster)
            else:
                yield from map(
                    key_of_resource, cache.of_super_cluster(each.kind.model, key.namespace, super_cluster)
                )
    yield from own.wakes(cache, key, spec)


def _concerned_by_child(
    reconcilers: Reconcilers, cache: ObjectCache, key: Key, metadata: Mapping[str, Any]
) -> Iterator[Key]:
    labels = mapping(metadata.get("labels"))
    owners = {
        each.kind.model: Key(each.kind.name, key.namespace, str(labels[each.kind.child_label]))
        for each in reconcilers.values()
        if each.kind.child_label in labels
    }
    yield from owners.values()
    super_cluster = Key("SuperCluster", key.namespace, str(labels.get(LABEL_SUPER_CLUSTER, "")))
    if not owners:
        if super_cluster.name:
            yield super_cluster
            of_it = cache.of_super_cluster(Cluster, key.namespace, super_cluster.name)
            yield from map(key_of_resource, of_it)
            if key.kind == "Secret":
                users = cache.of_super_cluster(User, key.namespace, super_cluster.name)
                yield from map(key_of_resource, users)
    elif User in owners:
        yield super_cluster  # It writes the entries of all Users.
    elif Cluster in owners and (
        key.kind == "Secret" or (key.kind == "Pod" and metadata.get("deletionTimestamp"))
    ):
        # Of a drain the brokers have to hear before it is over: while one is away they may not take a first cordon.
        yield super_cluster


def matters(reconcilers: Reconcilers, body: Mapping[str, Any]) -> tuple[Any, ...]:
    """The fields of a resource that any plan depends on. Figures in its status are none: they are written by us, and waking for
    them would make a stream under load look at itself without end."""
    metadata, status = mapping(body.get("metadata")), mapping(body.get("status"))
    return (
        metadata.get("uid"),
        metadata.get("generation"),
        metadata.get("deletionTimestamp"),
        tuple(metadata.get("finalizers") or ()),
        *reconcilers[str(body.get("kind"))].matters(metadata, status),
        *(
            mapping(entry).get("status")
            for entry in status.get("conditions") or ()
            if mapping(entry).get("type") in ("Ready", "Whole")
        ),
    )
