"""Steps of a Stream, and of a StreamMove, on the brokers."""

from __future__ import annotations

from collections.abc import Awaitable

from supercluster.api.common import Resource
from supercluster.reconcilers.execute.checks import no_brokers_have_it
from supercluster.reconcilers.execute.objects import finalizers
from supercluster.reconcilers.execute.tools import (
    HandedOverError,
    StepHandlers,
    StepRefusedError,
    Tools,
    with_brokers,
)
from supercluster.reconcilers.observe.handed import handed_over
from supercluster.reconcilers.planners.plan import (
    CancelMove,
    CreateStream,
    DeleteStream,
    ForceRecovery,
    SetFinalizers,
    StartMove,
    UpdateStream,
)
from supercluster.reconcilers.planners.stream.config import changed_fields, in_its_place, mark_of
from supercluster.reconcilers.planners.stream.subjects import first_overlap
from supercluster.reconcilers.ports import BrokersRefusedError, BrokerTarget, Json, mapping

SUBJECTS_OVERLAP = 10065


async def _check_ours(tools: Tools, target: BrokerTarget, name: str) -> None:
    """Asked of the brokers before each step: what a look saw may be a second old, and a call about a stream that was handed over would
    reach the other super-cluster's."""
    answer = (await tools.brokers.handed_streams(target)).get(name)
    if answer is not None:
        raise HandedOverError(f"stream {name}: {handed_over(answer).text}")


async def _create(tools: Tools, _: Resource, step: CreateStream, target: BrokerTarget) -> None:
    await _check_ours(tools, target, step.config["name"])
    await _judged(tools, tools.brokers.create_stream(target, step.config), step, target)


async def _update(tools: Tools, _: Resource, step: UpdateStream, target: BrokerTarget) -> None:
    # A move or another count of replicas may have begun or ended since the look; an update with what was there before
    # would be a request to take it back.
    await _check_ours(tools, target, step.config["name"])
    now = await tools.brokers.stream_info(target, step.config["name"])
    config = in_its_place(step.config, mapping((now or {}).get("config")))
    answer = await _judged(tools, tools.brokers.update_stream(target, config), step, target)
    left = [field for field in changed_fields(config, mapping(answer.get("config"))) if field in step.fields]
    if left:
        raise StepRefusedError(
            f"the brokers took an update of {', '.join(step.fields)} and did not change: {', '.join(left)}"
        )


async def _delete(tools: Tools, resource: Resource, step: DeleteStream, target: BrokerTarget) -> None:
    await _check_ours(tools, target, step.name)
    await tools.destroyer.delete_stream(resource, step, target)


async def _recover(tools: Tools, _: Resource, step: ForceRecovery, target: BrokerTarget) -> None:
    await _check_ours(tools, target, step.stream)
    await tools.brokers.recover_stream(target, step.stream, step.node, step.accepted_sequence, step.id)


async def _judged(
    tools: Tools, answer: Awaitable[Json], step: CreateStream | UpdateStream, target: BrokerTarget
) -> Json:
    """The answer; a refusal for overlapping subjects with the names of both sides, which NATS's error does not have."""
    try:
        return await answer
    except BrokersRefusedError as error:
        if error.err_code != SUBJECTS_OVERLAP:
            raise
        name, subjects = step.config["name"], step.config.get("subjects") or ()
        for info in await tools.brokers.stream_infos(target):
            other = mapping(info.get("config"))
            pair = first_overlap(subjects, other.get("subjects") or ())
            if other.get("name") != name and pair is not None:
                mark = mark_of(other)
                whose = f"declared by Stream {mark}" if mark else "which no resource declares"
                raise StepRefusedError(
                    f"spec.subjects has {pair[0]}, which overlaps with {pair[1]} of stream {other.get('name')}, {whose}; "
                    "a subject belongs to one stream: narrow one of the two"
                ) from error
        raise


async def _start_move(tools: Tools, _: Resource, step: StartMove, target: BrokerTarget) -> None:
    await _check_ours(tools, target, step.stream)
    await tools.brokers.start_move(target, step.stream, step.id, step.goal, step.bytes_per_s, step.nodes)


async def _cancel_move(tools: Tools, _: Resource, step: CancelMove, target: BrokerTarget) -> None:
    await tools.brokers.cancel_move(target, step.stream, step.id)


STREAM_STEPS: StepHandlers = {
    SetFinalizers: finalizers(no_brokers_have_it),
    CreateStream: with_brokers(_create),
    UpdateStream: with_brokers(_update),
    DeleteStream: with_brokers(_delete),
    ForceRecovery: with_brokers(_recover),
}
STREAM_MOVE_STEPS: StepHandlers = {
    StartMove: with_brokers(_start_move),
    CancelMove: with_brokers(_cancel_move),
}
