"""Answers requests of other brokers as the leader of a group. A repeated request is carried out once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.admin.call import MetaCall
from supercluster.broker.jetstream.api import answers, parser
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.frontend import meta_requests
from supercluster.broker.jetstream.frontend.answer_cache import AnswerCache, Known
from supercluster.broker.jetstream.frontend.mirror_reads import MirrorReads
from supercluster.broker.jetstream.links.far_groups import is_any_of
from supercluster.broker.jetstream.links.frames import (
    Frame,
    Request,
    ResponseStatus,
    decode_request,
    encode_request,
    encode_response,
    encode_texts,
)
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.stream import api
from supercluster.broker.migration.worlds import world_of
from supercluster.broker.ports import ClientInfo
from supercluster.broker.raft.errors import DiskError, FaultError

AnswerFor = Callable[[ClientInfo, bytes, bytes, Callable[[bytes], None]], None]


class Answerer:
    def __init__(
        self,
        env: Environment,
        peers: Peers,
        copies: Copies,
        map_view: MapView,
        mirror_reads: MirrorReads,
        cache: AnswerCache,
        answer_for: AnswerFor,
    ) -> None:
        """`answer_for(info, subject, payload, then)` answers a call as it would one of this broker's own clients."""
        self._env = env
        self._peers = peers
        self._copies = copies
        self._map = map_view
        self._answer_for = answer_for
        self._mirror_reads = mirror_reads
        self._cache = cache

    def on_request(self, node: str, body: memoryview, now_ms: int) -> None:
        """Frame.REQUEST."""
        request = decode_request(body)
        self._answer(node, request)
        self._copies.touch(request.group)

    def _answer(self, node: str, request: Request) -> None:
        """A broker asks this one, as the leader of the request's group."""
        asked = (node, request.origin, request.number)
        post, cache, own_name = self._peers.post, self._cache, self._env.node

        def send(status: ResponseStatus, payload: bytes = b"") -> None:
            post(node, Frame.RESPONSE, encode_response(request.origin, request.number, status, payload))

        def respond(payload: bytes | None) -> None:
            status = ResponseStatus.ANSWER if payload is not None else ResponseStatus.TAKEN
            settle(status, payload or b"")

        def settle(status: ResponseStatus, payload: bytes) -> None:
            cache.answered(asked, status, payload)
            send(status, payload)

        def undecided() -> None:
            cache.dropped(asked)
            send(ResponseStatus.UNDECIDED)

        def not_begun() -> None:
            cache.dropped(asked)
            send(ResponseStatus.NOT_LEADER)

        def give_back(left: bytes) -> None:
            post(node, Frame.PULL_BACK, encode_request(replace(request, payload=left)))

        if is_any_of(request.group):
            self._answer_name(asked, request, settle, send)
            return
        replica, copy = self._copies.groups.get(request.group), self._copies.streams.get(request.group)
        if world_of(node) and (copy is None or copy.stream.assignment.account != request.info.account):
            send(ResponseStatus.NOT_LEADER)
            return
        if copy is not None and copy.has_no_voter:
            refusal = errors.no_voter_left(copy.stream.assignment.name, own_name)
            send(ResponseStatus.ANSWER, answers.error_answer(parser.answer_kind(request.subject), refusal))
            return
        if replica is None or not replica.serves:
            # Whoever believes that it leads may have missed the next leader's word.
            post(node, Frame.NOT_LEADER, encode_texts(request.group, ""))
            send(ResponseStatus.NOT_LEADER)
            return
        known = cache.begin(asked)
        if isinstance(known, tuple):
            send(ResponseStatus(known[0]), known[1])
        elif known is Known.UNDER_WAY:
            return
        elif copy is not None and self._mirror_reads.takes(copy, request):
            replica.guarded(partial(self._mirror_reads.answer, copy, request, settle))
        elif copy is not None:
            try:
                api.answer(copy, request, respond, undecided, give_back, not_begun)
            except DiskError as error:
                replica.fail(error)
                undecided()
        elif self._copies.map is not None:
            try:
                call = MetaCall(node, request, settle, undecided, not_begun)
                meta_requests.answer(self._copies.map, call, self._env.settings.move_bytes_per_s)
            except DiskError:
                raise
            except Exception as error:
                # Nothing was decided, and the next leader would come to the same end.
                kind = parser.answer_kind(request.subject)
                settle(ResponseStatus.ANSWER, answers.fault_answer(kind, own_name, error))
                self._env.event(replica.id, "GroupFailed", f"{own_name}: {FaultError(error).report}")

    def _answer_name(
        self,
        asked: tuple[str, str, int],
        request: Request,
        settle: Callable[[ResponseStatus, bytes], None],
        send: Callable[[ResponseStatus, bytes], None],
    ) -> None:
        """A client of another super-cluster calls the API about a name that this one has. Where this broker does not know yet that
        the stream is here, the call waits."""
        found = self._map.find(request.info.account, parser.stream_of(request.subject))
        if found is not None and found.following is not None:
            send(ResponseStatus.NOT_LEADER, b"")
            return
        known = self._cache.begin(asked)
        if isinstance(known, tuple):
            send(ResponseStatus(known[0]), known[1])
        elif known is not Known.UNDER_WAY:
            then = partial(settle, ResponseStatus.ANSWER)
            self._answer_for(request.info, request.subject, request.payload, then)
