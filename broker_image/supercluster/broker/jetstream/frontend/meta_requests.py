"""Requests of other brokers to the meta group's leader: API calls that change the map of streams, and
internal ones.

No client can publish to the subjects of internal calls. Each kind has a module of its own.
"""

from __future__ import annotations

from typing import Protocol

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.admin import (
    accounts,
    broker_calls,
    cordons,
    migration_calls,
    moves,
    stream_recovery,
)
from supercluster.broker.jetstream.admin.call import MetaCall
from supercluster.broker.jetstream.api import answers, parser, requests
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.frontend import restore_chunks
from supercluster.broker.jetstream.links.frames import ResponseStatus
from supercluster.broker.jetstream.meta_leader.map_leader import MapLeader
from supercluster.broker.jetstream.meta_leader.stream_request import Decided, Fallen, StreamRequest
from supercluster.broker.jetstream.node.pending_requests import continue_payload
from supercluster.broker.jetstream.placement.dry_run import MovePlan
from supercluster.broker.jetstream.stream.step_down import step_down


class _Internal(Protocol):
    """A module of internal calls."""

    def is_internal(self, subject: bytes) -> bool: ...

    def answer(self, meta: MapLeader, call: MetaCall) -> None: ...


_INTERNAL: tuple[_Internal, ...] = (
    broker_calls,
    cordons,
    accounts,
    stream_recovery,
    restore_chunks,
    moves,
    migration_calls,
)
_META_VERBS = {
    requests.StreamCreateRequest: "create",
    requests.StreamUpdateRequest: "update",
    requests.StreamDeleteRequest: "delete",
    requests.StreamMoveCancelRequest: "cancel_move",
    requests.StreamPeerRemoveRequest: "remove_peer",
    requests.StreamRestoreRequest: "restore",
}


def answer(meta: MapLeader, call: MetaCall, move_bytes_per_s: int) -> None:
    """Answer it, once, here or when it is decided. `move_bytes_per_s` holds for moves that it begins."""
    for module in _INTERNAL:
        if module.is_internal(call.request.subject):
            module.answer(meta, call)
            return
    _change(meta, call, move_bytes_per_s)


def _change(meta: MapLeader, call: MetaCall, move_bytes_per_s: int) -> None:
    """A client's call that changes the map."""
    kind = parser.answer_kind(call.request.subject)

    def respond(outcome: Decided | MovePlan | ApiError | Fallen) -> None:
        if isinstance(outcome, Fallen):
            (call.not_begun if outcome is Fallen.NOT_BEGUN else call.undecided)()
            return
        if isinstance(outcome, ApiError):
            status, payload = ResponseStatus.ANSWER, answers.error_answer(kind, outcome)
        elif kind in ("stream_delete", "stream_remove_peer"):
            status, payload = ResponseStatus.ANSWER, answers.success_answer(kind)
        else:
            assert isinstance(outcome, Decided)
            status, payload = (
                ResponseStatus.CONTINUE,
                continue_payload(outcome.assignment.group, outcome.version),
            )
        call.settle(status, payload)

    try:
        asked = parser.parse_api(call.request.subject, call.request.payload)
        if isinstance(asked, requests.MetaStepDownRequest):
            _step_down(meta, asked)
            call.settle(ResponseStatus.ANSWER, answers.success_answer(kind))
            return
        verb = _META_VERBS.get(type(asked))
        if verb is None:
            raise errors.not_supported(f"{kind} of the map of streams is")
    except ApiError as refused:
        respond(refused)
        return
    brings = requests.StreamCreateRequest | requests.StreamUpdateRequest | requests.StreamRestoreRequest
    config = asked.config if isinstance(asked, brings) else None
    meta.request(
        StreamRequest(
            verb,
            call.request.info,
            asked.stream,
            config,
            respond,
            asked_at=call.node,
            account=parser.account_of(call.request.subject, ""),
            peer=asked.peer if isinstance(asked, requests.StreamPeerRemoveRequest) else "",
            bytes_per_s=move_bytes_per_s,
            pedantic=isinstance(asked, requests.StreamCreateRequest | requests.StreamUpdateRequest)
            and asked.pedantic,
            restore_id=f"{call.request.origin}-{call.request.number}",
        )
    )


def _step_down(meta: MapLeader, call: requests.MetaStepDownRequest) -> None:
    if len(meta.host.brokers_in_contact()) == 1:
        raise errors.error(errors.CLUSTER_REQUIRED)
    step_down(meta, meta.host.tags_of, call.successor)
