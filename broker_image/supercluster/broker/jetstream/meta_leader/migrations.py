"""Migrations to other super-clusters, as the leader of blue's map carries them out (`docs/adr/cutover.md`).

It gives green a few streams at a time to learn. Each stream's own leader does the rest and reports its
progress. The leader tells green which groups to stop following, until green has answered. Blue's copies are
deleted only on evidence of both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.farewells import Farewells, named
from supercluster.broker.jetstream.meta.hand_turns import HandTurns, awaits_turn
from supercluster.broker.jetstream.meta.learning_slots import LearningSlots
from supercluster.broker.jetstream.meta.migration import DROPPED_MAX, Migration, StreamStage
from supercluster.broker.jetstream.meta.migration_changes import (
    abort_migration,
    clean_stream,
    discard_stream,
    end_migration,
    finalize_migration,
    migrate_stream,
    start_migration,
    unhand_stream,
)
from supercluster.broker.jetstream.meta.migration_starts import judge_start
from supercluster.broker.jetstream.meta.migration_steps import MigrationStep, StepKind
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.map_waits import MapRequests
from supercluster.broker.jetstream.meta_leader.names_on_green import as_on_green
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts
from supercluster.broker.raft.entry import EntryKind, make_entry

# So often green is told again, and asked again.
TELL_MS = 5000
# Steps that wait for a turn, one of each stream.
STEPS_MAX = 4096
SAID_MAX = 1023

Answer = Callable[[ApiError | None], None]
"""None: it is so, and committed."""


@dataclass(frozen=True, slots=True)
class OpenWord:
    """What green's leader of a stream says of it (CUT_TOLD)."""

    next_group: str
    migration: str
    attempt: int
    digest: str
    """Of the cut, hexadecimal."""
    last_seq: int
    """At the cut."""


def is_over(state: MetaState, migration: Migration) -> bool:
    """Is nothing of it under way, nor left to clean? Pure."""
    if not migration.runs or not (migration.cancelled or migration.final):
        return False
    return all(way.stage is StreamStage.CLEANED for way in state.ways if way.id == migration.id)


