"""How the meta group, which holds the map of streams, begins, and how a broker gets a copy of it.

The first of the founders starts it once, and only while all founders are linked and no linked broker reports
a meta log on its volume. Later clusters have the founders' names, and so never start one. A broker whose
volume holds nothing of an existing group joins it as a learner, without a vote (SF-4).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.encoding.codec import blob
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.replica import MetaReplica
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.opener import Opener
from supercluster.broker.jetstream.publish.windows import PublishWindows
from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.ports import OpenedGroup
from supercluster.broker.raft.confchange import Membership, membership_of, node_of
from supercluster.broker.raft.errors import DiskError, UnreadableError

# While the meta group is not started, its starter looks this often whether all voters are there.
BOOTSTRAP_RETRY_MS = 200
# While the meta group's leader is not known, the other brokers are asked this often: its own word may have been lost. An older
# leader's link may stay up, so its word would be believed for ever.
LEADER_SEARCH_MS = 500
# A meta log that the disk did not give back is opened again this often, and put away after so long.
MAP_RETRY_MS = 1000
UNREADABLE_MS_MAX = 60_000


class MapBootstrap:
    """Opens, starts or joins the meta group on one broker."""

    def __init__(
        self,
        env: Environment,
        peers: Peers,
        copies: Copies,
        map_view: MapView,
        leaderships: Leaderships,
        opener: Opener,
        ingest: PublishWindows,
        host: MetaHost,
        begin_anew: Callable[[], None],
    ) -> None:
        """`begin_anew` is called when a map that was read is not followed any more."""
        self._begin_anew = begin_anew
        self._env = env
        self._peers = peers
        self._copies = copies
        self._map = map_view
        self._leaderships = leaderships
        self._opener = opener
        self._ingest = ingest
        self._host = host
        self.replica: MetaReplica | None = None
        """What the map is seen by, on this broker."""
        self._retry_ms = 0
        self._unreadable_from_ms: int | None = None
        self._search_ms = 0
        self._bootstrap_from_ms = self._env.clock.monotonic_ms() + self._env.settings.bootstrap_wait_ms

    def open_registered(self) -> None:
        """Open the replica that this volume holds. A broker that is to be alone starts the group."""
        if self._is_registered:
            self._try_to_open()
        elif self._env.settings.meta_voters == (self._env.node,) and not self._waits:
            self._start((self._env.volume_member,))

    @property
    def _waits(self) -> bool:
        settings = self._env.settings
        return settings.join_only or settings.bootstrap_wait_ms > 0

    @property
    def _is_registered(self) -> bool:
        return self._map.meta_id in self._env.store.registered()

    def _try_to_open(self) -> None:
        """What the disk does not give back is no damage (SF-32): it is asked for again for a while, and this broker goes on without
        the map, or with the map that it had. Then the log is put away, and the map is learned anew."""
        group_id, before, now_ms = self._map.meta_id, self.replica, self._env.clock.monotonic_ms()
        self._retry_ms = now_ms + MAP_RETRY_MS
        if self._unreadable_from_ms is None:
            self._unreadable_from_ms = now_ms
        if now_ms - self._unreadable_from_ms >= UNREADABLE_MS_MAX:
            where = self._env.store.set_aside(group_id)
            self._env.event(
                group_id, "MapSetAside", f"the disk does not give the meta log back; it is in {where}"
            )
        elif before is not None and not before.log.may_open_anew:
            return
        if before is not None:
            self._copies.drop(group_id)
            self._begin_anew()
        try:
            self._open(before.state if before is not None else None)
            self._unreadable_from_ms = None
            self._hear_of_leader_again()
        except DiskError as error:
            is_first = self._unreadable_from_ms == now_ms
            if not isinstance(error, UnreadableError):
                if is_first and before is None:
                    raise  # At the start. A process manager tries again.
                # The log is there, and only what opening writes was refused: no reason to put it away.
                self._unreadable_from_ms = now_ms
            self._copies.drop(group_id)
            self._map.replica = self._copies.map = self.replica = before
            if is_first:
                self._env.event(
                    group_id, "MapUnreadable", f"it is opened again when the disk gives it back: {error}"
                )

    def _hear_of_leader_again(self) -> None:
        """Whoever leads may have said so while no copy was here that could follow, or ask to be taken in again."""
        leader = self._leaderships.leader_of(self._map.meta_id)
        if leader is not None:
            self._leaderships.forget(self._map.meta_id, leader)
            self._leaderships.ask(self._map.meta_id)

    def _open(self, shown: MetaState | None) -> None:
        member = self._env.store.registered()[self._map.meta_id]
        opened = self._env.store.open(self._map.meta_id, memory=False, fsync="always", create=False)
        if opened.lost:
            member = self._env.new_member()
            self._env.event(
                self._map.meta_id, "RecordLost", f"the meta log is damaged: this broker rejoins as {member}"
            )
            self._env.store.register(self._map.meta_id, member)
        self.install(member, opened, Membership(), shown)

    def _start(self, members: tuple[str, ...]) -> None:
        """Take the first membership of a new meta group, durably, before anything is sent or voted."""
        membership = membership_of(members)
        opened = self._env.store.open(META_GROUP, memory=False, fsync="always", create=True)
        opened.log.save_checkpoint(
            0, blob(membership.encode()) + b'{"applied":0,"brokers":[],"streams":[],"time":0}'
        )
        self._env.store.register(META_GROUP, self._env.volume_member)
        self.install(self._env.volume_member, opened, membership)

    def _join(self) -> None:
        """A meta group exists and this volume holds none of it: come as a learner without a vote."""
        opened = self._env.store.open(META_GROUP, memory=False, fsync="always", create=True)
        self._env.store.register(META_GROUP, self._env.volume_member)
        self.install(self._env.volume_member, opened, Membership())

    def install(
        self, member: str, opened: OpenedGroup, membership: Membership, shown: MetaState | None = None
    ) -> None:
        """Work as that member from now on; until the map was read, `shown` stands for it."""
        raft = self._opener.raft_over(self._map.meta_id, opened, member, membership)
        replica = MetaReplica(member, opened.log, raft, self._host, name=self._map.meta_id, shown=shown)
        self._map.replica = self._copies.map = self.replica = replica
        self._copies.add(replica)
        replica.recover(opened.commit_index)
        if not self._map.is_fresh:
            self._ingest.hold()

    # ---- the beginning --------------------------------------------------------------------------------------------

    def peers_changed(self) -> None:
        """A broker was linked: it may have been the last founder missing."""
        voters = self._env.settings.meta_voters
        if (
            self._map.replica is not None
            or self._is_registered
            or not voters
            or self._env.node != min(voters)
            or self._map.is_recovered
        ):
            return
        if self._env.settings.join_only:
            return  # The members of the map may be out of contact, and this volume may be one that was lost (SF-26).
        peers = self._peers.linked
        if any(node != self._env.node and node not in peers for node in voters):
            return
        now_ms = self._env.clock.monotonic_ms()
        if self._env.settings.bootstrap_clusters - {peer.cluster for peer in peers.values()}:
            # Of each one who is linked may know of others there, and of a group that is younger than these settings.
            self._bootstrap_from_ms = now_ms + self._env.settings.bootstrap_wait_ms
        if now_ms < self._bootstrap_from_ms:
            return  # Where there are other clusters, they may know of a group that all founders lost with their volumes.
        if any(peer.meta_state for peer in peers.values()):
            return  # A group exists: this volume was lost, and joins it under its new identity (SF-4).
        members = tuple(
            self._env.volume_member if node == self._env.node else f"{node}@{peers[node].incarnation}"
            for node in voters
        )
        if self._try_to_start(members):
            self._tell_first_members()

    def _try_to_start(self, members: tuple[str, ...]) -> bool:
        return self._opener.attempt(META_GROUP, partial(self._start, members))

    def _tell_first_members(self) -> None:
        """Until the group has elected somebody: the word may be lost, or its sender may die before it is out."""
        assert self._map.replica is not None
        membership = self._map.replica.raft.membership
        for member in membership.voters:
            if node_of(member) != self._env.node and node_of(member) in self._peers.linked:
                self._peers.post(node_of(member), Frame.BOOTSTRAP, [membership.encode()])

    def _tell_absent_members(self) -> None:
        """Nobody leads, and a voter is linked whose volume holds nothing of the group: the word of its beginning has not
        reached it, and its vote may be the one that is lacking. Under that very identity it never had anything that it
        could have lost, so it may begin with an empty log, like a follower to whom nothing came so far (SF-4)."""
        if self._map.replica is None or self._map.replica.log.last_index == 0 or self._map.is_recovered:
            return
        membership = self._map.replica.raft.committed_membership
        for member in membership.voters if not membership.is_joint else ():
            peer = self._peers.linked.get(node_of(member))
            if peer is not None and not peer.meta_state and member == f"{peer.node}@{peer.incarnation}":
                self._peers.post(peer.node, Frame.BOOTSTRAP, [membership.encode()])

    def on_bootstrap(self, node: str, body: memoryview, now_ms: int) -> None:
        """Frame.BOOTSTRAP: a member of the meta group says who votes in it: valid for this very volume only, and only while it holds no
        meta log."""
        membership = Membership.decode(bytes(body))
        if (
            self._map.replica is None
            and not self._is_registered
            and not self._map.is_recovered
            and self._env.volume_member in membership.voters
        ):
            self._try_to_start(membership.voters)

    def leader_serves(self, membership: Membership) -> None:
        """The meta group has a leader, and these members: hold a copy, too."""
        if self._map.replica is not None or self._is_registered or self._map.is_recovered:
            return
        if membership.index == 0 and self._env.volume_member in membership.voters:
            # One of the first members, whom the word of it has not reached: nothing in the log says it again.
            self._try_to_start(membership.voters)
        else:
            self._opener.attempt(META_GROUP, self._join)

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Look for who leads the group; while there is none, for whom it takes to begin."""
        if self._is_searching and now_ms >= self._search_ms:
            self._search_ms = now_ms + LEADER_SEARCH_MS
            self._leaderships.ask(self._map.meta_id)
            self._tell_absent_members()
        if self._is_waiting_for_disk:
            if now_ms >= self._retry_ms:
                self._try_to_open()
        elif self._map.replica is None and now_ms >= self._retry_ms:
            self._retry_ms = now_ms + BOOTSTRAP_RETRY_MS
            self.peers_changed()
        elif self._is_starting and now_ms >= self._retry_ms:
            self._retry_ms = now_ms + BOOTSTRAP_RETRY_MS
            self._tell_first_members()

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        due = [self._search_ms] if self._is_searching else []
        if self._map.replica is None or self._is_starting or self._is_waiting_for_disk:
            due.append(self._retry_ms)
        return min(due, default=None)

    @property
    def _is_waiting_for_disk(self) -> bool:
        """Is the map's log here, and of no use until it is opened again?"""
        meta = self._map.replica
        if meta is None:
            return self._is_registered
        return meta.failed is not None and meta.log.failed is not None and meta.log.may_ever_open_anew

    @property
    def _is_searching(self) -> bool:
        """Is no leader known, or one of an older term than the leader's that the replica here follows?"""
        meta, known = self._map.replica, self._leaderships.find(self._map.meta_id)
        if not self._peers.linked:
            return False
        if meta is None or known is None:
            return True
        return meta.raft.leader is not None and known[0] < meta.raft.term

    @property
    def _is_starting(self) -> bool:
        """Is the meta group's replica here, as it was begun, without a leader so far?"""
        meta = self._map.replica
        return meta is not None and meta.log.last_index == 0 and bool(meta.raft.membership.voters)
