"""The operations of a migration in the log of the map of streams: their section bodies and their effects on
the map. Pure.

An operation has no effect if it is repeated, if it belongs to an earlier attempt, or if it names a group that
is no longer the stream's. So a caller may repeat an operation until the map shows its effect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import replace
from typing import Any

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import (
    DROPPED_MAX,
    ENDED_MAX,
    Arrival,
    Following,
    Migration,
    StreamMigration,
    StreamStage,
    next_group,
)
from supercluster.broker.raft.entry import Entry

PREFIX = "migration_"
"""Of operations on a migration as a whole."""

# ---- section bodies: blue --------------------------------------------------------------------------------------------


def start_migration(migration: Migration) -> bytes:
    return _of_migration("start", migration.id, migration=migration.to_json())


def abort_migration(migration_id: str) -> bytes:
    return _of_migration("abort", migration_id)


def finalize_migration(migration_id: str) -> bytes:
    return _of_migration("final", migration_id)


def end_migration(migration_id: str) -> bytes:
    """Nothing of it is under way, nor left to clean."""
    return _of_migration("end", migration_id)


def migrate_stream(found: Assignment, migration: Migration) -> bytes:
    """The stream is to be learned by green."""
    return _of_stream("migrate", found, id=migration.id, world=migration.world)


def hand_stream(found: Assignment, migration: StreamMigration) -> bytes:
    """The mark that stands before FENCED. It carries all of the record, so that a map which was recovered by force and has lost it
    learns it again from the stream's leader."""
    return _of_stream("migrate_handing", found, id=migration.id, migration=migration.to_json())


def unhand_stream(found: Assignment, migration_id: str, attempt: int) -> bytes:
    """Blue has the stream for itself again, and the next attempt begins: an attempt has one mark, so that neither a mark nor its end
    that comes late can be about another fence."""
    return _of_stream("migrate_unhanded", found, id=migration_id, attempt=attempt)


def far_stream(found: Assignment, migration_id: str, attempt: int, digest: str, last_seq: int) -> bytes:
    """Green has opened the stream."""
    return _of_stream(
        "migrate_opened", found, id=migration_id, attempt=attempt, digest=digest, last_seq=last_seq
    )


def clean_stream(found: Assignment, migration_id: str, attempt: int, digest: str, last_seq: int) -> bytes:
    """Blue's copies are to go. `digest` and `last_seq` are green's, as it answered."""
    return _of_stream(
        "migrate_cleaned", found, id=migration_id, attempt=attempt, digest=digest, last_seq=last_seq
    )


def discard_stream(found: Assignment, migration_id: str, attempt: int) -> bytes:
    """Blue's copies are to go by a person's word, since green can't show any more that it has what they hold."""
    return _of_stream("migrate_discarded", found, id=migration_id, attempt=attempt)


def unmigrate_stream(found: Assignment, migration_id: str) -> bytes:
    """The migration was called off, and nothing of green's takes part in the stream's group any more."""
    return _of_stream("unmigrate", found, id=migration_id)


# ---- section bodies: green -------------------------------------------------------------------------------------------


def follow_stream(
    account: str,
    name: str,
    group: str,
    config: StreamConfig,
    following: Following,
    members: tuple[str, ...],
    created_ns: int,
) -> bytes:
    """A stream on its way here, hidden. One of an earlier attempt ends by it; of the same attempt only configuration and members are
    new."""
    op = {"op": "follow", "account": account, "name": name, "group": group, "members": list(members)}
    told = {"config": config.to_json(), "following": following.to_json(), "created_ns": created_ns}
    return json.dumps({**op, **told}).encode()


def unfollow_stream(found: Assignment, migration_id: str, attempt: int) -> bytes:
    """Blue keeps the stream."""
    return _of_stream("unfollow", found, id=migration_id, attempt=attempt)


