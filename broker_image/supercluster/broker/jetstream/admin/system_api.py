"""JetStream's API for system administrators: permanent removal of brokers (SERVER.REMOVE) and purges of
accounts (ACCOUNT.PURGE).

Users with the system role and the operator may call it, in any account.

A removed broker leaves as it does by the admin API (`meta_leader/broker_requests.py`): it stops voting on the
map once others vote, gets no copies, and is forgotten when it is gone and holds no copy. A stream with a copy
there gets another member in its place, as by PEER.REMOVE. A stream keeps its members if no broker can take
the copy or if it has no other copy; an event names it.

An account is purged stream by stream, and each deletion is judged like a deletion by a client of that
account. Only the operator may delete a declared stream (SF-23), so one such stream makes the call fail before
anything is deleted.

The broker that receives the call carries it out and answers when it has begun, as nats-server does. If that
broker fails, the rest is not done until the call is repeated (with PEER.REMOVE, for a broker that was
removed).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.admin.broker_calls import BrokerCalls
from supercluster.broker.jetstream.api import answers, parser
from supercluster.broker.jetstream.api.requests import AccountPurgeRequest, ServerRemoveRequest
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.pending_requests import REQUEST_WAIT_MS, PendingRequests
from supercluster.broker.jetstream.replica.lineage import is_same_stream
from supercluster.broker.ports import ClientInfo
from supercluster.broker.raft.confchange import node_of

_KINDS = frozenset({"meta_server_remove", "account_purge", "meta_leader_stepdown"})

CALLS_AT_ONCE = 16
"""Of one purge, or of one removal: the map has other work."""

PURGES_MAX = 64
"""Accounts that are purged at the same time by way of this broker."""

REMOVALS_MAX = 16
"""Brokers whose copies are being replaced at the same time by way of this broker."""

NAMES_SHOWN = 8

Respond = Callable[[bytes], None]


def is_administration(subject: bytes) -> bool:
    """Is it a call that concerns more than the caller's account?"""
    return parser.answer_kind(subject) in _KINDS


def check_caller(info: ClientInfo, subject: bytes) -> None:
    """Raises:
    ApiError: the caller may not.
    """
    if not info.may_administer:
        call = subject.removeprefix(parser.API_PREFIX).decode("utf-8", "replace")
        raise errors.not_supported(f"{call} without the operator's or the system account's credentials is")


class SystemApi:
    """The calls of one broker's clients."""

    def __init__(
        self, env: Environment, map_view: MapView, requests: PendingRequests, brokers: BrokerCalls
    ) -> None:
        self._env = env
        self._map = map_view
        self._requests = requests
        self._brokers = brokers
        self._purges: dict[str, _Calls] = {}
        """By account."""
        self._removals: dict[str, _Calls] = {}
        """By the broker that was removed."""

    def carry_out(
        self, info: ClientInfo, call: ServerRemoveRequest | AccountPurgeRequest, respond: Respond
    ) -> None:
        """By a fresh map; `respond` takes the answer, once.

        Raises:
            ApiError: it is refused.
        """
        if isinstance(call, ServerRemoveRequest):
            self._remove(info, call.peer, respond)
        else:
            self._purge(info, call.account)
            respond(answers.answer("account_purge", {"initiated": True}))

    @property
    def purges(self) -> int:
        """How many accounts are being purged."""
        return len(self._purges)

    def _remove(self, info: ClientInfo, peer: str, respond: Respond) -> None:
        meta = self._map.replica
        if meta is None or peer not in meta.state.brokers or peer in meta.state.leaving:
            raise errors.error(errors.SERVER_NOT_MEMBER)
        if len(self._removals) >= REMOVALS_MAX:
            raise errors.error(errors.INSUFFICIENT_RESOURCES)

        def then(status: int, body: Any) -> None:
            if status == 200:
                self._replace_copies(info, peer)
                respond(answers.success_answer("meta_server_remove"))
                return
            refusal = errors.ApiError(
                status, int(body.get("err_code", errors.JETSTREAM_NOT_AVAILABLE)), str(body["error"])
            )
            respond(answers.error_answer("meta_server_remove", refusal))

        self._brokers.call("DELETE", peer, then)

    def _replace_copies(self, info: ClientInfo, peer: str) -> None:
        """Have others in the place of that broker, in every stream that has a copy there."""
        meta = self._map.replica
        if meta is None:
            return
        body = json.dumps({"peer": peer}).encode()
        calls = [
            _Call(
                found.name,
                found.group,
                ClientInfo(found.account, info.user, is_operator=True),
                _PEER_REMOVE,
                body,
            )
            for found in meta.state.streams.values()
            if peer in map(node_of, found.members)
        ]

        def ended(left: list[str]) -> None:
            del self._removals[peer]
            if left:
                shown = ", ".join(sorted(left)[:NAMES_SHOWN])
                text = f"{len(left)} streams keep their member {peer}, which was removed: {shown}"
                self._env.event(self._map.meta_id, "ServerRemoveIncomplete", text)

        if calls:
            self._removals[peer] = _Calls(
                self._env, self._map, self._requests, calls, (errors.STREAM_NOT_FOUND,), ended
            )
            self._removals[peer].go_on()

    def _purge(self, info: ClientInfo, account: str) -> None:
        meta = self._map.replica
        found = list(meta.state.of_account(account)) if meta is not None else []
        declared = next((stream for stream in found if stream.declared_by), None)
        if declared is not None and not info.is_operator:
            raise errors.declared_stream(declared.name, declared.declared_by, "the stream itself")
        if not found or account in self._purges:
            return
        if len(self._purges) >= PURGES_MAX:
            raise errors.error(errors.INSUFFICIENT_RESOURCES)
        asker = ClientInfo(account, info.user, is_operator=info.is_operator)
        calls = [_Call(stream.name, stream.group, asker, _DELETE) for stream in found]

        def ended(left: list[str]) -> None:
            del self._purges[account]
            if left:
                shown = ", ".join(sorted(left)[:NAMES_SHOWN])
                text = f"{len(left)} streams of account {account} were to be deleted and are left: {shown}"
                self._env.event(self._map.meta_id, "AccountPurgeIncomplete", text)

        purge = self._purges[account] = _Calls(
            self._env, self._map, self._requests, calls, (errors.STREAM_NOT_FOUND,), ended
        )
        self._env.event(
            self._map.meta_id, "AccountPurged", f"all {len(calls)} streams of account {account} are deleted"
        )
        purge.go_on()


