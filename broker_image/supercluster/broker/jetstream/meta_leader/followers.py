"""Replaces green's copies that follow blue's group, before they convert, if their data is lost or their
broker is gone.

Blue asks for the members repeatedly, so it learns of the new one. Blue's log decides which copies convert, so
a late replacement does no harm: it joins green's group afterwards as a new member.
"""

from __future__ import annotations

from dataclasses import replace

from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration_changes import follow_stream
from supercluster.broker.jetstream.meta_leader.absences import Absences
from supercluster.broker.jetstream.meta_leader.candidates import Candidates
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.moves import home_cluster, one_of, wanted_of
from supercluster.broker.jetstream.meta_leader.names_on_green import as_on_green
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError
from supercluster.broker.jetstream.placement.choice import choose
from supercluster.broker.migration.worlds import far_member
from supercluster.broker.raft.confchange import node_of

# A copy whose broker is out of contact for so long is replaced by one on another broker.
FOLLOWER_PATIENCE_MS = 60_000


class Followers:
    def __init__(self, tail: MapTail, host: MetaHost, candidates: Candidates, absences: Absences) -> None:
        self._tail = tail
        self._host = host
        self._candidates = candidates
        self._absences = absences
        self._copies_lost: set[str] = set()
        """Members, under their far names, whose copies are gone: each is told again every second."""

    def copy_lost(self, group_id: str, member: str) -> None:
        """A broker says that its copy under that name is gone. It never comes again under it (SF-4)."""
        found = self._tail.state.by_group(group_id)
        if found is not None and found.following is not None and member in found.following.members:
            self._copies_lost.add(member)

    def look(self, now_ms: int) -> None:
        """Look at every stream that comes, and replace at most one copy of each."""
        state = self._tail.state
        coming = [state.streams[key] for key in sorted(state.coming)]
        self._copies_lost &= {
            m for found in coming if found.following is not None for m in found.following.members
        }
        for found in coming:
            self._look_at(found, now_ms)

    def _look_at(self, found: Assignment, now_ms: int) -> None:
        following = found.following
        assert following is not None
        for near, far in zip(found.members, following.members, strict=True):
            why = self._why_lost(near, far, now_ms)
            if why:
                self._replace(found, near, why)
                return

    def _why_lost(self, near: str, far: str, now_ms: int) -> str:
        """Empty: it is not."""
        node, _, incarnation = near.partition("@")
        record = self._tail.state.brokers.get(node)
        if far in self._copies_lost or record is None or incarnation.partition(".")[0] != record.incarnation:
            return "its copy is gone"
        is_away = self._absences.ms(node, now_ms) >= FOLLOWER_PATIENCE_MS
        return "its broker is out of contact" if is_away else ""

    def _replace(self, found: Assignment, near: str, why: str) -> None:
        following, state = found.following, self._tail.state
        assert following is not None
        known, lost_node = self._candidates.facts(found.config.storage), node_of(near)
        taken = {node_of(member): "has a copy already" for member in found.members}
        if lost_node in known and known[lost_node].in_contact:
            del taken[lost_node]
        home = home_cluster(map(node_of, found.members), known)
        config = as_on_green(found.config, following.cluster, known)
        choice = choose(known.values(), one_of(wanted_of(config, home, 0, taken), lost_node))
        if choice.refusal:
            return  # Blue does not fence meanwhile; somebody may come.
        node = choice.nodes[0]
        new = f"{node}@{state.brokers[node].incarnation}.{self._host.new_token()}"
        members = tuple(new if member == near else member for member in found.members)
        far = tuple(far_member(member, self._host.world) for member in members)
        try:
            self._tail.propose(
                follow_stream(
                    found.account,
                    found.name,
                    found.group,
                    found.config,
                    replace(following, members=far),
                    members,
                    found.created_ns,
                )
            )
        except NotAppendedError:
            return  # The next look tries again.
        self._host.event(
            found.group, "FollowerReplaced", f"{new} follows stream {found.name} in place of {near}: {why}"
        )
