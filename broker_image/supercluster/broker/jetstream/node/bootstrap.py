"""How the meta group, which holds the map of streams, begins, and how a broker comes to hold a copy of it.

It is started once, by the first of the founders, and only while every one of them is linked and nobody who is linked
says that its volume holds a meta log; clusters that come later have the founders' names, and so never start one. A
broker whose volume holds nothing of a group that exists comes to it as a learner, without a vote (SF-4).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from supercluster.broker.jetstream.encoding.codec import blob
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.replica import MetaReplica
from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.jetstream.replica.opening import attempt, new_member, raft_over, volume_member
from supercluster.broker.ports import OpenedGroup
from supercluster.broker.raft.confchange import Membership, membership_of, node_of

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core.broker import BrokerCore

# While the meta group is not started, its starter looks this often whether all voters are there.
BOOTSTRAP_RETRY_MS = 200
# While the meta group's leader is not known, the other brokers are asked this often: its own word may have been lost.
LEADER_SEARCH_MS = 500


class MapBootstrap:
    """Opens, starts or joins the meta group on one broker."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._retry_ms = 0
        self._search_ms = 0
        self._founding_from_ms = core.clock.monotonic_ms() + core.settings.founding_wait_ms

    def open_registered(self) -> None:
        """Open the replica that this volume holds. A broker that is to be alone starts the group."""
        core = self._core
        registered = core.store.registered()
        if core.meta_id in registered:
            self._open(registered[core.meta_id])
        elif core.settings.meta_voters == (core.node,) and not self._waits:
            self._start((volume_member(core),))

    @property
    def _waits(self) -> bool:
        settings = self._core.settings
        return settings.join_only or settings.founding_wait_ms > 0

    def _open(self, member: str) -> None:
        core = self._core
        opened = core.store.open(core.meta_id, memory=False, fsync="always", create=False)
        if opened.lost:
            member = new_member(core)
            core.event(
                core.meta_id, "RecordLost", f"the meta log is damaged: this broker rejoins as {member}"
            )
            core.store.register(core.meta_id, member)
        self.install(member, opened, Membership())

    def _start(self, members: tuple[str, ...]) -> None:
        """Take the first membership of a new meta group, durably, before anything is sent or voted."""
        core = self._core
        membership = membership_of(members)
        opened = core.store.open(META_GROUP, memory=False, fsync="always", create=True)
        opened.log.save_checkpoint(
            0, blob(membership.encode()) + b'{"applied":0,"brokers":[],"streams":[],"time":0}'
        )
        core.store.register(META_GROUP, volume_member(core))
        self.install(volume_member(core), opened, membership)

    def _join(self) -> None:
        """A meta group exists and this volume holds none of it: come as a learner without a vote."""
        core = self._core
        opened = core.store.open(META_GROUP, memory=False, fsync="always", create=True)
        core.store.register(META_GROUP, volume_member(core))
        self.install(volume_member(core), opened, Membership())

    def install(
        self, member: str, opened: OpenedGroup, membership: Membership, shown: MetaState | None = None
    ) -> None:
        """Work as that member from now on; until the map was read, `shown` stands for it."""
        core = self._core
        raft = raft_over(core, core.meta_id, opened, member, membership)
        group = MetaReplica(member, opened.log, raft, core, name=core.meta_id, shown=shown)
        core.meta = group
        core.add_group(group)
        group.recover(opened.commit_index)
        if not core.map.is_fresh:
            core.ingest.hold()

    # ---- the beginning --------------------------------------------------------------------------------------------

    def peers_changed(self) -> None:
        """A broker was linked: it may have been the last founder missing."""
        core = self._core
        voters = core.settings.meta_voters
        if core.meta is not None or not voters or core.node != min(voters) or self._is_recovered:
            return
        if core.settings.join_only:
            return  # The members of the map may be out of contact, and this volume may be one that was lost (SF-26).
        peers = core.peers
        if any(node != core.node and node not in peers for node in voters):
            return
        now_ms = core.clock.monotonic_ms()
        if core.settings.founding_clusters - {peer.cluster for peer in peers.values()}:
            # Of each one who is linked may know of others there, and of a group that is younger than these settings.
            self._founding_from_ms = now_ms + core.settings.founding_wait_ms
        if now_ms < self._founding_from_ms:
            return  # Where there are other clusters, they may know of a group that all founders lost with their volumes.
        if any(peer.meta_state for peer in peers.values()):
            return  # A group exists: this volume was lost, and joins it under its new identity (SF-4).
        members = tuple(
            volume_member(core) if node == core.node else f"{node}@{peers[node].incarnation}"
            for node in voters
        )
        if self._try_to_start(members):
            self._tell_first_members()

    def _try_to_start(self, members: tuple[str, ...]) -> bool:
        return attempt(self._core, META_GROUP, partial(self._start, members))

    @property
    def _is_recovered(self) -> bool:
        """Was the map recovered by force (SF-9)? Then its lineage began with one member, whom a person chose, and everybody
        else comes to it as a learner."""
        return self._core.meta_id != META_GROUP

    def _tell_first_members(self) -> None:
        """Until the group has elected somebody: the word may be lost, or its sender may die before it is out."""
        core = self._core
        assert core.meta is not None
        membership = core.meta.raft.membership
        for member in membership.voters:
            if node_of(member) != core.node and node_of(member) in core.peers:
                core.post(node_of(member), Frame.BOOTSTRAP, [membership.encode()])

    def _tell_absent_members(self) -> None:
        """Nobody leads, and a voter is linked whose volume holds nothing of the group: the word of its beginning has not
        reached it, and its vote may be the one that is lacking. Under that very identity it never had anything that it
        could have lost, so it may begin with an empty log, like a follower to whom nothing came so far (SF-4)."""
        core = self._core
        if core.meta is None or core.meta.log.last_index == 0 or self._is_recovered:
            return
        membership = core.meta.raft.committed_membership
        for member in membership.voters if not membership.is_joint else ():
            peer = core.peers.get(node_of(member))
            if peer is not None and not peer.meta_state and member == f"{peer.node}@{peer.incarnation}":
                core.post(peer.node, Frame.BOOTSTRAP, [membership.encode()])

    def bootstrap_received(self, body: bytes) -> None:
        """A member of the meta group says who votes in it: valid for this very volume only, and only while it holds no
        meta log."""
        core = self._core
        membership = Membership.decode(body)
        if core.meta is None and not self._is_recovered and volume_member(core) in membership.voters:
            self._try_to_start(membership.voters)

    def leader_serves(self, membership: Membership) -> None:
        """The meta group has a leader, and these members: hold a copy, too."""
        core = self._core
        if core.meta is not None or self._is_recovered:
            return
        if membership.index == 0 and volume_member(core) in membership.voters:
            # One of the first members, whom the word of it has not reached: nothing in the log says it again.
            self._try_to_start(membership.voters)
        else:
            attempt(core, META_GROUP, self._join)

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Look for who leads the group; while there is none, for whom it takes to begin."""
        if self._is_searching and now_ms >= self._search_ms:
            self._search_ms = now_ms + LEADER_SEARCH_MS
            self._core.leaderships.ask(self._core.meta_id)
            self._tell_absent_members()
        if self._core.meta is None and now_ms >= self._retry_ms:
            self._retry_ms = now_ms + BOOTSTRAP_RETRY_MS
            self.peers_changed()
        elif self._is_starting and now_ms >= self._retry_ms:
            self._retry_ms = now_ms + BOOTSTRAP_RETRY_MS
            self._tell_first_members()

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        due = [self._search_ms] if self._is_searching else []
        if self._core.meta is None or self._is_starting:
            due.append(self._retry_ms)
        return min(due, default=None)

    @property
    def _is_searching(self) -> bool:
        core = self._core
        return bool(core.peers) and (core.meta is None or core.leader_of(core.meta_id) is None)

    @property
    def _is_starting(self) -> bool:
        """Is the meta group's replica here, as it was begun, without a leader so far?"""
        meta = self._core.meta
        return meta is not None and meta.log.last_index == 0 and bool(meta.raft.membership.voters)
