"""The world of several clusters: grace times that end within a run, events that are looked at, copies that read wrong.

A copy that reads other bytes than it was sent, with fitting checksums, is what only the comparison of a move can find;
so it is made here, and must never come to vote.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulator.super_plan import SuperPlan
from tests.simulator.world import Node, World

from supercluster.broker.jetstream.core import BrokerCore, CoreSettings
from supercluster.broker.jetstream.stream_group import StreamGroup
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.entry import Entry


class DamagedLog:
    """A log that reads other bytes of messages than were written."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self.index_of_seq = log.index_of_seq

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
        event, forget, store = core.event, core.store.forget, core.store

        def told(group: str, reason: str, text: str) -> None:
            event(group, reason, text)
            self.on_event(node.name, group, reason, text)

        def forgotten(group: str) -> None:
            member = store.registered().get(group)
            if member is not None:
                self.on_forget(node.name, group, member)
            forget(group)

        core.event = told  # type: ignore[method-assign]
        store.forget = forgotten  # type: ignore[method-assign]
        return core

    def damage(self, group: StreamGroup) -> None:
        """From now on this copy reads other bytes than it was sent."""
        self.note(f"{group.member} reads other bytes of {group.id} than it was sent")
        group.auditor._log = DamagedLog(group.auditor._log)  # type: ignore[assignment]
