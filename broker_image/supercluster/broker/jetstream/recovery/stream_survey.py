"""Surveys the copies of a stream on every broker in contact: before a forced recovery, the stream has no
leader that could report them.

A broker answers for all copies that its volume holds, open or closed, of this lineage or an older one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import count

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.config.metadata_keys import fsync_of
from supercluster.broker.jetstream.encoding.codec import Reader, WireError, text, u64
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.stream_recovery import CopiesTold, CopyFacts
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.replica.lineage import is_same_stream
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.state.snapshot import restore
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.config import Role
from supercluster.broker.raft.errors import DiskError

# Who has not answered by then is taken for one that does not.
SURVEY_MS = 2000
# Surveys at a time; further ones are refused with what nobody answered.
SURVEYS_MAX = 16
# How many entries are read at once in search of the last message.
STRETCH = 512


def last_seq_at(log: StreamLog, index: int, known: tuple[int, int] | None = None) -> int:
    """The stream's last sequence as of an entry, by the log alone, or from where it is `known` on: as of an entry that is
    not behind that one."""
    begin = known[0] if known is not None else log.base_index
    while index > begin:
        first = max(begin + 1, index - STRETCH + 1)
        for position in range(index, first - 1, -1):
            entry = log.entry(position)
            if entry is not None and entry.count:
                return entry.last_seq
        index = first - 1
    if known is not None:
        return known[1]
    state = log.base_state()
    if state is None:
        return 0
    reader = Reader(state)
    reader.blob()
    return restore(reader.rest(), log).last_seq


def facts_of_open(peers: Peers, replica: Replica) -> CopyFacts:
    """Of a group whose copy is in use here; what is in its log is left to the caller."""
    raft, log = replica.raft, replica.log
    hears = replica.member if raft.role is Role.LEADER else raft.leader
    if hears and node_of(hears) not in peers.brokers_in_contact():
        hears = None  # A learner waits for it for ever: it has no time-out, since it never stands.
    return CopyFacts(
        peers.node,
        replica.id,
        replica.member,
        is_doubtful=raft.doubtful,
        is_open=replica.failed is None,
        leader=(hears or "") if replica.failed is None else "",
        last_term=log.last_term,
        last_index=log.last_index,
        commit_index=raft.commit_index,
        membership_index=raft.membership.index,
        voters=raft.membership.voters,
        voters_outgoing=raft.membership.voters_outgoing,
    )


@dataclass(slots=True)
class _Asked:
    """A survey under way."""

    then: CopiesTold
    until_ms: int
    waits_for: set[str]
    answered: set[str] = field(default_factory=set)
    copies: list[CopyFacts] = field(default_factory=list)


class StreamSurvey:
    """Answers others, and has surveys of its own under way while it leads the meta group."""

    def __init__(self, env: Environment, peers: Peers, copies: Copies, map_view: MapView) -> None:
        self._env = env
        self._peers = peers
        self._copies = copies
        self._map = map_view
        self._numbers = count(1)
        self._running: dict[int, _Asked] = {}

    # ---- at the broker that is asked ------------------------------------------------------------------------------

    def copies_here(self, found: Assignment) -> list[CopyFacts]:
        """All copies of the stream that this broker's volume holds."""
        told: list[CopyFacts] = []
        for group_id, member in sorted(self._env.store.registered().items()):
            if not is_same_stream(group_id, found.group):
                continue
            copy = self._copies.streams.get(group_id)
            try:
                if copy is not None:
                    told.append(self._of_open(copy))
                elif found.config.storage == "file":
                    told.append(self._of_closed(found, group_id, member))
            except DiskError as error:
                self._env.event(
                    group_id,
                    "DiskFailed",
                    f"the copy of {found.name} on {self._env.node} cannot be read: {error}",
                )
                told.append(CopyFacts(self._env.node, group_id, member, is_lost=True))
        return told

    def _of_open(self, copy: StreamCopy) -> CopyFacts:
        replica, log = copy.replica, copy.replica.log
        # A healthy copy has counted already: behind its last message may be millions of entries that are consumers' alone.
        is_healthy = replica.failed is None and log.failed is None
        known = (replica.applied_index, copy.stream.state.last_seq) if is_healthy else None
        return replace(
            facts_of_open(self._peers, replica),
            last_seq=last_seq_at(log, log.last_index, known),
            commit_seq=last_seq_at(log, replica.raft.commit_index, known),
        )

    def _of_closed(self, found: Assignment, group_id: str, member: str) -> CopyFacts:
        opened = self._env.store.open(
            group_id, memory=False, fsync=fsync_of(found.config.metadata), create=False
        )
        log = opened.log
        try:
            if opened.lost:
                return CopyFacts(self._env.node, group_id, member, is_lost=True)
            return CopyFacts(
                self._env.node,
                group_id,
                member,
                is_doubtful=opened.doubtful,
                last_term=log.last_term,
                last_index=log.last_index,
                commit_index=opened.commit_index,
                last_seq=last_seq_at(log, log.last_index),
                commit_seq=last_seq_at(log, opened.commit_index),
            )
        finally:
            log.close(clean=False)

    def on_ask(self, node: str, body: memoryview, now_ms: int) -> None:
        """Frame.COPY_ASK: the meta group's leader wants to know of a group's stream."""
        reader = Reader(body)
        number, group_id = reader.u64(), reader.text()
        if self._map.replica is not None and self._map.replica.is_behind:
            return  # It would answer by the map of an older lineage (SF-9): "none" is not what it knows.
        found = self._map.replica.state.by_group(group_id) if self._map.replica is not None else None
        if found is None and self._map.replica is not None:
            # The asker's map is a step ahead, or behind: the stream is what counts.
            of_stream = (
                one for one in self._map.replica.state.streams.values() if is_same_stream(one.group, group_id)
            )
            found = next(of_stream, None)
        told = self.copies_here(found) if found is not None else []
        answer = json.dumps([copy.to_json() for copy in told]).encode()
        self._peers.post(node, Frame.COPY_TOLD, [u64(number), answer])

    # ---- at the one that asks -------------------------------------------------------------------------------------

    def ask(self, found: Assignment, then: CopiesTold) -> None:
        """Ask everybody in contact; `then` is called once."""
        nodes = set(self._peers.brokers_in_contact())
        if len(self._running) >= SURVEYS_MAX:
            then([], frozenset(nodes))
            return
        number = next(self._numbers)
        self._running[number] = _Asked(then, self._env.clock.monotonic_ms() + SURVEY_MS, nodes)
        for node in sorted(nodes):
            self._peers.post(node, Frame.COPY_ASK, [u64(number) + text(found.group)])

    def on_answer(self, node: str, body: memoryview, now_ms: int) -> None:
        """Frame.COPY_TOLD.

        Raises:
            WireError: it is none.
        """
        reader = Reader(body)
        asked = self._running.get(reader.u64())
        if asked is None or node not in asked.waits_for:
            return
        try:
            copies = [CopyFacts.from_json(one) for one in json.loads(bytes(reader.rest()))]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WireError(f"these are no copies: {error!r}") from error
        asked.waits_for.discard(node)
        asked.answered.add(node)
        asked.copies.extend(copy for copy in copies if copy.node == node)
        self._finish(now_ms)

    def _finish(self, now_ms: int) -> None:
        contact = self._peers.brokers_in_contact().keys()
        for number, asked in list(self._running.items()):
            if now_ms >= asked.until_ms or not asked.waits_for & contact:
                del self._running[number]
                # Who came into contact meanwhile was not asked, or its answer is lost: it may hold a copy all the same.
                asked.then(asked.copies, frozenset(contact - asked.answered))

    def tick(self, now_ms: int) -> None:
        if self._running:
            self._finish(now_ms)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        return min((asked.until_ms for asked in self._running.values()), default=None)
