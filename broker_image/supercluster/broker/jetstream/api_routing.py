"""Who answers which API call, and what a broker answers by itself from the map of streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream import (
    account_calls,
    api,
    api_answers,
    broker_calls,
    cordon_calls,
    errors,
    move_calls,
    recovery_calls,
)
from supercluster.broker.jetstream.acks import parse_ack_subject
from supercluster.broker.jetstream.answer_book import Known
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.filters import overlaps
from supercluster.broker.jetstream.frames import (
    Frame,
    Request,
    ResponseStatus,
    encode_request,
    encode_response,
)
from supercluster.broker.jetstream.meta_group import MetaGroup
from supercluster.broker.jetstream.meta_requests import Decided, StreamRequest
from supercluster.broker.jetstream.move_plan import MovePlan
from supercluster.broker.jetstream.push import parse_flow_subject
from supercluster.broker.jetstream.requests import continue_payload, publish_answer
from supercluster.broker.jetstream.stream_group import StreamGroup
from supercluster.broker.ports import ClientInfo
from supercluster.broker.raft.errors import DiskError

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core import BrokerCore

_META_VERBS = {
    api.StreamCreateRequest: "create",
    api.StreamUpdateRequest: "update",
    api.StreamDeleteRequest: "delete",
    api.StreamMoveCancelRequest: "cancel_move",
    api.StreamPeerRemoveRequest: "remove_peer",
}
_META_KINDS = frozenset({"stream_create", "stream_update", "stream_delete", "stream_remove_peer"})
_INFO_WAIT_MS = 1000


def group_of_ack(core: BrokerCore, account: str, subject: bytes) -> str | None:
    """The group of the stream that the subject of an acknowledgement, or of an answer to flow control, names."""
    flow = parse_flow_subject(subject)
    if flow is not None:
        return _group_of(core, account, flow[0])
    found = parse_ack_subject(subject)
    return _group_of(core, account, found.stream) if found is not None else None


def _group_of(core: BrokerCore, account: str, stream: str) -> str | None:
    if core.meta is None:
        return None
    found = core.meta.state.streams.get((account, stream))
    return found.group if found is not None else None


def unavailable(core: BrokerCore, request: Request) -> bytes:
    """The answer when nobody could answer in time: it names the clusters without which nobody can."""
    refusal = core.surroundings.not_available(request.group)
    return api_answers.error_answer(api.answer_kind(request.subject), refusal)


def not_there(subject: bytes) -> bytes:
    """The answer when the stream was deleted while a request about it was under way."""
    return api_answers.error_answer(api.answer_kind(subject), errors.error(10059))


def successor(core: BrokerCore, request: Request) -> str | None:
    """The group that has the stream now of whose group the request was: one that began anew."""
    stream = api.stream_of(request.subject)
    account = api.account_of(request.subject, request.info.account)
    return _group_of(core, account, stream) if stream else None


_DELETIONS = {"stream_delete": 10059, "consumer_delete": 10014, "stream_msg_delete": 10043}


def done_before(subject: bytes, answer: bytes) -> bytes:
    """The answer to a request that an earlier leader may have carried out: what it was to delete is gone."""
    kind = api.answer_kind(subject)
    if kind in _DELETIONS and api_answers.err_code_of_answer(answer) == _DELETIONS[kind]:
        return api_answers.success_answer(kind)
    return answer


def route(
    core: BrokerCore, info: ClientInfo, subject: bytes, reply: bytes, header: bytes, payload: bytes
) -> None:
    """A client of this broker calls the API."""
    kind = api.answer_kind(subject)
    now_ms = core.clock.monotonic_ms()
    try:
        if kind == "account_info":
            api.parse_api(subject, payload)
            core.account_infos.ask(info, lambda answer: _answer_here(core, info, subject, reply, answer))
        elif kind in ("stream_names", "stream_list"):
            _list(core, info, subject, reply, payload, kind)
        elif kind in _META_KINDS:
            api.parse_api(subject, payload)  # What is wrong by itself is refused here.
            core.requests.send(core.meta_id, info, subject, reply, b"", payload, now_ms)
        else:
            stream = api.stream_of(subject)
            group = _group_of(core, info.account, stream)
            if not stream or not api.is_supported(subject):
                api.parse_api(subject, payload)
            if group is None:
                raise _unknown(core)
            core.requests.send(group, info, subject, reply, b"", payload, now_ms)
    except ApiError as refused:
        request = Request("", 0, "", info, subject, reply, b"", b"")
        answer = api_answers.error_answer(kind, refused)
        core.account_infos.answered(info.account, subject, answer)
        publish_answer(core.network, request, answer)


def _unknown(core: BrokerCore) -> ApiError:
    """The map has no such stream; one that may be old says nothing of streams that were made since."""
    return errors.error(10059) if core.map.is_fresh else core.surroundings.not_available()


def _answer_here(core: BrokerCore, info: ClientInfo, subject: bytes, reply: bytes, answer: bytes) -> None:
    core.account_infos.answered(info.account, subject, answer)
    if reply:
        core.network.publish(info.account, reply, b"", b"", answer)


def _list(
    core: BrokerCore, info: ClientInfo, subject: bytes, reply: bytes, payload: bytes, kind: str
) -> None:
    call = api.parse_api(subject, payload)
    assert isinstance(call, api.StreamNamesRequest | api.StreamListRequest)
    streams = [
        found
        for found in (core.meta.state.of_account(info.account) if core.meta is not None else ())
        if not call.subject or any(overlaps(call.subject, mine) for mine in found.config.subjects)
    ]
    # As NATS's servers do without a leader: a list that lacks streams misleads. A stream that was found is there, and its
    # name is all that a client needs who subscribes to a subject of it.
    if not core.map.is_fresh and not (kind == "stream_names" and call.subject and streams):
        raise core.surroundings.not_available()
    if kind == "stream_names":
        names = api_answers.stream_names_answer([s.name for s in streams], call.offset)
        _answer_here(core, info, subject, reply, names)
        return
    _Listing(core, info, subject, reply, call.offset, [s.name for s in streams]).start()


class _Listing:
    """STREAM.LIST: asks each stream's leader for its information; those that don't answer in time are left out of
    the page but counted, as NATS does with streams that are offline."""

    def __init__(
        self,
        core: BrokerCore,
        info: ClientInfo,
        subject: bytes,
        reply: bytes,
        offset: int,
        names: list[str],
    ) -> None:
        self._core = core
        self._info = info
        self._subject = subject
        self._reply = reply
        self._offset = offset
        self._names = names
        self._found: dict[str, dict[str, Any]] = {}
        self._left = 0

    def start(self) -> None:
        page = self._names[self._offset : self._offset + api_answers.LIST_PAGE]
        self._left = len(page)
        if not page:
            self._answer()
        for name in page:
            group = _group_of(self._core, self._info.account, name)
            if group is None:
                self._took(name, None)
                continue
            self._core.requests.send(
                group,
                self._info,
                b"$JS.API.STREAM.INFO." + name.encode(),
                b"",
                b"",
                b"",
                self._core.clock.monotonic_ms(),
                on_answer=lambda answer, name=name: self._took(name, answer),  # type: ignore[misc]
                wait_ms=_INFO_WAIT_MS,
            )

    def _took(self, name: str, answer: bytes | None) -> None:
        self._left -= 1
        if answer is not None:
            info = api_answers.info_of_answer(answer)
            if info is not None:
                self._found[name] = info
        if self._left == 0:
            self._answer()

    def _answer(self) -> None:
        infos = [self._found[name] for name in self._names if name in self._found]
        answer = api_answers.stream_list_page(infos, total=len(self._names), offset=self._offset)
        _answer_here(self._core, self._info, self._subject, self._reply, answer)


def answer(core: BrokerCore, node: str, request: Request, now_ms: int) -> None:
    """A broker asks this one, as the leader of the request's group."""

    asked = (node, request.origin, request.number)

    def send(status: ResponseStatus, payload: bytes = b"") -> None:
        core.post(node, Frame.RESPONSE, encode_response(request.origin, request.number, status, payload))

    def respond(payload: bytes | None) -> None:
        status = ResponseStatus.ANSWER if payload is not None else ResponseStatus.TAKEN
        settle(status, payload or b"")

    def settle(status: ResponseStatus, payload: bytes) -> None:
        core.answers.answered(asked, status, payload)
        send(status, payload)

    def undecided() -> None:
        core.answers.dropped(asked)
        send(ResponseStatus.UNDECIDED)

    def give_back(left: bytes) -> None:
        core.post(node, Frame.PULL_BACK, encode_request(replace(request, payload=left)))

    group = core.groups.get(request.group)
    if isinstance(group, StreamGroup) and group.has_no_voter:
        refusal = errors.no_voter_left(group.assignment.name, core.node)
        send(ResponseStatus.ANSWER, api_answers.error_answer(api.answer_kind(request.subject), refusal))
        return
    if group is None or not group.serves:
        send(ResponseStatus.NOT_LEADER)
        return
    known = core.answers.begin(asked)
    if isinstance(known, tuple):
        send(ResponseStatus(known[0]), known[1])
    elif known is Known.UNDER_WAY:
        return
    elif isinstance(group, StreamGroup):
        try:
            group.request(request, respond, undecided, give_back)
        except DiskError as error:
            group.fail(error)
            undecided()
    elif isinstance(group, MetaGroup) and broker_calls.is_internal(request.subject):
        broker_calls.answer(group, request, settle, undecided)
    elif isinstance(group, MetaGroup) and cordon_calls.is_internal(request.subject):
        cordon_calls.answer(group, request, settle, undecided)
    elif isinstance(group, MetaGroup) and account_calls.is_internal(request.subject):
        account_calls.answer(group, request, settle, undecided)
    elif isinstance(group, MetaGroup) and recovery_calls.is_internal(request.subject):
        recovery_calls.answer(group, request, settle, undecided)
    elif isinstance(group, MetaGroup) and move_calls.is_internal(request.subject):
        move_calls.answer(group, node, request, settle, undecided)
    elif isinstance(group, MetaGroup):
        _meta_request(group, node, request, settle, undecided, core.settings.move_bytes_per_s)


