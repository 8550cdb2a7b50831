"""What copies of the map there are, asked of every broker in contact: before the map is recovered, nobody leads who could say."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from supercluster.broker.jetstream.encoding.codec import Reader, WireError, u64
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.meta.map_recovery import MapSituation
from supercluster.broker.jetstream.meta.stream_recovery import CopyFacts
from supercluster.broker.jetstream.meta_leader.replica import MetaReplica
from supercluster.broker.jetstream.recovery.stream_survey import SURVEY_MS, facts_of_open
from supercluster.broker.jetstream.replica.lineage import is_meta
from supercluster.broker.jetstream.replica.replica import APPLY_BYTES_MAX
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.confchange import Membership
from supercluster.broker.raft.entry import EntryKind
from supercluster.broker.raft.errors import DiskError

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core.broker import BrokerCore

Told = Callable[[MapSituation], None]


# ---- at the broker that is asked -------------------------------------------------------------------------------------


def _of_closed(core: BrokerCore, group_id: str, member: str) -> CopyFacts:
    opened = core.store.open(group_id, memory=False, fsync="always", create=False)
    log: StreamLog = opened.log
    try:
        if opened.lost:
            return CopyFacts(core.node, group_id, member, is_lost=True)
        voters = _membership_in(log)
        return CopyFacts(
            core.node,
            group_id,
            member,
            is_doubtful=opened.doubtful,
            last_term=log.last_term,
            last_index=log.last_index,
            commit_index=opened.commit_index,
            membership_index=voters.index,
            voters=voters.voters,
            voters_outgoing=voters.voters_outgoing,
        )
    finally:
        log.close(clean=False)


def _membership_in(log: StreamLog) -> Membership:
    """The newest in the log, committed or not, as it is in force for who has it."""
    found = log.load_checkpoint()
    state = found[1] if found is not None else log.base_state()
    newest = Membership.decode(Reader(state).blob()) if state is not None else Membership()
    index = (found[0] if found is not None else log.base_index) + 1
    while index <= log.last_index:
        entries = log.entries(index, log.last_index, APPLY_BYTES_MAX)
        if not entries:
            raise DiskError(f"entry {index} cannot be read", "a copy of the map")
        for entry in entries:
            if entry.kind == EntryKind.CONFIG:
                newest = replace(Membership.decode(entry.payload), index=entry.index)
        index = entries[-1].index + 1
    return newest


def map_copies_here(core: BrokerCore) -> list[CopyFacts]:
    """All copies of the map that this broker's volume holds, of this lineage and of older ones."""
    told: list[CopyFacts] = []
    for group_id, member in sorted(core.store.registered().items()):
        if not is_meta(group_id):
            continue
        group = core.groups.get(group_id)
        try:
            if isinstance(group, MetaReplica):
                told.append(facts_of_open(core, group))
            elif core.meta is None or core.meta.id != group_id:
                told.append(_of_closed(core, group_id, member))
        except DiskError as error:
            core.event(group_id, "DiskFailed", f"the copy of the map on {core.node} cannot be read: {error}")
            told.append(CopyFacts(core.node, group_id, member, is_lost=True))
    return told


def asked(core: BrokerCore, node: str, body: memoryview) -> None:
    """Frame.MAP_ASK."""
    number = Reader(body).u64()
    answer = {
        "lineage": core.meta_id,
        "copies": [copy.to_json() for copy in map_copies_here(core)],
        "aboutTo": core.map_survey.about_to if node != core.node else None,
    }
    core.post(node, Frame.MAP_TOLD, [u64(number), json.dumps(answer).encode()])


# ---- at the one that asks --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Asked:
    then: Told
    until_ms: int
    waits_for: set[str]
    answered: set[str] = field(default_factory=set)
    copies: list[CopyFacts] = field(default_factory=list)
    about_to: dict[str, str] = field(default_factory=dict)


class MapSurvey:
    """One survey at a time."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._numbers = count(1)
        self._number = 0
        self._running: _Asked | None = None
        self.about_to: str | None = None
        """The recovery that this broker has been asked for and is judging; None: none, or a dry run."""

    @property
    def is_busy(self) -> bool:
        return self._running is not None

    def ask(self, then: Told, about_to: str | None) -> None:
        """Ask everybody in contact; `then` is called once. The caller has looked whether somebody else does."""
        core = self._core
        nodes = set(core.brokers_in_contact())
        self._number = next(self._numbers)
        self._running = _Asked(then, core.clock.monotonic_ms() + SURVEY_MS, nodes)
        self.about_to = about_to
        for node in sorted(nodes):
            core.post(node, Frame.MAP_ASK, [u64(self._number)])

    def on_answer(self, node: str, body: memoryview) -> None:
        """Frame.MAP_TOLD.

        Raises:
            WireError: it is none.
        """
        reader = Reader(body)
        number, asked = reader.u64(), self._running
        if asked is None or number != self._number or node not in asked.waits_for:
            return
        try:
            told = json.loads(bytes(reader.rest()))
            copies = [CopyFacts.from_json(one) for one in told["copies"]]
            about_to = told["aboutTo"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WireError(f"these are no copies: {error!r}") from error
        asked.waits_for.discard(node)
        asked.answered.add(node)
        asked.copies.extend(copy for copy in copies if copy.node == node)
        if about_to is not None:
            asked.about_to[node] = str(about_to)
        self._finish(self._core.clock.monotonic_ms())

    def _finish(self, now_ms: int) -> None:
        core, asked = self._core, self._running
        contact = core.brokers_in_contact().keys()
        if asked is None or (now_ms < asked.until_ms and asked.waits_for & contact):
            return
        self._running = None
        found = MapSituation(
            core.node,
            core.meta_id,
            frozenset(contact),
            asked.copies,
            # Who came into contact meanwhile was not asked, or its answer is lost: it may hold a copy all the same.
            frozenset(contact - asked.answered),
            asked.about_to,
        )
        try:
            asked.then(found)
        finally:
            self.about_to = None

    def tick(self, now_ms: int) -> None:
        self._finish(now_ms)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._running.until_ms if self._running is not None else None
