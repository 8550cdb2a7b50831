"""The move of one stream, on its leader: it observes the state, asks `moves.plan` for the next step, and
carries it out.

Its state is volatile: a new leader begins with the membership, the record of the move and the note
(docs/adr/moves.md). Raft's own checks apply to every change of membership as well. If Raft refuses a change,
the next round decides again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from supercluster.broker.jetstream.config.metadata_keys import PREFERRED_LEADER_KEY
from supercluster.broker.jetstream.links.comparison_frames import HashesTold
from supercluster.broker.jetstream.links.frames import Frame, encode_move_end
from supercluster.broker.jetstream.meta.move_record import Audit, Move, MoveEnd, MoveReport, Outcome
from supercluster.broker.jetstream.moves.comparison import MoveComparison
from supercluster.broker.jetstream.moves.leftover import PREFIX
from supercluster.broker.jetstream.moves.moving_stream import MovingStream
from supercluster.broker.jetstream.moves.progress import MoveProgress
from supercluster.broker.jetstream.replica.contact import is_heard
from supercluster.broker.moves.note import Note, StageClock, note_of
from supercluster.broker.moves.pace import Pace
from supercluster.broker.moves.plan import Do, ReplicaProgress, Stage, Step, View, next_step, resolve_targets
from supercluster.broker.raft.confchange import Membership, MembershipChange, node_of
from supercluster.broker.raft.config import NEVER_MS

# While a move runs, its leader looks this often; what it waits for makes it look at once.
LOOK_MS = 25
# The end of a move is told again after this, until the map shows it.
END_AGAIN_MS = 500
# A member that did not take the leadership is asked again after this.
LEAD_AGAIN_MS = 3000
# After so long in the joint membership without a leader of the new half the targets learn on: until then every publisher waits
# for a majority of brokers that may be too slow. The next try comes after a rest, twice as long each time.
HAND_OVER_MS = 5000
REST_MS = 10_000
REST_MS_MAX = 300_000


class Mover:
    """See the module. Made when a leader serves and the map shows a move, dropped when either ends."""

    def __init__(self, moving: MovingStream, move: Move, now_ms: int) -> None:
        self._moving = moving
        self._replica, self._stream, self._host = moving.replica, moving.stream, moving.host
        self.move = move
        self._note = note_of(moving.stream.state.move_note, move.id)
        self._bytes_before = self._note.bytes_copied
        self._clock = StageClock(self._stages_before(), now_ms)
        self._compare = MoveComparison(moving, now_ms)
        self._waiting: set[str] = set()
        self._led_in_vain: dict[str, int] = {}
        self._handed_ms: int | None = None
        self._handed_to = ""
        self._joint_ms: int | None = None
        """Since when this leader would hand over."""
        self._rest_ms = REST_MS
        self._rests_until_ms = 0
        self._end_told_ms: int | None = None
        self._refusal = ""
        self._noted = 0
        """Number of the comparison whose outcome this leader has put into the log."""
        self._look_ms = 0
        self._progress = MoveProgress(moving)
        self.step = Step(Stage.PLANNED, Do.WAIT, "the leader has not checked yet")
        self.set_move(move)

    def _stages_before(self) -> dict[str, int]:
        """How long the stages took under earlier leaders. Who hands over appends nothing meanwhile."""
        note, stages = self._note, dict(self._note.stage_ms)
        if self._replica.raft.membership.is_joint and note.at_ns:
            took_ms = (self._replica.leader_time_ns() - note.at_ns) // 1_000_000
            stages[Stage.HANDING_OVER] = stages.get(Stage.HANDING_OVER, 0) + took_ms
        return stages

    def set_move(self, move: Move) -> None:
        """The record may have another target, or be cancelled."""
        self.move = move
        raft = self._replica.raft
        pace = raft.learner_pace
        if move.bytes_per_s != (pace.bytes_per_s if isinstance(pace, Pace) else 0):
            now_ms = self._host.clock.monotonic_ms()
            raft.learner_pace = Pace(move.bytes_per_s, now_ms) if move.bytes_per_s else None
        self._look_ms = 0

    def close(self) -> None:
        """The move is over, or this leader is."""
        self._replica.raft.learner_pace = None

    # ---- what comes in --------------------------------------------------------------------------------------------

    def names_node(self, node: str) -> bool:
        """Is a copy on that node to join? Then nobody but the target itself is taken in from there."""
        return any(node_of(target) == node for target in self.move.joining)

    def asked_to_join(self, member: str) -> None:
        """A target's copy is open."""
        if member in self.move.targets and member not in self._waiting:
            self._waiting.add(member)
            self._look_ms = 0

    def on_hashes(self, told: HashesTold) -> None:
        """A copy's hashes."""
        self._compare.on_hashes(told)
        self._look_ms = 0

    def wake(self) -> None:
        """The membership, or what is applied, changed."""
        self._look_ms = 0

    # ---- looking --------------------------------------------------------------------------------------------------

    def _targets(self) -> tuple[str, ...]:
        return resolve_targets(
            self.move.targets, self.move.origin, self._replica.raft.membership, self._is_heard
        )

    def _is_heard(self, member: str) -> bool:
        return is_heard(self._replica, member)

    def _replicas(self) -> dict[str, ReplicaProgress]:
        log, raft = self._replica.log, self._replica.raft
        found: dict[str, ReplicaProgress] = {}
        for member, progress in raft.progress.items():
            lag = log.last_index - progress.match
            # What is before the log's base is sent as a state, not as entries.
            left_bytes = log.bytes_behind(progress.match)
            sure = not progress.doubtful
            found[member] = ReplicaProgress(lag, left_bytes, self._is_heard(member), sure)
        return found

    def _view(self, now_ms: int) -> View:
        raft, membership = self._replica.raft, self._replica.raft.membership
        settled = (
            raft.ready_to_serve
            and not raft.is_handing_over
            and membership.index <= raft.commit_index
            and self._replica.applied_index >= raft.commit_index
            and not (membership.is_joint and membership.auto_leave)
        )
        config = self._stream.assignment.config
        preferred = dict(config.metadata).get(PREFERRED_LEADER_KEY) or config.placement.preferred
        for member, until_ms in list(self._led_in_vain.items()):
            if now_ms >= until_ms:
                del self._led_in_vain[member]
        hands_over = settled and membership.is_joint and self._replica.member not in membership.voters
        if not membership.is_joint:
            self._joint_ms = None
        elif hands_over and self._joint_ms is None:
            self._joint_ms = now_ms
        return View(
            me=self._replica.member,
            membership=membership,
            settled=settled,
            targets=self._targets(),
            origin=self.move.origin,
            cancelled=self.move.cancelled or self._note.turned_back,
            difference=self._note.difference,
            waiting=frozenset(self._waiting),
            replicas=self._replicas(),
            compared=self._compare.equal(joint=membership.is_joint),
            refused_lead=frozenset(self._led_in_vain),
            preferred=preferred,
            is_late=self._joint_ms is not None and now_ms - self._joint_ms >= HAND_OVER_MS,
            rests=now_ms < self._rests_until_ms,
        )

    def advance(self, now_ms: int) -> None:
        """Take the next step, if it is time to look for one."""
        if now_ms < self._look_ms:
            return
        self._look_ms = now_ms + LOOK_MS
        self._watch_hand_over(now_ms)
        # While copies catch up again nobody is asked.
        asked = self._compare.unanswered_ms(now_ms) if self.step.do is Do.COMPARE else {}
        self._progress.look(
            self.move, self._targets(), self._waiting, self._replicas(), self._copied(), asked, now_ms
        )
        step = next_step(self._view(now_ms))
        if self._clock.enter(step.stage, now_ms):
            self._host.event(self._replica.id, "MoveStage", f"move {self.move.id}: {step.stage}: {step.why}")
        self.step = step
        self._do(step, now_ms)

    def _watch_hand_over(self, now_ms: int) -> None:
        if self._handed_ms is not None and not self._replica.raft.is_handing_over:
            # This replica still leads: the other one did not take over in time.
            self._led_in_vain[self._handed_to] = now_ms + LEAD_AGAIN_MS
            self._handed_ms = None

    def _copied(self) -> int:
        """Bytes that this leader has sent to copies that join."""
        progress = self._replica.raft.progress
        return sum(
            progress[member].total_bytes
            for member in self.move.targets
            if member in progress and member not in self.move.origin
        )

    # ---- doing ----------------------------------------------------------------------------------------------------

    def _do(self, step: Step, now_ms: int) -> None:
        membership = self._replica.raft.membership
        if step.do is Do.ADD:
            self._change(membership, membership.voters, (*membership.learners, *step.members))
        elif step.do is Do.DROP:
            kept = tuple(member for member in membership.learners if member not in step.members)
            self._change(membership, membership.voters, kept)
        elif step.do is Do.COMPARE:
            self._compare_with(step.members, now_ms)
        elif step.do is Do.JOIN:
            if self._keep_compared(now_ms):
                self._change(membership, self._targets(), (), joint=True)
        elif step.do is Do.HAND_OVER:
            self._hand_over(step.members[0], now_ms)
        elif step.do is Do.LEAVE:
            if self._keep_compared(now_ms):
                self._change(membership, membership.voters, ())
        elif step.do is Do.STEP_BACK:
            learners = (*membership.learners, *step.members)
            if self._change(membership, membership.voters_outgoing, tuple(dict.fromkeys(learners))):
                self._rests_until_ms = now_ms + self._rest_ms
                self._rest_ms = min(2 * self._rest_ms, REST_MS_MAX)
        elif step.do is Do.GO_BACK:
            self._change(membership, membership.voters_outgoing, ())
        elif step.do is Do.END:
            self._tell_end(Outcome.DONE, now_ms)
        elif step.do is Do.END_CANCELLED and self._turned_back(now_ms):
            self._tell_end(Outcome.CANCELLED, now_ms)

    def _change(
        self,
        membership: Membership,
        voters: tuple[str, ...],
        learners: tuple[str, ...],
        *,
        joint: bool = False,
    ) -> bool:
        """False: Raft does not take it now."""
        change = MembershipChange(membership.index, voters, learners, joint=joint, auto_leave=False)
        refusal = self._replica.raft.propose_membership(change, self._replica.leader_time_ns())
        if refusal is not None and refusal.message != self._refusal:
            self._host.event(self._replica.id, "MoveWaits", f"move {self.move.id}: {refusal.message}")
        self._refusal = refusal.message if refusal is not None else ""
        return refusal is None

    def _keep(self, note: Note, now_ms: int) -> bool:
        """Put a note into the log. False when it was not taken."""
        copied = self._note_bytes() if not self._replica.raft.membership.is_joint else self._note.bytes_copied
        stages, at_ns = self._clock.spent_ms(now_ms), self._replica.leader_time_ns()
        self._note = replace(note, bytes_copied=copied, stage_ms=stages, at_ns=at_ns)
        return self._moving.put_note(self._note) > 0

    def _keep_compared(self, now_ms: int) -> bool:
        """Put what a comparison found into the log, once: a change that Raft refuses is tried with every look, and a
        target that is behind would never catch up with as many notes at the pace of the move."""
        number = self._compare.number
        if self._noted != number and self._keep(self._compare.noted(self._note), now_ms):
            self._noted = number
        return self._noted == number

    def _note_bytes(self) -> int:
        return max(self._note.bytes_copied, self._bytes_before + self._copied())

    def _turned_back(self, now_ms: int) -> bool:
        """Is it committed that the move is taken back? Once its end is told, copies that were to join are dropped; a later
        leader whose map is older than the cancel would let them vote."""
        if note_of(self._stream.state.move_note, self.move.id).turned_back:
            return True
        if not self._note.turned_back and not self._keep(
            replace(self._note.plain(), turned_back=True), now_ms
        ):
            self._note = replace(self._note, turned_back=False)
        return False

    def _compare_with(self, members: tuple[str, ...], now_ms: int) -> None:
        compare = self._compare
        if not compare.is_for(joint=self._replica.raft.membership.is_joint) or compare.is_stale:
            mark = self._moving.put_note(replace(self._note.plain(), mark=True))
            if mark:
                compare.start(mark, self._note, now_ms, joint=self._replica.raft.membership.is_joint)
        compare.go_on(tuple(member for member in members if member != self._replica.member), now_ms)
        if compare.difference and not self._note.difference:
            self._host.event(
                self._replica.id, "CopiesDiffer", f"move {self.move.id} is taken back: {compare.difference}"
            )
            self._keep(compare.noted(self._note), now_ms)

    def _hand_over(self, member: str, now_ms: int) -> None:
        if self._replica.raft.transfer_leadership(member, now_ms):
            self._handed_ms, self._handed_to = now_ms, member
        else:
            self._led_in_vain[member] = now_ms + LEAD_AGAIN_MS

    def _tell_end(self, outcome: Outcome, now_ms: int) -> None:
        if self.move.id.startswith(PREFIX):
            return  # Nobody knows of it who would want to hear its end.
        if self._end_told_ms is not None and now_ms - self._end_told_ms < END_AGAIN_MS:
            return
        leader = self._host.leader_of(self._host.map.meta_id)
        if leader is None:
            return
        self._end_told_ms = now_ms
        note, membership = self._note, self._replica.raft.membership
        reason = ""
        if outcome is Outcome.CANCELLED:
            reason = note.difference or self.move.cancel_reason or "cancelled by request"
        ranges, sequences, chain = note.audited
        results, messages = dict(note.results), note.live_messages
        audit = Audit(ranges, sequences, messages, note.first_seq, note.last_seq, chain, results)
        report = MoveReport(
            self.move.id,
            outcome,
            reason=reason,
            bytes_copied=note.bytes_copied,
            audit=audit,
            config_index=membership.index,
            stage_ms=self._clock.spent_ms(now_ms),
        )
        end = MoveEnd(self._replica.id, membership.voters, report)
        self._host.post(leader, Frame.MOVE_END, encode_move_end(end))

    # ---- what people see ------------------------------------------------------------------------------------------

    def info(self) -> dict[str, Any]:
        """The `move` of STREAM.INFO."""
        found, membership = self._replicas(), self._replica.raft.membership
        targets = self._targets()
        behind = [found[member] for member in targets if member in found]
        missing = sum(1 for member in targets if member not in found and member != self._replica.member)
        # Whoever has not begun lacks all that there is.
        whole = self._replica.log.bytes_on_disk()
        bytes_left = sum(replica.lag_bytes for replica in behind) + missing * whole
        lacking = {
            member: found[member].lag_bytes if member in found else whole for member in self.move.joining
        }
        if self._replica.member in lacking:
            lacking[self._replica.member] = 0
        if membership.is_joint:
            bytes_left = 0
        is_known = membership.is_joint or not missing
        eta_ns = self._progress.left_ns() if bytes_left else 0
        return {
            "id": self.move.id,
            "stage": str(self.step.stage),
            "why": self._progress.why(self.step.why),
            "targets": list(targets),
            "bytes_left": bytes_left,
            "bytes_copied": self._note_bytes(),
            "lacking": lacking,
            "lag": max((replica.lag_entries for replica in behind), default=0),
            "eta_ns": eta_ns if is_known else None,
            "stage_ms": self._clock.spent_ms(self._host.clock.monotonic_ms()),
            "stuck": self._progress.stuck,
            "trouble": self._progress.trouble,
            "below_ingest_rate": self._progress.is_below_ingest_rate,
            "cancelled": self.move.cancelled,
        }

    # ---- time -----------------------------------------------------------------------------------------------------

    def deadline_ms(self) -> int:
        """When to look again. While leadership is on its way Raft knows what it waits for."""
        return NEVER_MS if self._replica.raft.is_handing_over else self._look_ms
