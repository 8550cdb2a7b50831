"""What JetStream's API has for those who look after all accounts: brokers that are gone for good (SERVER.REMOVE), and accounts whose
streams go (ACCOUNT.PURGE). Users with the system role may call it, and the operator; in whatever account they are.

A broker that is removed leaves as it does by the admin API (`meta_brokers.py`): it votes no more on the map once others do, gets no
copies, and is forgotten when it is gone and nothing is on it. An account is purged stream by stream, each deletion judged as one
that a client of that account asked for; so a declared stream, which only the operator may delete (SF-23), has the whole call refused,
before anything is done. The broker that was asked carries the purge on, and answers when it has begun, as nats-server does: what is
left when that broker falls is there until somebody asks again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream import api, api_answers, broker_calls, errors
from supercluster.broker.ports import ClientInfo

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core import BrokerCore

_KINDS = frozenset({"meta_server_remove", "account_purge", "meta_leader_stepdown"})

DELETIONS_AT_ONCE = 16
"""Of one purge: the map has other work."""

PURGES_MAX = 64
"""Accounts that are purged at the same time by way of this broker."""

NAMES_SHOWN = 8

Respond = Callable[[bytes], None]


def is_administration(subject: bytes) -> bool:
    """Is it a call that concerns more than the caller's account?"""
    return api.answer_kind(subject) in _KINDS


def check_caller(info: ClientInfo, subject: bytes) -> None:
    """Raises:
    ApiError: the caller may not.
    """
    if not info.may_administer:
        call = subject.removeprefix(api.API_PREFIX).decode("utf-8", "replace")
        raise errors.not_supported(f"{call} without the operator's or the system account's credentials is")


class Administration:
    """The calls of one broker's clients."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._purges: dict[str, _Purge] = {}
        """By account."""

    def carry_out(
        self, info: ClientInfo, call: api.ServerRemoveRequest | api.AccountPurgeRequest, respond: Respond
    ) -> None:
        """By a fresh map; `respond` takes the answer, once.

        Raises:
            ApiError: it is refused.
        """
        if isinstance(call, api.ServerRemoveRequest):
            self._remove(call.peer, respond)
        else:
            self._purge(info, call.account)
            respond(api_answers.account_purge_answer())

    @property
    def purges(self) -> int:
        """How many accounts are being purged."""
        return len(self._purges)

    def _remove(self, peer: str, respond: Respond) -> None:
        meta = self._core.meta
        if meta is None or peer not in meta.state.brokers or peer in meta.state.leaving:
            raise errors.error(errors.SERVER_NOT_MEMBER)

        def then(status: int, body: Any) -> None:
            if status == 200:
                respond(api_answers.success_answer("meta_server_remove"))
                return
            refusal = errors.ApiError(
                status, int(body.get("err_code", errors.JETSTREAM_NOT_AVAILABLE)), str(body["error"])
            )
            respond(api_answers.error_answer("meta_server_remove", refusal))

        broker_calls.call(self._core, "DELETE", peer, then)

    def _purge(self, info: ClientInfo, account: str) -> None:
        meta = self._core.meta
        found = list(meta.state.of_account(account)) if meta is not None else []
        declared = next((stream for stream in found if stream.declared_by), None)
        if declared is not None and not info.is_operator:
            raise errors.declared_stream(declared.name, declared.declared_by, "the stream itself")
        if not found or account in self._purges:
            return
        if len(self._purges) >= PURGES_MAX:
            raise errors.error(errors.INSUFFICIENT_RESOURCES)
        names = [stream.name for stream in found]
        asker = ClientInfo(account, info.user, is_operator=info.is_operator)
        purge = self._purges[account] = _Purge(self._core, asker, names, lambda: self._purges.pop(account))
        self._core.event(
            self._core.meta_id, "AccountPurged", f"all {len(names)} streams of account {account} are deleted"
        )
        purge.go_on()


class _Purge:
    """One account's streams, some at a time."""

    def __init__(
        self, core: BrokerCore, asker: ClientInfo, names: list[str], done: Callable[[], object]
    ) -> None:
        self._core = core
        self._asker = asker
        self._names = deque(names)
        self._done = done
        self._under_way = 0
        self._is_asking = False
        self._left: list[str] = []

    def go_on(self) -> None:
        """Ask for as many deletions as may be under way."""
        core, self._is_asking = self._core, True
        while self._names and self._under_way < DELETIONS_AT_ONCE:
            name = self._names.popleft()
            self._under_way += 1
            core.requests.send(
                core.meta_id,
                self._asker,
                b"$JS.API.STREAM.DELETE." + name.encode(),
                b"",
                b"",
                b"",
                core.clock.monotonic_ms(),
                on_answer=lambda answer, name=name: self._deleted(name, answer),  # type: ignore[misc]
            )
        self._is_asking = False
        if not self._under_way:
            self._end()

    def _deleted(self, name: str, answer: bytes | None) -> None:
        self._under_way -= 1
        if answer is None:  # Nobody leads the map: nor would the others be answered.
            self._left += [name, *self._names]
            self._names.clear()
        elif api_answers.err_code_of_answer(answer) not in (0, errors.STREAM_NOT_FOUND):
            self._left.append(name)
        if not self._is_asking:
            self.go_on()

    def _end(self) -> None:
        self._done()
        if self._left:
            shown = ", ".join(sorted(self._left)[:NAMES_SHOWN])
            text = f"{len(self._left)} streams of account {self._asker.account} were to be deleted and are left: {shown}"
            self._core.event(self._core.meta_id, "AccountPurgeIncomplete", text)
