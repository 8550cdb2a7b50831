"""Surveys the copies of the map on every broker in contact: before the map is recovered, it has no leader
that could report them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.encoding.codec import Reader, WireError, u64
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.map_recovery import MapSituation
from supercluster.broker.jetstream.meta.stream_recovery import CopyFacts
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.recovery.stream_survey import SURVEY_MS, facts_of_open
from supercluster.broker.jetstream.replica.lineage import is_meta
from supercluster.broker.jetstream.replica.replica import APPLY_BYTES_MAX
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.confchange import Membership
from supercluster.broker.raft.entry import EntryKind
from supercluster.broker.raft.errors import DiskError

Told = Callable[[MapSituation], None]


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


@dataclass(slots=True)
class _Asked:
    then: Told
    until_ms: int
    waits_for: set[str]
    answered: set[str] = field(default_factory=set)
    copies: list[CopyFacts] = field(default_factory=list)
    about_to: dict[str, str] = field(default_factory=dict)


class MapSurvey:
    """Answers others, and has one survey of its own at a time."""

    def __init__(self, env: Environment, peers: Peers, copies: Copies, map_view: MapView) -> None:
        self._env = env
        self._peers = peers
        self._copies = copies
        self._map = map_view
        self._numbers = count(1)
        self._number = 0
        self._running: _Asked | None = None
        self.about_to: str | None = None
        """The recovery that this broker has been asked for and is judging; None: none, or a dry run."""

    # ---- at the broker that is asked ------------------------------------------------------------------------------

    def copies_here(self) -> list[CopyFacts]:
        """All copies of the map that this broker's volume holds, of this lineage and of older ones."""
        told: list[CopyFacts] = []
        for group_id, member in sorted(self._env.store.registered().items()):
            if not is_meta(group_id):
                continue
            group = self._copies.groups.get(group_id)
            try:
                if group is not None:
                    told.append(facts_of_open(self._peers, group))
                elif self._map.replica is None or self._map.replica.id != group_id:
                    told.append(self._of_closed(group_id, member))
            except DiskError as error:
                self._env.event(
                    group_id, "DiskFailed", f"the copy of the map on {self._env.node} cannot be read: {error}"
                )
                told.append(CopyFacts(self._env.node, group_id, member, is_lost=True))
        return told

    def _of_closed(self, group_id: str, member: str) -> CopyFacts:
        opened = self._env.store.open(group_id, memory=False, fsync="always", create=False)
        log: StreamLog = opened.log
        try:
            if opened.lost:
                return CopyFacts(self._env.node, group_id, member, is_lost=True)
            voters = _membership_in(log)
            return CopyFacts(
                self._env.node,
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

    def on_ask(self, node: str, body: memoryview, now_ms: int) -> None:
        """Frame.MAP_ASK."""
        number = Reader(body).u64()
        answer = {
            "lineage": self._map.meta_id,
            "copies": [copy.to_json() for copy in self.copies_here()],
            "aboutTo": self.about_to if node != self._env.node else None,
        }
        self._peers.post(node, Frame.MAP_TOLD, [u64(number), json.dumps(answer).encode()])

    # ---- at the one that asks -------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        return self._running is not None

    def ask(self, then: Told, about_to: str | None) -> None:
        """Ask everybody in contact; `then` is called once. The caller has looked whether somebody else does."""
        nodes = set(self._peers.brokers_in_contact())
        self._number = next(self._numbers)
        self._running = _Asked(then, self._env.clock.monotonic_ms() + SURVEY_MS, nodes)
        self.about_to = about_to
        for node in sorted(nodes):
            self._peers.post(node, Frame.MAP_ASK, [u64(self._number)])

    def on_answer(self, node: str, body: memoryview, now_ms: int) -> None:
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
        self._finish(now_ms)

    def _finish(self, now_ms: int) -> None:
        asked = self._running
        contact = self._peers.brokers_in_contact().keys()
        if asked is None or (now_ms < asked.until_ms and asked.waits_for & contact):
            return
        self._running = None
        found = MapSituation(
            self._env.node,
            self._map.meta_id,
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
