"""Plans for a Migration: checked, approved, started once, watched, called off, or finalized.

Blue's brokers carry it out, and identify it by the resource's namespace, name and uid. Their answers give its
start, progress and outcome, so an operator that is killed at any point finds it again (OP-4). Success is
judged by the answers at green's own address (BG-12). Nothing is deleted on blue before `spec.finalize`, which
the API server refuses until the status has named the point of no return.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from supercluster.api import Migration
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.api.migration import NO_WAY_BACK, Side
from supercluster.reconcilers.planners.migration import preflight
from supercluster.reconcilers.planners.migration.blocked import blocked
from supercluster.reconcilers.planners.migration.draft import (
    Draft,
    clients_text,
    passing_text,
    stages_text,
    stalled_text,
)
from supercluster.reconcilers.planners.migration.views import (
    MigrationObserved,
    MigrationView,
    SideView,
    has_started,
    is_ended,
    overlap,
)
from supercluster.reconcilers.planners.plan import (
    FINALIZER,
    AbortMigration,
    FinalizeMigration,
    Manifest,
    Note,
    Plan,
    SetFinalizers,
    ShareMigrationCredentials,
    StartMigration,
)
from supercluster.reconcilers.planners.status import parse_timestamp

RUNNING_RECHECK_MS = 500
STARTED_RECHECK_MS = 100
WAITING_RECHECK_MS = 2_000
# Clients go over by themselves within minutes; a person may finalize at any time, which wakes it.
OPEN_RECHECK_MS = 5_000
# What asks each broker and green: a refused one is tried again, since names and clients come and go.
REFUSED_RECHECK_MS = 10_000
# Clients that are asked to leave go within this; those that publish through blue later are named.
GOES_WITHIN = timedelta(seconds=60)
# A broker that is cut off notices within its links' silence, some seconds, and refuses to answer from then on.
UNKNOWN_MIN = timedelta(seconds=10)
# Ours for "every stream is open on green".
TOO_LATE = 19024


def plan_migration(desired: Migration, observed: MigrationObserved, now: datetime) -> Plan:
    draft = Draft(desired, observed, now)
    if is_ended(desired):
        return _at_rest(desired, draft)
    if desired.metadata.deletion_timestamp is not None:
        return _deletion(desired, observed, draft)
    if observed.state is not None:
        return _under_way(desired, observed, observed.state, draft, now)
    if has_started(desired):
        return _unknown(desired, observed, draft, now)
    return _before_the_start(desired, observed, draft)


# ---- before the start ------------------------------------------------------------------------------------------------


def _before_the_start(desired: Migration, observed: MigrationObserved, draft: Draft) -> Plan:
    if desired.spec.abort:
        draft.aborted(True, Reason.CALLED_OFF, "called off before it started")
        draft.end("Aborted", Reason.CALLED_OFF, "called off before it started")
        return draft.plan()
    if observed.state_error is not None and observed.blue.told is not None:
        # Blue answers, but not about migrations: whether this one was started is not known.
        draft.wait(observed.state_error)
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    first = overlap(desired, observed)
    if first is not None:
        other, why = first
        whose = f"{other.metadata.namespace}/{other.metadata.name}"
        message = f"Migration {whose} overlaps with this one, and comes first: {why}; delete one of the two, or wait until it has ended"
        return _refuse(draft, Reason.MIGRATION_OVERLAPS, message)
    for side, view in ((desired.spec.blue, observed.blue), (desired.spec.green, observed.green)):
        if view.deleted:
            draft.wait((Reason.SUPER_CLUSTER_DELETED, view.deleted), phase="Pending")
            return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
        if view.told is None:
            return _unanswered(desired, side, view, draft)
    trouble = preflight.own_trouble(desired, observed)
    if trouble is not None:
        return _refuse(draft, *trouble)
    if not observed.is_shared and observed.sharing_error is None and observed.refusal is None:
        draft.wait(
            (Reason.CHECKING, "the brokers are given what links between both sides need"), phase="Checking"
        )
        return draft.plan(ShareMigrationCredentials())
    closed = observed.sharing_error or preflight.port_trouble(desired, observed.green)
    if closed is not None:
        draft.preflight(None, *closed)
        draft.wait(closed, phase="Checking")
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    if observed.refusal is not None:
        return _refuse(draft, Reason.PREFLIGHT_REFUSED, observed.refusal)
    report = observed.report
    if report is None:
        why = observed.report_error or "preflight is being made"
        draft.preflight(None, Reason.CHECKING, why)
        draft.wait((Reason.CHECKING, why), phase="Checking")
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    if report.refused:
        why = preflight.told(report.findings, report.refused + report.warnings)
        if preflight.waits_for_secrets(desired, report):
            draft.preflight(None, Reason.CHECKING, why)
            draft.wait((Reason.CHECKING, why), phase="Checking")
            return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
        return _refuse(draft, Reason.PREFLIGHT_REFUSED, why)
    warned = f", with {report.warnings} warning(s) in status.preflight" if report.warnings else ""
    draft.preflight(True, Reason.PREFLIGHT_CLEAN, f"{report.streams} streams, {report.bytes} bytes{warned}")
    if desired.spec.approval == "Manual" and not desired.spec.approved:
        message = (
            f"set spec.approved to true to start it: {report.streams} streams, {report.bytes} bytes{warned}"
        )
        draft.enter("AwaitingApproval", Reason.AWAITING_APPROVAL, message)
        return draft.plan(recheck_after_ms=REFUSED_RECHECK_MS)
    return _start(desired, observed, report.streams, draft)


def _refuse(draft: Draft, reason: Reason, message: str) -> Plan:
    draft.preflight(False, reason, message)
    draft.enter("Refused", reason, message)
    return draft.plan(recheck_after_ms=REFUSED_RECHECK_MS)


def _unanswered(desired: Migration, side: Side, view: SideView, draft: Draft) -> Plan:
    reason, message = view.trouble or (Reason.BROKERS_UNREACHABLE, f"{side.text} does not answer")
    if side is desired.spec.green and reason is Reason.BROKERS_UNREACHABLE:
        reason = Reason.GREEN_UNREACHABLE
        message = (
            f"green, {side.text}, does not answer: {message}; it has to be there before anything is fenced"
        )
    draft.preflight(None, reason, message)
    draft.wait((reason, message), phase="Pending")
    return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)


def _start(desired: Migration, observed: MigrationObserved, streams: int, draft: Draft) -> Plan:
    blue, green, metadata = desired.spec.blue, observed.green, desired.metadata
    if FINALIZER not in metadata.finalizers:
        return Plan((SetFinalizers((*metadata.finalizers, FINALIZER), metadata.resource_version),))
    whom = f"account {desired.spec.scope.account}" if desired.spec.scope.account else "all accounts"
    message = f"{streams} streams of {blue.text} ({whom}) go to {desired.spec.green.text}"
    draft.enter("Running", Reason.MIGRATING, message)
    note = Note.done(EventReason.MIGRATION_STARTED, message)
    start = StartMigration(start_body(desired, green), note=note)
    return draft.plan(start, recheck_after_ms=STARTED_RECHECK_MS, wait_after_step=True)


def start_body(desired: Migration, green: SideView) -> Manifest:
    """As the brokers' call has it, for preflight and for the start (docs/admin.md)."""
    told = green.told
    return {
        "id": desired.id,
        "account": desired.spec.scope.account or "",
        "cannotFollow": desired.spec.clients.cannot_follow.lower(),
        "clusters": dict(desired.spec.clusters or {}),
        "green": {
            "identity": told.identity if told is not None else "",
            "name": told.name if told is not None else "",
            "addresses": list(green.addresses),
            "tlsName": green.tls_name,
        },
    }


