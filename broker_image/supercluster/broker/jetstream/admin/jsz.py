"""What /jsz shows of JetStream on this broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream.stream import call as stream_call
from supercluster.broker.jetstream.stream.replica import StreamReplica

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core.broker import BrokerCore


def overview(core: BrokerCore) -> dict[str, Any]:
    """What is shown beside the streams."""
    meta = core.meta
    return {
        "meta": {
            "leader": core.leader_of(core.meta_id) or "",
            "is_leader": meta is not None and meta.serves,
            "term": meta.raft.term if meta is not None else 0,
            "applied_index": meta.applied_index if meta is not None else 0,
            "voters": list(meta.raft.membership.voters) if meta is not None else [],
            "learners": list(meta.raft.membership.learners) if meta is not None else [],
            "lost_clusters": core.surroundings.troubles,
            "map_is_fresh": core.map.is_fresh,
        },
        "windows": {
            window.stream: window.unconfirmed for window in core.ingest.windows.values() if window.unconfirmed
        },
        "unusable_copies": {group: core.unusable.text_of(group) for group in core.unusable.groups},
        "group_faults": core.unusable.faults_total,
        "requests_pending": len(core.requests),
        "publishes_given_up": core.ingest.given_up_total,
    }


def streams(core: BrokerCore) -> Iterator[dict[str, Any]]:
    """Every stream that this broker holds a replica of; those that come or go while somebody reads may be left out."""
    for group_id in list(core.groups):
        group = core.groups.get(group_id)
        if isinstance(group, StreamReplica):
            yield _stream(core, group)


def _stream(core: BrokerCore, group: StreamReplica) -> dict[str, Any]:
    return {
        "account": group.assignment.account,
        "name": group.assignment.name,
        "group": group.id,
        "leader": core.leader_of(group.id) or "",
        "is_leader": group.serves,
        "term": group.raft.term,
        "commit_index": group.raft.commit_index,
        "last_index": group.log.last_index,
        "quiesced": group.raft.quiesced,
        "failed": str(group.failed) if group.failed is not None else "",
        "config": group.state.config.to_json(),
        "state": stream_call.state_info(group.state).to_json(),
        "cluster": stream_call.cluster_info(group.copy).to_json(),
        "bytes_on_disk": group.log.bytes_on_disk(),
        "window_unconfirmed": core.ingest.unconfirmed(group.id),
    }
