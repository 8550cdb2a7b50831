"""The status of a StreamMove during planning: phase, conditions, events and message."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from supercluster.api import StreamMove
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.api.stream import NodeFinding
from supercluster.api.stream_move import MoveAudit, MovePlan, MoveProgress, Phase, WindowStatus
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.move.views import EndedMove, MoveObserved, RunningMove
from supercluster.reconcilers.planners.plan import Manifest, Note, Plan, Step
from supercluster.reconcilers.planners.status import Conditions, status_patch, timestamp

# The event of each phase that people should hear of.
ENDINGS: dict[str, EventReason] = {
    "Planned": EventReason.MOVE_PLANNED,
    "Succeeded": EventReason.MOVE_SUCCEEDED,
    "Cancelled": EventReason.MOVE_CANCELLED,
    "Failed": EventReason.MOVE_FAILED,
}
# A broker that is cut off notices within its links' silence, some seconds, and refuses to answer from then on. What ends a
# move for good is not concluded from one that has not noticed yet.
UNKNOWN_MIN = timedelta(seconds=10)
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


class Draft:
    """Collects what one plan says of a move."""

    def __init__(self, desired: StreamMove, observed: MoveObserved, now: datetime) -> None:
        self._desired, self._observed, self._now = desired, observed, now
        self._conditions = Conditions(desired.status.conditions, desired.metadata.generation, now)
        self._changes: dict[str, Any] = {}
        self._notes: list[Note] = []
        self.made_plan: MovePlan | None = observed.plan or desired.status.plan
        self.approval_is_void = desired.status.approval_void and desired.spec.approved
        self._change(
            approval_void=self.approval_is_void,
            observed_generation=desired.metadata.generation,
            stream_name=observed.stream_name or desired.status.stream_name,
            destination=desired.destination_text,
            plan=self.made_plan,
        )
        if desired.status.source is None and observed.brokers.members:
            homes = {naming.cluster_of(member) for member in observed.brokers.members}
            self._change(source=", ".join(sorted(homes)))
        if observed.window is not None:
            opens, closes = observed.window.opens_at, observed.window.closes_at
            self._change(
                window=WindowStatus(
                    opens_at=timestamp(opens) if opens else None,
                    closes_at=timestamp(closes) if closes else None,
                )
            )

    def _change(self, **changes: Any) -> None:
        self._changes.update(changes)

    def accept(self) -> None:
        self._conditions.put(ConditionType.ACCEPTED, True, Reason.AS_DECLARED)

    def say(self, phase: Phase, reason: Reason, message: str, *, holds: bool | None = False) -> None:
        """The phase, and in the condition Progressing what it waits for or does."""
        self._enter(phase, message)
        self._conditions.put(ConditionType.PROGRESSING, holds, reason, message)
        self._conditions.put(ConditionType.COMPLETE, False, reason, message)

    def _enter(self, phase: Phase, message: str) -> None:
        before = self._desired.status
        if phase in ("Running", "Cancelling") and before.started_at is None:
            self._change(started_at=timestamp(self._now))
        if phase != before.phase and phase in ENDINGS:
            self._notes.append(Note.done(ENDINGS[phase], message))
        self._change(phase=phase, message=message)

    def wait_for(self, reason: Reason, message: str) -> None:
        """Something is missing without which nothing can be said."""
        if reason != Reason.BROKERS_UNREACHABLE:
            self._conditions.put(ConditionType.ACCEPTED, False, reason, message)
        self.say(self._desired.status.phase or "Pending", reason, message)

    def refuse(self, reason: Reason, message: str, *, is_retried: bool) -> None:
        self._conditions.put(ConditionType.ACCEPTED, False, reason, message)
        more = "; it is looked at again, because the Stream asks for it" if is_retried else ""
        self.say("Refused", Reason.REFUSED, f"{message}{more}")

    def queue(self, message: str) -> None:
        """Wait for a place in the budget, with a new ticket if it did not wait before."""
        if self._desired.status.phase != "Queued":
            self._change(ticket=self._desired.status.ticket + 1)
        self.say("Queued", Reason.QUEUED, message)

    def plan_anew(self, why: str) -> None:
        """The brokers of the plan do not fit any more. An approval was of that plan, and not of the next one."""
        self.made_plan = None
        self._change(plan=None, approval_void=self._desired.spec.approval == "Manual")
        self.say("Pending", Reason.PLANNING, why)

    def end(self, phase: Phase, reason: Reason, message: str) -> None:
        self._enter(phase, message)
        is_good = phase in ("Succeeded", "Planned")
        if phase != "Planned":
            self._change(ended_at=timestamp(self._now), progress=None)
        if phase == "Succeeded":
            self._change(percent="100%")
        self._conditions.put(ConditionType.PROGRESSING, False, reason, message)
        self._conditions.put(ConditionType.COMPLETE, is_good, reason, message)

    def follow(self, progress: MoveProgress) -> None:
        self._correct_targets(progress.targets)
        if progress.stage is None:
            self._change(progress=progress)  # What was copied stays as it was told last.
            return
        whole = self.made_plan.bytes if self.made_plan is not None else 0
        left = min(progress.bytes_left, whole)
        percent = f"{100 * (whole - left) // whole}%" if whole else None
        self._change(progress=progress, percent=percent)

    def _correct_targets(self, targets: tuple[str, ...]) -> None:
        """The plan names the brokers that the move goes to: one that was lost was replaced since."""
        made = self.made_plan
        if made is None or not targets or {found.name for found in made.targets} == set(targets):
            return
        known = {found.name: found for found in made.targets}
        lost = ", ".join(sorted(known.keys() - set(targets))) or "none"
        new = f"was taken while the move ran, instead of {lost}"
        found = tuple(known.get(name) or NodeFinding(name=name, reason=new) for name in targets)
        self.made_plan = made.model_copy(update={"targets": found})
        self._change(plan=self.made_plan)

    def prove(self, ended: EndedMove) -> None:
        self._change(audit=ended.audit, bytes_copied=ended.bytes_copied, stages=ended.stages)
        if self._desired.status.started_at is None and ended.started is not None:
            # It was over before anybody saw it run.
            self._change(started_at=timestamp(ended.started))

    def stall(self, running: RunningMove) -> None:
        """The move runs without progress. An event tells of it once."""
        trouble = running.progress.trouble
        before = self._conditions.reason_of(ConditionType.PROGRESSING)
        reason = Reason.BELOW_INGEST_RATE if running.is_below_ingest_rate else Reason.MOVE_STALLED
        self.say("Running", reason, trouble, holds=True)
        if before not in (Reason.BELOW_INGEST_RATE, Reason.MOVE_STALLED):
            self._notes.append(Note(EventReason.MOVE_STALLED, trouble, warning=True))

    def mark_unknown(self, phase: Phase) -> None:
        """The brokers do not tell of a move that was started."""
        message = "the broker that was asked does not tell of the move; it counts as over if that stays so"
        self.say(phase, Reason.MOVE_UNKNOWN, message, holds=None)

    @property
    def is_long_unknown(self) -> bool:
        """Has it been so for longer than a broker can be cut off without knowing?"""
        since = self._conditions.held_since(ConditionType.PROGRESSING)
        was_said = self._conditions.reason_of(ConditionType.PROGRESSING) == Reason.MOVE_UNKNOWN
        return was_said and since is not None and self._now - since >= UNKNOWN_MIN

    def how_far(self, progress: MoveProgress) -> str:
        if progress.stage is None:
            return "the stream's leader does not answer"
        eta = f", about {progress.eta_seconds} s to go" if progress.eta_seconds is not None else ""
        return (
            f"{progress.stage}: {_amount(progress.bytes_left)} left, lag {progress.lag_entries} entries{eta}"
        )

    def proof(self, ended: EndedMove) -> str:
        audit, spec = ended.audit, self._desired.spec
        if spec.repair is not None:
            gone = ", ".join(spec.repair.replace)
            return f"the stream has its replicas again, without {gone}: {_compared(audit, 'the new replicas voted')}"
        if spec.destination is None:
            return f"the stream has {self._desired.destination_text}: {_compared(audit, 'the new replicas voted')}"
        if not audit.ranges:
            return "the stream lives at its destination; it was empty, so there was nothing to compare"
        return _compared(audit, "the old replicas were dropped")

    def what_it_takes(self) -> str:
        made = self.made_plan
        if made is None:
            return "no plan yet"
        names = ", ".join(found.name for found in made.targets) or "none"
        time = f" in about {made.estimated_seconds} s" if made.estimated_seconds else ""
        new = "new replicas" if self._desired.spec.destination is not None else "replicas"
        return f"{_amount(made.bytes)} ({made.messages} messages) to copy{time}, {new} on {names}"

    def when_it_opens(self) -> str:
        window = self._observed.window
        if window is None or window.opens_at is None:
            return "spec.maintenanceWindow never opens; delete this StreamMove and create one with another schedule"
        return f"the maintenance window opens at {timestamp(window.opens_at)}"

    def noted(self) -> Manifest | None:
        """The patch of an ended move: only that its spec was seen."""
        generation = self._desired.metadata.generation
        if self._desired.status.observed_generation == generation:
            return None
        return {"observedGeneration": generation}

    def plan(
        self,
        steps: tuple[Step, ...] = (),
        *,
        recheck_after_ms: int | None = None,
        wait_after_step: bool = False,
        in_a_row: int = 1,
    ) -> Plan:
        status = self._desired.status.model_copy(
            update={**self._changes, "conditions": self._conditions.result()}
        )
        patch = status_patch(self._desired.status.to_object(), status.to_object())
        notes = (*self._conditions.notes(), *self._notes)
        return Plan(steps, patch, notes, recheck_after_ms, wait_after_step, in_a_row)


def _compared(audit: MoveAudit, before_what: str) -> str:
    if not audit.ranges:
        return "there was nothing new to compare"
    return (
        f"{audit.sequences} sequences from {audit.first_sequence} to {audit.last_sequence}, with {audit.messages} messages, "
        "compared equal in "
        f"{audit.ranges} ranges before {before_what}"
    )


def _amount(count: int) -> str:
    """Bytes for people."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"