# ---- under way -------------------------------------------------------------------------------------------------------


def _under_way(
    desired: Migration, observed: MigrationObserved, state: MigrationView, draft: Draft, now: datetime
) -> Plan:
    draft.follow(state)
    if state.is_aborted:
        return _aborted(state, draft)
    if not observed.is_shared and observed.sharing_error is None and observed.refusal is None:
        # A password or an authority was exchanged, or a Secret put back.
        return draft.plan(ShareMigrationCredentials())
    draft.block(blocked(desired, observed, state))
    if state.is_final:
        return _final(desired, state, draft)
    if state.is_cancelled:
        message = f"streams go back to blue: {stages_text(state.stages)}"
        draft.aborted(False, Reason.ABORT_ASKED, message)
        draft.enter("Aborting", Reason.ABORT_ASKED, message, ready=False)
        return draft.plan(recheck_after_ms=RUNNING_RECHECK_MS)
    if desired.spec.abort:
        is_too_late = state.is_on_green or observed.refusal_code == TOO_LATE or _was_too_late(desired)
        if not is_too_late and observed.refusal is None:
            return draft.plan(AbortMigration(desired.id))
        why = f"the abort came too late: green served all streams by then, and {NO_WAY_BACK}. Set spec.abort to false before you finalize"
        if is_too_late:
            draft.aborted(False, Reason.TOO_LATE, why)
        else:
            draft.aborted(False, Reason.REFUSED_BY_BROKERS, str(observed.refusal))
    if state.is_on_green:
        return _open(desired, observed, state, draft, now)
    if state.stalled_total:
        message = f"{stalled_text(state)}; {stages_text(state.stages)}"
        draft.enter("Running", Reason.STREAMS_STALLED, message, ready=False)
    else:
        lag = f", lag {state.lag.milliseconds} ms" if state.stages.learning else ""
        draft.enter(
            "Running", Reason.MIGRATING, f"{stages_text(state.stages)}{lag}{passing_text(state)}", ready=False
        )
    return draft.plan(recheck_after_ms=RUNNING_RECHECK_MS)


