"""Links with brokers of other super-clusters, as the core sees them.

Such a broker goes by its far name (`migration/worlds.py`). It has no part in this super-cluster: neither the
map nor placement nor the leaderships of groups that are not shared take it into account.
`links/far_frames.py` lists the frames that it may send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supercluster.broker.jetstream.frontend.ack_forwarder import AckForwarder
from supercluster.broker.jetstream.frontend.answer_cache import AnswerCache
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.far_clients import FarClients
from supercluster.broker.jetstream.node.far_subjects import FarSubjects
from supercluster.broker.jetstream.node.far_visits import FarVisits
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.ports import Clock, FarSuperCluster, PeerInfo

SPREAD_MS_PER_GROUP = 1
"""Over what time the groups that followed a lost broker look for its successor."""


class FarLinks:
    """See the module. One per broker."""

    def __init__(
        self,
        clock: Clock,
        peers: Peers,
        copies: Copies,
        leaderships: Leaderships,
        acks: AckForwarder,
        answers: AnswerCache,
        clients: FarClients,
        visits: FarVisits,
        subjects: FarSubjects,
    ) -> None:
        self._clock = clock
        self._peers = peers
        self._copies = copies
        self._leaderships = leaderships
        self._acks = acks
        self._answers = answers
        self._clients = clients
        self._visits = visits
        self._subjects = subjects
        visits.changed = self._wanted_changed
        self._by_map: Mapping[str, FarSuperCluster] = {}
        self.changed: Callable[[], None] = lambda: None
        """Called when `wanted` is another one."""
        self.wanted: Mapping[str, FarSuperCluster] = {}
        """By identity: the super-clusters that migrations name, and those that are visited."""

    def want(self, wanted: Mapping[str, FarSuperCluster]) -> None:
        """Be linked with the brokers of these super-clusters from now on, and let messages of these accounts cross. The map of streams
        says so; call it again whenever that changes."""
        self._by_map = dict(wanted)
        self._wanted_changed()

    def _wanted_changed(self) -> None:
        wanted = self._visits.with_visits(self._by_map)
        if wanted != self.wanted:
            self.wanted = wanted
            self.changed()

    def up(self, peer: PeerInfo) -> None:
        """A broker of another super-cluster is linked; `peer.node` is its far name. It is told what this one leads of the groups
        that both share."""
        is_new = self._peers.far_up(peer)
        self._leaderships.notify_far(self._served(), [peer.node])
        if is_new:
            self._copies.wake(peer.node, self._clock.monotonic_ms())
        self._subjects.up(peer.node)
        for group_id in self._peers.far_groups.worlds:
            if self._leaderships.leader_of(group_id) is None:
                self._leaderships.ask_far(group_id, peer.node)
        self._clients.far_changed()

    def down(self, node: str) -> None:
        """It is lost: the groups shared with it are woken (SF-7), and none of its leaderships is believed in."""
        self._peers.far_down(node)
        self._answers.forget_node(node)
        now_ms = self._clock.monotonic_ms()
        self._copies.wake(node, now_ms, self._copies.led_by(node) * SPREAD_MS_PER_GROUP)
        self._leaderships.forget_node(node)
        self._acks.link_down(node, now_ms)
        self._clients.far_changed()

    def share_groups(self, worlds: Mapping[str, str]) -> None:
        """These groups are shared from now on, and no others: group → world of its brokers with plain names, empty where they are
        of this super-cluster. The map of streams says so; call it again whenever that changes."""
        groups = self._peers.far_groups
        before, groups.worlds = groups.worlds, dict(worlds)
        for group_id in before.keys() - worlds.keys():
            if self._leaderships.leader_of(group_id) in self._peers.far:
                self._leaderships.forget(group_id)
        fresh = worlds.keys() - before.keys()
        if not fresh or not self._peers.far:
            return
        served = [group for group in self._served() if group.id in fresh]
        self._leaderships.notify_far(served, self._peers.far)
        for group_id in sorted(fresh):
            if self._leaderships.leader_of(group_id) is None:
                for node in self._peers.far:
                    self._leaderships.ask_far(group_id, node)

    def _served(self) -> list[Replica]:
        """Of the groups shared with other super-clusters, those that this broker leads."""
        groups, shared = self._copies.groups, self._peers.far_groups.worlds
        found = (groups.get(group_id) for group_id in shared)
        return [group for group in found if group is not None and group.serves]
