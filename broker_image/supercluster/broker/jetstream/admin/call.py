"""The common part of the admin API's calls: the broker that receives a call forwards it to the meta group's
leader as an internal request, and returns the outcome as an HTTP status and JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import Request, ResponseStatus
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.lost_clusters import LostClusters
from supercluster.broker.jetstream.node.pending_requests import PendingRequests
from supercluster.broker.ports import ClientInfo

Then = Callable[[int, Any], None]
"""Takes status and JSON."""
NO_CALL = (ValueError, TypeError, AttributeError, LookupError)
"""What reading an internal call raises whose payload is none: no broker of ours sends such a one."""
Settle = Callable[[ResponseStatus, bytes], None]
"""Answers an internal request, once."""


# What a refusal is over HTTP, where its own code is not it: NATS's 400 for what is a conflict with the state.
_STATUS = {10005: 409, 10052: 400, 10075: 409, 10118: 503, 10123: 409, 10124: 409, 10129: 409}


def refusal(refused: ApiError) -> tuple[int, dict[str, Any]]:
    """A refusal over HTTP."""
    status = _STATUS.get(refused.err_code, refused.code)
    return status, {"error": refused.description, "err_code": refused.err_code}


@dataclass(frozen=True, slots=True)
class MetaCall:
    """An internal request at the meta group's leader, which is answered once."""

    node: str
    """The broker that asks."""
    request: Request
    settle: Settle
    undecided: Callable[[], None]
    """In place of an answer: nobody knows what becomes of it, and the next leader has to be asked."""
    not_begun: Callable[[], None]
    """The same, where nothing of it is in this leader's log."""

    def refuse(self) -> None:
        """Its payload is none."""
        self.respond(400, {"error": "this is no call", "err_code": 10003})

    def respond(self, status: int, body: Any) -> None:
        """What `then` of the broker that was asked is called with."""
        self.settle(ResponseStatus.ANSWER, json.dumps({"status": status, "body": body}).encode())


class Caller:
    """Has the meta group's leader carry out what this broker was asked for."""

    def __init__(
        self, env: Environment, map_view: MapView, requests: PendingRequests, lost_clusters: LostClusters
    ) -> None:
        self._env = env
        self._map = map_view
        self._requests = requests
        self._lost_clusters = lost_clusters

    def ask(self, account: str, subject: bytes, payload: bytes, then: Then, user: str = "") -> None:
        """`then` is called once, within the time that any request has. No client can send what has such a subject."""

        def answered(answer: bytes | None) -> None:
            if answer is None:
                then(*self.not_available())
                return
            found = json.loads(answer)
            if "status" not in found:  # In the words of JetStream's API: it took this for a call of a client.
                then(
                    503,
                    {
                        "error": "the leader of the map of streams is of an older version, which has no such call"
                    },
                )
                return
            then(int(found["status"]), found["body"])

        self._requests.send(
            self._map.meta_id,
            ClientInfo(account, user, is_operator=True),
            subject,
            b"",
            b"",
            payload,
            self._env.clock.monotonic_ms(),
            on_answer=answered,
        )

    def not_available(self) -> tuple[int, dict[str, Any]]:
        """Nobody can say or do it for now; names what is lost, where that is known."""
        refused = self._lost_clusters.not_available()
        return refused.code, {"error": refused.description, "err_code": refused.err_code}
