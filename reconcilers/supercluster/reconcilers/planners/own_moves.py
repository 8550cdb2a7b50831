"""StreamMoves that the SuperCluster's worker makes by itself, for lost replicas and for brokers that go: what both share."""

from __future__ import annotations

import re
from collections.abc import Mapping

from supercluster.api import API_VERSION, Stream, StreamMove, SuperCluster
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import DeleteObject, Manifest, Note

NAME_CHARACTERS_MAX = 200
REASON_CHARACTERS_MAX = 250
# On a StreamMove that takes away replicas beyond a stream's count because a policy says so.
TRIM_LABEL = "supercluster.dev/auto-remove"


def stream_of(move: StreamMove, by_ref: Mapping[str, Stream]) -> str:
    """Name on the brokers of the stream that a move is about."""
    if move.spec.stream is not None:
        return move.spec.stream
    declared = by_ref.get(move.spec.stream_ref or "")
    return declared.stream_name if declared is not None else move.status.stream_name or ""


def slug(stream: str, declared: Stream | None) -> str:
    """What the name of a StreamMove of this stream begins with."""
    whose = declared.metadata.name if declared is not None else stream
    return re.sub("[^a-z0-9.-]+", "-", whose.lower()).strip("-.")[:NAME_CHARACTERS_MAX] or "stream"


def delete(move: StreamMove, note: Note | None) -> DeleteObject:
    metadata = move.metadata
    return DeleteObject(API_VERSION, "StreamMove", metadata.namespace, metadata.name, metadata.uid, note)


def manifest(
    super_cluster: SuperCluster,
    name: str,
    stream: str,
    declared: Stream | None,
    goal: Mapping[str, object],
    *,
    is_owned: bool = True,
    labels: Mapping[str, str] | None = None,
) -> Manifest:
    """A StreamMove of a stream, declared or not. `is_owned`: it goes with the Stream that declares it."""
    metadata = super_cluster.metadata
    whom = {"stream": stream} if declared is None else {"streamRef": declared.metadata.name}
    owners = []
    if declared is not None and is_owned:
        owners.append(
            {
                "apiVersion": API_VERSION,
                "kind": "Stream",
                "name": declared.metadata.name,
                "uid": declared.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        )
    return {
        "apiVersion": API_VERSION,
        "kind": "StreamMove",
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "labels": {**naming.labels(metadata.name), **(labels or {})},
            "ownerReferences": owners,
        },
        "spec": {"superCluster": metadata.name, **goal, **whom},
    }
