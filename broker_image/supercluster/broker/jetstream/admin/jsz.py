"""JetStream on this broker as /jsz shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from supercluster.broker.jetstream.links.far_frames import FarFrames
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.failed_copies import FailedCopies
from supercluster.broker.jetstream.node.lost_clusters import LostClusters
from supercluster.broker.jetstream.node.pending_requests import PendingRequests
from supercluster.broker.jetstream.publish.windows import PublishWindows
from supercluster.broker.jetstream.stream.call import cluster_info, state_info
from supercluster.broker.jetstream.stream.copy import StreamCopy


class Jsz:
    def __init__(
        self,
        copies: Copies,
        map_view: MapView,
        leaderships: Leaderships,
        lost_clusters: LostClusters,
        ingest: PublishWindows,
        failed_copies: FailedCopies,
        requests: PendingRequests,
        far_frames: FarFrames,
    ) -> None:
        self._copies = copies
        self._map = map_view
        self._leaderships = leaderships
        self._lost_clusters = lost_clusters
        self._ingest = ingest
        self._failed_copies = failed_copies
        self._requests = requests
        self._far_frames = far_frames

    def overview(self) -> dict[str, Any]:
        """What is shown beside the streams."""
        meta = self._map.replica
        return {
            "meta": {
                "leader": self._leaderships.leader_of(self._map.meta_id) or "",
                "is_leader": meta is not None and meta.serves,
                "term": meta.raft.term if meta is not None else 0,
                "applied_index": meta.applied_index if meta is not None else 0,
                "voters": list(meta.raft.membership.voters) if meta is not None else [],
                "learners": list(meta.raft.membership.learners) if meta is not None else [],
                "lost_clusters": self._lost_clusters.troubles,
                "map_is_fresh": self._map.is_fresh,
            },
            "windows": {
                window.stream: window.unconfirmed
                for window in self._ingest.windows.values()
                if window.unconfirmed
            },
            "unusable_copies": {
                group: self._failed_copies.text_of(group) for group in self._failed_copies.groups
            },
            "halted_copies": self._failed_copies.halted(),
            "group_faults": self._failed_copies.faults_total,
            "far_frames_dropped": self._far_frames.dropped,
            "requests_pending": len(self._requests),
            "publishes_given_up": self._ingest.given_up_total,
        }

    def streams(self) -> Iterator[dict[str, Any]]:
        """Every stream that this broker holds a replica of; those that come or go while somebody reads may be left out."""
        for group_id in list(self._copies.streams):
            copy = self._copies.streams.get(group_id)
            if copy is not None:
                yield self._stream(copy)

    def _stream(self, copy: StreamCopy) -> dict[str, Any]:
        replica, stream = copy.replica, copy.stream
        return {
            "account": stream.assignment.account,
            "name": stream.assignment.name,
            "group": replica.id,
            "leader": self._leaderships.leader_of(replica.id) or "",
            "is_leader": replica.serves,
            "term": replica.raft.term,
            "commit_index": replica.raft.commit_index,
            "last_index": replica.log.last_index,
            "quiesced": replica.raft.quiesced,
            "failed": str(replica.failed) if replica.failed is not None else "",
            "doubt": replica.doubt,
            "config": stream.state.config.to_json(),
            "state": state_info(stream.state).to_json(),
            "cluster": cluster_info(copy).to_json(),
            "bytes_on_disk": replica.log.bytes_on_disk(),
            "window_unconfirmed": self._ingest.unconfirmed(replica.id),
        }
