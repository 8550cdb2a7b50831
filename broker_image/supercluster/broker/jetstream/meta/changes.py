"""The effect of each operation in the meta group's log on an existing stream. Pure, and the same on every
replica.

`meta/state.py` finds the stream; how the operations are written is in `meta/operations.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.map_recovery import Standing
from supercluster.broker.jetstream.meta.migration import StreamStage
from supercluster.broker.jetstream.meta.migration_changes import MIGRATION_CHANGES, begun_anew
from supercluster.broker.jetstream.meta.move_record import Move, MoveEnd, MoveReport, Outcome
from supercluster.broker.jetstream.meta.stream_recovery import Recovery
from supercluster.broker.raft.entry import Entry


def _without_move(present: Assignment, why: str, entry: Entry) -> Assignment:
    """With the move that runs, if any, called off."""
    move = present.move
    if move is None:
        return present
    over = MoveReport(move.id, Outcome.CANCELLED, why).of_move(move, entry.time_ns, present.last_move)
    return replace(present, config=move.undone(present.config), move=None, last_move=over)


def _renewed(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment:
    renewed = replace(
        _without_move(present, "all copies were in memory and are gone", entry),
        group=op["new_group"],
        version=present.next_version(entry.index),
        members=tuple(op["members"]),
        created_ns=entry.time_ns,
        recovery=None,
        standing=Standing.KNOWN,
    )
    return begun_anew(present, renewed)


def _recovered(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment:
    """A new lineage, of one member so far. A move that ran is over: nobody knows how far it was."""
    recovery = Recovery.from_json(op["recovery"]).after(present.recovery, entry.time_ns)
    recovered = replace(
        _without_move(present, "the stream was recovered by force", entry),
        group=op["new_group"],
        version=present.next_version(entry.index),
        members=(recovery.member,),
        # Sequences behind the copy's end will mean other messages: who stored a position has to notice.
        created_ns=max(entry.time_ns, present.created_ns + 1),
        recovery=recovery,
        standing=present.standing.after_word(),
    )
    return begun_anew(present, recovered)


def _move_started(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    running = _of_move(present, op["id"])
    if running is not None:
        return replace(present, move=replace(running, bytes_per_s=op["bytes_per_s"]))
    if present.migration is not None and present.migration.stage is StreamStage.HANDING:
        return None  # It would drop green's copies from the group.
    if present.move is not None:
        return None
    config, before = StreamConfig.from_json(op["config"]), present.config
    move = Move(
        op["id"],
        tuple(op["targets"]),
        tuple(op["origin"]),
        before.placement,
        entry.time_ns,
        op["bytes_per_s"],
        origin_replicas=before.num_replicas if before.num_replicas != config.num_replicas else 0,
        copy_bytes=op.get("copy_bytes", 0),
    )
    version = present.next_version(entry.index) if config != present.config else present.version
    return replace(present, config=config, version=version, move=move)


def _of_move(present: Assignment, move_id: str) -> Move | None:
    return present.move if present.move is not None and present.move.id == move_id else None


def _target_replaced(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    move = _of_move(present, op["id"])
    if move is None or move.cancelled or op["old"] not in move.joining:
        return None
    return replace(present, move=move.with_target(op["old"], op["new"]))


def _move_cancelled(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    """Asked for, not done: the stream's own group says how the move ended, and until then the placement stays."""
    move = _of_move(present, op["id"])
    if move is None or move.cancelled:
        return None
    reason = str(op.get("reason", ""))
    return replace(present, move=replace(move, cancelled=True, cancel_reason=reason))


def _move_ended(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    end = MoveEnd.from_json(op["end"])
    move = _of_move(present, end.report.id)
    if move is None:
        return None
    config = present.config
    if end.report.outcome is Outcome.CANCELLED:
        config = move.undone(config)
    return replace(
        present,
        config=config,
        version=present.next_version(entry.index) if config != present.config else present.version,
        members=end.members,
        move=None,
        last_move=end.report.of_move(move, entry.time_ns, present.last_move),
        standing=present.standing.after_word(),
    )


def _confirmed(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    """The stream's own group has said who its members are, and what its configuration is, where that is newer. A move that
    the map knows starts from those members."""
    if not present.is_unconfirmed:
        return None
    members, move = tuple(map(str, op["members"])), present.move
    config = StreamConfig.from_json(op["config"]) if op.get("config") is not None else present.config
    return replace(
        present,
        config=config,
        version=max(present.next_version(entry.index), op.get("version", 0) + 1),
        members=members,
        move=replace(move, origin=members) if move is not None else None,
        standing=Standing.CONFIRMED,
    )


def _restored(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    """All of it is there: from now on it is a stream as any other."""
    restoring = present.restoring
    if restoring is None or restoring.id != op["id"]:
        return None
    return replace(
        present, config=restoring.config, version=present.next_version(entry.index), restoring=None
    )


CHANGES: dict[str, Callable[[Assignment, dict[str, Any], Entry], Assignment | None]] = {
    "renew": _renewed,
    "recover": _recovered,
    "confirm": _confirmed,
    "restored": _restored,
    "move": _move_started,
    "move_target": _target_replaced,
    "move_cancel": _move_cancelled,
    "move_end": _move_ended,
    **MIGRATION_CHANGES,
}
"""What an operation makes of the assignment; None: nothing. One about another group or another move is void."""
