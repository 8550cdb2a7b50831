"""Declarations and withdrawals of accounts.

The meta group's leader judges a request. It answers when the change is committed and every broker in contact
has the new map, since streams' leaders check limits too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta import accounts
from supercluster.broker.jetstream.meta.accounts import AccountRecord
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.map_waits import MapRequests

# Records are in every snapshot of the map; those that streams give are bounded by the streams.
ACCOUNTS_MAX = 4096

Answer = Callable[[ApiError | dict[str, Any] | None], None]
"""Takes the account as it is, None where nothing is left of it, or a refusal."""


def shown(state: MetaState, account: str) -> dict[str, Any] | None:
    """The account as it is there; None when nobody knows it."""
    record = state.accounts.get(account)
    if record is None:
        return None
    use = accounts.use_of(found.wanted for found in state.of_account(account))
    return accounts.show(account, record, use)


def all_shown(state: MetaState) -> list[dict[str, Any]]:
    """Every account, by name."""
    streams: dict[str, list[StreamConfig]] = {}
    for found in state.streams.values():
        streams.setdefault(found.account, []).append(found.wanted)
    return [
        accounts.show(name, record, accounts.use_of(streams.get(name, ())))
        for name, record in sorted(state.accounts.items())
    ]


class AccountRequests(MapRequests):
    def __init__(self, tail: MapTail, host: MetaHost, applied: Callable[[], MetaState]) -> None:
        super().__init__(host, everywhere=True)
        self._tail = tail
        self._applied = applied

    def ask(
        self, account: str, record: AccountRecord | None, answer: Answer, undecided: Callable[[], None]
    ) -> None:
        """The account is to be so; None: it is withdrawn."""

        def judged(refused: ApiError | None) -> None:
            answer(shown(self._applied(), account) if refused is None else refused)

        self._take(lambda: self._judge(account, record), judged, undecided)

    def _judge(self, account: str, wanted: AccountRecord | None) -> int:
        tail = self._tail
        present = tail.state.accounts.get(account)
        if wanted is None:
            if present is None or not present.is_declared:
                return tail.state.applied_index
            index = tail.propose(accounts.withdraw_account(account)).index
            tail.event("AccountWithdrawn", f"account {account} is not declared any more")
            return index
        if wanted == present:
            return tail.state.applied_index
        if present is None and len(tail.state.accounts) >= ACCOUNTS_MAX:
            raise errors.detailed(
                errors.INSUFFICIENT_RESOURCES,
                f"there are {len(tail.state.accounts)} accounts of at most {ACCOUNTS_MAX}",
            )
        index = tail.propose(accounts.put_account(account, wanted)).index
        limits = ", ".join(f"{name} {value}" for name, value in wanted.limits.to_json().items())
        tail.event("AccountDeclared", f"account {account}: {limits or 'no limits'}")
        return index
