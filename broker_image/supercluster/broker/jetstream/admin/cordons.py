"""Cordons over HTTP (`/admin/brokers/{node}/cordon`).

PUT declares that a broker gets no new copies, and DELETE takes that back. A call may be repeated: a change
that is already in force is answered at once. The call goes to the meta group's leader as an internal request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from supercluster.broker.bounds import NODE_CHARS_MAX, read_json
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.admin.call import NO_CALL, Caller, MetaCall, Then
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.cordons import REASON_CHARACTERS_MAX, Cordon

if TYPE_CHECKING:
    from supercluster.broker.jetstream.meta_leader.map_leader import MapLeader

SUBJECT = b"$SC.CORDON"
DECLARED_BY_CHARACTERS_MAX = 512
_FIELDS = ("reason", "declaredBy")


def read_cordon(body: object) -> Cordon:
    """A PUT's body.

    Raises:
        ApiError: naming the field, its value and what would be right.
    """
    if not isinstance(body, Mapping) or not body.keys() <= set(_FIELDS):
        raise errors.error(10052, f"the body has to be an object with {', '.join(_FIELDS)}")
    reason, declared_by = body.get("reason"), body.get("declaredBy", "")
    if not isinstance(reason, str) or not 0 < len(reason) <= REASON_CHARACTERS_MAX:
        raise errors.error(
            10052,
            f"reason is {str(reason)[:300]!r}; it has to be a text of 1 to {REASON_CHARACTERS_MAX} characters",
        )
    if not isinstance(declared_by, str) or len(declared_by) > DECLARED_BY_CHARACTERS_MAX:
        raise errors.error(
            10052,
            f"declaredBy is {str(declared_by)[:300]!r}; it has to be a text of at most {DECLARED_BY_CHARACTERS_MAX} characters",
        )
    return Cordon(reason, declared_by)


def call(caller: Caller, method: str, node: str, body: object, then: Then) -> None:
    """One call of the admin API; `then` is called once, within the time that any request has."""
    if not 0 < len(node) <= NODE_CHARS_MAX:
        then(400, {"error": f"a broker's name has 1 to {NODE_CHARS_MAX} characters, not {len(node)}"})
        return
    try:
        cordon = read_cordon(body) if method == "PUT" else None
    except ApiError as refused:
        then(400, {"error": refused.description, "err_code": refused.err_code})
        return
    told = {"node": node, "cordon": cordon.to_json() if cordon is not None else None}
    caller.ask("$SYS", SUBJECT, json.dumps(told).encode(), then)


def is_internal(subject: bytes) -> bool:
    return subject == SUBJECT


def answer(meta: MapLeader, call: MetaCall) -> None:
    """Another broker's call, at the meta group's leader."""
    try:
        told = read_json(call.request.payload)
        node = str(told["node"])
        cordon = Cordon.from_json(told["cordon"]) if told["cordon"] is not None else None
    except NO_CALL:
        call.refuse()
        return

    def answered(refused: ApiError | None) -> None:
        if refused is None:
            call.respond(200, {"node": node, "cordoned": told["cordon"]})
        else:
            status = 404 if refused.err_code == errors.PEER_NOT_MEMBER else refused.code
            call.respond(status, {"error": refused.description, "err_code": refused.err_code})

    meta.brokers.cordon(node, cordon, answered, call.undecided)
