"""Observes the input of repairs: absent and leaving brokers and unusable copies, and while there are any, the
streams and the brokers' Kubernetes nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from supercluster.api import Cluster, ReplicaPolicy, Stream, StreamMove, SuperCluster
from supercluster.api.units import duration_ms
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.handed import HandedStreams
from supercluster.reconcilers.observe.lists import StreamLists
from supercluster.reconcilers.observe.targets import answer_of
from supercluster.reconcilers.observe.views import DEFAULT_ACCOUNT, living_stream, pod_view
from supercluster.reconcilers.planners.move.generated import stream_of
from supercluster.reconcilers.planners.move.views import is_ended
from supercluster.reconcilers.planners.replica.repair_moves import LivingStream, RepairObserved, is_own
from supercluster.reconcilers.planners.status import parse_timestamp
from supercluster.reconcilers.planners.strategies import Node
from supercluster.reconcilers.ports import (
    Brokers,
    BrokersError,
    BrokerTarget,
    Clock,
    Kube,
    KubeError,
    mapping,
)

ZONE_LABEL = "topology.kubernetes.io/zone"
NS_PER_S = 1_000_000_000
# Kubernetes nodes that are remembered, and for how long: a cordon is seen after that time.
HOSTS_MAX = 4096
HOST_VALID = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Host:
    """A Kubernetes node that a broker runs on."""

    zone: str = ""
    is_cordoned: bool = False
    is_known: bool = False
    """False: the operator may not look at nodes, or there is none of that name."""


@dataclass(slots=True)
class Hosts:
    """Kubernetes nodes, asked for now and then and not at every look."""

    kube: Kube
    clock: Clock
    _known: dict[str, tuple[datetime, Host]] = field(default_factory=dict)
    _asked_for: dict[str, str] = field(default_factory=dict)
    """By node, the pod that went when it was asked last."""

    async def of(self, node: str, *, going: str = "") -> Host:
        """An empty one when nothing is known, or the operator may not look at nodes. `going`: a pod there that is being deleted, by
        its uid. It may be a drain, which begins with a cordon, so the node is asked at once, and once for that pod."""
        if not node:
            return Host()
        now = self.clock.now()
        asked, host = self._known.get(node, (None, Host()))
        is_new = going not in ("", self._asked_for.get(node))
        if asked is not None and now - asked < HOST_VALID and not is_new:
            return host
        try:
            body = mapping(await self.kube.get("v1", "Node", "", node))
        except KubeError:
            body = {}  # What was known stands, and is asked for again when its time has come.
        if body:
            labels = mapping(mapping(body.get("metadata")).get("labels"))
            is_cordoned = bool(mapping(body.get("spec")).get("unschedulable", False))
            host = Host(str(labels.get(ZONE_LABEL, "")), is_cordoned, is_known=True)
        if node in self._known or len(self._known) < HOSTS_MAX:
            self._known[node] = (now, host)
            if going:
                self._asked_for[node] = going
        return host

    async def allows_expansion(self, storage_class: str) -> bool | None:
        """Of the volumes of a storage class; None when the operator may not look at it, or there is none."""
        try:
            body = await self.kube.get("storage.k8s.io/v1", "StorageClass", "", storage_class)
        except KubeError:
            return None
        return bool(body.get("allowVolumeExpansion", False)) if body is not None else None


async def brokers_answer(
    brokers: Brokers, target: BrokerTarget | str, *, with_room: bool = False
) -> Mapping[str, Any] | None:
    """What the map has of all brokers; None when nobody says."""
    return await answer_of(target, lambda each: brokers.brokers_state(each, with_room=with_room))


async def look_at_repairs(
    cache: ObjectCache,
    brokers: Brokers,
    hosts: Hosts,
    handed: HandedStreams,
    desired: SuperCluster,
    target: BrokerTarget | str,
    told: Mapping[str, Any] | None,
    lists: StreamLists | None = None,
) -> RepairObserved | None:
    """`told`: the brokers' answer about themselves. `lists`: where streams are listed while it is needed; without it they are
    listed anew, though all brokers are there and stay."""
    if told is None or isinstance(target, str) or not told.get("timeNs"):
        return None
    namespace, name = desired.metadata.namespace, desired.metadata.name
    entries = [mapping(entry) for entry in told.get("brokers") or ()]
    policies = cache.of_super_cluster(ReplicaPolicy, namespace, name)
    moves = cache.of_super_cluster(StreamMove, namespace, name)
    unusable = _unusable(entries)
    is_watching = (
        lists is None
        or bool(unusable)
        or (bool(told.get("beyondTarget")) and _takes_away(desired, policies))
        or any(
            entry.get("awaySinceNs") or (entry.get("leaves") and entry.get("holdsCopies"))
            for entry in entries
        )
        or any((is_own(move) or move.spec.drains) and not is_ended(move) for move in moves)
    )
    host_of: dict[str, Host] = {}
    streams: tuple[LivingStream, ...] = ()
    if is_watching:
        host_of = await _hosts_of(cache, hosts, namespace, name)
        try:
            if lists is None:
                streams = tuple(map(living_stream, await brokers.stream_infos(target)))
            else:
                streams = await lists.of(target, _busy(cache, namespace, name, moves))
        except BrokersError:
            return None
        left_alone = await handed.of(target)
        streams = tuple(living for living in streams if living.name not in left_alone)
    elif lists is not None:
        lists.forget(namespace, name)
    expected = _expected(cache.of_super_cluster(Cluster, namespace, name))
    knows_room = bool(told.get("knowsRoom"))
    nodes = {
        str(entry["node"]): _node(entry, host_of, expected, knows_room=knows_room)
        for entry in entries
        if entry.get("node")
    }
    return RepairObserved(nodes, _time(told["timeNs"]), streams, policies, unusable, _why_unusable(entries))


def _busy(cache: ObjectCache, namespace: str, name: str, moves: Sequence[StreamMove]) -> frozenset[str]:
    """Streams of which a StreamMove is open."""
    by_ref = {stream.metadata.name: stream for stream in cache.of_super_cluster(Stream, namespace, name)}
    return frozenset(stream_of(move, by_ref) for move in moves if not is_ended(move))


def _takes_away(desired: SuperCluster, policies: Sequence[ReplicaPolicy]) -> bool:
    """Does anybody say that replicas beyond the count go?"""
    return any(rules.auto_remove != "Never" for rules in (desired.spec.repair, *(p.spec for p in policies)))


def _unusable(entries: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, datetime]]:
    """Stream → broker → since when it could do nothing with its copy. The operator looks after its own account alone."""
    found: dict[str, dict[str, datetime]] = {}
    for entry in entries:
        for copy in map(mapping, entry.get("unusable") or ()):
            if copy.get("name") and copy.get("sinceNs") and copy.get("account") == DEFAULT_ACCOUNT:
                found.setdefault(str(copy["name"]), {})[str(entry.get("node"))] = _time(copy["sinceNs"])
    return found


def _why_unusable(entries: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Stream → broker → what the broker says of its copy: the entry that it halted at, say."""
    found: dict[str, dict[str, str]] = {}
    for entry in entries:
        for copy in map(mapping, entry.get("unusable") or ()):
            if copy.get("name") and copy.get("why") and copy.get("account") == DEFAULT_ACCOUNT:
                found.setdefault(str(copy["name"]), {})[str(entry.get("node"))] = str(copy["why"])
    return found


