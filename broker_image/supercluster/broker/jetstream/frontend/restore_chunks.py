"""Restores between brokers.

They forward a client's chunks to the leader that receives them, and its report to the meta group that a
stream is complete or has to be removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from supercluster.broker.bounds import read_json
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.admin.call import NO_CALL, MetaCall
from supercluster.broker.jetstream.api import answers
from supercluster.broker.jetstream.backup import archive_format
from supercluster.broker.jetstream.backup.receiver import ANSWER_KIND
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import ResponseStatus
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.meta_leader.stream_request import Decided, Fallen, StreamRequest
from supercluster.broker.jetstream.node.lost_clusters import LostClusters
from supercluster.broker.jetstream.node.pending_requests import PendingRequests
from supercluster.broker.ports import ClientInfo
from supercluster.broker.protocol.headers import no_responders

if TYPE_CHECKING:
    from supercluster.broker.jetstream.meta_leader.map_leader import MapLeader
    from supercluster.broker.jetstream.placement.dry_run import MovePlan

SUBJECT = b"$SC.RESTORE"
# The last chunk's answer comes when the whole stream is committed.
CHUNK_WAIT_MS = 60_000
# Chunks of all restores that a broker has passed on and that are not answered.
PASSED_BYTES_MAX = 128 * 1024 * 1024


class RestoreChunks:
    """The chunks that clients of this broker send."""

    def __init__(
        self,
        env: Environment,
        peers: Peers,
        map_view: MapView,
        requests: PendingRequests,
        lost_clusters: LostClusters,
    ) -> None:
        self._env = env
        self._peers = peers
        self._map = map_view
        self._requests = requests
        self._lost_clusters = lost_clusters
        self._passed_bytes = 0

    def take(self, info: ClientInfo, subject: bytes, reply: bytes, payload: bytes) -> None:
        """Pass a chunk on to whoever leads the stream that is restored."""
        found = self._map.find(info.account, archive_format.stream_of(subject))
        if found is None or found.restoring is None:
            if reply:  # As if nobody listened, as NATS has it.
                self._peers.network.publish(info.account, reply, b"", no_responders(subject), b"")
            return
        answered = partial(self._answered, info.account, reply, len(payload), found.group)
        self._passed_bytes += len(payload)
        if self._passed_bytes > PASSED_BYTES_MAX:
            answered(self._refused(errors.error(errors.INSUFFICIENT_RESOURCES)))
            return
        self._requests.send(
            found.group,
            info,
            subject,
            reply,
            b"",
            payload,
            self._env.clock.monotonic_ms(),
            on_answer=answered,
            wait_ms=CHUNK_WAIT_MS,
        )

    def _answered(self, account: str, reply: bytes, size: int, group: str, answer: bytes | None) -> None:
        self._passed_bytes -= size
        if answer is None:
            has_ended = self._map.replica is not None and self._map.by_group(group) is None
            ended = errors.error(errors.RESTORE_FAILED, "it was ended from elsewhere")
            answer = self._refused(ended if has_ended else self._lost_clusters.not_available(group))
        if reply:
            self._peers.network.publish(account, reply, b"", b"", answer)

    def end(self, told: dict[str, Any], then: Callable[[bytes | None], None]) -> None:
        """A restore's leader asks the meta group's to show the stream, or to remove it. No client can send the subject."""
        self._requests.send(
            self._map.meta_id,
            ClientInfo(told["account"], "", is_operator=True),
            SUBJECT,
            b"",
            b"",
            json.dumps(told).encode(),
            self._env.clock.monotonic_ms(),
            on_answer=then,
        )

    @staticmethod
    def _refused(error: ApiError) -> bytes:
        return answers.error_answer(ANSWER_KIND, error)


_FIELDS = ("verb", "name", "account", "id", "group")
_VERBS = ("restored", "abandon")


def is_internal(subject: bytes) -> bool:
    return subject == SUBJECT


def answer(meta: MapLeader, call: MetaCall) -> None:
    """Another broker's call, at the meta group's leader."""

    def respond(outcome: Decided | MovePlan | ApiError | Fallen) -> None:
        if isinstance(outcome, Fallen):
            call.undecided()
        elif isinstance(outcome, ApiError):
            call.settle(ResponseStatus.ANSWER, json.dumps({"err_code": outcome.err_code}).encode())
        else:
            assert isinstance(outcome, Decided)
            call.settle(ResponseStatus.ANSWER, json.dumps({"version": outcome.version}).encode())

    try:
        told = read_json(call.request.payload)
        verb, name, account, restore_id, group = (str(told[field]) for field in _FIELDS)
        if verb not in _VERBS:
            raise ValueError(verb)
    except NO_CALL:
        respond(errors.error(10003))
        return
    info = call.request.info
    meta.request(
        StreamRequest(verb, info, name, None, respond, account=account, restore_id=restore_id, group=group)
    )
