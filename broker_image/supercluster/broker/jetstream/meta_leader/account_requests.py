"""Accounts that somebody declares or withdraws: judged by the meta group's leader, answered when it is committed and every
broker in contact has the new map, since limits are judged by streams' leaders too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta import accounts
from supercluster.broker.jetstream.meta.accounts import AccountRecord
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.map_waits import MapWaits
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError

# Requests that wait for a turn or for their commit.
WAITING_MAX = 256
# Records are in every snapshot of the map; those that streams give are bounded by the streams.
ACCOUNTS_MAX = 4096

Answer = Callable[[ApiError | dict[str, Any] | None], None]
"""Takes the account as it is, None where nothing is left of it, or a refusal."""


@dataclass(frozen=True, slots=True)
class _Asked:
    account: str
    record: AccountRecord | None
    """None: it is withdrawn."""
    answer: Answer
    undecided: Callable[[], None]


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


class AccountRequests:
    """See the module."""

    def __init__(self, tail: MapTail, host: MetaHost, applied: Callable[[], MetaState]) -> None:
        self._tail = tail
        self._applied = applied
        self._queue: deque[_Asked] = deque()
        self._waits = MapWaits(host)

    def ask(
        self, account: str, record: AccountRecord | None, answer: Answer, undecided: Callable[[], None]
    ) -> None:
        """`undecided` is called when this leader falls: the next one is to be asked."""
        if len(self._queue) + len(self._waits) >= WAITING_MAX:
            answer(errors.error(errors.INSUFFICIENT_RESOURCES))
            return
        self._queue.append(_Asked(account, record, answer, undecided))

    def turn(self, now_ms: int) -> None:
        """Judge what was asked."""
        while self._queue:
            asked = self._queue.popleft()
            try:
                index = self._judge(asked)
            except ApiError as refused:
                asked.answer(refused)
            except NotAppendedError:
                asked.undecided()
            else:
                self._waits.add(index, now_ms, lambda asked=asked: self._done(asked), asked.undecided)  # type: ignore[misc]

    def _judge(self, asked: _Asked) -> int:
        tail, account, wanted = self._tail, asked.account, asked.record
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

    def _done(self, asked: _Asked) -> None:
        asked.answer(shown(self._applied(), asked.account))

    def after_turn(self, applied_index: int, now_ms: int) -> None:
        self._waits.after_turn(applied_index, now_ms)

    def give_up_ms(self, applied_index: int) -> list[int]:
        return self._waits.give_up_ms(applied_index)

    def clear(self) -> None:
        """This replica does not lead any more."""
        queue, self._queue = self._queue, deque()
        self._waits.clear()
        for asked in queue:
            asked.undecided()
