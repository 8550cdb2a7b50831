"""StreamMoves that a Stream creates for itself when its placement names another Cluster or its replica count
changes, and withdraws when it no longer wants them.

The StreamMove's name derives from the generation of the Stream's spec, so a repeated round creates no second
one, and a later change of the spec tries again. There is one at a time (MV-3): while any StreamMove of the
Stream is running, none is created. If both are wanted, fewer replicas come before the move, which then has
less to copy and fits where more would not; more replicas come after it. Reverting a change deletes its
StreamMove, which cancels it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from supercluster.api import API_VERSION, Cluster, Stream, StreamMove
from supercluster.api.conditions import EventReason, Reason
from supercluster.api.stream import MoveReference, NodeFinding
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.move import generated
from supercluster.reconcilers.planners.move.views import is_ended, is_in_flight, is_repair, owner_uid
from supercluster.reconcilers.planners.plan import CreateObject, Note, Step

# Names of objects have at most 253 characters; what stands behind the Stream's name is much shorter than this.
NAME_CHARACTERS_MAX = 220
# Ended StreamMoves that a Stream keeps of those that it made: their audits are worth keeping, and not for ever.
HISTORY_MAX = 10


@dataclass(frozen=True, slots=True)
class Moves:
    """What is to be done and said about moves of a Stream."""

    steps: tuple[Step, ...] = ()
    finding: tuple[Reason, str] | None = None
    """Why the stream is not where it should be, or not as often; None when it is."""
    reference: MoveReference | None = None
    rejected: tuple[NodeFinding, ...] = ()
    """When the brokers can't move it there: each of them, and why it is no use."""


@dataclass(frozen=True, slots=True)
class _Change:
    """One of the two things that a StreamMove can bring about."""

    why: str
    """What the spec asks for and what there is."""
    short: str
    cluster: str | None = None
    replicas: int | None = None

    def name(self, stream: Stream) -> str:
        return move_name(stream) if self.replicas is None else f"{move_name(stream)}-r{self.replicas}"

    def is_goal_of(self, move: StreamMove) -> bool:
        if self.replicas is not None:
            return move.spec.replicas == self.replicas
        return move.spec.destination is not None and move.spec.destination.cluster in (None, self.cluster)


def move_name(stream: Stream) -> str:
    """The StreamMove of this generation of the spec."""
    return f"{stream.metadata.name[:NAME_CHARACTERS_MAX]}-g{stream.metadata.generation}"


def consider(
    stream: Stream,
    moves: tuple[StreamMove, ...],
    there: Cluster | None,
    wanted: Cluster,
    replicas_there: int | None,
) -> Moves:
    """`there` is where the stream lives, and `replicas_there` the count that it is configured with; None when it does not
    exist, or is not this resource's."""
    to_do = _to_do(stream, there, wanted, replicas_there)
    other = next((move for move in moves if _is_no_change_of_spec(move) and is_in_flight(move.status)), None)
    if other is not None:
        # What it does was not asked for by the spec, and is not taken back by it; it has to end first (MV-3).
        message = (
            f"StreamMove {other.metadata.name} {_what_it_does(other)}: {other.status.message or 'just begun'}"
        )
        reason = (
            Reason.REPAIRING if is_repair(other) else Reason.SCALING if other.spec.members else Reason.MOVING
        )
        return Moves((), (reason, message + _afterwards(to_do)), _reference(other))
    moves = tuple(move for move in moves if not _is_no_change_of_spec(move))
    under_way = [move for move in moves if not is_ended(move) and not move.spec.dry_run]
    if under_way:
        move = min(under_way, key=lambda move: move.metadata.age_key)
        return _while_under_way(stream, move, wanted, to_do)
    if not to_do:
        last = _last(moves)
        return Moves(_pruning(stream, moves), reference=_reference(last) if last is not None else None)
    change = to_do[0]
    name = change.name(stream)
    made = next((move for move in moves if move.metadata.name == name), None)
    if made is None:
        text = f"{change.why}: made StreamMove {name}{_afterwards(to_do[1:])}"
        note = Note.done(EventReason.MOVE_CREATED, text)
        return Moves((CreateObject(_manifest(stream, name, change), note=note),))
    message = (
        f"{change.why}; StreamMove {name} is {made.status.phase}: {made.status.message or 'see its status'}; the stream stays "
        "as it is: delete that StreamMove or change the spec to try again, or set the spec back"
    )
    return Moves((), (Reason.MOVE_ENDED, message), _reference(made))


def _is_no_change_of_spec(move: StreamMove) -> bool:
    """Others in the places of lost replicas, or some more or fewer by name: neither placement nor count is another then."""
    return move.spec.repair is not None or move.spec.members is not None


