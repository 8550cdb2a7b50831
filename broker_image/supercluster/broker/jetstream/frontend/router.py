"""Routes a client's API call to the group that answers it, and answers calls from the map of streams where
that suffices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.admin import system_api
from supercluster.broker.jetstream.admin.system_api import SystemApi
from supercluster.broker.jetstream.api import answers, parser
from supercluster.broker.jetstream.api.requests import (
    AccountPurgeRequest,
    ServerRemoveRequest,
    StreamListRequest,
    StreamNamesRequest,
)
from supercluster.broker.jetstream.backup.archive_format import RESTORE_PREFIX, stream_of
from supercluster.broker.jetstream.config import api_level
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.consumer.push import parse_flow_subject
from supercluster.broker.jetstream.encoding.ack_subjects import parse_ack_subject
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.frontend.account_info import AccountInfo
from supercluster.broker.jetstream.frontend.ack_forwarder import AckForwarder
from supercluster.broker.jetstream.frontend.audit import Audit
from supercluster.broker.jetstream.frontend.mirror_reads import MirrorReads
from supercluster.broker.jetstream.frontend.restore_chunks import RestoreChunks
from supercluster.broker.jetstream.frontend.stream_list import StreamList
from supercluster.broker.jetstream.links.far_groups import any_of
from supercluster.broker.jetstream.links.frames import Request
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.lost_clusters import LostClusters
from supercluster.broker.jetstream.node.map_reader import MapReader
from supercluster.broker.jetstream.node.pending_requests import DIRECT_PREFIX, PendingRequests, publish_answer
from supercluster.broker.jetstream.subjects.filters import overlaps
from supercluster.broker.ports import ClientInfo
from supercluster.broker.protocol.headers import no_responders
from supercluster.broker.protocol.subjects import SNAPSHOT_PREFIX

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


class _OldMapError(Exception):
    """What is asked for is known by a fresh map alone."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A client of this broker calls the API."""

    info: ClientInfo
    subject: bytes
    reply: bytes
    payload: bytes
    then: Callable[[bytes], None] | None = None
    """Takes the answer, in place of `reply`."""
    has_waited: bool = False
    """It has waited for a fresh map already."""