def _was_too_late(desired: Migration) -> bool:
    """It stays so when a stream is made on blue later: what waits for finalize is not called off by an old word."""
    reasons = [each.reason for each in desired.status.conditions if each.type == ConditionType.ABORTED]
    return desired.status.opened_at is not None or Reason.TOO_LATE in reasons


def _aborted(state: MigrationView, draft: Draft) -> Plan:
    stays = state.stages.on_green
    message = (
        "blue serves all streams; green is told to drop what it has of them, at once or when it answers again"
    )
    if stays:
        message = (
            f"green had opened {stays} of {state.stages.total} streams by then, and goes on serving them, also for clients of blue; the others are "
            f"served by blue. To have all in one place make another Migration to this green, since {NO_WAY_BACK}"
        )
    draft.aborted(True, Reason.CALLED_OFF, message)
    draft.end("Aborted", Reason.CALLED_OFF, message)
    return draft.plan()


def _open(
    desired: Migration, observed: MigrationObserved, state: MigrationView, draft: Draft, now: datetime
) -> Plan:
    """Blue says that green serves everything. The stage ends only when green confirms it (BG-12)."""
    proof, total = draft.proof, state.stages.total
    if proof is not None and proof.differing:
        message = (
            f"blue says that all streams are open on green, and green's own address does not confirm it of {', '.join(proof.differing)}; nothing is deleted "
            "on blue while that is so: compare `supercluster migrate status` with STREAM.INFO on green. A stream that was deleted or recovered by "
            f"force there can't be compared again: POST /admin/migrations/{desired.id}/discard on blue drops what blue has of it (docs/admin.md)"
        )
        draft.enter("Open", Reason.GREEN_DISAGREES, message, ready=False)
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    if proof is None or proof.streams != total:
        why = _green_error(observed) or "green is being asked"
        message = f"blue says that all streams are open on green, and green's own answer is waited for: {why}"
        draft.enter("Open", Reason.GREEN_UNREACHABLE, message, ready=None)
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    served = f"green serves {total} streams with {proof.consumers} consumers, by its own answer"
    draft.opened(served)
    opened = parse_timestamp(desired.status.opened_at or "")
    if not state.stages.open or (opened is not None and now - opened >= GOES_WITHIN):
        draft.name_publishers(state)
    if state.stages.open and state.clients.still_on_blue:
        message = f"{served}; {clients_text(state)}"
        draft.enter("Open", Reason.OPEN_ON_GREEN, message, ready=True)
        return draft.plan(recheck_after_ms=OPEN_RECHECK_MS)
    statement = (
        f"{served}; {clients_text(state)}. spec.finalize: true passes the point of no return: blue's copies of {total} streams, as they were handed over, "
        f"are deleted. Until then nothing is deleted; {NO_WAY_BACK}"
    )
    draft.state_point_of_no_return(statement)
    is_stated = desired.status.point_of_no_return_at is not None
    if desired.spec.finalize and is_stated and observed.refusal is not None:
        message = f"blue's brokers refuse spec.finalize: {observed.refusal}"
        draft.enter("AwaitingFinalize", Reason.OPEN_ON_GREEN, message, ready=True)
        return draft.plan(recheck_after_ms=OPEN_RECHECK_MS)
    # Only by a comparison of this very look: green may have lost what it had.
    if desired.spec.finalize and is_stated and observed.proof is not None:
        return draft.plan(FinalizeMigration(desired.id))
    if desired.spec.finalize and is_stated:
        message = f"spec.finalize waits for green's answer: {_green_error(observed) or 'it is being asked'}"
        draft.enter("AwaitingFinalize", Reason.OPEN_ON_GREEN, message, ready=True)
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    draft.enter("AwaitingFinalize", Reason.AWAITING_FINALIZE, statement, ready=True)
    return draft.plan(recheck_after_ms=OPEN_RECHECK_MS)


def _green_error(observed: MigrationObserved) -> str:
    """Why green has not said what it has."""
    return observed.green.trouble[1] if observed.green.trouble is not None else observed.proof_error


