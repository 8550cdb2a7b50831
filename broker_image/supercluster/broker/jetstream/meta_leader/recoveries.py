"""Forced recoveries, as the meta group's leader carries them out: a survey of the copies, a decision, one
entry, and an answer when it is committed.

Every request is logged, whatever its outcome (RP-8).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import StreamStage
from supercluster.broker.jetstream.meta.operations import recover_stream
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta.stream_recovery import (
    CopyFacts,
    Recovery,
    Situation,
    judge,
    why_alive,
)
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError
from supercluster.broker.jetstream.replica.lineage import lineage_of
from supercluster.broker.raft.confchange import node_of

# Recoveries that wait for a survey, for a turn or for their commit.
WAITING_MAX = 64

Answer = Callable[[int, dict[str, Any]], None]
"""Takes an HTTP-like status and a JSON object."""


@dataclass(frozen=True, slots=True)
class RecoverCall:
    """What a person asks."""

    account: str
    name: str
    node: str = ""
    """Empty: only what copies there are."""
    accepted_seq: int = 0
    id: str = ""
    dry_run: bool = True


@dataclass(frozen=True, slots=True)
class _Asked:
    call: RecoverCall
    answer: Answer
    undecided: Callable[[], None]
    """Called when this leader falls: the next one is to be asked."""


class Recoveries:
    def __init__(self, tail: MapTail, host: MetaHost) -> None:
        self._tail = tail
        self._host = host
        self._asking: set[_Asked] = set()
        self._surveyed: deque[tuple[_Asked, str, list[CopyFacts], frozenset[str]]] = deque()
        self._waiting: deque[tuple[int, _Asked]] = deque()

    def ask(self, call: RecoverCall, answer: Answer, undecided: Callable[[], None]) -> None:
        """The caller knows that this replica serves."""
        found = self._tail.state.streams.get((call.account, call.name))
        if found is None:
            _refuse(answer, errors.error(10059))
        elif len(self._asking) + len(self._surveyed) + len(self._waiting) >= WAITING_MAX:
            _refuse(answer, errors.error(10023))
        elif call.node and not call.dry_run and _is_known(found, call.id):
            answer(200, _show(found))
        else:
            self._survey(found, _Asked(call, answer, undecided))

    def _survey(self, found: Assignment, asked: _Asked) -> None:
        self._asking.add(asked)

        def told(copies: list[CopyFacts], silent: frozenset[str]) -> None:
            if asked in self._asking:
                self._asking.discard(asked)
                self._surveyed.append((asked, found.group, copies, silent))
                self._tail.touch()

        self._host.ask_copies(found, told)

    def turn(self) -> None:
        """Judge what was surveyed."""
        while self._surveyed:
            asked, group_id, copies, silent = self._surveyed.popleft()
            try:
                self._decide(asked, group_id, copies, silent)
            except ApiError as refused:
                self._say_refused(asked.call, refused)
                _refuse(asked.answer, refused)
            except NotAppendedError:
                asked.undecided()

    def _decide(self, asked: _Asked, group_id: str, copies: list[CopyFacts], silent: frozenset[str]) -> None:
        call, tail, host = asked.call, self._tail, self._host
        found = tail.state.streams.get((call.account, call.name))
        if found is None:
            raise errors.error(10059)
        if call.node and not call.dry_run and _is_known(found, call.id):
            asked.answer(200, _show(found))
            return
        if found.group != group_id:
            raise errors.recovery_refused(found.name, "another recovery came first")
        if why := _whose(found):
            raise errors.recovery_refused(found.name, why)
        contact = host.brokers_in_contact()
        situation = Situation(
            found.name,
            found.group,
            found.config.storage,
            found.members,
            found.recovery,
            contact,
            copies,
            tail.time_ns(),
        )
        if call.dry_run or not call.node:
            asked.answer(200, {**_show(found), **_dry(situation, call)})
            return
        if silent:
            who = ", ".join(sorted(silent))
            raise errors.recovery_refused(
                found.name, f"{who}, in contact, did not say which copies are there: ask again"
            )
        token = host.new_token() if tail.state.recovery is not None else ""
        verdict = judge(situation, call.node, call.accepted_seq, token)
        copy = verdict.copy
        recovery = Recovery(
            call.id or host.new_token(),
            f"{call.node}@{contact[call.node][1]}.{host.new_token()}",
            copy.group,
            call.accepted_seq,
            copy.last_seq,
            copy.commit_seq,
            copy.commit_index,
            verdict.may_lose,
        )
        index = tail.propose(recover_stream(found, verdict.group, recovery)).index
        self._waiting.append((index, asked))
        host.event(
            verdict.group, "RecoveryForced", f"recovery {recovery.id} by a person: {recovery.may_lose}"
        )

    def _say_refused(self, call: RecoverCall, refused: ApiError) -> None:
        found = self._tail.state.streams.get((call.account, call.name))
        if found is not None and not call.dry_run:
            self._host.event(found.group, "RecoveryRefused", refused.description)

    def applied(self, index: int, state: MetaState) -> None:
        """Everything up to there is committed and applied, with this state."""
        while self._waiting and self._waiting[0][0] <= index:
            _, asked = self._waiting.popleft()
            found = state.streams.get((asked.call.account, asked.call.name))
            if found is None:
                _refuse(asked.answer, errors.error(10059))
            else:
                asked.answer(202, _show(found))

    def clear(self) -> None:
        """This replica does not lead any more."""
        left = [*self._asking, *(item[0] for item in self._surveyed), *(item[1] for item in self._waiting)]
        self._asking.clear()
        self._surveyed.clear()
        self._waiting.clear()
        for asked in left:
            asked.undecided()


def _whose(found: Assignment) -> str:
    """Why nobody here may have it go on from a copy; empty: it is this super-cluster's."""
    if found.following is not None:
        return f"super-cluster {found.following.world} has it until it is open here"
    way = found.migration
    if way is not None and way.stage is not StreamStage.LEARNING:
        return (
            f"migration {way.id} has handed it over, or is about to: what another copy would take is lost where green opens it; "
            "ask green, and abort the migration if green has refused it"
        )
    return ""