_DELETE, _PEER_REMOVE = b"$JS.API.STREAM.DELETE.", b"$JS.API.STREAM.PEER.REMOVE."


@dataclass(frozen=True, slots=True)
class _Call:
    """One call about one stream."""

    stream: str
    group: str
    asker: ClientInfo
    prefix: bytes
    body: bytes = b""
    until_ms: int = 0
    """Until then it is asked for again where a leader fell that may have done it. 0: nobody was asked."""


class _Calls:
    """One call per stream, some at a time; `ended` is handed the names of those that were refused."""

    def __init__(
        self,
        env: Environment,
        map_view: MapView,
        requests: PendingRequests,
        calls: Iterable[_Call],
        harmless: Collection[int],
        ended: Callable[[list[str]], object],
    ) -> None:
        self._env = env
        self._map = map_view
        self._requests = requests
        self._calls = deque(calls)
        self._harmless = (0, *harmless)
        self._ended = ended
        self._under_way = 0
        self._is_asking = False
        self._left: list[str] = []

    def go_on(self) -> None:
        """Ask for as many as may be under way."""
        self._is_asking = True
        while self._calls and self._under_way < CALLS_AT_ONCE:
            call, now_ms = self._calls.popleft(), self._env.clock.monotonic_ms()
            call = replace(call, until_ms=call.until_ms or now_ms + REQUEST_WAIT_MS)
            self._under_way += 1
            self._requests.send(
                self._map.meta_id,
                call.asker,
                call.prefix + call.stream.encode(),
                b"",
                b"",
                call.body,
                now_ms,
                on_answer=partial(self._answered, call),
            )
        self._is_asking = False
        if not self._under_way:
            self._ended(self._left)

    def _is_there(self, call: _Call) -> bool:
        meta = self._map.replica
        found = meta.state.streams.get((call.asker.account, call.stream)) if meta is not None else None
        return found is not None and is_same_stream(found.group, call.group)

    def _answered(self, call: _Call, answer: bytes | None) -> None:
        self._under_way -= 1
        if answer is None and not self._is_asking and self._env.clock.monotonic_ms() < call.until_ms:
            # Somebody may have made a stream of that name since: only of the same one is it asked again.
            if self._is_there(call):
                self._calls.append(call)
        elif (
            answer is None
        ):  # Nobody leads the map, or no more requests are taken: nor would the others be answered.
            self._left += [call.stream, *(other.stream for other in self._calls)]
            self._calls.clear()
        elif answers.err_code_of_answer(answer) not in self._harmless:
            self._left.append(call.stream)
        if not self._is_asking:
            self.go_on()
