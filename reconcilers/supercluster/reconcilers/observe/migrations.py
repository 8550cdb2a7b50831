"""Observes a migration: the answers of blue and green, each from its own address."""

from __future__ import annotations

import asyncio
from datetime import datetime

from supercluster.api import Migration
from supercluster.api.conditions import Reason
from supercluster.api.migration import Finding, PreflightReport, Proof
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.context import Attempt, Context
from supercluster.reconcilers.observe.migration_answers import (
    TEXT_CHARACTERS_MAX,
    blue_stream,
    green_stream,
    migration_view,
    preflight_report,
    text,
)
from supercluster.reconcilers.observe.migration_secrets import shared_by
from supercluster.reconcilers.observe.migration_sides import look_at_side, side_target
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.migration.migration import start_body
from supercluster.reconcilers.planners.migration.preflight import report
from supercluster.reconcilers.planners.migration.views import (
    MigrationObserved,
    MigrationView,
    SideView,
    Trouble,
    compare,
    is_ended,
    needs_proof,
    needs_report,
)
from supercluster.reconcilers.planners.status import timestamp
from supercluster.reconcilers.ports import (
    Brokers,
    BrokersError,
    BrokersRefusedError,
    BrokersUnreachableError,
    BrokerTarget,
    Kube,
)


async def look_at_migration(
    context: Context, desired: Migration, attempt: Attempt, now: datetime
) -> MigrationObserved:
    if is_ended(desired):
        return MigrationObserved()
    cache, kube, brokers = context.cache, context.hosts.kube, context.brokers
    namespace = desired.metadata.namespace
    blue_at, green_at = await asyncio.gather(
        *(side_target(cache, kube, namespace, side) for side in (desired.spec.blue, desired.spec.green))
    )
    (blue, green), (state, state_error) = await asyncio.gather(
        asyncio.gather(
            look_at_side(cache, brokers, namespace, desired.spec.blue, blue_at, now),
            look_at_side(cache, brokers, namespace, desired.spec.green, green_at, now),
        ),
        _state(brokers, blue_at, desired.id),
    )
    made, report_error = None, ""
    shared, sharing_error = await _sharing(cache, kube, desired)
    is_asked = state is None and shared and bool(green.addresses) and needs_report(desired)
    if is_asked and not isinstance(blue_at, tuple):
        made, report_error = await _report(brokers, blue_at, desired, green, now)
    proof, proof_error = None, ""
    if needs_proof(desired, state):
        proof, proof_error = await _proof(brokers, blue_at, green_at, desired.id, now)
    return MigrationObserved(
        blue=blue,
        green=green,
        others=tuple(each for each in cache.all_of(Migration) if each.metadata.uid != desired.metadata.uid),
        is_shared=shared,
        sharing_error=sharing_error,
        report=made,
        report_error=report_error,
        state=state,
        state_error=state_error,
        proof=proof,
        proof_error=proof_error,
        refusal=attempt.refusal,
        refusal_code=attempt.refusal_code,
    )


async def _sharing(cache: ObjectCache, kube: Kube, desired: Migration) -> tuple[bool, Trouble | None]:
    """Have the brokers what links between both sides need? Those of a side that is somewhere else have it from whoever looks after them,
    and preflight says whether it is right."""
    namespace, spec = desired.metadata.namespace, desired.spec
    names = {side.super_cluster: side is spec.blue for side in (spec.green, spec.blue) if side.super_cluster}
    if not names:
        return True, None
    wanted = await shared_by(cache, kube, namespace, spec)
    if isinstance(wanted, tuple):
        return False, wanted
    secrets = {name: cache.get("Secret", namespace, naming.credentials_secret(name)) for name in names}
    return all(wanted.is_in(secrets[name], sends=sends) for name, sends in names.items()), None


async def _state(
    brokers: Brokers, target: BrokerTarget | Trouble, migration_id: str
) -> tuple[MigrationView | None, Trouble | None]:
    if isinstance(target, tuple):
        return None, target
    try:
        answer = await brokers.migration_state(target, migration_id)
    except BrokersError as error:
        return None, (Reason.BROKERS_UNREACHABLE, str(error))
    return (migration_view(answer) if answer is not None else None), None


async def _report(
    brokers: Brokers, target: BrokerTarget, desired: Migration, green: SideView, now: datetime
) -> tuple[PreflightReport | None, str]:
    try:
        answer = await brokers.preflight_migration(target, start_body(desired, green))
    except BrokersRefusedError as error:
        if error.is_passing:
            return None, str(error)
        finding = Finding(level="Refused", code="Refused", message=text(str(error), TEXT_CHARACTERS_MAX))
        return report((finding,), timestamp(now)), ""
    except BrokersUnreachableError as error:
        return None, str(error)
    return preflight_report(answer, now), ""


async def _proof(
    brokers: Brokers,
    blue: BrokerTarget | Trouble,
    green: BrokerTarget | Trouble,
    migration_id: str,
    now: datetime,
) -> tuple[Proof | None, str]:
    """What each side says by itself."""
    for target in (blue, green):
        if isinstance(target, tuple):
            return None, target[1]
    assert not isinstance(blue, tuple)
    assert not isinstance(green, tuple)
    try:
        told = await asyncio.gather(
            brokers.migration_streams(blue, migration_id), brokers.migration_streams(green, migration_id)
        )
    except BrokersError as error:
        return None, str(error)
    on_blue, on_green = told
    return compare(map(blue_stream, on_blue), map(green_stream, on_green), now), ""