def _is_known(found: Assignment, recovery_id: str) -> bool:
    return bool(recovery_id) and found.recovery is not None and recovery_id in found.recovery.known


def _refuse(answer: Answer, refused: ApiError) -> None:
    status = {10059: 404}.get(refused.err_code, refused.code)
    answer(status, {"error": refused.description, "err_code": refused.err_code})


def _dry(situation: Situation, call: RecoverCall) -> dict[str, Any]:
    """What copies there are, whether anything has to be forced, and what choosing each of them may lose."""
    choices: list[dict[str, Any]] = []
    for copy in situation.copies:
        try:
            verdict = judge(situation, copy.node, call.accepted_seq)
            chosen = {"mayLose": verdict.may_lose, "refusal": ""} if verdict.copy is copy else {}
        except ApiError as refused:
            chosen = {"mayLose": "", "refusal": refused.description}
        choices.append({**_copy(copy), **chosen})
    told = {copy.node for copy in situation.copies}
    away = sorted({node_of(member) for member in situation.members} - told - set(situation.contact))
    document: dict[str, Any] = {"alive": why_alive(situation), "copies": choices, "outOfContact": away}
    if call.node:
        try:
            document |= {"mayLose": judge(situation, call.node, call.accepted_seq).may_lose, "refusal": ""}
        except ApiError as refused:
            document |= {"mayLose": "", "refusal": refused.description}
    return document


def _copy(copy: CopyFacts) -> dict[str, Any]:
    return {
        "node": copy.node,
        "lineage": copy.lineage,
        "lost": copy.is_lost,
        "doubtful": copy.is_doubtful,
        "open": copy.is_open,
        "votes": copy.member in (*copy.voters, *copy.voters_outgoing),
        "lastTerm": copy.last_term,
        "lastIndex": copy.last_index,
        "lastSeq": copy.last_seq,
        "committedSeq": copy.commit_seq,
    }


def _show(found: Assignment) -> dict[str, Any]:
    recovery = found.recovery
    return {
        "account": found.account,
        "name": found.name,
        "lineage": lineage_of(found.group),
        "declaredBy": found.declared_by,
        "members": list(found.members),
        "recovery": None
        if recovery is None
        else {
            "id": recovery.id,
            "node": recovery.node,
            "acceptedSeq": recovery.accepted_seq,
            "lastSeq": recovery.last_seq,
            "committedSeq": recovery.commit_seq,
            "mayLose": recovery.may_lose,
            "atNs": recovery.at_ns,
            "known": list(recovery.known),
        },
    }
