"""The lineage of the map that a broker belongs to (SF-9).

A broker follows newer lineages that descend from its own, and begins one when an administrator orders it. It
stays apart from brokers of lineages that do not descend from its own.

The volume's journal decides: it holds the newest name of the meta group that this volume has joined. A broker
that knows of a newer lineage in memory alone works in none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.encoding.codec import WireError, blob
from supercluster.broker.jetstream.links.frames import Frame, decode_lineage, encode_texts
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.map_recovery import MapRecovery, first_index
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.bootstrap import MapBootstrap
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.map_reader import MapReader
from supercluster.broker.jetstream.node.pending_requests import PendingRequests
from supercluster.broker.jetstream.recovery.map_copies import end_of, keep_tail
from supercluster.broker.jetstream.replica.lineage import META_GROUP, follows, is_meta
from supercluster.broker.ports import Channel, OpenedGroup, PeerInfo, StreamLog
from supercluster.broker.raft.confchange import Membership, membership_of
from supercluster.broker.raft.errors import DiskError

# What the disk did not take is tried again after this; so is telling who has not heard.
RETRY_MS = 1000
# Whether an older copy of the map may go is looked at this often.
OLDER_CHECK_MS = 60_000


def joined_lineage(registered: Iterable[str]) -> str:
    """The meta group's name in the lineage that a volume has joined: the journal has them in that order."""
    return [META_GROUP, *filter(is_meta, registered)][-1]


