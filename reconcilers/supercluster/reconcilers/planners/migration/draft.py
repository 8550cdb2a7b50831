"""The status of a Migration during planning: phase, conditions, events and message."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from supercluster.api import Migration
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.api.migration import MigrationStatus, Phase, Proof, Publisher, SideStatus, StageCounts
from supercluster.reconcilers.planners.migration.views import MigrationObserved, MigrationView, Trouble
from supercluster.reconcilers.planners.plan import Note, Plan, Step
from supercluster.reconcilers.planners.status import (
    Conditions,
    cut,
    put_blocked,
    put_findings,
    status_patch,
    timestamp,
)

_EVENTS: dict[str, EventReason] = {
    "Aborting": EventReason.MIGRATION_ABORTING,
    "Aborted": EventReason.MIGRATION_ABORTED,
    "Succeeded": EventReason.MIGRATION_SUCCEEDED,
}


class Draft:
    """Collects what one plan says of a migration."""

    def __init__(self, desired: Migration, observed: MigrationObserved, now: datetime) -> None:
        self._desired, self._now = desired, now
        self._conditions = Conditions(desired.status.conditions, desired.metadata.generation, now)
        self._notes: list[Note] = []
        before = desired.status
        self._changes: dict[str, Any] = {
            "observed_generation": desired.metadata.generation,
            "migration_id": desired.id,
            "blue": observed.blue.told or before.blue,
            "green": _as_started(before, observed.green.told),
            "preflight": observed.report or before.preflight,
            "proof": observed.proof or before.proof,
        }
        # Each of them is said from the beginning, whatever else is known.
        if not before.conditions:
            self._conditions.put(ConditionType.PREFLIGHT_PASSED, None, Reason.CHECKING, "not made yet")
            self._conditions.put(ConditionType.ABORTED, False, Reason.NOT_ABORTED)
            self._conditions.put(ConditionType.POINT_OF_NO_RETURN, False, Reason.NOT_REACHED)

    @property
    def proof(self) -> Proof | None:
        found: Proof | None = self._changes["proof"]
        return found

    def enter(
        self, phase: Phase, reason: Reason, message: str, *, ready: bool | None = False, whole: bool = False
    ) -> None:
        """The phase, and in Ready and Whole what it does or waits for."""
        if phase != self._desired.status.phase and phase in _EVENTS:
            self._notes.append(Note.done(_EVENTS[phase], message))
        self._changes |= {"phase": phase, "message": cut(message)}
        self._conditions.put(ConditionType.READY, ready, reason, message)
        if ready:
            self._conditions.put(ConditionType.WHOLE, whole, reason, message)

    def wait(self, trouble: Trouble, *, phase: Phase | None = None) -> None:
        """Something is missing without which nothing can be said; what was said of Ready before the start is still so."""
        before = self._desired.status
        holds = None if before.started_at is not None else False
        self.enter(phase or before.phase or "Pending", *trouble, ready=holds)

    def preflight(self, holds: bool | None, reason: Reason, message: str = "") -> None:
        self._conditions.put(ConditionType.PREFLIGHT_PASSED, holds, reason, message)

    def follow(self, state: MigrationView) -> None:
        """Blue's figures."""
        before, stages = self._desired.status, state.stages
        self._changes |= {
            "stages": stages,
            "streams": stages.total,
            "on_green": stages.on_green,
            "worst_lag": state.lag,
            "stalled": state.stalled,
            "stalled_total": state.stalled_total,
            "clients": state.clients,
            "started_at": before.started_at or timestamp(state.started or self._now),
        }
        if state.stalled_total and not before.stalled_total:
            self._notes.append(Note(EventReason.MIGRATION_STALLED, stalled_text(state), warning=True))

    def aborted(self, holds: bool, reason: Reason, message: str) -> None:
        self._conditions.put(ConditionType.ABORTED, holds, reason, message)

    def opened(self, message: str) -> None:
        """Green has said itself that it serves all streams."""
        if self._desired.status.opened_at is None:
            self._changes["opened_at"] = timestamp(self._now)
            self._notes.append(Note.done(EventReason.MIGRATION_OPEN, message))

    def state_point_of_no_return(self, message: str) -> None:
        """Before it can be passed."""
        self._conditions.put(ConditionType.POINT_OF_NO_RETURN, False, Reason.AWAITING_FINALIZE, message)
        if self._desired.status.point_of_no_return_at is None:
            self._changes["point_of_no_return_at"] = timestamp(self._now)
            self._notes.append(Note.done(EventReason.POINT_OF_NO_RETURN_STATED, message))

    def pass_point_of_no_return(self, reason: Reason, message: str) -> None:
        if not self._conditions.was(ConditionType.POINT_OF_NO_RETURN):
            self._notes.append(Note.done(EventReason.POINT_OF_NO_RETURN_PASSED, message))
        self._conditions.put(ConditionType.POINT_OF_NO_RETURN, True, reason, message)

    def name_publishers(self, state: MigrationView) -> None:
        """Of those that were asked to leave and publish through blue still. Their counts move, so the message has none."""
        names = sorted({publisher_text(each) for each in state.clients.publishers})
        more = state.clients.publishers_still_on_blue - len(names)
        named = ", ".join(names) + (f" and {more} more" if more > 0 else "")
        message = (
            f"clients still publish through blue, which forwards for them to the streams that it handed over, and to none that was made on green "
            f"since: {named}; point them at green's addresses before blue is switched off (status.clients has their messages)"
        )
        found = [(Reason.PUBLISHERS_ON_BLUE, message)] if state.clients.publishers_still_on_blue else []
        if found or self._conditions.was(ConditionType.WARNING):
            put_findings(self._conditions, ConditionType.WARNING, found)

    def end(self, phase: Phase, reason: Reason, message: str) -> None:
        is_good = phase == "Succeeded"
        self.enter(phase, reason, message, ready=is_good, whole=is_good)
        self._changes |= {"ended_at": timestamp(self._now), "stalled": (), "stalled_total": 0}
        self.block(None)

    def block(self, trouble: Trouble | None) -> None:
        put_blocked(self._conditions, trouble)

    def since(self, type_: ConditionType) -> datetime | None:
        return self._conditions.held_since(type_)

    def reason_of(self, type_: ConditionType) -> str:
        return self._conditions.reason_of(type_)

    def plan(
        self,
        *steps: Step,
        recheck_after_ms: int | None = None,
        wait_after_step: bool = False,
    ) -> Plan:
        status = self._desired.status.model_copy(
            update={**self._changes, "conditions": self._conditions.result()}
        )
        patch = status_patch(self._desired.status.to_object(), status.to_object())
        notes = (*self._conditions.notes(), *self._notes)
        return Plan(steps, patch, notes, recheck_after_ms, wait_after_step, in_a_row=max(1, len(steps)))


