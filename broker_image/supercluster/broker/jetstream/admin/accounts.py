"""Accounts and their limits over HTTP (`/admin/accounts/{account}`).

PUT declares an account, DELETE withdraws the declaration, and GET returns one account or, without a name, all
of them. A call may be repeated: a change that is already in force is answered at once.

The broker that receives the call forwards it to the meta group's leader as an internal request, on a subject
that no client can publish to.
"""

from __future__ import annotations

import json
from typing import Any

from supercluster.broker.bounds import read_json
from supercluster.broker.jetstream.admin.call import NO_CALL, Caller, MetaCall, Then
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta import accounts
from supercluster.broker.jetstream.meta.accounts import AccountLimits, AccountRecord
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.meta_leader.account_requests import all_shown, shown
from supercluster.broker.jetstream.meta_leader.map_leader import MapLeader

SUBJECT = b"$SC.ACCOUNT"


def call(caller: Caller, map_view: MapView, method: str, account: str, body: object, then: Then) -> None:
    """One call of the admin API; `then` is called once, within the time that any request has."""
    try:
        if account:
            accounts.check_name(account)
        record = accounts.read_record(body) if method == "PUT" else None
    except ApiError as refused:
        then(400, {"error": refused.description, "err_code": refused.err_code})
        return
    if method == "GET":
        then(*_told(caller, map_view, account))
        return
    told = [record.limits.to_json(), record.declared_by] if record is not None else None
    caller.ask(account, SUBJECT, json.dumps([account, told]).encode(), then)


def _told(caller: Caller, map_view: MapView, account: str) -> tuple[int, dict[str, Any]]:
    """Not by a map that may be old: the operator repairs by it."""
    if map_view.replica is None or not map_view.is_fresh:
        return caller.not_available()
    state = map_view.replica.state
    if not account:
        return 200, {"accounts": all_shown(state)}
    found = shown(state, account)
    if found is None:
        return 404, {"error": f"account {account} is not declared and has no streams"}
    return 200, found


def is_internal(subject: bytes) -> bool:
    return subject == SUBJECT


def answer(meta: MapLeader, call: MetaCall) -> None:
    """Another broker's call, at the meta group's leader."""

    def done(outcome: ApiError | dict[str, Any] | None) -> None:
        if isinstance(outcome, ApiError):
            call.respond(outcome.code, {"error": outcome.description, "err_code": outcome.err_code})
        else:
            call.respond(200, outcome or accounts.show(account, AccountRecord(), accounts.AccountUse()))

    try:
        account, told = read_json(call.request.payload)
        record = AccountRecord(AccountLimits.from_json(told[0]), True, str(told[1])) if told else None
        accounts.check_name(account)
    except (*NO_CALL, ApiError):
        call.refuse()
        return
    meta.accounts.ask(account, record, done, call.undecided)