class MapLineages:
    def __init__(
        self,
        env: Environment,
        peers: Peers,
        copies: Copies,
        map_view: MapView,
        leaderships: Leaderships,
        map_reader: MapReader,
        bootstrap: MapBootstrap,
        requests: PendingRequests,
        link_up: Callable[[PeerInfo], None],
        link_down: Callable[[str], None],
    ) -> None:
        self._env = env
        self._peers = peers
        self._copies = copies
        self._map = map_view
        self._leaderships = leaderships
        self._map_reader = map_reader
        self._bootstrap = bootstrap
        self._requests = requests
        self._link_up = link_up
        self._link_down = link_down
        self._is_closed = False
        """Was the log of the old group closed, whose replica was stopped?"""
        self._following = ""
        """A newer one that the disk has not taken: nobody works in any until it has."""
        self._consent: str | None = None
        """A lineage that does not follow from this one, and that a person said to follow."""
        self._said: dict[str, str] = {}
        """Linked broker → its lineage, as it said last."""
        self._bootstrap_id = ""
        """The beginning by which it was last judged who is in contact."""
        self._rivals: dict[str, PeerInfo] = {}
        """Linked brokers that count as out of contact."""
        self._retry_ms = 0
        self._tell_ms = 0
        self._older_since_ms: int | None = None
        self._older_ms = self._env.clock.monotonic_ms()

    # ---- who is there ---------------------------------------------------------------------------------------------

    def takes_link(self, peer: PeerInfo) -> bool:
        """A broker is linked. False: it is of a rival lineage or another beginning, and counts as out of contact."""
        told = peer.lineage or META_GROUP
        self._said[peer.node] = told
        self._rivals.pop(peer.node, None)
        if not self._is_rival(told) and not self._begun_apart(peer):
            return True
        self._rivals[peer.node] = peer
        reason = "RivalMap" if self._begun_apart(peer) else "RivalLineage"
        self._env.event(
            self._map.meta_id, reason, f"{peer.node} counts as out of contact: {self._words(peer)}"
        )
        self._notify(peer.node)
        return False

    def lost_link(self, node: str) -> bool:
        """True: it counted as out of contact before."""
        self._said.pop(node, None)
        return self._rivals.pop(node, None) is not None

    def shuts_out(self, node: str) -> bool:
        """Are this broker's frames not to be believed?"""
        return node in self._rivals

    def _is_rival(self, other: str) -> bool:
        own = self._following or self._map.meta_id
        return other not in (own, self._consent) and not follows(other, own) and not follows(own, other)

    def _begun_apart(self, peer: PeerInfo) -> bool:
        """Does its map go back to another beginning? Nothing that the two say of streams and members is about the same (SF-26)."""
        own = self._map.bootstrap_id
        return bool(own and peer.bootstrap_id) and own != peer.bootstrap_id

    def _words(self, peer: PeerInfo) -> str:
        node, other = peer.node, self._said[peer.node]
        if self._begun_apart(peer):
            return (
                f"the map of streams was begun twice, and {node} has the one of beginning {peer.bootstrap_id}, {self._env.node} that "
                f"of {self._map.bootstrap_id}; on the side that was begun when a volume was lost, save what was published since, "
                "then give its brokers empty volumes and have them join"
            )
        return (
            f"the map of streams was recovered by force twice, and {node} has lineage {other}, which does not follow from "
            f"{self._map.meta_id} of {self._env.node}, nor the other way round; at each broker of one side say that it is to "
            "follow the other one"
        )

    @property
    def troubles(self) -> list[str]:
        """For /healthz."""
        found = [self._words(self._rivals[node]) for node in sorted(self._rivals)]
        if self._following:
            found.append(
                f"the disk has not stored lineage {self._following} of the map of streams: this broker works in none until then"
            )
        return found

    @property
    def rivals(self) -> dict[str, str]:
        """Broker → its lineage."""
        return {node: self._said[node] for node in sorted(self._rivals)}

    # ---- what is told ---------------------------------------------------------------------------------------------

    def heard(self, node: str, other: str, believed: str | None = None, bootstrap_id: str = "") -> None:
        """A linked broker says which lineage its volume has joined, which one it believes this one's has, and which beginning its
        map goes back to.

        Raises:
            WireError: that is no lineage of the map.
        """
        if not is_meta(other):
            raise WireError(f"{other[:64]!r} is no lineage of the map")
        known = self._peers.linked if node in self._peers.linked else self._rivals
        if node in known:
            self._said[node] = other
            if bootstrap_id:
                known[node] = replace(known[node], bootstrap_id=bootstrap_id)
        own = self._following or self._map.meta_id
        if follows(other, own) or (other == self._consent and other != own):
            self._follow(other)
            return
        self._look_at_peers()
        if not self._following and (follows(own, other) or believed not in (None, own)):
            self._notify(node)

    def on_lineage(self, node: str, body: memoryview, now_ms: int) -> None:
        """Frame.META_LINEAGE."""
        self.heard(node, *decode_lineage(body))

    def _notify(self, node: str) -> None:
        told = encode_texts(self._map.meta_id, self._said.get(node, ""), self._map.bootstrap_id)
        self._peers.network.send(node, Frame.META_LINEAGE, told, Channel.CONTROL)

    def _tell_all(self) -> None:
        for node in (*self._peers.linked, *self._rivals):
            self._notify(node)

    def map_changed(self) -> None:
        """Which beginning it goes back to may be known now."""
        if self._map.bootstrap_id != self._bootstrap_id:
            self._bootstrap_id = self._map.bootstrap_id
            self._look_at_peers()
            self._tell_all()

    def _look_at_peers(self) -> None:
        """Somebody's lineage is another one by now, or the map's beginning is: who is in contact?"""
        for node, peer in list(self._rivals.items()):
            if not self._is_rival(self._said[node]) and not self._begun_apart(peer):
                self._link_up(replace(peer, lineage=self._said[node]))
        for node, peer in list(self._peers.linked.items()):
            told = self._said.get(node, META_GROUP)
            if self._is_rival(told) or self._begun_apart(peer):
                self._link_down(node)
                self._link_up(replace(peer, lineage=told))

    # ---- following ------------------------------------------------------------------------------------------------

    def consent(self, other: str) -> None:
        """A person says that this broker is to give its lineage up for that one, whenever it hears of it."""
        self._consent = other
        for node, said in list(self._said.items()):
            if said == other:
                self.heard(node, other)
                return

    def _follow(self, other: str) -> None:
        """Work in the old lineage no more, from now on; and in the new one when that is durable."""
        self._following = other
        self._stop()
        self._try_to_follow()

    def _stop(self) -> None:
        """Nobody votes, leads or confirms in the old group any more."""
        group = self._copies.drop(self._map.meta_id)
        if group is None:
            return
        served = group.serves
        group.stop()
        if served:
            self._leaderships.resign(self._map.meta_id)
        self._leaderships.forget(self._map.meta_id)

    def _try_to_follow(self) -> None:
        try:
            self._join(self._following)
        except DiskError as error:
            self._retry_ms = self._env.clock.monotonic_ms() + RETRY_MS
            self._env.event(
                self._map.meta_id,
                "DiskFailed",
                f"{self._env.node} works in no lineage of the map before the disk takes {self._following}: {error}",
            )

    def _join(self, other: str) -> None:
        before = self._map.meta_id
        opened = self._open_new(other)
        self._keep_end(before, other)
        # Whom a person had change sides may have been there before, and voted.
        member = self._env.volume_member if follows(other, before) else self._env.new_member()
        if other in self._env.store.registered():
            self._env.store.forget(other)
        self._env.store.register(other, member)
        self._map.meta_id, self._following, self._consent = other, "", ""
        self._env.event(
            other,
            "LineageFollowed",
            f"{self._env.node} joins it as {member}, and begins empty; before: {before}",
        )
        shown = self._map.replica.state if self._map.replica is not None else None
        self._install(before, member, opened, shown)

    def _open_new(self, group_id: str) -> OpenedGroup:
        """An empty log, whatever an attempt before has left."""
        store = self._env.store
        opened = store.open(group_id, memory=False, fsync="always", create=True)
        if opened.lost or opened.log.last_index:
            opened.log.destroy()
            opened = store.open(group_id, memory=False, fsync="always", create=True)
        return opened

    def _install(self, before: str, member: str, opened: OpenedGroup, shown: MetaState | None) -> None:
        self._older_since_ms = None
        self._is_closed = False
        self._older_ms = self._env.clock.monotonic_ms()
        self._map_reader.begin_anew()
        self._bootstrap.install(member, opened, Membership(), shown)
        now_ms = self._env.clock.monotonic_ms()
        self._requests.groups_gone([before], lambda request: self._map.meta_id, lambda subject: b"", now_ms)
        self._tell_all()
        self._look_at_peers()
        self._leaderships.ask(self._map.meta_id)

    # ---- the end of what was ------------------------------------------------------------------------------------------

    def _log_of(self, group_id: str) -> StreamLog | None:
        """The copy's log, which nobody works on; None: there is none, or it is lost."""
        if group_id not in self._env.store.registered():
            return None
        if self._map.replica is not None and self._map.replica.id == group_id:
            if self._map.replica.log.failed is None and not self._is_closed:
                return self._map.replica.log  # It was stopped just now.
            self._map.replica.log.close(clean=False)
        opened = self._env.store.open(group_id, memory=False, fsync="always", create=False)
        if opened.lost:
            opened.log.close(clean=False)
            self._env.event(
                group_id,
                "RecordLost",
                f"{self._env.node} lost its copy of the map: nothing of it can be kept",
            )
            return None
        return opened.log

    def _keep_end(self, group_id: str, successor: str) -> None:
        """Everything that the copy has goes into a file: where the new lineage parted from it, only that one knows."""
        log = self._log_of(group_id)
        if log is None:
            return
        try:
            keep_tail(self._env, log, group_id, successor)
        finally:
            self._is_closed = True
            log.close(clean=log.failed is None)

    def _drop(self, group_id: str) -> None:
        self._env.store.destroy(group_id)
        self._env.store.forget(group_id)

    # ---- beginning ------------------------------------------------------------------------------------------------

    def begin(self, recovery: MapRecovery) -> None:
        """Go on from a copy of this volume, as the first member of a new lineage.

        Raises:
            DiskError: nothing has happened.
        """
        before = self._map.meta_id
        state, last_term = end_of(self._env, self._copies, self._map, recovery.source)
        index = first_index(recovery.lineage, recovery.last_index)
        state.recovered(recovery, index)
        membership = membership_of((recovery.member,), index=index)
        opened = self._open_new(recovery.lineage)
        try:
            opened.log.save_vote(last_term + 1, "")
            opened.log.install_base(index, last_term, blob(membership.encode()) + state.snapshot())
            opened.log.sync()
            self._env.store.register(recovery.lineage, recovery.member)
        except DiskError:
            opened.log.close(clean=False)
            raise
        # In force: whatever comes now, the next process works in the new lineage.
        self._stop()
        if self._map.replica is not None:
            self._map.replica.log.close(clean=self._map.replica.log.failed is None)
        if recovery.source != before:
            self._keep_quietly(before, recovery.lineage)
        self._map.meta_id = recovery.lineage
        self._env.event(
            recovery.lineage,
            "MapRecovered",
            f"recovery {recovery.id} by a person, on {self._env.node} as {recovery.member}: {recovery.may_lose}",
        )
        opened = replace(opened, commit_index=index)
        self._install(before, recovery.member, opened, None)

    def _keep_quietly(self, group_id: str, successor: str) -> None:
        try:
            self._keep_end(group_id, successor)
        except DiskError as error:
            self._env.event(group_id, "DiskFailed", f"its copy stays where it is, and has no file: {error}")

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Try again what the disk did not take, and tell again who has not heard."""
        if self._following and now_ms >= self._retry_ms:
            self._try_to_follow()
        if self._behind() and now_ms >= self._tell_ms:
            self._tell_ms = now_ms + RETRY_MS
            for node in self._behind():
                self._notify(node)
        if self._has_older and now_ms >= self._older_ms:
            self._older_ms = now_ms + OLDER_CHECK_MS
            self._let_older_go(now_ms)

    def _behind(self) -> list[str]:
        """Linked brokers that are of another lineage as far as they said."""
        if self._map.meta_id == META_GROUP or self._following:
            return []
        return [node for node, said in self._said.items() if said != self._map.meta_id]

    @property
    def _has_older(self) -> bool:
        return self._map.meta_id != META_GROUP and bool(self._older())

    def _older(self) -> list[str]:
        registered = self._env.store.registered()
        return [group for group in registered if is_meta(group) and group != self._map.meta_id]

    def _let_older_go(self, now_ms: int) -> None:
        """Older copies are kept until others have the new map for good: should its first member be lost, somebody may choose
        one of them."""
        meta = self._map.replica
        if meta is None or not self._map.is_fresh or meta.replica.recovery is None:
            return
        voters = meta.raft.committed_membership.voters
        if len(voters) < min(3, meta.replica.recovery.voters):
            self._older_since_ms = None
            return
        if self._older_since_ms is None:
            self._older_since_ms = now_ms
        if now_ms - self._older_since_ms < self._env.settings.retired_grace_ms:
            return
        for group_id in self._older():
            try:
                self._drop(group_id)
            except DiskError as error:
                self._env.event(group_id, "DiskFailed", f"an older copy of the map stays behind: {error}")
                return
            self._env.event(
                group_id, "CopyDropped", f"lineage {self._map.meta_id} of the map has {len(voters)} voters"
            )

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        due = [self._retry_ms] if self._following else []
        if self._behind():
            due.append(self._tell_ms)
        if self._has_older:
            due.append(self._older_ms)
        return min(due, default=None)
