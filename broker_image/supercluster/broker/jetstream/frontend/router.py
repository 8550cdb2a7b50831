"""Who answers which API call, and what a broker answers by itself from the map of streams."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.admin import system_api as administration
from supercluster.broker.jetstream.admin.call import MetaCall
from supercluster.broker.jetstream.api import answers as api_answers
from supercluster.broker.jetstream.api import parser as api
from supercluster.broker.jetstream.backup.archive_format import stream_of as backup_stream_of
from supercluster.broker.jetstream.config import api_level
from supercluster.broker.jetstream.consumer.push import parse_flow_subject
from supercluster.broker.jetstream.encoding.ack_subjects import parse_ack_subject
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.frontend import meta_requests as meta_calls
from supercluster.broker.jetstream.frontend.answer_cache import Known
from supercluster.broker.jetstream.frontend.pending_requests import DIRECT_PREFIX, publish_answer
from supercluster.broker.jetstream.links.frames import (
    Frame,
    Request,
    ResponseStatus,
    encode_request,
    encode_response,
)
from supercluster.broker.jetstream.meta_leader.replica import MetaReplica
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.jetstream.subjects.filters import overlaps
from supercluster.broker.ports import ClientInfo
from supercluster.broker.protocol.subjects import SNAPSHOT_PREFIX
from supercluster.broker.raft.errors import DiskError, FaultError

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core.broker import BrokerCore

_META_KINDS = frozenset(
    {
        "stream_create",
        "stream_update",
        "stream_delete",
        "stream_remove_peer",
        "stream_restore",
        "meta_leader_stepdown",
    }
)
_FOR_CLUSTERS = frozenset({"stream_remove_peer", "stream_leader_stepdown", "consumer_leader_stepdown"})
"""What has no meaning on a server alone, and is refused there before anything else of it is looked at."""
_INFO_WAIT_MS = 1000


def group_of_ack(core: BrokerCore, account: str, subject: bytes) -> str | None:
    """The group of the stream that the subject of an acknowledgement, or of an answer to flow control, names."""
    if subject.startswith(SNAPSHOT_PREFIX):
        return _group_of(core, account, backup_stream_of(subject))
    flow = parse_flow_subject(subject)
    if flow is not None:
        return _group_of(core, account, flow[0])
    found = parse_ack_subject(subject)
    return _group_of(core, account, found.stream) if found is not None else None


def _group_of(core: BrokerCore, account: str, stream: str) -> str | None:
    found = core.stream_of(account, stream)
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


class _OldMapError(Exception):
    """What is asked for is known by a fresh map alone."""


def route(
    core: BrokerCore, info: ClientInfo, subject: bytes, reply: bytes, header: bytes, payload: bytes
) -> None:
    """A client of this broker calls the API."""
    if not api_level.suits(header) and not subject.startswith(DIRECT_PREFIX):
        _refuse(core, info, subject, reply, payload, errors.error(errors.API_LEVEL_REQUIRED))
        return
    try:
        _route(core, info, subject, reply, payload)
    except _OldMapError:
        core.map.when_fresh(lambda: _route(core, info, subject, reply, payload, has_waited=True))


def _route(
    core: BrokerCore,
    info: ClientInfo,
    subject: bytes,
    reply: bytes,
    payload: bytes,
    *,
    has_waited: bool = False,
) -> None:
    kind = api.answer_kind(subject)
    now_ms = core.clock.monotonic_ms()
    try:
        if kind in _FOR_CLUSTERS and _is_alone(core):
            raise errors.error(errors.CLUSTER_REQUIRED)
        if administration.is_administration(subject):
            administration.check_caller(info, subject)
        if kind == "account_info":
            api.parse_api(subject, payload)
            core.account_infos.ask(
                info, lambda answer: _answer_here(core, info, subject, reply, payload, answer)
            )
        elif kind in ("stream_names", "stream_list"):
            _list(core, info, subject, reply, payload, has_waited=has_waited)
        elif kind in ("meta_server_remove", "account_purge"):
            call = api.parse_api(subject, payload)
            assert isinstance(call, api.ServerRemoveRequest | api.AccountPurgeRequest)
            if not core.map.is_fresh:
                raise _not_fresh(core, has_waited=has_waited)
            core.administration.carry_out(
                info, call, lambda answer: _answer_here(core, info, subject, reply, payload, answer)
            )
        elif kind in _META_KINDS:
            api.parse_api(subject, payload)  # What is wrong by itself is refused here.
            core.requests.send(core.meta_id, info, subject, reply, b"", payload, now_ms)
        else:
            stream = api.stream_of(subject)
            if subject.startswith(DIRECT_PREFIX):
                group = core.mirror_reads.whom_to_ask(info.account, stream)
            else:
                group = _group_of(core, info.account, stream)
            if not stream or not api.is_supported(subject):
                api.parse_api(subject, payload)
            if group is None:
                unknown = _unknown(core, has_waited=has_waited)
                if not subject.startswith(DIRECT_PREFIX):
                    _check_request(subject, payload)
                raise unknown
            core.requests.send(group, info, subject, reply, b"", payload, now_ms)
    except ApiError as refused:
        _refuse(core, info, subject, reply, payload, refused)


def _is_alone(core: BrokerCore) -> bool:
    """Is this broker all that there is, now and by the map? One that only lost the others is not."""
    known = core.meta.state.brokers if core.meta is not None else {}
    return len(known) == 1 and len(core.brokers_in_contact()) == 1


def _refuse(
    core: BrokerCore, info: ClientInfo, subject: bytes, reply: bytes, payload: bytes, refused: ApiError
) -> None:
    request = Request("", 0, "", info, subject, reply, b"", b"")
    answer = api_answers.error_answer(api.answer_kind(subject), refused)
    core.audit.answered(info, subject, payload, answer)
    publish_answer(core.network, request, answer)


def not_enabled(core: BrokerCore, info: ClientInfo, subject: bytes, reply: bytes) -> None:
    """An account without JetStream calls its API."""
    request = Request("", 0, "", info, subject, reply, b"", b"")
    answer = api_answers.error_answer(api.answer_kind(subject), errors.error(errors.NOT_ENABLED_FOR_ACCOUNT))
    publish_answer(core.network, request, answer)


def _check_request(subject: bytes, payload: bytes) -> None:
    """What NATS tells of a request before it looks for the stream: that it can't be read, is about something else,
    or does not say where a backup is to go.

    Raises:
        ApiError: that.
    """
    try:
        api.parse_api(subject, payload)
    except ApiError as refused:
        is_unsaid = api.answer_kind(subject) == "stream_snapshot" and refused.err_code == errors.BAD_REQUEST
        if refused.err_code in errors.ABOUT_REQUEST or is_unsaid:
            raise


def _unknown(core: BrokerCore, *, has_waited: bool) -> ApiError:
    """The map has no such stream; one that may be old says nothing of streams that were made since.

    Raises:
        _OldMapError: a fresh one may come soon.
    """
    if core.map.is_fresh:
        return errors.error(10059)
    return _not_fresh(core, has_waited=has_waited)


def _not_fresh(core: BrokerCore, *, has_waited: bool) -> ApiError:
    if not has_waited:
        raise _OldMapError
    return core.surroundings.not_available()


def _answer_here(
    core: BrokerCore, info: ClientInfo, subject: bytes, reply: bytes, payload: bytes, answer: bytes
) -> None:
    core.audit.answered(info, subject, payload, answer)
    if reply:
        core.network.publish(info.account, reply, b"", b"", answer)


def _list(
    core: BrokerCore,
    info: ClientInfo,
    subject: bytes,
    reply: bytes,
    payload: bytes,
    *,
    has_waited: bool,
) -> None:
    call = api.parse_api(subject, payload)
    assert isinstance(call, api.StreamNamesRequest | api.StreamListRequest)
    streams = [
        found
        for found in (core.meta.state.of_account(info.account) if core.meta is not None else ())
        if found.restoring is None
        and (not call.subject or any(overlaps(call.subject, mine) for mine in found.config.subjects))
    ]
    # As NATS's servers do without a leader: a list that lacks streams misleads. A stream that was found is there, and its
    # name is all that a client needs who subscribes to a subject of it.
    if not core.map.is_fresh and not (isinstance(call, api.StreamNamesRequest) and call.subject and streams):
        raise _not_fresh(core, has_waited=has_waited)
    if isinstance(call, api.StreamNamesRequest):
        names = api_answers.stream_names_answer([s.name for s in streams], call.offset)
        _answer_here(core, info, subject, reply, payload, names)
        return
    _Listing(core, info, subject, reply, payload, call, [s.name for s in streams]).start()


class _Listing:
    """STREAM.LIST: asks each stream's leader for its information; those that don't answer in time are left out of
    the page but counted, as NATS does with streams that are offline."""

    def __init__(
        self,
        core: BrokerCore,
        info: ClientInfo,
        subject: bytes,
        reply: bytes,
        payload: bytes,
        call: api.StreamListRequest,
        names: list[str],
    ) -> None:
        self._core = core
        self._info = info
        self._subject = subject
        self._reply = reply
        self._payload = payload
        self._offset = call.offset
        self._with_details = call.details
        self._names = names
        self._found: dict[str, dict[str, Any]] = {}
        self._left = 0

    def start(self) -> None:
        page = self._names[self._offset : self._offset + api_answers.LIST_PAGE]
        self._left = len(page)
        if not page:
            self._answer()
        for name in page:
            self._ask(name)

    def _ask(self, name: str) -> None:
        group = _group_of(self._core, self._info.account, name)
        if group is None:
            self._took(name, None)
            return

        self._core.requests.send(
            group,
            self._info,
            b"$JS.API.STREAM.INFO." + name.encode(),
            b"",
            b"",
            json.dumps({api.DETAILS: True}).encode() if self._with_details else b"",
            self._core.clock.monotonic_ms(),
            on_answer=partial(self._took, name),
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
        _answer_here(self._core, self._info, self._subject, self._reply, self._payload, answer)


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
    if isinstance(group, StreamReplica) and group.copy.has_no_voter:
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
    elif isinstance(group, StreamReplica) and core.mirror_reads.takes(group, request):
        group.guarded(partial(core.mirror_reads.answer, group, request, settle))
    elif isinstance(group, StreamReplica):
        try:
            group.request(request, respond, undecided, give_back)
        except DiskError as error:
            group.fail(error)
            undecided()
    elif isinstance(group, MetaReplica):
        try:
            call = MetaCall(node, request, settle, undecided)
            meta_calls.answer(group, call, core.settings.move_bytes_per_s)
        except DiskError:
            raise
        except Exception as error:
            # Nothing was decided, and the next leader would come to the same end.
            settle(
                ResponseStatus.ANSWER,
                api_answers.fault_answer(api.answer_kind(request.subject), core.node, error),
            )
            core.event(group.id, "GroupFailed", f"{core.node}: {FaultError(error).report}")
