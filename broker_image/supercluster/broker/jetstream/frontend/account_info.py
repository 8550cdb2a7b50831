"""The answer to `$JS.API.INFO` for a client's account: limits and streams from the map, bytes and consumers
from the streams.

A broker knows the usage of streams of which it has a voting copy with a leader. For the others it asks their
leaders, with a bound on the number and rate of questions. Each broker counts the API calls that it has
answered since it started.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from supercluster.broker.jetstream.api import answers
from supercluster.broker.jetstream.api.answers import AccountTotals
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.frontend.api_counts import ApiCounts
from supercluster.broker.jetstream.meta import accounts
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.pending_requests import PendingRequests
from supercluster.broker.ports import ClientInfo

# Streams whose leaders are asked for one answer, as for a page of STREAM.LIST.
ASKED_MAX = 256
ASK_WAIT_MS = 1000
# Some clients call it with every connection: what leaders said counts for so long. Longer than the wait for the last of them.
TOLD_VALID_MS = 2000
# Calls of an account that wait for leaders; more are answered at once, by what is known.
WAITING_MAX = 1024
# Accounts whose calls are counted, and streams of which is kept what their leaders said.
COUNTED_MAX = 4096
KEPT_MAX = 4096

Then = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class _Held:
    """What a stream holds."""

    bytes: int
    consumers: int


class AccountInfo:
    def __init__(
        self,
        env: Environment,
        copies: Copies,
        map_view: MapView,
        requests: PendingRequests,
        counts: ApiCounts,
    ) -> None:
        self._env = env
        self._copies = copies
        self._map = map_view
        self._requests = requests
        self._counts = counts
        self._told: dict[str, tuple[int, _Held]] = {}
        """Group → until when it counts, and what its leader said."""
        self._waiting: dict[str, list[Then]] = {}
        """Account → who waits for the same leaders."""

    def ask(self, info: ClientInfo, then: Then) -> None:
        """`then` gets the answer, at once or when the leaders have spoken, within a bound."""
        account = info.account
        unknown = [found for found in self._streams(account) if found.is_shown and self._held(found) is None][
            :ASKED_MAX
        ]
        waiting = self._waiting.get(account, [])
        if not unknown or len(waiting) >= WAITING_MAX:
            then(self._answer(account))
            return
        self._waiting[account] = waiting
        waiting.append(then)
        if len(waiting) > 1:
            return
        left = len(unknown)

        def took(group: str, answer: bytes | None) -> None:
            nonlocal left
            left -= 1
            self._keep(group, answer)
            if not left:
                told = self._answer(account)
                for each in self._waiting.pop(account, ()):
                    each(told)

        for found in unknown:
            self._ask_leader(found, lambda answer, group=found.group: took(group, answer))  # type: ignore[misc]

    def _ask_leader(self, found: Assignment, then: Callable[[bytes | None], None]) -> None:
        self._requests.send(
            found.group,
            ClientInfo(found.account, "", is_operator=False),
            b"$JS.API.STREAM.INFO." + found.name.encode(),
            b"",
            b"",
            b"",
            self._env.clock.monotonic_ms(),
            on_answer=then,
            wait_ms=ASK_WAIT_MS,
        )

    def _keep(self, group: str, answer: bytes | None) -> None:
        found = answers.info_of_answer(answer) if answer else None
        if found is None:
            return
        if len(self._told) >= KEPT_MAX:
            self._told.clear()
        state = found["state"]
        until_ms = self._env.clock.monotonic_ms() + TOLD_VALID_MS
        self._told[group] = (until_ms, _Held(int(state["bytes"]), int(state["consumer_count"])))

    def _streams(self, account: str) -> list[Assignment]:
        return list(self._map.replica.state.of_account(account)) if self._map.replica is not None else []

    def _held(self, found: Assignment) -> _Held | None:
        copy = self._copies.streams.get(found.group)
        if copy is not None and copy.replica.failed is None:
            raft, state = copy.replica.raft, copy.stream.state
            if copy.replica.serves or (
                raft.leader is not None and raft.membership.is_voter(copy.replica.member)
            ):
                return _Held(state.bytes, len(state.consumers))
        until_ms, told = self._told.get(found.group, (0, None))
        return told if self._env.clock.monotonic_ms() <= until_ms else None

    def _answer(self, account: str) -> bytes:
        streams = self._streams(account)
        use = accounts.use_of(found.wanted for found in streams)
        held = {"file": 0, "memory": 0}
        consumers = unknown = 0
        for found in streams:
            told = self._held(found)
            if told is None:
                unknown += 1
                continue
            held[found.config.storage] += told.bytes * found.config.num_replicas
            consumers += told.consumers
        calls, failed = self._counts.of(account)
        totals = AccountTotals(
            memory=held["memory"],
            storage=held["file"],
            reserved_memory=use.memory_bytes,
            reserved_storage=use.storage_bytes,
            streams=use.streams,
            consumers=consumers,
            streams_unknown=unknown,
            api_total=calls,
            api_errors=failed,
        )
        return answers.account_info_answer(
            totals, self._map.account_limits(account), self._env.settings.domain
        )