def _final(desired: Migration, state: MigrationView, draft: Draft) -> Plan:
    if state.is_done:
        message = (
            f"green serves {state.stages.total} streams, and blue's copies are deleted; {clients_text(state)}"
        )
        draft.pass_point_of_no_return(Reason.MIGRATED, message)
        draft.end("Succeeded", Reason.MIGRATED, message)
        return draft.plan()
    draft.name_publishers(state)
    draft.pass_point_of_no_return(Reason.FINALIZED, "spec.finalize was carried out")
    if state.stalled_total:
        message = f"{stalled_text(state)}, and blue keeps its copies; {stages_text(state.stages)}"
        draft.enter("Finalizing", Reason.STREAMS_STALLED, message, ready=False)
    else:
        message = f"blue's copies are being deleted: {stages_text(state.stages)}"
        draft.enter("Finalizing", Reason.CLEANING_UP, message, ready=True)
    return draft.plan(recheck_after_ms=RUNNING_RECHECK_MS)


def _unknown(desired: Migration, observed: MigrationObserved, draft: Draft, now: datetime) -> Plan:
    """It was started, and blue does not tell of it."""
    phase = desired.status.phase or "Running"
    if observed.state_error is not None:
        # What keeps it from being asked at all has a remedy; a silent broker has none but patience.
        reason, why = observed.blue.trouble or observed.state_error
        trouble = reason, f"{why}; the brokers carry the migration out meanwhile, and blue is asked again"
        if observed.blue.deleted:
            trouble = (
                Reason.SUPER_CLUSTER_DELETED,
                (
                    f"{observed.blue.deleted}, and its brokers do not answer ({why}): the migration stands still. Streams that were handed are on "
                    "green; bring blue back with its volumes, or delete this Migration once what is left on blue is given up"
                ),
            )
        draft.block(trouble if observed.blue.deleted else None)
        draft.wait(trouble)
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    message = (
        "blue's brokers do not know the migration, which was started: their map of streams was recovered from an older copy, or begun anew. "
        "Streams that are fenced or handed say so themselves; delete this Migration, and create another one for what is left on blue"
    )
    since = draft.since(ConditionType.READY)
    was_said = draft.reason_of(ConditionType.READY) == Reason.MIGRATION_UNKNOWN
    if was_said and since is not None and now - since >= UNKNOWN_MIN:
        draft.block((Reason.MIGRATION_UNKNOWN, message))
    draft.enter(phase, Reason.MIGRATION_UNKNOWN, message, ready=None)
    return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)


# ---- the end ---------------------------------------------------------------------------------------------------------


def _let_go(desired: Migration, note: Note | None = None) -> SetFinalizers:
    rest = tuple(name for name in desired.metadata.finalizers if name != FINALIZER)
    return SetFinalizers(rest, desired.metadata.resource_version, note=note)


def _at_rest(desired: Migration, draft: Draft) -> Plan:
    """Ended: only the finalizer goes, and a change of the spec is taken note of."""
    steps = (_let_go(desired),) if FINALIZER in desired.metadata.finalizers else ()
    generation = desired.metadata.generation
    is_noted = desired.status.observed_generation == generation
    return Plan(steps, None if is_noted else {"observedGeneration": generation})


def _deletion(desired: Migration, observed: MigrationObserved, draft: Draft) -> Plan:
    """Before any stream is handed, deletion calls it off first. After that it stops nothing on the brokers, and says so."""
    if FINALIZER not in desired.metadata.finalizers:
        return Plan()
    state = observed.state
    if state is None and observed.state_error is None:
        return Plan((_let_go(desired),))
    if state is None:
        assert observed.state_error is not None
        if observed.blue.is_gone:
            told = f"{observed.blue.deleted}: there is nobody to call it off with; streams that were handed over by then are on green"
            return Plan((_let_go(desired, Note.done(EventReason.MIGRATION_RELEASED, told)),))
        reason, why = observed.state_error
        told = (
            f"deletion waits for blue, to call the migration off if no stream is handed: {why}; where blue is gone for good, remove the finalizer "
            f"{FINALIZER}"
        )
        draft.wait((reason, told))
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    draft.follow(state)
    if state.is_aborted or state.is_done:
        return Plan((_let_go(desired),))
    if state.is_cancelled:
        draft.block(blocked(desired, observed, state))
        message = f"deletion waits until it is called off: {stages_text(state.stages)}"
        draft.enter("Aborting", Reason.ABORT_ASKED, message, ready=False)
        return draft.plan(recheck_after_ms=RUNNING_RECHECK_MS)
    if state.stages.handed or state.stages.on_green or state.is_final:
        told = (
            f"deleted after streams were handed over ({stages_text(state.stages)}): nothing is stopped on the brokers, which go on and forward for clients. "
            f"Blue's brokers know it as {desired.id}; a Migration can't be made for it again"
        )
        return Plan((_let_go(desired, Note.done(EventReason.MIGRATION_RELEASED, told)),))
    if observed.refusal is not None:
        draft.wait((Reason.REFUSED_BY_BROKERS, f"deletion waits: {observed.refusal}"))
        return draft.plan(recheck_after_ms=WAITING_RECHECK_MS)
    return draft.plan(AbortMigration(desired.id))
