"""The world of several clusters: grace times that end within a run, events that are looked at, copies that read wrong.

A copy that reads other bytes than it was sent, with fitting checksums, or that has deleted other messages, is what only
the comparison of a move can find; so it is made here, and must never come to vote.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from copy import copy
from dataclasses import replace

from tests.simulator.super_plan import SuperPlan
from tests.simulator.world import Node, World
from tests.support.subject_copies import copy_of

from supercluster.broker.jetstream.config.core_settings import CoreSettings
from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.state.interior_deletes import InteriorDeletes
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.jetstream.turn.slices import Job
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.entry import Entry


class DamagedLog:
    """A log that reads other bytes of messages than were written."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self.index_of_seq = log.index_of_seq

    @property
    def first_seq(self) -> int:
        return self._log.first_seq

    def entries(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        return [
            replace(entry, record=entry.record[:-1] + bytes([entry.record[-1] ^ 1])) if entry.count else entry
            for entry in self._log.entries(first, last, bytes_max)
        ]


class SuperWorld(World):
    """See the module."""

    def __init__(self, seed: int, plan: SuperPlan, rng: random.Random) -> None:
        clusters = plan.cluster_of
        founders = tuple(name for name, cluster in clusters.items() if cluster == plan.clusters[0])
        super().__init__(seed, rng=rng, clusters=clusters, founders=founders)
        self.plan = plan
        self.on_event: Callable[[str, str, str, str], None] = lambda node, group, reason, text: None
        self.on_forget: Callable[[str, str, str], None] = lambda node, group, member: None
        """A broker is about to drop its copy of a group."""

    def _settings(self, name: str) -> CoreSettings:
        return replace(super()._settings(name), retired_grace_ms=self.plan.grace_ms)

    def _new_core(self, node: Node) -> BrokerCore:
        core = super()._new_core(node)
        event, forget, store = core.env.event, core.store.forget, core.store

        def told(group: str, reason: str, text: str) -> None:
            event(group, reason, text)
            self.on_event(node.name, group, reason, text)

        def forgotten(group: str) -> None:
            member = store.registered().get(group)
            if member is not None:
                self.on_forget(node.name, group, member)
            forget(group)

        core.env.event = told
        store.forget = forgotten  # type: ignore[method-assign]
        return core

    def damage(self, replica: StreamReplica) -> None:
        """From now on this copy reads other bytes than it was sent; or it has deleted other messages than it was told to,
        as many."""
        hasher, log = replica.copy.range_hasher, replica.log
        if zlib.crc32(replica.member.encode()) % 2:
            self.note(f"{replica.member} reads other bytes of {replica.id} than it was sent")
            hasher._log = DamagedLog(log)  # type: ignore[assignment]
            as_it_is = hasher.marked

            def read(index: int, state: StreamState) -> Job:
                # Of messages that are all carried none is read from the log.
                is_read = state.gaps.past(state.carried.last_seq + 1) <= state.last_seq
                return as_it_is(index, state if is_read else with_other_holes(state) or state)

            hasher.marked = read  # type: ignore[method-assign]
            return
        self.note(f"{replica.member} has deleted other messages of {replica.id} than it was told to")
        marked = hasher.marked

        def other(index: int, state: StreamState) -> Job:
            seen = with_other_holes(state)
            # A stream that holds nothing has nothing to miss.
            hasher._log = log if seen is not None else DamagedLog(log)  # type: ignore[assignment]
            return marked(index, seen or state)

        hasher.marked = other  # type: ignore[method-assign]


def with_other_holes(state: StreamState) -> StreamState | None:
    """The state with a message deleted that is there, and there again one that was deleted; where nothing was deleted, with
    a message counted for another subject. None: it holds nothing. The messages themselves stay as they are."""
    if not state.messages:
        return None
    seen = copy(state)
    if state.deleted:
        seen.deleted = InteriorDeletes(state.deleted)
        seen.deleted.discard(min(state.deleted))
        seen.deleted.add(next(seq for seq in range(state.last_seq, 0, -1) if seq not in state.deleted))
        return seen
    seen.subjects = copy_of(state.subjects)
    subject = next(iter(seen.subjects.counts()[0]))
    row = seen.subjects._rows.pop(subject)
    seen.subjects._rows[subject + b".other"] = row
    return seen
