"""What a broker knows of the others besides its links: their room and tags, and which clusters are gone as a whole.

The meta group's leader places copies by it. That a cluster is out of contact, and what the super-cluster cannot do
meanwhile, is said by every broker, since there may be no leader left to say it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.leaderless_moves import LeaderlessMoves
from supercluster.broker.jetstream.meta_leader.voters import LostCluster, lost_clusters, lost_copies
from supercluster.broker.jetstream.node.capacity_reports import LoadReports
from supercluster.broker.jetstream.placement.room import Room
from supercluster.broker.jetstream.placement.stream_facts import FACTS_SUBJECT, FACTS_WAIT_MS, StreamFacts
from supercluster.broker.jetstream.replica.lineage import is_meta
from supercluster.broker.ports import ClientInfo

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core.broker import BrokerCore


class Neighbours:
    """See the module."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self.leaderless = LeaderlessMoves()
        self._lost: dict[str, LostCluster] = {}
        self.load = LoadReports(core.node, self.own_room, core.post, lambda: core.leader_of(core.meta_id))

    def own_room(self) -> Room:
        store = self._core.store
        return Room(store.room_bytes(memory=False), store.room_bytes(memory=True))

    def tags_of(self, node: str) -> tuple[str, ...]:
        """What a broker in contact says of its place."""
        if node == self._core.node:
            return self._core.settings.tags
        peer = self._core.peers.get(node)
        return peer.tags if peer is not None else ()

    def ask_stream(self, found: Assignment, then: Callable[[StreamFacts | None], None]) -> None:
        """Ask the stream's leader for what a move depends on."""

        def answered(answer: bytes | None) -> None:
            then(StreamFacts.from_answer(answer) if answer is not None else None)

        core = self._core
        asker = ClientInfo(found.account, "", is_operator=True)
        now_ms = core.clock.monotonic_ms()
        core.requests.send(
            found.group,
            asker,
            FACTS_SUBJECT,
            b"",
            b"",
            b"",
            now_ms,
            on_answer=answered,
            wait_ms=FACTS_WAIT_MS,
        )

    # ---- clusters that are gone -----------------------------------------------------------------------------------

    def link_up(self) -> None:
        self.load.tell_soon()
        self._look()

    def link_down(self, node: str) -> None:
        self.load.forget(node)
        self._look()

    def _look(self) -> None:
        before, self._lost = self._lost, {found.cluster: found for found in self._lost_now()}
        for name, found in self._lost.items():
            if name not in before:
                self._core.event(self._core.meta_id, "ClusterLost", found.text)
        for name in before:
            if name not in self._lost:
                self._core.event(self._core.meta_id, "ClusterBack", f"cluster {name} is in contact again")

    def _lost_now(self) -> list[LostCluster]:
        core = self._core
        if core.meta is None:
            return []
        return lost_clusters(core.meta.raft.membership, self._clusters, core.brokers_in_contact().keys())

    @property
    def _clusters(self) -> dict[str, str]:
        meta = self._core.meta
        brokers = meta.state.brokers if meta is not None else {}
        return {node: record.cluster for node, record in brokers.items()}

    def not_available(self, group: str = "") -> ApiError:
        """Nobody answers for a group, or the meta group; says so of the clusters without which nobody can."""
        return errors.not_available(self._missing_for(group))

    def _missing_for(self, group: str) -> str:
        lost, meta = self._lost_now(), self._core.meta
        if not group or is_meta(group):
            return "; ".join(found.text for found in lost if not found.has_majority)
        found = meta.state.by_group(group) if lost and meta is not None else None
        if found is None:
            return ""
        return lost_copies(found.name, found.members, self._clusters, [each.cluster for each in lost])

    @property
    def troubles(self) -> list[str]:
        """A sentence per cluster that is gone, for /healthz."""
        return [found.text for found in self._lost_now()]
