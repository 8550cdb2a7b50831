"""StreamMoves that the SuperCluster's worker creates: the common part of those for lost replicas and those
for leaving brokers.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from supercluster.api import API_VERSION, Stream, StreamMove, SuperCluster
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.move.views import is_ended
from supercluster.reconcilers.planners.plan import CreateObject, DeleteObject, Ground, Manifest, Note, Step
from supercluster.reconcilers.planners.status import is_within, parse_timestamp

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
    return re.sub("[^a-z0-9.-]+", "-", whose.lower())[:NAME_CHARACTERS_MAX].strip("-.") or "stream"


def base_name(
    super_cluster: SuperCluster, kind: str, stream: str, declared: Stream | None, what: object
) -> str:
    """Name of the first StreamMove of a kind about the same thing: whoever looks twice makes one. Super-clusters of one
    namespace may have streams and brokers of the same names."""
    about = zlib.crc32(repr((super_cluster.metadata.name, stream, what)).encode())
    return f"{slug(stream, declared)}-{kind}-{about:08x}"


def tries_of(base: str, moves: Iterable[StreamMove]) -> dict[int, StreamMove]:
    """By number, those of `moves` that were made with this name, the first as 1."""
    tries = {}
    for move in moves:
        first, _, number = move.metadata.name.partition(f"{base}-")
        if move.metadata.name == base:
            tries[1] = move
        elif not first and re.fullmatch("[0-9]{1,9}", number):
            tries[int(number)] = move
    return tries


def next_name(base: str, tries: Mapping[int, StreamMove]) -> str:
    """Behind the last one: older ones may be gone while newer ones are there."""
    return f"{base}-{max(tries) + 1}" if tries else base


def beyond_history(moves: Iterable[StreamMove], kept_max: int) -> list[Step]:
    """Deletes the oldest of too many that have ended."""
    ended = sorted((move for move in moves if is_ended(move)), key=lambda move: move.metadata.age_key)
    return [delete(move, None) for move in ended[: max(0, len(ended) - kept_max)]]


def why_planned_anew(move: StreamMove, after: timedelta, now: datetime) -> str:
    """Of one that the brokers have refused for so long; empty: they have not."""
    made = parse_timestamp(move.metadata.creation_timestamp)
    if move.status.phase != "Refused" or is_within(made, after, now):
        return ""
    told = (move.status.message or "no reason was told")[:REASON_CHARACTERS_MAX]
    return f"the brokers refuse StreamMove {move.metadata.name}, and it is planned anew: {told}"


def why_refused(step: CreateObject | None, refused: Mapping[str, str] | None) -> str:
    """Kubernetes did not take this StreamMove a moment ago: its stream waits, and no other. Empty: it may be made."""
    name = str(step.manifest["metadata"]["name"]) if step is not None else ""
    why = (refused or {}).get(name)
    return f"StreamMove {name} can't be made: {why}" if why is not None else ""


def delete(move: StreamMove, note: Note | None) -> DeleteObject:
    metadata = move.metadata
    return DeleteObject(
        API_VERSION,
        "StreamMove",
        metadata.namespace,
        metadata.name,
        metadata.uid,
        Ground.MOVE_NOT_NEEDED,
        note=note,
    )


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
    owners = [naming.owner(declared, blocks_deletion=False)] if declared is not None and is_owned else []
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
