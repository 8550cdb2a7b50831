"""A stream's migration on blue's leader: it observes the state, asks `migration.plan` for the next step, and
carries it out.

Its state is volatile and belongs to one term. A new leader begins with the log and the map, and takes back
steps of its predecessors that it cannot account for (`migration/plan.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.migration_frames import (
    CutAsk,
    CutTold,
    Prepare,
    Prepared,
    Told,
    Wants,
)
from supercluster.broker.jetstream.meta.migration import StreamMigration, StreamStage
from supercluster.broker.jetstream.meta.migration_steps import MigrationStep, StepKind
from supercluster.broker.jetstream.migration.attempt import Attempt
from supercluster.broker.jetstream.migration.cut_digest import cut_digesting
from supercluster.broker.jetstream.migration.green_copies import change_learners, copies_seen, far_learners
from supercluster.broker.jetstream.migration.headway import Headway
from supercluster.broker.jetstream.migration.migrating_stream import MigratingStream
from supercluster.broker.jetstream.state.cut import CutStage, Fence, Handed, Unfenced
from supercluster.broker.migration.plan import (
    REST_MS,
    REST_MS_MAX,
    STEP_EVENT,
    Copy,
    Do,
    Log,
    Mark,
    Stage,
    Step,
    View,
    Word,
    next_step,
)

# While nothing is fenced the leader looks this often; what it waits for makes it look at once.
LOOK_MS = 25
# What was asked of the map or of green is asked again after this.
AGAIN_MS = 500
ASK_MS = 300
# Green's copies that do not open, or are out of contact: green may have named others meanwhile. The same for a stream that green refuses.
PREPARE_AGAIN_MS = 5000
_STEPS = {
    Do.MARK: StepKind.HANDING,
    Do.UNMARK: StepKind.UNHANDED,
    Do.NOTE_OPEN: StepKind.OPENED,
    Do.END: StepKind.UNMIGRATED,
}
_SHOWN_BY_NEXT = (Do.NOTE_OPEN, Do.UNFENCE, Do.TAKE_BACK)
"""What these lead to is certain: an event names that stage, with what brought the stream there."""
_ENDS = (Do.UNMARK, Do.UNFENCE, Do.TAKE_BACK)
_LOGS = {CutStage.FENCED: Log.FENCED, CutStage.HANDED: Log.HANDED}


class Migrator:
    """See the module. Made when a leader serves a stream that the map has on its way, or that is fenced; dropped with either."""

    def __init__(self, migrating: MigratingStream, record: StreamMigration, now_ms: int) -> None:
        self._migrating = migrating
        self._replica, self._stream, self._host = migrating.replica, migrating.stream, migrating.host
        self.record = record
        self._term = migrating.replica.raft.term
        self._attempt = Attempt(record.attempt)
        self._rest_ms = REST_MS
        self._rests_until_ms = 0
        self._look_ms = now_ms
        self._headway = Headway(now_ms)
        self._refusal = ""
        self._waits_for = ""
        """What the last step waited for, where it did: if time runs out, that is why."""
        self._failure = ""
        """Why the last attempt of this leader's ended."""
        self._is_refused = False
        """Did it end by green's refusal?"""
        self._entered: tuple[int, Stage] | None = None
        """Attempt and stage of the last event."""
        self.step = Step(Stage.LEARNING, Do.WAIT, "the leader has not checked yet")

    def set_record(self, record: StreamMigration) -> None:
        """The map has moved on."""
        if record.attempt != self._attempt.number:
            self._attempt = Attempt(record.attempt)
        self.record = record
        self._look_ms = 0

    def wake(self) -> None:
        """The membership, or what is applied, changed."""
        self._look_ms = 0

    # ---- what comes in --------------------------------------------------------------------------------------------

    def asked_to_join(self, member: str) -> None:
        """A copy of green's is open."""
        attempt = self._attempt
        if member in attempt.members and member not in attempt.waiting:
            attempt.waiting.add(member)
            self._look_ms = 0

    def on_prepared(self, told: Prepared) -> None:
        """Green has named its copies, or says why there are none. What it said of an earlier configuration may come late."""
        attempt = self._attempt
        if (told.attempt, told.version) != (attempt.number, attempt.config_version):
            return
        if told.refusal and told.refusal != attempt.refusal:
            self._event("MigrationWaits", f"green cannot take the stream: {told.refusal}")
        attempt.members, attempt.refusal = told.members, told.refusal
        self._look_ms = 0

    def on_told(self, told: CutTold) -> None:
        """Green has opened the stream, or refused it."""
        record, cut = self.record, self._stream.state.cut
        about = (told.next_group, told.migration, told.attempt)
        if about != (record.next_group, record.id, record.attempt):
            return
        if told.told is Told.OPEN and cut.stage is CutStage.HANDED and told.digest != cut.digest:
            self._event("MigrationWaits", "green says that it has opened another cut; ask green's operator")
            return
        self._attempt.told = told
        self._attempt.word = Word.OPEN if told.told is Told.OPEN else Word.REFUSED
        self._look_ms = 0

    # ---- looking --------------------------------------------------------------------------------------------------

    def _mark(self) -> Mark:
        record, attempt = self._stream.assignment.migration, self._attempt
        if record is None or record.attempt != attempt.number or record.stage is not StreamStage.HANDING:
            return Mark.NONE
        if record.term != self._term:
            return Mark.OTHER
        return Mark.ENDED if attempt.gave_up else Mark.OWN

    @property
    def holds(self) -> bool:
        """Does nothing go on before green has shown what became of a mark that an earlier leader has set?"""
        return (
            self._mark() is Mark.OTHER and self._attempt.word is not Word.REFUSED and not self._is_cleared()
        )

    def _is_cleared(self) -> bool:
        """Has a majority of the copies that the mark or the fence names an entry of this leader's? These did not convert, and
        whatever they have, blue has; without them green's group cannot open."""
        raft, log, marked = self._replica.raft, self._replica.log, self._stream.assignment.migration
        cut = self._stream.state.cut
        members = cut.members if cut.is_closed else marked.members if marked is not None else ()
        found = [raft.progress.get(member) for member in members]
        return 2 * sum(p is not None and log.term(p.match) == self._term for p in found) > len(members)

    @property
    def _members(self) -> tuple[str, ...]:
        """What green says behind the fence is about another one."""
        cut = self._stream.state.cut
        return cut.members if cut.is_closed else self._attempt.members

    @property
    def _is_settled(self) -> bool:
        replica, found = self._replica, self._stream.assignment
        raft, membership = replica.raft, replica.raft.membership
        return (
            raft.ready_to_serve
            and not raft.is_handing_over
            and not membership.is_joint
            and membership.index <= raft.commit_index
            and found.move is None
            and self._stream.state.config_version >= found.version
        )

    def _view(self, now_ms: int) -> View:
        attempt, cut, mark = self._attempt, self._stream.state.cut, self._mark()
        if mark is Mark.OWN and attempt.marked_ms is None:
            attempt.marked_ms = now_ms
        migration, found = self._host.map.migration(self.record.id), self._stream.assignment.migration
        return View(
            attempt=attempt.number,
            log=_LOGS.get(cut.stage, Log.FREE),
            applied=not self._migrating.is_cut_pending(),
            settled=self._is_settled,
            mark=mark,
            marked_ms=now_ms - attempt.marked_ms if attempt.marked_ms is not None else 0,
            cleared=self._is_cleared(),
            superseded=cut.is_closed and found is not None and found.attempt > cut.attempt,
            owns_fence=attempt.fenced_ms is not None,
            fenced_ms=now_ms - attempt.fenced_ms if attempt.fenced_ms is not None else 0,
            cancelled=migration is not None and migration.cancelled,
            renamed=found is not None and found.members != attempt.members,
            reconfigured=attempt.config_version != self._stream.state.config_version,
            members=self._members,
            refusal=attempt.refusal,
            waiting=frozenset(attempt.waiting),
            learners=far_learners(self._replica),
            copies=self._copies(),
            digested=bool(attempt.digest),
            rests=now_ms < self._rests_until_ms,
            word=attempt.word,
        )

    def _copies(self) -> dict[str, Copy]:
        linked = self._host.far_nodes(self.record.world)
        return copies_seen(self._replica, self._members, self._stream.state.cut, linked)

    def advance(self, now_ms: int) -> None:
        """Take the next step, if it is time to look for one. While the stream is fenced each turn may bring what it waits for."""
        if now_ms < self._look_ms and not self._stream.is_closed:
            return
        self._look_ms = now_ms + LOOK_MS
        self._follow_config()
        view = self._view(now_ms)
        step = next_step(view)
        if (step.stage, step.why) != (self.step.stage, self.step.why):
            self._tell(step)
        self.step = step
        if step.do not in _ENDS:
            self._waits_for = step.text if step.do is Do.WAIT else ""
        lag = max((copy.lag_entries for copy in view.copies.values()), default=0)
        self._headway.look((self._attempt.number, step.stage, step.why), lag, now_ms)
        self._do(step, now_ms)
        if step.stage is Stage.LEARNING and view.members and (view.missing or view.away):
            self._prepare(now_ms, PREPARE_AGAIN_MS)

    def _follow_config(self) -> None:
        """Green has to take subjects and room for the configuration that there is now: it is asked again."""
        attempt, version = self._attempt, self._stream.state.config_version
        if attempt.config_version != version and self._mark() is Mark.NONE:
            attempt.members, attempt.refusal, attempt.config_version = (), "", version
            attempt.asked_ms.pop(Do.PREPARE, None)

    # ---- doing ----------------------------------------------------------------------------------------------------

    def _do(self, step: Step, now_ms: int) -> None:
        record, attempt = self.record, self._attempt
        membership = self._replica.raft.membership
        if step.do is Do.PREPARE:
            self._prepare(now_ms, PREPARE_AGAIN_MS if attempt.refusal else AGAIN_MS)
        elif step.do is Do.ADD:
            self._change((*membership.learners, *step.members))
        elif step.do is Do.DROP:
            self._change(tuple(m for m in membership.learners if m not in step.members))
        elif step.do is Do.FENCE:
            self._fence(now_ms)
        elif step.do is Do.HAND:
            self._migrating.put_cut(Section.HANDED, Handed(record.attempt, attempt.digest).encode())
        elif step.do in (Do.UNFENCE, Do.TAKE_BACK):
            self._unfence(now_ms, is_refused=step.do is Do.TAKE_BACK)
        elif step.do in (Do.ASK, Do.ASK_REFUSAL):
            self._ask(Wants.WORD if step.do is Do.ASK else Wants.REFUSE, now_ms)
        elif step.do in (Do.MARK, Do.UNMARK, Do.NOTE_OPEN, Do.END):
            self._ask_map(step.do, now_ms)
        if step.stage is Stage.FENCED and not attempt.digest and attempt.fenced_ms is not None:
            self._digest()

    def _is_time(self, do: Do, now_ms: int, pause_ms: int) -> bool:
        """Is it to be asked for (again)?"""
        asked_ms = self._attempt.asked_ms
        if do in asked_ms and now_ms - asked_ms[do] < pause_ms:
            return False
        asked_ms[do] = now_ms
        return True

    def _prepare(self, now_ms: int, pause_ms: int) -> None:
        if not self._is_time(Do.PREPARE, now_ms, pause_ms):
            return
        found, state, record = self._stream.assignment, self._stream.state, self.record
        migration = self._host.map.migration(record.id)
        cluster = migration.called(state.config.placement.cluster) if migration is not None else ""
        self._attempt.config_version = state.config_version
        asked = Prepare(
            *(record.id, record.attempt, found.account, found.name, self._replica.id, record.next_group),
            *(state.config, state.config_version, state.created_ns, self._host.world, cluster),
        )
        self._tell_green(Frame.PREPARE, asked.encode())

    def _tell_green(self, frame: Frame, body: list[bytes | memoryview]) -> None:
        """All of its brokers: the one that leads what is asked for answers."""
        for node in self._host.far_nodes(self.record.world):
            self._host.post(node, frame, body)

    def _ask(self, wants: Wants, now_ms: int) -> None:
        do = Do.ASK if wants is Wants.WORD else Do.ASK_REFUSAL
        if self._is_time(do, now_ms, ASK_MS):
            asked = CutAsk(self.record.next_group, self.record.attempt, wants)
            self._tell_green(Frame.CUT_ASK, asked.encode())

    def _ask_map(self, do: Do, now_ms: int) -> None:
        record, attempt = self.record, self._attempt
        if do is Do.UNMARK and not attempt.gave_up:
            attempt.gave_up = True
            self._rest(now_ms)
        if not self._is_time(do, now_ms, AGAIN_MS):
            return
        step = MigrationStep(_STEPS[do], self._replica.id, record.id, record.attempt)
        if do is Do.MARK:
            cut = self._stream.state.cut
            digest = cut.digest.hex() if cut.stage is CutStage.HANDED else ""
            mark = replace(record, term=self._term, members=self._members, digest=digest)
            step = replace(step, mark=mark)
        elif do is Do.NOTE_OPEN and attempt.told is not None:
            step = replace(step, digest=attempt.told.digest.hex(), last_seq=attempt.told.last_seq)
        self._host.migration_step(step)

    def _fence(self, now_ms: int) -> None:
        record, attempt = self.record, self._attempt
        fence = Fence(record.id, record.attempt, record.world, attempt.members)
        if self._migrating.put_cut(Section.FENCED, fence.encode()):
            attempt.fenced_ms = now_ms

    def _unfence(self, now_ms: int, *, is_refused: bool) -> None:
        body = Unfenced(self._stream.state.cut.attempt, is_refused).encode()
        if self._migrating.put_cut(Section.UNFENCED, body):
            self._attempt.gave_up = True
            self._rest(now_ms)

    def _rest(self, now_ms: int) -> None:
        told = self._attempt.told
        self._is_refused = told is not None and told.told is Told.REFUSED
        said = told.why if told is not None and self._is_refused else self._waits_for
        self._failure = ": ".join(filter(None, (self.step.why, said)))
        self._rests_until_ms = now_ms + self._rest_ms
        self._rest_ms = min(2 * self._rest_ms, REST_MS_MAX)

    def _digest(self) -> None:
        attempt = self._attempt
        if Do.HAND in attempt.asked_ms or self._migrating.is_cut_pending():
            return
        attempt.asked_ms[Do.HAND] = 0
        digesting = cut_digesting(self._stream.state)

        def job() -> Generator[int, None, None]:
            attempt.digest = yield from digesting
            self._host.touch(self._replica.id)

        self._host.in_slices(self._replica, job())

    def _change(self, learners: tuple[str, ...]) -> None:
        why = change_learners(self._replica, learners)
        if why and why != self._refusal:
            self._event("MigrationWaits", why)
        self._refusal = why

    def _tell(self, step: Step) -> None:
        """An event per stage that an attempt enters, and one of less weight per step within it."""
        stage = step.then if step.do in _SHOWN_BY_NEXT and step.then is not None else step.stage
        entered = self._attempt.number, stage
        reason = "MigrationStage" if entered != self._entered else STEP_EVENT
        self._entered = entered
        self._event(reason, f"attempt {self._attempt.number}: {stage}: {step.why}")

    def _event(self, reason: str, text: str) -> None:
        self._host.event(self._replica.id, reason, f"migration {self.record.id}: {text}")

    # ---- what people see ------------------------------------------------------------------------------------------

    def info(self) -> dict[str, Any]:
        """The `migrating` of STREAM.INFO."""
        copies = self._copies().values()
        return {
            "id": self.record.id,
            "attempt": self.record.attempt,
            "stage": str(self.step.stage),
            "why": self._why(),
            "refused": bool(self._attempt.refusal) or self._is_refused,
            "copies_refused": bool(self._attempt.refusal),
            "no_headway_ms": self._headway.none_ms(self._host.clock.monotonic_ms()),
            "lag_entries": max((copy.lag_entries for copy in copies), default=0),
            "lag_ms": max((copy.lag_ms for copy in copies), default=0),
        }

    def _why(self) -> str:
        """What the stream waits for, and what ended the attempt before."""
        why = self._attempt.refusal or self.step.text
        if self._refusal and self.step.do in (Do.ADD, Do.DROP):
            why += f": {self._refusal}"
        if self._failure and self.step.stage is Stage.LEARNING:
            why += f"; the last attempt failed: {self._failure}"
            if self._is_refused:
                why += "; if green goes on to refuse, abort the migration: the stream stays here"
        return why

    def deadline_ms(self) -> int:
        """When to look again."""
        return self._look_ms
