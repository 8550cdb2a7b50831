"""A round: observe, plan, execute one step, repeat until there is none, and patch the status.

A round that is interrupted anywhere leaves no state that the next one could not observe.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from supercluster.api import API_VERSION
from supercluster.api.common import Resource
from supercluster.api.conditions import ConditionType, EventReason, Reason
from supercluster.reconcilers.execute.destructive import HeldError
from supercluster.reconcilers.execute.executor import Executor
from supercluster.reconcilers.execute.tools import HandedOverError, StepRefusedError
from supercluster.reconcilers.handlers.repair_counts import RepairCounts
from supercluster.reconcilers.handlers.status_writes import StatusWrites
from supercluster.reconcilers.kinds.reconcilers import RECONCILERS, Reconcilers
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.context import Attempt, Context
from supercluster.reconcilers.observe.credential_reports import CredentialReports
from supercluster.reconcilers.observe.handed import HandedStreams
from supercluster.reconcilers.observe.lists import StreamLists
from supercluster.reconcilers.observe.refused_creates import RefusedCreates
from supercluster.reconcilers.observe.repairs import Hosts
from supercluster.reconcilers.observe.stream_figures import StreamFigures
from supercluster.reconcilers.observe.targets import broker_target
from supercluster.reconcilers.observe.waiting_moves import WaitingMoves
from supercluster.reconcilers.planners.cluster.manifests import OperatorDefaults
from supercluster.reconcilers.planners.kstatus import with_kstatus
from supercluster.reconcilers.planners.plan import Note, Plan, SetAside, Step
from supercluster.reconcilers.planners.status import Conditions, conditions_of, status_patch, with_held
from supercluster.reconcilers.planners.strategies import BUILT_IN, Strategy
from supercluster.reconcilers.ports import (
    Brokers,
    BrokersRefusedError,
    BrokersUnreachableError,
    Clock,
    Key,
    Kube,
    KubeError,
    mapping,
)
from supercluster.reconcilers.worker import Outcome

log = logging.getLogger(__name__)

# A cluster takes seven steps from nothing. A round that goes on beyond this many is going in circles.
STEPS_PER_ROUND_MAX = 24
# Without another look; it is a bound on how old the look may be by which the last of them is taken.
STEPS_IN_A_ROW_MAX = 32
# As much of a value that does not fit is repeated to its author.
VALUE_CHARS_MAX = 100


@dataclass(slots=True)
class Counters:
    """For /metrics."""

    rounds: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    repairs: RepairCounts = field(default_factory=RepairCounts)
    status_writes: Counter[str] = field(default_factory=Counter)
    """By kind of resource."""
    streams: StreamFigures = field(default_factory=StreamFigures)


@dataclass(slots=True)
class Rounds:
    """What every round needs."""

    kube: Kube
    brokers: Brokers
    cache: ObjectCache
    executor: Executor
    clock: Clock
    defaults: OperatorDefaults
    counters: Counters = field(default_factory=Counters)
    strategies: Mapping[str, Strategy] = field(default_factory=lambda: BUILT_IN)
    """By the names that spec.placementStrategy has."""
    reconcilers: Reconcilers = field(default_factory=lambda: RECONCILERS)
    _context: Context = field(init=False)
    _writes: StatusWrites = field(init=False)

    def __post_init__(self) -> None:
        self._context = Context(
            self.cache,
            self.brokers,
            Hosts(self.kube, self.clock),
            StreamLists(self.brokers, self.clock),
            WaitingMoves(),
            RefusedCreates(self.clock),
            self.counters.streams,
            HandedStreams(self.brokers, self.clock),
            CredentialReports(self.brokers, self.clock),
            self.defaults,
            self.strategies,
        )
        self._writes = StatusWrites(self.clock, self.reconcilers)

    async def reconcile(self, key: Key) -> Outcome:
        """One round of one resource."""
        self.counters.rounds[key.kind] += 1
        refusal, refusal_code = None, 0
        aside: list[SetAside] = []
        for _ in range(STEPS_PER_ROUND_MAX):
            body = self.cache.get(key.kind, key.namespace, key.name)
            if body is None:
                self._writes.forget(key)
                self._context.waiting.forget(key)
                self.counters.streams.forget(key)
                return Outcome(gone=True)
            try:
                resource = self.cache.parsed(self.reconcilers[key.kind].kind.model, key.namespace, key.name)
            except ValidationError as error:
                return await self._tell_invalid(key, body, error)
            assert resource is not None
            plan = await self._plan(resource, Attempt(refusal, refusal_code, aside=tuple(aside)))
            if not plan.steps or refusal is not None:
                held = next((each.held for each in aside if each.held), None)
                is_kept = await self._tell(key, body, plan, held=held)
                has_refusal = refusal is not None
                return Outcome(
                    plan.recheck_after_ms if not has_refusal and is_kept else None,
                    failed=has_refusal or bool(aside) or not is_kept,
                )
            step = plan.steps[0]
            row = plan.steps[: min(plan.in_a_row, STEPS_IN_A_ROW_MAX)]
            try:
                if plan.goes_on:
                    failed = await self._carry_out_each(key, body, resource, row)
                    aside += failed
                    if failed:
                        continue
                else:
                    for step in row:
                        await self._carry_out(key, body, resource, step)
            except HeldError as error:
                await self._note_held(key, step, error)
                await self._tell(key, body, plan, held=f"{step}: {error}")
                return Outcome(failed=True)
            except HandedOverError as error:
                self._context.handed.forget(key.namespace, resource.super_cluster)
                refusal = str(error)
            except StepRefusedError as error:
                refusal = str(error)
            except BrokersRefusedError as error:
                if error.is_passing:
                    told = await self._plan(resource, Attempt(failure=str(error)))
                    return await self._fail(key, body, told, step, error)
                refusal, refusal_code = f"{step}: {error}", error.err_code
            except KubeError as error:
                if not error.is_invalid:
                    return await self._fail(key, body, plan, step, error)
                refusal = f"{step}: {error}"
            except BrokersUnreachableError as error:
                return await self._fail(key, body, plan, step, error)
            else:
                if plan.wait_after_step:
                    is_kept = await self._tell(key, body, plan)
                    return Outcome(plan.recheck_after_ms, failed=bool(aside) or not is_kept)
        log.warning(
            "a round did not come to an end", extra={"resource": str(key), "steps": STEPS_PER_ROUND_MAX}
        )
        return Outcome(failed=True)

    async def _carry_out_each(
        self, key: Key, body: Mapping[str, Any], resource: Resource, steps: Sequence[Step]
    ) -> list[SetAside]:
        """All of these, whatever becomes of those before; the ones that failed."""
        failed: list[SetAside] = []
        for step in steps:
            if any(each.is_about(step) for each in failed):
                continue
            try:
                await self._carry_out(key, body, resource, step)
            except HeldError as error:
                await self._note_held(key, step, error)
                failed.append(SetAside(step, held=f"{step}: {error}"))
            except (StepRefusedError, BrokersRefusedError, KubeError, BrokersUnreachableError) as error:
                if isinstance(error, KubeError) and self._context.refused.note(step, error):
                    log.warning(
                        "not made", extra={"resource": str(key), "step": str(step), "error": str(error)}
                    )
                    continue
                refusal = _refusal(step, error)
                failure = "" if refusal else str(error)
                failed.append(SetAside(step, refusal, is_for_kind=_is_no_answer(error), failure=failure))
                if not refusal:
                    await self._note_failure(key, body, step, error)
        return failed

    async def _plan(self, resource: Resource, attempt: Attempt) -> Plan:
        reconciler = self.reconcilers[type(resource).__name__]
        return await reconciler.next_plan(self._context, resource, attempt, self.clock.now())

    async def _carry_out(self, key: Key, body: Mapping[str, Any], resource: Resource, step: Step) -> None:
        target = broker_target(self.cache, key.namespace, resource.super_cluster)
        log.info("step", extra={"resource": str(key), "step": str(step)})
        await self.executor.run(resource, step, target, self.reconcilers[key.kind].steps)
        self.counters.steps[type(step).__name__] += 1
        if step.note is not None:
            await self.kube.emit(body, step.note)

    async def _note_held(self, key: Key, step: Step, error: HeldError) -> None:
        self.counters.failures[key.kind] += 1
        log.warning("step held", extra={"resource": str(key), "step": str(step), "error": str(error)})

    async def _tell(self, key: Key, body: Mapping[str, Any], plan: Plan, held: str | None = None) -> bool:
        """Events of the plan, then its status; an object that is gone needs neither. `held`: why a step of the plan waits.

        False: the API server drops what is written, so that looking again soon is no use."""
        now = self.clock.now()
        patch, note = with_held(body, plan.status_patch, held, now)
        patch = with_kstatus(body, patch, now)
        status = mapping(body.get("status"))
        if patch is not None and not self._writes.is_due(key, status, patch):
            # Events tell of changes of the status: they come with it.
            return not self._writes.drops(key, patch)
        for each in (*plan.notes, *([note] if note is not None else [])):
            await self.kube.emit(body, each)
        if patch is None:
            return True
        try:
            patched = await self.kube.merge_patch(
                API_VERSION, key.kind, key.namespace, key.name, {"status": patch}, status=True
            )
        except KubeError as error:
            if error.status != 404:
                raise
            return True
        self.counters.status_writes[key.kind] += 1
        self.counters.repairs.note(body, patched)
        dropped = self._writes.wrote(key, status, patch, patched)
        self.cache.wrote(patched)
        if dropped:
            log.warning(
                "the API server drops fields of a status: its definition of the kind is older than this operator",
                extra={"resource": str(key), "fields": sorted(dropped)},
            )
        return not self._writes.drops(key, patch)

    async def _fail(
        self, key: Key, body: Mapping[str, Any], plan: Plan, step: Step, error: Exception
    ) -> Outcome:
        """A step that may succeed later."""
        if not _is_stale(error):
            await self._tell(key, body, plan)
        await self._note_failure(key, body, step, error)
        return Outcome(failed=True)

    async def _note_failure(self, key: Key, body: Mapping[str, Any], step: Step, error: Exception) -> None:
        """A stale look is no failure worth telling: the next one is fresh."""
        if _is_stale(error):
            log.info("stale look", extra={"resource": str(key), "step": str(step)})
            return
        self.counters.failures[key.kind] += 1
        log.warning("step failed", extra={"resource": str(key), "step": str(step), "error": str(error)})
        if not isinstance(error, BrokersUnreachableError | BrokersRefusedError):
            await self.kube.emit(body, Note.done(EventReason.STEP_FAILED, f"{step}: {error}"))

    async def _tell_invalid(self, key: Key, body: Mapping[str, Any], error: ValidationError) -> Outcome:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'])} is {str(problem['input'])[:VALUE_CHARS_MAX]}: {problem['msg']}"
            for problem in error.errors()[:5]
        )
        old = conditions_of(map(mapping, mapping(body.get("status")).get("conditions") or ()))
        generation = int(mapping(body.get("metadata")).get("generation", 1))
        conditions = Conditions(old, generation, self.clock.now())
        for type_ in (ConditionType.ACCEPTED, ConditionType.READY):
            conditions.put(type_, False, Reason.INVALID_OBJECT, problems)
        status = {"conditions": [condition.to_object() for condition in conditions.result()]}
        patch = status_patch({"conditions": [c.to_object() for c in old]}, status)
        await self._tell(key, body, Plan(status_patch=patch, notes=conditions.notes()))
        return Outcome()


def _is_stale(error: Exception) -> bool:
    return isinstance(error, KubeError) and error.status == 409


def _is_no_answer(error: Exception) -> bool:
    """Did the error say nothing of this one step? Kubernetes or the brokers can't carry any of its kind out just now."""
    match error:
        case BrokersUnreachableError():
            return True
        case BrokersRefusedError():
            return error.is_passing
        case KubeError():
            return not 400 <= error.status < 500 or error.status == 429
    return False


def _refusal(step: Step, error: Exception) -> str:
    """Why trying the step again is no use; empty: it may succeed later."""
    if isinstance(error, StepRefusedError):
        return str(error)
    is_final = (isinstance(error, BrokersRefusedError) and not error.is_passing) or (
        isinstance(error, KubeError) and error.is_invalid
    )
    return f"{step}: {error}" if is_final else ""