class Migrations(MapRequests):
    """The leader's."""

    def __init__(self, tail: MapTail, host: MetaHost) -> None:
        super().__init__(host, everywhere=True)
        self._tail = tail
        self._meta_host = host
        self._steps: dict[str, MigrationStep] = {}
        self._words: dict[str, OpenWord] = {}
        self._hand_turns = HandTurns()
        self._slots = LearningSlots()
        self._said: set[str] = set()
        """Groups of which it was said that the evidence differs."""
        self._tell_ms = 0
        self._farewells = Farewells()

    # ---- what people ask ------------------------------------------------------------------------------------------

    def start(self, wanted: Migration, answer: Answer, undecided: Callable[[], None]) -> None:
        """The caller has made the preflight."""
        self._take(lambda: self._judge_start(wanted), answer, undecided)

    def abort(self, migration_id: str, answer: Answer, undecided: Callable[[], None]) -> None:
        self._take(lambda: self._judge_abort(migration_id), answer, undecided)

    def finalize(self, migration_id: str, answer: Answer, undecided: Callable[[], None]) -> None:
        self._take(lambda: self._judge_final(migration_id), answer, undecided)

    def take_back(
        self,
        migration_id: str,
        key: tuple[str, str],
        attempt: int,
        answer: Answer,
        undecided: Callable[[], None],
    ) -> None:
        """A person says that green is gone for good, and what it has taken with it."""
        self._take(lambda: self._judge_take_back(migration_id, key, attempt), answer, undecided)

    def discard(
        self,
        migration_id: str,
        key: tuple[str, str],
        attempt: int,
        answer: Answer,
        undecided: Callable[[], None],
    ) -> None:
        """A person says that green does not have the stream any more which it has opened, so that there is nothing to wait for."""
        self._take(lambda: self._judge_discard(migration_id, key, attempt), answer, undecided)

    def _gone(
        self, migration_id: str, key: tuple[str, str], where: tuple[StreamStage, int], code: int
    ) -> Assignment:
        """A stream by its migration, stage and attempt.

        Raises:
            ApiError: of that code; it is elsewhere.
        """
        _known(self._tail.state, migration_id)
        found = self._tail.state.streams.get(key)
        way = found.migration if found is not None else None
        if found is None or way is None or way.id != migration_id:
            raise errors.error(code, f"{key[1]} is not on its way by {migration_id}")
        if (way.stage, way.attempt) != where:
            now, wanted = f"{way.stage} at attempt {way.attempt}", f"{where[0]} at {where[1]}"
            raise errors.error(code, f"{found.name} is {now}, not {wanted}")
        return found

    def _judge_discard(self, migration_id: str, key: tuple[str, str], attempt: int) -> int:
        found = self._gone(migration_id, key, (StreamStage.OPEN, attempt), errors.NOT_DISCARDED)
        self._tail.event(
            "StreamDiscarded",
            f"stream {found.name} of migration {migration_id} is discarded by force, at attempt {attempt}: blue drops its copies, and "
            "its name and subjects stay green's",
        )
        return self._tail.propose(discard_stream(found, migration_id, attempt)).index

    def _judge_take_back(self, migration_id: str, key: tuple[str, str], attempt: int) -> int:
        if not _known(self._tail.state, migration_id).cancelled:
            raise errors.error(
                errors.NOT_TAKEN_BACK, f"abort {migration_id} first, which asks green to refuse it"
            )
        found = self._gone(migration_id, key, (StreamStage.HANDING, attempt), errors.NOT_TAKEN_BACK)
        self._tail.event(
            "StreamTakenBack",
            f"stream {found.name} of migration {migration_id} is taken back by force, at attempt {attempt}: what green has taken of it "
            "is not here, and copies of it on green must never be opened again",
        )
        return self._tail.propose(unhand_stream(found, migration_id, attempt)).index

    def _judge_start(self, wanted: Migration) -> int:
        state = self._tail.state
        judge_start(state, wanted)
        if wanted.id in state.migrations:
            return state.applied_index
        self._tail.need_level("migration", "a migration")
        self._tail.event(
            "MigrationStarted",
            f"migration {wanted.id} to super-cluster {wanted.green.name or wanted.green.identity}, of "
            + (f"account {wanted.account}" if wanted.account else "all accounts"),
        )
        return self._tail.propose(start_migration(wanted)).index

    def _judge_abort(self, migration_id: str) -> int:
        state = self._tail.state
        found = _known(state, migration_id)
        if found.cancelled:
            return state.applied_index
        streams = scope_of(state, found)
        if not found.runs or (streams and all(stream.far_world for stream in streams)):
            raise errors.error(errors.ALL_OPEN, migration_id)
        self._tail.event(
            "MigrationAborted",
            f"migration {migration_id} is aborted: streams that are open on green stay there",
        )
        return self._tail.propose(abort_migration(migration_id)).index

    def _judge_final(self, migration_id: str) -> int:
        state = self._tail.state
        found = _known(state, migration_id)
        if found.final or not found.runs:
            return state.applied_index
        left = [f"{one.account}/{one.name}" for one in scope_of(state, found) if not one.far_world]
        if left and not found.cancelled:
            names = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
            raise errors.error(errors.NOT_FINAL, f"{names} not open on green")
        if not found.cancelled and (why := self._meta_host.clients_left(found)):
            raise errors.error(errors.NOT_FINAL, why)
        self._tail.event("MigrationFinal", f"migration {migration_id} is final: blue's copies go")
        return self._tail.propose(finalize_migration(migration_id)).index

    # ---- what streams' leaders say --------------------------------------------------------------------------------

    def on_step(self, step: MigrationStep) -> None:
        """Said again until the map shows it."""
        if self._tail.serves and (len(self._steps) < STEPS_MAX or step.group in self._steps):
            self._steps[step.group] = step

    def on_open(self, word: OpenWord) -> None:
        """Green's word of a stream that it has opened: the evidence by which blue's copies go."""
        if self._tail.serves and len(self._words) < STEPS_MAX:
            self._words[word.next_group] = word

    def on_dropped(self, world: str, group: str, attempt: int) -> None:
        """Green's word that it follows nothing of an attempt."""
        if self._tail.serves:
            self._farewells.on_dropped(self._running, world, group, attempt)

    def _clean(self, word: OpenWord) -> None:
        state = self._tail.state
        found = state.by_group(word.next_group)
        way = found.migration if found is not None else None
        if found is None or way is None or way.stage is not StreamStage.OPEN:
            return
        migration = state.migrations.get(way.id)
        is_meant = (way.next_group, way.id, way.attempt) == (word.next_group, word.migration, word.attempt)
        if migration is None or not migration.final or not is_meant:
            return
        if word.digest == way.digest and word.last_seq >= way.last_seq:
            self._append(clean_stream(found, way.id, way.attempt, word.digest, word.last_seq))
        elif found.group not in self._said:
            self._said = {*list(self._said)[-SAID_MAX:], found.group}
            self._meta_host.event(
                found.group,
                "EvidenceDiffers",
                f"stream {found.name} stays: green says digest {word.digest} and last sequence {word.last_seq}, and blue's record "
                f"says {way.digest} and {way.last_seq}; none of its copies is removed until an administrator has compared both",
            )

    # ---- turns ----------------------------------------------------------------------------------------------------

    def turn(self, now_ms: int) -> None:
        super().turn(now_ms)
        self._take_steps(now_ms)
        words, self._words = self._words, {}
        for word in words.values():
            self._clean(word)
        for migration in self._running:
            for found in self._slots.next_streams(self._tail.state, migration):
                self._append(migrate_stream(found, migration))
        if self._running and now_ms >= self._tell_ms:
            self._tell_ms = now_ms + TELL_MS
            for migration in self._running:
                self._tell(migration)
            for found in self._slots.to_ask(self._tail.state, self._running):
                self._ask_refused(found)
            self._end(self._running)

    def _take_steps(self, now_ms: int) -> None:
        steps, self._steps = self._steps, {}
        is_stale = True
        # What ends a stream's turn goes before what begins another's.
        for step in sorted(steps.values(), key=awaits_turn):
            if awaits_turn(step):
                migration = self._tail.state.migrations.get(step.migration)
                if migration is not None and migration.cancelled:
                    continue  # It was under way: its leader may be gone, and nobody would end it.
                # All marks are looked at once, and again where one was added.
                if is_stale:
                    self._hand_turns.look(self._tail.state, now_ms)
                    is_stale = False
                if now_ms < self._hand_turns.free_ms():
                    self._steps[step.group] = step
                    continue
            found = self._tail.state.by_group(step.group)
            if found is not None and found.group == step.group:
                body = on_green(step, found, self._tail.state.brokers).operation(found, _ANY)
                if body is not None:
                    self._append(body)
                    is_stale = True

    @property
    def _running(self) -> list[Migration]:
        return [found for found in self._tail.state.migrations.values() if found.runs]

    def _tell(self, migration: Migration) -> None:
        """Green hears what it is to follow no more, and is asked for the evidence of what is to be cleaned."""
        state = self._tail.state
        if forgotten := self._farewells.forgotten(migration):
            self._tail.event(
                "DropForgotten",
                f"migration {migration.id}: green has not confirmed that it drops its copies of {named(forgotten)}, and is not asked again, since "
                f"{DROPPED_MAX} others followed; look for them on green",
            )
        for group, attempt in migration.dropped:
            self._meta_host.drop_far(migration.world, group, attempt, migration.id)
        for key in sorted(state.migrating) if migration.final else ():
            way = state.streams[key].migration
            if way is not None and way.id == migration.id and way.stage is StreamStage.OPEN:
                self._meta_host.ask_cut(migration.world, way.next_group, way.attempt)

    def _ask_refused(self, found: Assignment) -> None:
        """Does green refuse the stream?"""

        def answered(facts: StreamFacts | None) -> None:
            if self._tail.serves:
                # A stream whose copies differed is copied anew.
                is_refused = facts is not None and facts.migrating.get("copies_refused") is True
                self._slots.told(found.group, is_refused=is_refused)
                self._tail.touch()

        self._meta_host.ask_stream(found, answered)

    def _end(self, running: list[Migration]) -> None:
        over = [migration for migration in running if is_over(self._tail.state, migration)]
        for migration in self._farewells.ended(running, over, self._tail.time_ns()):
            self._append(end_migration(migration.id))
            left = self._farewells.unheard(migration)
            untold = f"; green was not told to drop its copies of {named(left)}" if left else ""
            here = [] if migration.cancelled else left_out(self._tail.state, migration)
            stay = f"; made here behind finalize, and not handed over: {named(here)}" if here else ""
            self._tail.event("MigrationEnded", f"migration {migration.id} has ended{untold}{stay}")

    def _append(self, body: bytes) -> None:
        try:
            self._tail.propose(body)
        except NotAppendedError:
            pass  # What is still so with the next look is appended then.

    def deadline_ms(self) -> int | None:
        """When `turn` has something to do."""
        if not (self._tail.serves and self._running):
            return None
        return min(self._tell_ms, self._hand_turns.free_ms()) if self._steps else self._tell_ms

    def clear(self) -> None:
        """This replica does not lead any more."""
        super().clear()
        self._steps.clear()
        self._hand_turns.clear()
        self._slots.clear()
        self._words.clear()
        self._said.clear()
        self._farewells.clear()


