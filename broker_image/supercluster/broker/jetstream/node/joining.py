"""How a broker's replica becomes a member of an existing group.

An empty volume never votes with an identity that had data. It gets a new identity, learns, and replaces the
old one by a change of membership, for which it asks the group's leader until that is done (SF-4). A copy that
a move has named as a learner does the same. A copy that the map does not explain asks for nothing.
"""

from __future__ import annotations

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame, Leadership
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.replica.lineage import is_meta
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.raft.confchange import Membership, node_of

# A member that waits to be taken in repeats its request at this pace.
JOIN_RETRY_MS = 1000


class Joining:
    """The replicas of one broker that wait to be taken in."""

    def __init__(
        self, env: Environment, peers: Peers, copies: Copies, map_view: MapView, leaderships: Leaderships
    ) -> None:
        self._env = env
        self._peers = peers
        self._copies = copies
        self._map = map_view
        self._leaderships = leaderships
        self._asked_ms: dict[str, int] = {}
        """Group → when its leader was last asked."""
        self._told_index: dict[str, int] = {}
        """Group → index of the membership that its leader told, in which this broker's replica is not."""

    def begin(self, group_id: str) -> None:
        """The replica has no vote. The leader may have said long ago that it serves: do not wait for it to say so again."""
        self._asked_ms[group_id] = self._env.clock.monotonic_ms() - JOIN_RETRY_MS

    def end(self, group_id: str) -> None:
        """The replica is to ask no more."""
        self._asked_ms.pop(group_id, None)
        self._told_index.pop(group_id, None)

    def leader_serves(self, news: Leadership, membership: Membership, *, is_unexplained: bool) -> None:
        """A leader told the membership in force: ask to be taken in where this broker is only an old identity, unless the map has no
        explanation for the copy."""
        group = self._copies.groups.get(news.group)
        if group is None:
            return
        if self._is_in(group, membership) or is_unexplained:
            self.end(news.group)
        elif news.node != self._env.node:
            self._asked_ms[news.group] = self._env.clock.monotonic_ms()
            self._told_index[news.group] = membership.index
            self._ask(group)

    def _is_in(self, replica: Replica, membership: Membership) -> bool:
        """Is this broker's replica what it should be: a voter; in the meta group a learner as well, unless the broker
        votes there by an identity that it lost?"""
        if replica.member in membership.all_voters:
            return True
        if replica.member not in membership.learners:
            return False
        if is_meta(replica.id):
            return all(node_of(voter) != self._env.node for voter in membership.voters)
        found = self._copies.streams[replica.id].stream.assignment
        if found.group == found.source_group:
            # It follows another super-cluster's group, which may have dropped it behind a link that was cut: it asks for as long as it follows.
            return False
        return found.move is not None and replica.member in found.move.targets

    def _is_taken_in(self, replica: Replica) -> bool:
        """Does the replica's own log say that it is in? A log that lacks the membership which the leader told says nothing: a
        voter that was out of contact when it was voted out still votes by it."""
        membership = replica.raft.membership
        return membership.index >= self._told_index.get(replica.id, 0) and self._is_in(replica, membership)

    def _ask(self, replica: Replica) -> None:
        leader = self._leaderships.leader_of(replica.id)
        if leader is None:
            self._leaderships.ask(replica.id)
        elif leader != self._env.node:
            self._peers.post(leader, Frame.JOIN, frames.encode_texts(replica.id, replica.member))

    def _tell_of_lost_copy(self, replica: Replica) -> None:
        """A copy in memory went with its process. Where that was true of all copies, nobody leads: the meta group
        has to begin the stream anew."""
        copy = self._copies.streams.get(replica.id)
        if copy is not None and copy.stream.assignment.config.storage == "memory":
            move = copy.stream.assignment.move
            named = move is not None and replica.member in move.targets
            if not replica.raft.membership.voters and not named:
                self.tell_lost(replica.id, replica.member)

    def tell_lost(self, group_id: str, member: str) -> None:
        """Say to the meta group's leader that a copy's data is gone."""
        leader = self._leaderships.leader_of(self._map.meta_id)
        if leader is not None:
            self._peers.post(leader, Frame.COPY_LOST, frames.encode_texts(group_id, member))

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Ask again, where nothing came of it."""
        for group_id, asked_ms in list(self._asked_ms.items()):
            group = self._copies.groups.get(group_id)
            if group is None or self._is_taken_in(group):
                self.end(group_id)
            elif now_ms - asked_ms >= JOIN_RETRY_MS:
                self._asked_ms[group_id] = now_ms
                self._ask(group)
                self._tell_of_lost_copy(group)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        return min((asked + JOIN_RETRY_MS for asked in self._asked_ms.values()), default=None)
