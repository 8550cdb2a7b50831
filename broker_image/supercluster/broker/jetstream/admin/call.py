"""What calls of the admin API have in common: the broker that was asked passes them on to the meta group's leader, as an
internal request, and tells the outcome, an HTTP status and JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import Request, ResponseStatus
from supercluster.broker.ports import ClientInfo

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core.broker import BrokerCore

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


def not_available(core: BrokerCore) -> tuple[int, dict[str, Any]]:
    """Nobody can say or do it for now; names what is lost, where that is known."""
    refused = core.surroundings.not_available()
    return refused.code, {"error": refused.description, "err_code": refused.err_code}


def ask_meta_leader(core: BrokerCore, account: str, subject: bytes, payload: bytes, then: Then) -> None:
    """`then` is called once, within the time that any request has. No client can send what has such a subject."""

    def answered(answer: bytes | None) -> None:
        if answer is None:
            then(*not_available(core))
            return
        found = json.loads(answer)
        if "status" not in found:  # In the words of JetStream's API: it took this for a call of a client.
            then(
                503,
                {"error": "the leader of the map of streams is of an older version, which has no such call"},
            )
            return
        then(int(found["status"]), found["body"])

    core.requests.send(
        core.meta_id,
        ClientInfo(account, "", is_operator=True),
        subject,
        b"",
        b"",
        payload,
        core.clock.monotonic_ms(),
        on_answer=answered,
    )


@dataclass(frozen=True, slots=True)
class MetaCall:
    """An internal request at the meta group's leader, which is answered once."""

    node: str
    """The broker that asks."""
    request: Request
    settle: Settle
    undecided: Callable[[], None]
    """In place of an answer: nobody knows what becomes of it, and the next leader has to be asked."""

    def refuse(self) -> None:
        """Its payload is none."""
        self.respond(400, {"error": "this is no call", "err_code": 10003})

    def respond(self, status: int, body: Any) -> None:
        """What `then` of the broker that was asked is called with."""
        self.settle(ResponseStatus.ANSWER, json.dumps({"status": status, "body": body}).encode())