def arrived_stream(
    found: Assignment,
    attempt: int,
    digest: str,
    last_seq: int,
    config: StreamConfig,
    members: tuple[str, ...],
    version: int = 0,
) -> bytes:
    """The stream's own group has opened it: it is a stream as any other, with the members that its group has, and the configuration
    that it is to have here. `version`: that of the configuration in its log, which came from blue."""
    return _of_stream(
        "arrived",
        found,
        attempt=attempt,
        digest=digest,
        last_seq=last_seq,
        config=config.to_json(),
        members=list(members),
        version=version,
    )


def _of_migration(what: str, migration_id: str, **told: Any) -> bytes:
    return json.dumps({"op": PREFIX + what, "id": migration_id, **told}).encode()


def _of_stream(what: str, found: Assignment, **told: Any) -> bytes:
    op = {"op": what, "account": found.account, "name": found.name, "group": found.group}
    return json.dumps({**op, **told}).encode()


# ---- effects on migrations -------------------------------------------------------------------------------------------


def change_migrations(
    migrations: dict[str, Migration], op: Mapping[str, Any], entry: Entry, ways: Collection[StreamMigration]
) -> None:
    """Of an operation whose name begins with PREFIX. `ways`: of streams that are on their way, or went."""
    what, present = op["op"].removeprefix(PREFIX), migrations.get(op["id"])
    if what == "start":
        wanted = Migration.from_json(op["migration"])
        if present is None and not any(found.bars(wanted.account, ways) for found in migrations.values()):
            migrations[wanted.id] = replace(wanted, started_ns=entry.time_ns)
            _forget_ended(migrations, {way.id for way in ways})
        return
    if what not in _CHANGED:
        raise AssertionError(f"meta group: unknown operation {op['op']!r} in entry {entry.index}")
    if present is not None and present.runs:
        migrations[present.id] = _CHANGED[what](present, entry)


def _forget_ended(migrations: dict[str, Migration], needed: Container[str]) -> None:
    """Where a stream went stays known for as long as it is there: its clients on this side are served from there."""
    ended = [found.id for found in migrations.values() if not found.runs and found.id not in needed]
    for migration_id in ended[: max(0, len(ended) - ENDED_MAX)]:
        del migrations[migration_id]


def note_dropped(migrations: dict[str, Migration], found: Assignment) -> None:
    """The stream is deleted or begins anew under another group, or its migration was called off: green may follow it still."""
    told = found.migration
    present = migrations.get(told.id) if told is not None and not told.is_far else None
    if present is not None and told is not None:
        dropped = (*present.dropped, (told.source, told.attempt))[-DROPPED_MAX:]
        migrations[present.id] = replace(present, dropped=dropped)


_CHANGED: dict[str, Callable[[Migration, Entry], Migration]] = {
    "abort": lambda present, entry: replace(present, cancelled=True),
    "final": lambda present, entry: replace(present, final=True, final_ns=entry.time_ns),
    "end": lambda present, entry: replace(present, ended_ns=entry.time_ns),
}


# ---- effects on streams: blue ----------------------------------------------------------------------------------------


def _of(present: Assignment, op: Mapping[str, Any], *stages: StreamStage) -> StreamMigration | None:
    """The stream's record, where the operation is about it, and about its attempt."""
    found = present.migration
    if found is None or found.id != op["id"] or found.stage not in stages:
        return None
    return found if op.get("attempt", found.attempt) == found.attempt else None


