"""Callers that wait at a stream's leader: a command for its turn, an answer for the entry that it depends on,
a request for the configuration that it was made under.

Every waiter gets an answer; on loss of leadership it is asked to retry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from supercluster.broker.jetstream.encoding.ack_subjects import Ack
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.publish.proposal import Done, Proposal

# Commands that wait for a turn, or requests for a configuration; beyond it the asker is told to ask again.
WAITING_MAX = 4096


@dataclass(frozen=True, slots=True)
class _Answers:
    """What is owed when an entry is applied: results to those who asked, and bare acknowledgements."""

    index: int
    dones: list[Done]
    replies: list[bytes]
    noted: list[Done]
    acks: list[tuple[str, list[Ack]]]


class Waiters:
    def __init__(self, reply: Callable[[bytes], None]) -> None:
        """`reply` publishes an empty message on a subject: a confirmed acknowledgement."""
        self._reply = reply
        self._commands: deque[tuple[int, list[bytes | memoryview], Done, Callable[[], None]]] = deque()
        """Kind, body, whom to tell what comes of it, and what to do where it does not get into this leader's log."""
        self._answers: deque[_Answers] = deque()
        self._requests: list[tuple[int, Callable[[], None], Callable[[], None]]] = []
        """Version, what to do when it is in force, and what if another replica leads before."""
        self._closed_out: list[tuple[Callable[[], None], Callable[[], None]]] = []
        """The same of requests that came while the stream was closed."""

    @property
    def await_acks(self) -> bool:
        """Are there acknowledgements in entries that are not applied?"""
        return any(owed.acks for owed in self._answers)

    def command(
        self,
        kind: int,
        body: list[bytes | memoryview],
        done: Done,
        not_begun: Callable[[], None] | None = None,
    ) -> None:
        """A change that is to be proposed in the next turn. `not_begun` is called instead of `done(None)` where nothing of it gets
        into this leader's log, so that the next one may be asked for what must not happen twice."""
        not_begun = not_begun or partial(done, None)
        if len(self._commands) >= WAITING_MAX:
            not_begun()
            return
        self._commands.append((kind, body, done, not_begun))

    def put(self, turn: LeaderTurn) -> None:
        """Commands go into the log."""
        while self._commands:
            kind, body, done, _ = self._commands.popleft()
            turn.proposal.add(kind, body)
            turn.proposal.commands.append(done)
            if turn.proposal.is_full and not turn.next_entry():
                self._give_commands_back()

    def _give_commands_back(self) -> None:
        commands, self._commands = self._commands, deque()
        for _, _, _, not_begun in commands:
            not_begun()

    def proposed(self, index: int, proposal: Proposal) -> None:
        """The proposal's answers are due when the entry is applied."""
        self._answers.append(
            _Answers(index, proposal.commands, proposal.replies, proposal.noted, proposal.acks)
        )

    def applied(self, index: int, results: Sequence[int]) -> None:
        """Entries up to `index` are applied, the last of them with these results of its commands."""
        while self._answers and self._answers[0].index <= index:
            answers = self._answers.popleft()
            for done, result in zip(answers.dones, results, strict=False):
                done(result)
            for subject in answers.replies:
                self._reply(subject)
            for done in answers.noted:
                done(1)

    def for_version(self, version: int, run: Callable[[], None], retry: Callable[[], None]) -> None:
        """A request for a stream whose configuration is to be at least so new."""
        if len(self._requests) >= WAITING_MAX:
            retry()
            return
        self._requests.append((version, run, retry))

    def version_applied(self, version: int) -> None:
        """The stream's configuration is so new."""
        if self._requests:
            ready = [run for wanted, run, _ in self._requests if wanted <= version]
            self._requests = [request for request in self._requests if request[0] > version]
            for run in ready:
                run()

    def until_open(self, run: Callable[[], None], retry: Callable[[], None]) -> None:
        """A request for a stream that is closed."""
        if len(self._closed_out) >= WAITING_MAX:
            retry()
            return
        self._closed_out.append((run, retry))

    def opened(self) -> None:
        """The stream takes requests again."""
        closed_out, self._closed_out = self._closed_out, []
        for run, _ in closed_out:
            run()

    def give_back(self) -> list[tuple[str, list[Ack]]]:
        """This replica does not lead any more: whoever waits asks again. Returns acknowledgements that were appended and
        that nobody knows the commit of, by broker."""
        answers, self._answers = self._answers, deque()
        requests, self._requests = self._requests, []
        closed_out, self._closed_out = self._closed_out, []
        for retry in (*(found for _, _, found in requests), *(found for _, found in closed_out)):
            retry()
        self._give_commands_back()
        for owed in answers:
            for done in (*owed.dones, *owed.noted):
                done(None)
        return [sent for owed in answers for sent in owed.acks]