def _what_it_does(move: StreamMove) -> str:
    if move.spec.members is not None:
        return f"brings the stream to {move.destination_text}"
    drained = ", ".join(move.spec.drains or ())
    return f"takes the copies off {drained}, which goes" if drained else "replaces lost replicas"


def _to_do(
    stream: Stream, there: Cluster | None, wanted: Cluster, replicas_there: int | None
) -> tuple[_Change, ...]:
    """What is still to be brought about, in its order."""
    changes: list[_Change] = []
    if there is not None and there is not wanted:
        goal = wanted.metadata.name
        why = f"spec.placement asks for Cluster {goal}, and the stream lives in Cluster {there.metadata.name}"
        changes.append(_Change(why, f"the move to Cluster {goal}", cluster=goal))
    count = stream.spec.replicas
    if replicas_there is not None and replicas_there != count:
        why = f"spec.replicas is {count}, and the stream has {replicas_there}"
        changes.append(_Change(why, f"the change of spec.replicas to {count}", replicas=count))
        if count < replicas_there:
            changes.reverse()
    return tuple(changes)


def _afterwards(rest: Sequence[_Change]) -> str:
    return f"; after it comes {rest[0].short}" if rest else ""


def _while_under_way(stream: Stream, move: StreamMove, wanted: Cluster, to_do: tuple[_Change, ...]) -> Moves:
    name, spec, status = move.metadata.name, move.spec, move.status
    rest = [change for change in to_do if not change.is_goal_of(move)]
    what = f"the change to {move.destination_text}" if spec.replicas is not None else "the move"
    message = f"{what} by StreamMove {name} is {status.phase or 'Pending'}: {status.message or 'just made'}"
    finding = (Reason.MOVING if spec.replicas is None else Reason.SCALING, message + _afterwards(rest))
    if owner_uid(move) != stream.metadata.uid or not _is_to_go(stream, move, wanted, to_do):
        plan = status.plan
        rejected = plan.rejected if plan is not None and status.phase == "Refused" else ()
        return Moves((), finding, _reference(move), rejected)
    if move.metadata.deletion_timestamp is not None:
        return Moves((), (finding[0], f"{message}; it is being called off"), _reference(move))
    asked = f"Cluster {wanted.metadata.name} and {stream.spec.replicas} replicas"
    note = Note.done(
        EventReason.MOVE_WITHDRAWN,
        f"the spec asks for {asked} now{_afterwards(rest)}: deleted StreamMove {name} to {move.destination_text}",
    )
    return Moves((generated.delete(move, note),), finding, _reference(move))


def _is_to_go(stream: Stream, move: StreamMove, wanted: Cluster, to_do: tuple[_Change, ...]) -> bool:
    """Does the spec ask for something else now? Or is this one, which has not begun, not the first of two any more?"""
    destination = move.spec.destination
    if destination is None and move.spec.replicas != stream.spec.replicas:
        return True
    if destination is not None and destination.cluster not in (None, wanted.metadata.name):
        return True
    is_later = len(to_do) > 1 and to_do[1].is_goal_of(move)
    return is_later and not is_in_flight(move.status)


def _pruning(stream: Stream, moves: tuple[StreamMove, ...]) -> tuple[Step, ...]:
    """The oldest of too many StreamMoves that the Stream made and that have ended, one at a time."""
    own = (move for move in moves if owner_uid(move) == stream.metadata.uid)
    return tuple(generated.beyond_history(own, HISTORY_MAX)[:1])


def _last(moves: tuple[StreamMove, ...]) -> StreamMove | None:
    done = [move for move in moves if not move.spec.dry_run]
    return max(done, key=lambda move: move.metadata.age_key, default=None)


def _reference(move: StreamMove) -> MoveReference:
    return MoveReference(name=move.metadata.name, phase=move.status.phase or "Pending")


def _manifest(stream: Stream, name: str, change: _Change) -> dict[str, Any]:
    metadata, policy = stream.metadata, stream.spec.move
    goal: dict[str, Any] = {"replicas": change.replicas}
    if change.replicas is None:
        goal = {"destination": {"cluster": change.cluster}}
        if stream.spec.placement.tags:
            goal["destination"]["tags"] = list(stream.spec.placement.tags)
    return {
        "apiVersion": API_VERSION,
        "kind": "StreamMove",
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "labels": naming.labels(stream.spec.super_cluster),
            "ownerReferences": [naming.owner(stream, blocks_deletion=False)],
        },
        "spec": {
            **policy.to_object(),
            "superCluster": stream.spec.super_cluster,
            "streamRef": metadata.name,
            **goal,
        },
    }
