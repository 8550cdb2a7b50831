"""A Stream whose placement asks for another Cluster makes a StreamMove for itself, and withdraws one it no longer wants.

The StreamMove's name comes from the generation of the Stream's spec, so that a Stream that looks again makes no second
one, and a later change of the spec tries anew. One at a time (MV-3): while any StreamMove of the Stream is under way,
none is made. Going back on a change of placement deletes the StreamMove of that change, which calls it off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from supercluster.api import API_VERSION, Cluster, Stream, StreamMove
from supercluster.api.conditions import EventReason, Reason
from supercluster.api.stream import MoveReference, NodeFinding
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.move_views import is_ended, owner_uid
from supercluster.reconcilers.planners.plan import CreateObject, DeleteObject, Note, Step

# Names of objects have at most 253 characters; what stands behind the Stream's name is much shorter than this.
NAME_CHARACTERS_MAX = 220
# Ended StreamMoves that a Stream keeps of those that it made: their audits are worth keeping, and not for ever.
HISTORY_MAX = 10


@dataclass(frozen=True, slots=True)
class Moving:
    """What is to be done and said about moves of a Stream."""

    steps: tuple[Step, ...] = ()
    finding: tuple[Reason, str] | None = None
    """Why the stream is not where it should be; None when it is."""
    reference: MoveReference | None = None
    is_wanted: bool = False
    """The stream is not in the Cluster that its placement asks for."""
    rejected: tuple[NodeFinding, ...] = ()
    """When the brokers can't move it there: each of them, and why it is no use."""


def move_name(stream: Stream) -> str:
    """The StreamMove of this generation of the spec."""
    return f"{stream.metadata.name[:NAME_CHARACTERS_MAX]}-g{stream.metadata.generation}"


def consider(stream: Stream, moves: tuple[StreamMove, ...], there: Cluster | None, wanted: Cluster) -> Moving:
    """`there` is where the stream lives; None when it does not exist, or is not this resource's."""
    under_way = [move for move in moves if not is_ended(move) and not move.spec.dry_run]
    is_wanted = there is not None and there is not wanted
    if under_way:
        move = min(under_way, key=lambda move: move.metadata.age_key)
        return _while_under_way(stream, move, wanted, is_wanted=is_wanted)
    if there is None or not is_wanted:
        last = _last(moves)
        return Moving(_pruning(stream, moves), reference=_reference(last) if last is not None else None)
    name = move_name(stream)
    made = next((move for move in moves if move.metadata.name == name), None)
    if made is None:
        note = Note.done(
            EventReason.MOVE_CREATED,
            f"spec.placement asks for Cluster {wanted.metadata.name}, and the stream lives in Cluster {there.metadata.name}: "
            f"made StreamMove {name}",
        )
        return Moving((CreateObject(_manifest(stream, name, wanted), note),), is_wanted=True)
    message = (
        f"StreamMove {name} is {made.status.phase}: {made.status.message or 'see its status'}; the stream stays in Cluster "
        f"{there.metadata.name}: delete that StreamMove or change the spec to try again, or set spec.placement back"
    )
    return Moving((), (Reason.MOVE_ENDED, message), _reference(made), is_wanted=True)


def _while_under_way(stream: Stream, move: StreamMove, wanted: Cluster, *, is_wanted: bool) -> Moving:
    name, goal = move.metadata.name, move.spec.destination.cluster
    is_own = owner_uid(move) == stream.metadata.uid
    message = f"StreamMove {name} is {move.status.phase or 'Pending'}: {move.status.message or 'just made'}"
    finding = (Reason.MOVING, message)
    if not is_own or goal in (None, wanted.metadata.name):
        plan = move.status.plan
        rejected = plan.rejected if plan is not None and move.status.phase == "Refused" else ()
        return Moving((), finding, _reference(move), is_wanted, rejected)
    if move.metadata.deletion_timestamp is not None:
        return Moving((), (Reason.MOVING, f"{message}; it is being called off"), _reference(move), is_wanted)
    note = Note.done(
        EventReason.MOVE_WITHDRAWN,
        f"spec.placement asks for Cluster {wanted.metadata.name} now: deleted StreamMove {name} to Cluster {goal}",
    )
    metadata = move.metadata
    step = DeleteObject(API_VERSION, "StreamMove", metadata.namespace, name, metadata.uid, note)
    return Moving((step,), finding, _reference(move), is_wanted)


def _pruning(stream: Stream, moves: tuple[StreamMove, ...]) -> tuple[Step, ...]:
    """The oldest of too many StreamMoves that the Stream made and that have ended, one at a time."""
    own = sorted(
        (move for move in moves if owner_uid(move) == stream.metadata.uid and is_ended(move)),
        key=lambda move: move.metadata.age_key,
    )
    if len(own) <= HISTORY_MAX:
        return ()
    metadata = own[0].metadata
    return (DeleteObject(API_VERSION, "StreamMove", metadata.namespace, metadata.name, metadata.uid),)


def _last(moves: tuple[StreamMove, ...]) -> StreamMove | None:
    done = [move for move in moves if not move.spec.dry_run]
    return max(done, key=lambda move: move.metadata.age_key, default=None)


def _reference(move: StreamMove) -> MoveReference:
    return MoveReference(name=move.metadata.name, phase=move.status.phase or "Pending")


def _manifest(stream: Stream, name: str, wanted: Cluster) -> dict[str, Any]:
    metadata, policy = stream.metadata, stream.spec.move
    destination: dict[str, Any] = {"cluster": wanted.metadata.name}
    if stream.spec.placement.tags:
        destination["tags"] = list(stream.spec.placement.tags)
    owner = {
        "apiVersion": API_VERSION,
        "kind": "Stream",
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "StreamMove",
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "labels": naming.labels(stream.spec.super_cluster),
            "ownerReferences": [owner],
        },
        "spec": {
            **policy.to_object(),
            "superCluster": stream.spec.super_cluster,
            "streamRef": metadata.name,
            "destination": destination,
        },
    }