def _meta_request(
    meta: MetaGroup,
    node: str,
    request: Request,
    settle: Callable[[ResponseStatus, bytes], None],
    undecided: Callable[[], None],
    move_bytes_per_s: int,
) -> None:
    kind = api.answer_kind(request.subject)

    def respond(outcome: Decided | MovePlan | ApiError | None) -> None:
        if outcome is None:
            undecided()
            return
        if isinstance(outcome, ApiError):
            status, payload = ResponseStatus.ANSWER, api_answers.error_answer(kind, outcome)
        elif kind in ("stream_delete", "stream_remove_peer"):
            status, payload = ResponseStatus.ANSWER, api_answers.success_answer(kind)
        else:
            assert isinstance(outcome, Decided)
            status, payload = (
                ResponseStatus.CONTINUE,
                continue_payload(outcome.assignment.group, outcome.version),
            )
        settle(status, payload)

    try:
        call = api.parse_api(request.subject, request.payload)
    except ApiError as refused:
        respond(refused)
        return
    config = call.config if isinstance(call, api.StreamCreateRequest | api.StreamUpdateRequest) else None
    meta.request(
        StreamRequest(
            _META_VERBS[type(call)],
            request.info,
            call.stream,
            config,
            respond,
            asked_at=node,
            account=api.account_of(request.subject, ""),
            peer=call.peer if isinstance(call, api.StreamPeerRemoveRequest) else "",
            bytes_per_s=move_bytes_per_s,
        )
    )


