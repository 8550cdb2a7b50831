"""How groups come to life on a broker, and how they leave it.

The rules (SF-4, SF-5): a replica exists because this volume joined the group before, or because the meta group
assigned the stream to this very volume. An empty volume never votes with an identity that had data: it comes under a
new one, learns, and takes the old one's place by a change of membership. The meta group is started once, by the first
of the configured voters, and only while every one of them is linked and says that its volume holds no meta log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from supercluster.broker.jetstream import frames
from supercluster.broker.jetstream.frames import Frame, Leadership
from supercluster.broker.jetstream.group import APPLY_BYTES_MAX, Group
from supercluster.broker.jetstream.meta import FSYNC_KEY, Assignment
from supercluster.broker.jetstream.meta_group import META_GROUP, MetaGroup
from supercluster.broker.jetstream.stream_group import StreamGroup
from supercluster.broker.jetstream.wire import Reader, blob
from supercluster.broker.ports import OpenedGroup, StreamLog
from supercluster.broker.raft.confchange import Membership, membership_of, node_of
from supercluster.broker.raft.entry import Entry, EntryKind
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.raft.node import Raft

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core import BrokerCore

# While the meta group is not started, its starter looks this often whether all voters are there.
BOOTSTRAP_RETRY_MS = 200
# While the meta group's leader is not known, the other brokers are asked this often: its own word may have been lost.
LEADER_SEARCH_MS = 500
# A member that waits to be taken in repeats its request at this pace.
JOIN_RETRY_MS = 1000


def committed_entries(log: StreamLog, first: int, last: int) -> Iterator[Entry]:
    """Entries first … last, a stretch at a time."""
    while first <= last:
        entries = log.entries(first, last, APPLY_BYTES_MAX)
        if not entries:
            return
        yield from entries
        first = entries[-1].index + 1


class GroupLife:
    """Opens, starts, joins and removes the groups of one broker."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._joining: dict[str, int] = {}
        self._retry_ms = 0
        self._search_ms = 0

    # ---- what this volume has joined before -----------------------------------------------------------------------

    def open_registered(self) -> None:
        """Open the meta group's replica; streams follow from its state and from what the volume remembers."""
        registered = self._core.store.registered()
        if META_GROUP in registered:
            self._open_meta(registered[META_GROUP])
        elif self._core.settings.meta_voters == (self._core.node,):
            self._start_meta((self._member(),))

    def _member(self) -> str:
        return f"{self._core.node}@{self._core.store.incarnation}"

    def _raft(self, opened: OpenedGroup, member: str, fallback: Membership) -> Raft:
        """Raft over an opened log. The membership is the checkpoint's; a group without one has the fallback."""
        core = self._core
        found = opened.log.load_checkpoint()
        state = found[1] if found is not None else opened.log.base_state()
        membership = Membership.decode(Reader(state).blob()) if state is not None else fallback
        term, vote = opened.log.load_vote()
        index = max(found[0] if found is not None else 0, opened.log.base_index)
        for entry in committed_entries(opened.log, index + 1, opened.commit_index):
            if entry.kind == EntryKind.CONFIG:
                membership = replace(Membership.decode(entry.payload), index=entry.index)
        return Raft(
            core.raft_config(member),
            opened.log,
            term=term,
            vote=vote,
            membership=membership,
            commit_index=max(index, opened.commit_index),
            rng=core.rng,
            now_ms=core.clock.monotonic_ms(),
            doubtful=opened.doubtful,
        )

    # ---- the meta group -------------------------------------------------------------------------------------------

    def _open_meta(self, member: str) -> None:
        opened = self._core.store.open(META_GROUP, memory=False, fsync="always", create=False)
        if opened.lost:
            member = f"{self._member()}.{self._core.new_token()}"
            self._core.event(
                META_GROUP, "RecordLost", f"the meta log is damaged: this broker rejoins as {member}"
            )
            self._core.store.register(META_GROUP, member)
        self._install_meta(member, opened, Membership())

    def _install_meta(self, member: str, opened: OpenedGroup, membership: Membership) -> None:
        core = self._core
        group = MetaGroup(member, opened.log, self._raft(opened, member, membership), core)
        core.meta = group
        core.groups[META_GROUP] = group
        group.recover(opened.commit_index)
        if not core.map_is_fresh:
            core.ingest.hold()
        core.touch(META_GROUP)

    def _start_meta(self, members: tuple[str, ...]) -> None:
        """Take the first membership of a new meta group, durably, before anything is sent or voted."""
        core = self._core
        membership = membership_of(members)
        opened = core.store.open(META_GROUP, memory=False, fsync="always", create=True)
        opened.log.save_checkpoint(
            0, blob(membership.encode()) + b'{"applied":0,"brokers":[],"streams":[],"time":0}'
        )
        core.store.register(META_GROUP, self._member())
        self._install_meta(self._member(), opened, membership)

    def peers_changed(self) -> None:
        """A broker was linked: it may have been the last one missing."""
        core = self._core
        voters = core.settings.meta_voters
        if core.meta is not None or not voters or core.node != min(voters):
            return
        peers = core.peers
        if any(node != core.node and node not in peers for node in voters):
            return
        if any(peers[node].meta_state for node in voters if node != core.node):
            return  # A group exists: this volume was lost, and joins it under its new identity (SF-4).
        members = tuple(
            self._member() if node == core.node else f"{node}@{peers[node].incarnation}" for node in voters
        )
        if self._try(META_GROUP, lambda: self._start_meta(members)):
            self._tell_first_members()

    def _try(self, group_id: str, act: Callable[[], None]) -> bool:
        """A disk that does not take what a group needs costs this broker that group, and nothing else."""
        try:
            act()
        except DiskError as error:
            self._core.event(
                group_id, "DiskFailed", f"{self._core.node} cannot follow what is decided: {error}"
            )
            return False
        return True

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
        if core.meta is None or core.meta.log.last_index == 0:
            return
        membership = core.meta.raft.committed_membership
        for member in membership.voters if not membership.is_joint else ():
            peer = core.peers.get(node_of(member))
            if peer is not None and not peer.meta_state and member == f"{peer.node}@{peer.incarnation}":
                core.post(peer.node, Frame.BOOTSTRAP, [membership.encode()])

    @property
    def _is_starting(self) -> bool:
        """Is the meta group's replica here, as it was begun, without a leader so far?"""
        meta = self._core.meta
        return meta is not None and meta.log.last_index == 0 and bool(meta.raft.membership.voters)

    def bootstrap_received(self, body: bytes) -> None:
        """A member of the meta group says who votes in it: valid for this very volume only, and only while it holds no
        meta log."""
        membership = Membership.decode(body)
        if self._core.meta is None and self._member() in membership.voters:
            self._try(META_GROUP, lambda: self._start_meta(membership.voters))

    # ---- streams --------------------------------------------------------------------------------------------------

    def follow_map(self, touched: list[str]) -> None:
        """Open what was assigned to this broker, remove what was deleted."""
        core = self._core
        assert core.meta is not None
        assigned = {found.group: found for found in core.meta.state.streams.values()}
        for group_id in sorted(set(touched) | (assigned.keys() if core.map_index == 0 else set())):
            found = assigned.get(group_id)
            if found is None:
                self._try(group_id, partial(self._remove, group_id))
            elif group_id in core.groups:
                group = core.groups[group_id]
                if isinstance(group, StreamGroup):
                    group.set_assignment(found)
                    core.touch(group_id)
            else:
                self._open_assigned(found)

    def _open_assigned(self, found: Assignment) -> None:
        """Open a copy that this broker should hold. One that the volume does not know is begun only on a map that was
        read: by one from the disk, a stream that was deleted since would come to life again, empty, and vote with an
        identity that has voted before (SF-4)."""
        core = self._core
        mine = any(node_of(member) == core.node for member in found.members)
        if mine and (core.map_is_fresh or found.group in core.store.registered()):
            self._try(found.group, partial(self._open_stream, found))

    def map_was_read(self) -> None:
        """Remove what was deleted while this broker was away, and begin what was assigned. Only on a map that was read:
        one from the disk may be older than an assignment that this volume has already taken part in."""
        core = self._core
        assert core.meta is not None
        assigned = {found.group: found for found in core.meta.state.streams.values()}
        for group_id in core.store.registered():
            if group_id != META_GROUP and group_id not in assigned:
                self._try(group_id, partial(self._remove, group_id))
        for group_id, found in sorted(assigned.items()):
            if group_id not in core.groups:
                self._open_assigned(found)

    def _open_stream(self, assignment: Assignment) -> None:
        core = self._core
        group_id = assignment.group
        registered = core.store.registered().get(group_id)
        memory = assignment.config.storage == "memory"
        fsync = dict(assignment.config.metadata).get(FSYNC_KEY, "interval")
        mine = next(member for member in assignment.members if node_of(member) == core.node)
        opened = core.store.open(group_id, memory=memory, fsync=fsync, create=registered is None)
        first = registered is None and mine.startswith(self._member())
        if first:
            member = mine
        elif registered is not None and not opened.lost:
            member = registered
        else:
            member = f"{self._member()}.{core.new_token()}"
            core.event(
                group_id, "RecordLost", f"{core.node} lost its copy of {assignment.name}: rejoins as {member}"
            )
        membership = membership_of(assignment.members) if first else Membership()
        if member != registered:
            if first:
                opened.log.save_checkpoint(0, blob(membership.encode()) + StreamGroup.blank_state(assignment))
            core.store.register(group_id, member)
        raft = self._raft(opened, member, membership)
        group = StreamGroup(assignment, member, opened.log, raft, core)
        core.groups[group_id] = group
        try:
            group.recover(opened.commit_index)
        except DiskError as error:
            group.fail(error)
        if not raft.membership.is_voter(member):
            # The leader may have said long ago that it serves: do not wait for it to say so again.
            self._joining[group_id] = core.clock.monotonic_ms() - JOIN_RETRY_MS
        core.touch(group_id)

    def _remove(self, group_id: str) -> None:
        """The stream was deleted: by a person, through the meta group; its copy goes at once."""
        core = self._core
        group = core.groups.pop(group_id, None)
        try:
            if group is not None:
                group.stop()
                group.log.destroy()
            elif group_id in core.store.registered():
                core.store.open(group_id, memory=False, fsync="never", create=False).log.destroy()
        except DiskError as error:
            core.event(group_id, "DiskFailed", f"files of a deleted stream stay behind: {error}")
        core.store.forget(group_id)
        core.leaders.pop(group_id, None)

    # ---- joining under a new identity -----------------------------------------------------------------------------

    def leader_serves(self, news: Leadership) -> None:
        """A leader told the membership in force: ask to be taken in where this broker is only an old identity."""
        core = self._core
        membership = Membership.decode(news.membership)
        group = core.groups.get(news.group)
        if group is None:
            if news.group != META_GROUP:
                return
            if membership.index == 0 and self._member() in membership.voters:
                # One of the first members, whom the word of it has not reached: nothing in the log says it again.
                self._try(META_GROUP, lambda: self._start_meta(membership.voters))
                return
            if not self._try(META_GROUP, self._join_meta):
                return
            group = core.groups[META_GROUP]
        if self._is_in(group, membership):
            self._joining.pop(news.group, None)
            return
        if news.node != core.node:
            self._joining[news.group] = core.clock.monotonic_ms()
            self._ask_to_join(group)

    def _is_in(self, group: Group, membership: Membership) -> bool:
        """Is this broker's replica what it should be: a voter, or in the meta group a learner if it was not chosen to
        vote there?"""
        if group.member in membership.all_voters:
            return True
        core = self._core
        may_vote = group.id != META_GROUP or core.node in core.settings.meta_voters
        return not may_vote and group.member in membership.learners

    def _join_meta(self) -> None:
        """A meta group exists and this volume holds none of it: come as a learner without a vote."""
        core = self._core
        opened = core.store.open(META_GROUP, memory=False, fsync="always", create=True)
        core.store.register(META_GROUP, self._member())
        self._install_meta(self._member(), opened, Membership())

    def _ask_to_join(self, group: Group) -> None:
        leader = self._core.leader_of(group.id)
        if leader is None:
            self._who_leads(group.id)
        elif leader != self._core.node:
            self._core.post(leader, Frame.JOIN, frames.encode_texts(group.id, group.member))

    def _tell_of_lost_copy(self, group: Group) -> None:
        """A copy in memory went with its process. Where that was true of all copies, nobody leads: the meta group
        has to begin the stream anew."""
        leader = self._core.leader_of(META_GROUP)
        in_memory = isinstance(group, StreamGroup) and group.assignment.config.storage == "memory"
        if in_memory and leader is not None and not group.raft.membership.voters:
            self._core.post(leader, Frame.COPY_LOST, frames.encode_texts(group.id, group.member))

    def _who_leads(self, group_id: str) -> None:
        for node in self._core.peers:
            self._core.post(node, Frame.WHO_LEADS, frames.encode_texts(group_id))

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        if self._is_searching and now_ms >= self._search_ms:
            self._search_ms = now_ms + LEADER_SEARCH_MS
            self._who_leads(META_GROUP)
            self._tell_absent_members()
        if self._core.meta is None and now_ms >= self._retry_ms:
            self._retry_ms = now_ms + BOOTSTRAP_RETRY_MS
            self.peers_changed()
        elif self._is_starting and now_ms >= self._retry_ms:
            self._retry_ms = now_ms + BOOTSTRAP_RETRY_MS
            self._tell_first_members()
        for group_id, asked_ms in list(self._joining.items()):
            group = self._core.groups.get(group_id)
            if group is None or self._is_in(group, group.raft.membership):
                del self._joining[group_id]
            elif now_ms - asked_ms >= JOIN_RETRY_MS:
                self._joining[group_id] = now_ms
                self._ask_to_join(group)
                self._tell_of_lost_copy(group)

    @property
    def _is_searching(self) -> bool:
        core = self._core
        return bool(core.peers) and (core.meta is None or core.leader_of(META_GROUP) is None)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        due = [asked + JOIN_RETRY_MS for asked in self._joining.values()]
        if self._is_searching:
            due.append(self._search_ms)
        if self._core.meta is None or self._is_starting:
            due.append(self._retry_ms)
        return min(due, default=None)