def _as_started(before: MigrationStatus, told: SideStatus | None) -> SideStatus | None:
    """Green as it answers, unless that is another one than the migration was started with."""
    is_other = told is not None and before.green is not None and told.identity != before.green.identity
    return before.green if told is None or (is_other and before.started_at is not None) else told


def stalled_text(state: MigrationView) -> str:
    first = state.stalled[0] if state.stalled else None
    told = f"; first {first.name}, {first.stage}: {first.reason}" if first is not None else ""
    return f"{_streams(state.stalled_total)} make{'s' if state.stalled_total == 1 else ''} no progress{told}"


def stages_text(stages: StageCounts) -> str:
    """The stages that have any, in their order."""
    counts = stages.model_dump()
    found = [f"{count} {name}" for name, count in counts.items() if count]
    return f"{_streams(stages.total)}: {', '.join(found)}" if found else "no streams yet"


def clients_text(state: MigrationView) -> str:
    clients = state.clients
    if not clients.still_on_blue:
        return "no client is left on blue"
    publish = clients.publishers_still_on_blue
    named = ", ".join(map(publisher_text, clients.publishers))
    told = f", {publish} of them publish there ({named})" if publish else ""
    is_one = clients.still_on_blue == 1
    return f"{clients.still_on_blue} client{' is' if is_one else 's are'} still on blue{told}"


def passing_text(state: MigrationView) -> str:
    """Clients that publish to streams that green has while others are still on their way; empty without any."""
    count = state.clients.publishers_still_on_blue
    if not count:
        return ""
    return (
        f", {count} client{' publishes' if count == 1 else 's publish'} through blue to what was handed over"
    )


def publisher_text(found: Publisher) -> str:
    """A client and its streams."""
    client = found.name or f"a {found.language or 'nameless'} client"
    user = f" of user {found.user}" if found.user else ""
    streams = f" to {', '.join(found.streams)}" if found.streams else ""
    address = f" at {found.address}" if found.address else ""
    return f"{client}{user}{address}{streams}"


def _streams(count: int) -> str:
    return f"{count} stream{'' if count == 1 else 's'}"