def jsz(core: BrokerCore) -> dict[str, Any]:
    """What /jsz shows beside the streams."""
    meta = core.meta
    return {
        "meta": {
            "leader": core.leader_of(core.meta_id) or "",
            "is_leader": meta is not None and meta.serves,
            "term": meta.raft.term if meta is not None else 0,
            "applied_index": meta.applied_index if meta is not None else 0,
            "voters": list(meta.raft.membership.voters) if meta is not None else [],
            "learners": list(meta.raft.membership.learners) if meta is not None else [],
            "lost_clusters": core.surroundings.troubles,
            "map_is_fresh": core.map.is_fresh,
        },
        "windows": {
            window.stream: window.unconfirmed for window in core.ingest.windows.values() if window.unconfirmed
        },
        "requests_pending": len(core.requests),
        "publishes_given_up": core.ingest.given_up_total,
    }


def jsz_streams(core: BrokerCore) -> Iterator[dict[str, Any]]:
    """Every stream that this broker holds a replica of; those that come or go while somebody reads may be left out."""
    for group_id in list(core.groups):
        group = core.groups.get(group_id)
        if isinstance(group, StreamGroup):
            yield _jsz_stream(core, group)


def _jsz_stream(core: BrokerCore, group: StreamGroup) -> dict[str, Any]:
    from supercluster.broker.jetstream import stream_api

    return {
        "account": group.assignment.account,
        "name": group.assignment.name,
        "group": group.id,
        "leader": core.leader_of(group.id) or "",
        "is_leader": group.serves,
        "term": group.raft.term,
        "commit_index": group.raft.commit_index,
        "last_index": group.log.last_index,
        "quiesced": group.raft.quiesced,
        "failed": str(group.failed) if group.failed is not None else "",
        "config": group.state.config.to_json(),
        "state": stream_api.state_info(group.state).to_json(),
        "cluster": stream_api.cluster_info(group).to_json(),
        "bytes_on_disk": group.log.bytes_on_disk(),
        "window_unconfirmed": core.ingest.unconfirmed(group.id),
    }