class Router:
    def __init__(
        self,
        env: Environment,
        peers: Peers,
        map_view: MapView,
        map_reader: MapReader,
        lost_clusters: LostClusters,
        requests: PendingRequests,
        mirror_reads: MirrorReads,
        account_info: AccountInfo,
        system_api: SystemApi,
        audit: Audit,
        acks: AckForwarder,
        restore_chunks: RestoreChunks,
    ) -> None:
        self._env = env
        self._peers = peers
        self._map = map_view
        self._map_reader = map_reader
        self._lost_clusters = lost_clusters
        self._requests = requests
        self._mirror_reads = mirror_reads
        self._account_info = account_info
        self._system_api = system_api
        self._audit = audit
        self._acks = acks
        self._restore_chunks = restore_chunks
        domain = env.settings.domain
        self._domain_prefix = f"$JS.{domain}.".encode() if domain else b""

    def on_api(self, info: ClientInfo, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """A client's request or acknowledgement."""
        if subject.startswith(RESTORE_PREFIX):
            self._restore_chunks.take(info, subject, reply, payload)
            return
        if subject.startswith((b"$JS.ACK.", b"$JS.FC.", SNAPSHOT_PREFIX)):
            group = self._group_of_ack(info.account, subject)
            if group is not None:
                self._acks.add(info.account, group, (subject, reply, payload))
            elif reply:  # No such stream, or no acknowledgement's subject: nobody will answer.
                self._peers.network.publish(info.account, reply, b"", no_responders(subject), b"")
            return
        prefix = self._domain_prefix
        if prefix and subject.startswith(prefix):
            subject = b"$JS." + subject[len(prefix) :]
        self._call(_Call(info, subject, reply, payload), header)

    def answer_for(
        self, info: ClientInfo, subject: bytes, payload: bytes, then: Callable[[bytes], None]
    ) -> None:
        """A call of a client of another super-cluster about a name, or of the bulk port; neither a pull nor a direct get: `then` takes
        its answer, once."""
        self._call(_Call(info, subject, b"", payload, then), b"")

    def _call(self, call: _Call, header: bytes) -> None:
        info, subject = call.info, call.subject
        if info.account in self._env.accounts.without_jetstream and not system_api.is_administration(subject):
            self._publish_refusal(call, errors.error(errors.NOT_ENABLED_FOR_ACCOUNT))
        elif not api_level.suits(header) and not subject.startswith(DIRECT_PREFIX):
            self._refuse(call, errors.error(errors.API_LEVEL_REQUIRED))
        else:
            self._route(call)

    def _route(self, call: _Call) -> None:
        try:
            self._try_to_route(call)
        except ApiError as refused:
            self._refuse(call, refused)
        except _OldMapError:
            waited = replace(call, has_waited=True)
            self._map_reader.when_fresh(lambda: self._route(waited))

    def _try_to_route(self, call: _Call) -> None:
        """
        Raises:
            ApiError: it is refused.
            _OldMapError: it is to wait for a fresh map.
        """
        info, subject, payload = call.info, call.subject, call.payload
        kind = parser.answer_kind(subject)
        if kind in _FOR_CLUSTERS and self._is_alone:
            raise errors.error(errors.CLUSTER_REQUIRED)
        if system_api.is_administration(subject):
            system_api.check_caller(info, subject)
        if kind == "account_info":
            parser.parse_api(subject, payload)
            self._account_info.ask(info, lambda answer: self._answer(call, answer))
        elif kind in ("stream_names", "stream_list"):
            self._list(call)
        elif kind in ("meta_server_remove", "account_purge"):
            asked = parser.parse_api(subject, payload)
            assert isinstance(asked, ServerRemoveRequest | AccountPurgeRequest)
            if not self._map.is_fresh:
                raise self._not_fresh(call)
            self._system_api.carry_out(info, asked, lambda answer: self._answer(call, answer))
        elif kind in _META_KINDS:
            parser.parse_api(subject, payload)  # What is wrong by itself is refused here.
            stream = parser.stream_of(subject)
            if call.then is not None and kind == "stream_restore":
                is_taken = self._map.find(info.account, stream) is not None
                raise (
                    errors.error(errors.RESTORE_NAME_IN_USE) if is_taken else _not_restored_from_afar(stream)
                )
            self._send(call, self._who_changes(info.account, stream))
        else:
            stream = parser.stream_of(subject)
            if subject.startswith(DIRECT_PREFIX):
                group = self._mirror_reads.whom_to_ask(info.account, stream)
            else:
                group = self._group_of(info.account, stream)
            if not stream or not parser.is_supported(subject):
                parser.parse_api(subject, payload)
            if group is None:
                unknown = self._unknown(call, stream)
                if not subject.startswith(DIRECT_PREFIX):
                    _check_request(subject, payload)
                raise unknown
            self._send(call, group)

    def _send(self, call: _Call, group: str) -> None:
        """Have the group's leader answer."""
        now_ms = self._env.clock.monotonic_ms()
        self._requests.send(
            group,
            call.info,
            call.subject,
            call.reply,
            b"",
            call.payload,
            now_ms,
            on_answer=partial(self._answered, call, group) if call.then is not None else None,
        )

    def _answered(self, call: _Call, group: str, answer: bytes | None) -> None:
        if answer is None:
            kind = parser.answer_kind(call.subject)
            answer = answers.error_answer(kind, self._lost_clusters.not_available(group))
        self._answer(call, answer)

    def _who_changes(self, account: str, stream: str) -> str:
        """The group that answers what changes the map of streams: this super-cluster's, or any broker of the one that has the stream.

        Raises:
            ApiError: the stream is on its way here, and the other super-cluster's still.
        """
        found = self._map.find(account, stream)
        if found is not None and found.following is not None:
            raise errors.error(errors.JETSTREAM_NOT_AVAILABLE)
        return any_of(found.far_world) if found is not None and found.far_world else self._map.meta_id

    @property
    def _is_alone(self) -> bool:
        """Is this broker all that there is, now and by the map? One that only lost the others is not."""
        known = self._map.replica.state.brokers if self._map.replica is not None else {}
        return len(known) == 1 and len(self._peers.brokers_in_contact()) == 1

    def _group_of(self, account: str, stream: str) -> str | None:
        found = self._map.stream_of(account, stream)
        return found.group if found is not None else None

    def _group_of_ack(self, account: str, subject: bytes) -> str | None:
        """The group of the stream that the subject of an acknowledgement, or of an answer to flow control, names."""
        if subject.startswith(SNAPSHOT_PREFIX):
            return self._group_of(account, stream_of(subject))
        flow = parse_flow_subject(subject)
        if flow is not None:
            return self._group_of(account, flow[0])
        found = parse_ack_subject(subject)
        return self._group_of(account, found.stream) if found is not None else None

    def successor(self, request: Request) -> str | None:
        """The group that has the stream now of whose group the request was: one that began anew."""
        stream = parser.stream_of(request.subject)
        account = parser.account_of(request.subject, request.info.account)
        return self._group_of(account, stream) if stream else None

    def _unknown(self, call: _Call, stream: str) -> ApiError:
        """The map has no such stream; one that may be old says nothing of streams that were made since.

        Raises:
            _OldMapError: a fresh one may come soon.
        """
        coming = self._map.find(call.info.account, stream)
        if coming is not None and coming.following is not None:
            return errors.error(errors.JETSTREAM_NOT_AVAILABLE)
        return errors.error(10059) if self._map.is_fresh else self._not_fresh(call)

    def _not_fresh(self, call: _Call) -> ApiError:
        if not call.has_waited:
            raise _OldMapError
        return self._lost_clusters.not_available()

    def _list(self, call: _Call) -> None:
        asked = parser.parse_api(call.subject, call.payload)
        assert isinstance(asked, StreamNamesRequest | StreamListRequest)
        names = [
            found.name
            for found in self._map.streams_of(call.info.account)
            if found.is_shown
            and (not asked.subject or any(overlaps(asked.subject, mine) for mine in found.config.subjects))
        ]
        is_names = isinstance(asked, StreamNamesRequest)
        # As NATS's servers do without a leader: a list that lacks streams misleads. A stream that was found is there, and its
        # name is all that a client needs who subscribes to a subject of it.
        if not self._map.is_fresh and not (is_names and asked.subject and names):
            raise self._not_fresh(call)
        if isinstance(asked, StreamNamesRequest):
            self._answer(call, answers.names_answer("stream_names", names, asked.offset))
            return
        StreamList(
            self._env,
            self._map,
            self._requests,
            call.info,
            asked,
            names,
            lambda answer: self._answer(call, answer),
        ).start()

    # ---- answers --------------------------------------------------------------------------------------------------

    def _answer(self, call: _Call, answer: bytes) -> None:
        self._audit.answered(call.info, call.subject, call.payload, answer)
        if call.then is not None:
            call.then(answer)
        elif call.reply:
            self._peers.network.publish(call.info.account, call.reply, b"", b"", answer)

    def _refuse(self, call: _Call, refused: ApiError) -> None:
        answer = answers.error_answer(parser.answer_kind(call.subject), refused)
        self._audit.answered(call.info, call.subject, call.payload, answer)
        self._publish_refusal(call, refused)

    def _publish_refusal(self, call: _Call, refused: ApiError) -> None:
        if call.then is not None:
            call.then(answers.error_answer(parser.answer_kind(call.subject), refused))
            return
        request = Request("", 0, "", call.info, call.subject, call.reply, b"", b"")
        publish_answer(
            self._peers.network, request, answers.error_answer(parser.answer_kind(call.subject), refused)
        )


def _not_restored_from_afar(stream: str) -> ApiError:
    """The restore's chunks are taken at brokers of this super-cluster alone."""
    return errors.error(
        errors.STREAM_FAR,
        f"{stream} was handed over to this super-cluster: to restore it, connect to one of its brokers",
    )


def _check_request(subject: bytes, payload: bytes) -> None:
    """What NATS tells of a request before it looks for the stream: that it can't be read, is about something else,
    or does not say where a backup is to go.

    Raises:
        ApiError: that.
    """
    try:
        parser.parse_api(subject, payload)
    except ApiError as refused:
        is_unsaid = (
            parser.answer_kind(subject) == "stream_snapshot" and refused.err_code == errors.BAD_REQUEST
        )
        if refused.err_code in errors.ABOUT_REQUEST or is_unsaid:
            raise
