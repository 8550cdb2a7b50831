"""The parts of a running migration that wait for an administrator, and the remedy for each."""

from __future__ import annotations

from supercluster.api import Migration
from supercluster.api.conditions import Reason
from supercluster.reconcilers.planners.migration.draft import stages_text
from supercluster.reconcilers.planners.migration.views import MigrationObserved, MigrationView, Trouble


def blocked(desired: Migration, observed: MigrationObserved, state: MigrationView) -> Trouble | None:
    """The first that applies."""
    return (
        _missing_side(desired, observed, state)
        or _other_green(desired, observed, state)
        or _silent_green(desired, state)
        or _empty_scope(desired, state)
    )


def _missing_side(desired: Migration, observed: MigrationObserved, state: MigrationView) -> Trouble | None:
    """Blue's or green's resource goes while streams are on their way, or blue's copies are needed."""
    told = "; ".join(view.deleted for view in (observed.blue, observed.green) if view.deleted)
    if not told:
        return None
    way_back = "" if state.is_on_green or state.is_final else "set spec.abort to true to keep blue, or "
    name = desired.metadata.name
    return Reason.SUPER_CLUSTER_DELETED, (
        f"{told}, and Migration {name} needs it ({stages_text(state.stages)}): {way_back}let it come to its end, which spec.finalize brings about; "
        "its brokers and its finalizer stay until then"
    )


def _other_green(desired: Migration, observed: MigrationObserved, state: MigrationView) -> Trouble | None:
    """Green was made anew, or its address leads to somebody else."""
    began, now = desired.status.green, observed.green.told
    if began is None or now is None or began.identity == now.identity or state.is_final:
        return None
    way_back = (
        "blue keeps its copies until it is back"
        if state.is_on_green
        else "or set spec.abort to true: streams that are not handed over stay on blue"
    )
    return Reason.OTHER_IDENTITY, (
        f"{desired.spec.green.text} answers with identity {now.identity}, and the migration was started with {began.identity} "
        f"({stages_text(state.stages)}): bring that one back with its volumes; {way_back}"
    )


def _silent_green(desired: Migration, state: MigrationView) -> Trouble | None:
    """It is called off, and a stream that was handed over waits for green's refusal, without which two sides might take writes."""
    first = next((each for each in state.stalled if each.stage == "handed"), None)
    if not state.is_cancelled or not state.stages.handed or first is None:
        return None
    return Reason.GREEN_UNREACHABLE, (
        f"{state.stages.handed} stream(s) were handed over, and blue takes one back only when green has refused it: {first.name}: {first.reason}. Bring "
        f"green back; where it is gone for good, take each back by POST /admin/migrations/{desired.id}/takeback on blue (docs/admin.md), "
        "which loses what green has taken since"
    )


def _empty_scope(desired: Migration, state: MigrationView) -> Trouble | None:
    """All of its streams were deleted since it was started, so nothing will ever be open on green."""
    if state.stages.total or state.is_cancelled or state.is_final:
        return None
    scope = f"account {desired.spec.scope.account}" if desired.spec.scope.account else "any account"
    return Reason.SCOPE_EMPTY, (
        f"no stream of {scope} is left that could go: they were deleted since the start; set spec.abort to true to end the migration, or create "
        "a stream, which goes over"
    )
