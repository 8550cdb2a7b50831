"""Clusters that are out of contact as a whole, and the operations that are unavailable meanwhile. Every
broker reports them, since no leader may be left to do so.
"""

from __future__ import annotations

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.meta_leader.voters import LostCluster, lost_clusters, lost_copies
from supercluster.broker.jetstream.replica.lineage import is_meta


class LostClusters:
    def __init__(self, env: Environment, peers: Peers, map_view: MapView) -> None:
        self._env = env
        self._peers = peers
        self._map = map_view
        self._lost: dict[str, LostCluster] = {}

    def links_changed(self) -> None:
        """A broker is linked, or is not any more: say which clusters are gone, or back."""
        before, self._lost = self._lost, {found.cluster: found for found in self._lost_now()}
        for name, found in self._lost.items():
            if name not in before:
                self._env.event(self._map.meta_id, "ClusterLost", found.text)
        for name in before:
            if name not in self._lost:
                self._env.event(self._map.meta_id, "ClusterBack", f"cluster {name} is in contact again")

    def _lost_now(self) -> list[LostCluster]:
        if self._map.replica is None:
            return []
        return lost_clusters(
            self._map.replica.raft.membership, self._clusters, self._peers.brokers_in_contact().keys()
        )

    @property
    def _clusters(self) -> dict[str, str]:
        meta = self._map.replica
        brokers = meta.state.brokers if meta is not None else {}
        return {node: record.cluster for node, record in brokers.items()}

    def not_available(self, group: str = "") -> ApiError:
        """Nobody answers for a group, or the meta group; says so of the clusters without which nobody can."""
        return errors.not_available(self._missing_for(group))

    def _missing_for(self, group: str) -> str:
        lost, meta = self._lost_now(), self._map.replica
        if not group or is_meta(group):
            return "; ".join(found.text for found in lost if not found.has_majority)
        found = meta.state.by_group(group) if lost and meta is not None else None
        if found is None:
            return ""
        return lost_copies(found.name, found.members, self._clusters, [each.cluster for each in lost])

    @property
    def troubles(self) -> list[str]:
        """A sentence per cluster that is gone, for /healthz."""
        return [found.text for found in self._lost_now()]