async def _hosts_of(cache: ObjectCache, hosts: Hosts, namespace: str, name: str) -> dict[str, Host]:
    found = {}
    for cluster in cache.of_super_cluster(Cluster, namespace, name):
        for body in cache.children_of(Cluster, namespace, cluster.metadata.name):
            if body.get("kind") == "Pod":
                pod = pod_view(body)
                found[pod.name] = await hosts.of(pod.node)
    return found


def _time(ns: Any) -> datetime:
    return datetime.fromtimestamp(int(ns) / NS_PER_S, UTC)


def _expected(clusters: Iterable[Cluster]) -> dict[str, datetime]:
    """Brokers that are being restarted by roll-outs, and until when that may take."""
    found = {}
    for cluster in clusters:
        rollout = cluster.status.rollout
        since = parse_timestamp(rollout.since) if rollout is not None and rollout.since else None
        if rollout is not None and rollout.broker and since is not None:
            timeout = timedelta(milliseconds=duration_ms(cluster.spec.rollout.restart_timeout))
            found[rollout.broker] = since + timeout
    return found


def _node(
    entry: Mapping[str, Any],
    host_of: Mapping[str, Host],
    expected: Mapping[str, datetime],
    *,
    knows_room: bool,
) -> Node:
    name, away = str(entry["node"]), entry.get("awaySinceNs")
    room, memory_room = entry.get("roomBytes"), entry.get("memoryRoomBytes")
    host, cordon = host_of.get(name, Host()), entry.get("cordoned")
    return Node(
        name=name,
        cluster=str(entry.get("cluster", "")),
        zone=host.zone,
        tags=frozenset(map(str, entry.get("tags") or ())),
        copies=int(entry.get("copies") or 0),
        room_bytes=int(room) if room is not None else None,
        memory_room_bytes=int(memory_room) if memory_room is not None else None,
        is_room_awaited=knows_room and room is None,
        in_contact=bool(entry.get("inContact", True)),
        away_since=_time(away) if away else None,
        leaves=bool(entry.get("leaves", False)),
        cordoned=host.is_cordoned or cordon is not None,
        cordon=str(mapping(cordon).get("reason", "")) if not host.is_cordoned else "",
        expected_until=expected.get(name),
    )
