"""Forced recoveries over HTTP (`/admin/streams/{account}/{stream}/recover`).

GET lists the copies and what choosing each of them may lose. POST forces a recovery; with `dryRun` it only
reports what it would do.

The broker that receives a call forwards it to the meta group's leader as an internal request, on a subject
that no client can publish to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from supercluster.broker.bounds import I64_MAX, NODE_CHARS_MAX, read_json
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.admin.call import NO_CALL, Caller, MetaCall, Then, refusal
from supercluster.broker.jetstream.config.stream_checks import check_name
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta_leader.map_leader import MapLeader
from supercluster.broker.jetstream.meta_leader.recoveries import RecoverCall

SUBJECT = b"$SC.RECOVER"
_ID = re.compile("[A-Za-z0-9-]{1,64}")
_FIELDS = ("node", "acceptLastSeq", "id", "dryRun")


def read_call(account: str, name: str, body: object) -> RecoverCall:
    """
    Raises:
        ApiError: naming the field, its value and what would be right.
    """
    if not isinstance(body, Mapping) or not body.keys() <= set(_FIELDS):
        raise errors.error(10052, f"the body has to be an object with {', '.join(_FIELDS)}")
    node, accepted, act, dry_run = (body.get(field) for field in _FIELDS)
    if not isinstance(node, str) or not 0 < len(node) <= NODE_CHARS_MAX:
        raise errors.error(10052, f"node is {node!r}; it has to be the name of a broker")
    if type(accepted) is not int or not 0 <= accepted <= I64_MAX:
        raise errors.error(
            10052, f"acceptLastSeq is {accepted!r}; it has to be the last sequence that the copy must have"
        )
    if not isinstance(dry_run, bool | None):
        raise errors.error(10052, f"dryRun is {dry_run!r}; it has to be true or false")
    if not dry_run and (not isinstance(act, str) or not _ID.fullmatch(act)):
        raise errors.error(10052, f"id is {act!r}; it has to be 1 to 64 letters, digits and dashes")
    return RecoverCall(account, name, node, accepted, act or "", bool(dry_run))


def call(caller: Caller, method: str, account: str, name: str, body: object, then: Then) -> None:
    """One call of the admin API; `then` is called once, within the time that any request has."""
    try:
        check_name(name)
        wanted = RecoverCall(account, name) if method == "GET" else read_call(account, name, body)
    except ApiError as refused:
        then(*refusal(refused))
        return
    fields = [wanted.account, wanted.name, wanted.node, wanted.accepted_seq, wanted.id, wanted.dry_run]
    caller.ask(account, SUBJECT, json.dumps(fields).encode(), then)


def is_internal(subject: bytes) -> bool:
    return subject == SUBJECT


def answer(meta: MapLeader, call: MetaCall) -> None:
    """Another broker's call, at the meta group's leader."""
    try:
        account, name, node, accepted, act, dry_run = read_json(call.request.payload)
        wanted = RecoverCall(str(account), str(name), str(node), int(accepted), str(act), bool(dry_run))
    except NO_CALL:
        call.refuse()
        return
    meta.recoveries.ask(wanted, call.respond, call.undecided)