def on_green(step: MigrationStep, found: Assignment, nodes: Container[str]) -> MigrationStep:
    """The step of a stream that has come, with the names that it has here. `nodes`: brokers that there are. Pure."""
    if step.kind is not StepKind.ARRIVED or found.following is None or step.config is None:
        return step
    return replace(step, config=as_on_green(step.config, found.following.cluster, nodes))


# Of an operation that is only looked at.
_ANY = make_entry(term=0, index=0, kind=EntryKind.BATCH, payload=b"", time_ns=0)


def _known(state: MetaState, migration_id: str) -> Migration:
    found = state.migrations.get(migration_id)
    if found is None:
        raise errors.error(errors.NO_MIGRATION, migration_id)
    return found


def left_out(state: MetaState, migration: Migration) -> list[str]:
    """Streams of the accounts that it covers which no migration took, as account/name."""
    found = (stream for key, stream in sorted(state.streams.items()) if migration.covers(key[0]))
    return [f"{one.account}/{one.name}" for one in found if one.migration is None and one.following is None]


def scope_of(state: MetaState, migration: Migration) -> list[Assignment]:
    """Its streams by their names: those that go or went by it and were not discarded, and while it takes any, all that it covers, with
    those that are being restored."""
    found = []
    for key, stream in sorted(state.streams.items()):
        way = stream.migration
        is_mine = way is not None and way.id == migration.id and not way.discarded
        is_wanted = way is None and stream.following is None and migration.covers(key[0]) and migration.runs
        if is_mine or (is_wanted and not (migration.cancelled or migration.final)):
            found.append(stream)
    return found