def _migrated(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    is_busy = present.move is not None or present.restoring is not None or present.following is not None
    if is_busy or present.migration is not None:
        return None
    return _next_attempt(present, op["id"], op["world"])


def _next_attempt(present: Assignment, migration_id: str, world: str) -> Assignment:
    attempt = present.attempts + 1
    group = next_group(present.group, migration_id, attempt)
    begun = StreamMigration(migration_id, attempt, StreamStage.LEARNING, world, present.group, group)
    return replace(present, migration=begun, attempts=attempt)


def begun_anew(before: Assignment, after: Assignment) -> Assignment:
    """The stream's group is another one, of a lineage that green has not learned: so is the attempt."""
    found = before.migration
    return _next_attempt(after, found.id, found.world) if found is not None else after


def _handing(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    wanted = replace(StreamMigration.from_json(op["migration"]), stage=StreamStage.HANDING)
    if wanted.source != present.group or present.following is not None:
        return None
    found = present.migration
    if present.move is not None and not wanted.digest:
        return None  # A repair came first: it has no place for green's copies.
    if found is None and not wanted.digest:
        return None  # A late word about an attempt that has ended: a map that lost the record learns it behind HANDED.
    if found is not None and not (found.id == wanted.id and _precedes(found, wanted)):
        return None
    return replace(present, migration=wanted, attempts=max(present.attempts, wanted.attempt))


def _precedes(found: StreamMigration, wanted: StreamMigration) -> bool:
    """An attempt begins behind the end of the one before, which a map that was recovered by force may have missed."""
    if found.stage is StreamStage.LEARNING:
        return found.attempt <= wanted.attempt
    return found.stage is StreamStage.HANDING and found.attempt < wanted.attempt


def _unhanded(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    found = _of(present, op, StreamStage.HANDING)
    return _next_attempt(present, found.id, found.world) if found is not None else None


def _opened(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    """From now on it is green's: a later lineage of the stream, of which blue has no copy."""
    found = _of(present, op, StreamStage.HANDING)
    if found is None:
        return None
    told = replace(found, stage=StreamStage.OPEN, digest=op["digest"], last_seq=op["last_seq"])
    return replace(present, group=found.next_group, version=present.next_version(entry.index), migration=told)


def _cleaned(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    found = _of(present, op, StreamStage.OPEN)
    if found is None or not found.digest or op["digest"] != found.digest or op["last_seq"] < found.last_seq:
        return None
    return replace(present, migration=replace(found, stage=StreamStage.CLEANED))


def _discarded(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    """The record stays, so that nobody makes the stream again here, empty."""
    found = _of(present, op, StreamStage.OPEN)
    if found is None:
        return None
    return replace(present, migration=replace(found, stage=StreamStage.CLEANED, discarded=True))


def _unmigrated(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    found = _of(present, op, StreamStage.LEARNING)
    return replace(present, migration=None) if found is not None else None


# ---- effects on streams: green ---------------------------------------------------------------------------------------


def followed(
    key: tuple[str, str], present: Assignment | None, op: dict[str, Any], entry: Entry
) -> Assignment | None:
    """A stream that is begun hidden, or begun anew with a later attempt; None: no effect."""
    following = Following.from_json(op["following"])
    config, members = StreamConfig.from_json(op["config"]), tuple(op["members"])
    if present is not None:
        before = present.following
        if before is None or before.world != following.world or before.attempt > following.attempt:
            return None
        is_same = (before.migration, before.source) == (following.migration, following.source)
        if before.attempt == following.attempt and not is_same:
            return None
    created_ns = op["created_ns"]
    return Assignment(*key, op["group"], config, entry.index, members, created_ns, following=following)


def is_unfollowed(present: Assignment, op: dict[str, Any]) -> bool:
    """Does the operation end a stream that is on its way here?"""
    found = present.following
    return found is not None and (found.migration, found.attempt) == (op["id"], op["attempt"])


def _arrived(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    found = present.following
    if found is None or found.attempt != op["attempt"]:
        return None
    arrival = Arrival(
        found.migration,
        found.attempt,
        found.source,
        found.world,
        op["digest"],
        op["last_seq"],
        entry.time_ns,
    )
    return replace(
        present,
        config=StreamConfig.from_json(op["config"]),
        version=max(present.next_version(entry.index), op.get("version", 0) + 1),
        members=tuple(op["members"]),
        following=None,
        arrival=arrival,
        standing=present.standing.after_word(),
    )


MIGRATION_CHANGES: dict[str, Callable[[Assignment, dict[str, Any], Entry], Assignment | None]] = {
    "migrate": _migrated,
    "migrate_handing": _handing,
    "migrate_unhanded": _unhanded,
    "migrate_opened": _opened,
    "migrate_cleaned": _cleaned,
    "migrate_discarded": _discarded,
    "unmigrate": _unmigrated,
    "arrived": _arrived,
}
"""What an operation makes of the assignment; None: nothing."""
