"""The common start of every replica: Raft over the log on the volume, and errors that stay within their
group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from isal.isal_zlib import crc32

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.replica.lineage import is_meta, lineage_of
from supercluster.broker.ports import OpenedGroup
from supercluster.broker.raft.confchange import Membership
from supercluster.broker.raft.config import RaftConfig
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.raft.node import RaftNode


class Opener:
    def __init__(self, env: Environment, peers: Peers, copies: Copies, leaderships: Leaderships) -> None:
        self._env = env
        self._peers = peers
        self._copies = copies
        self._leaderships = leaderships

    def raft_over(self, group_id: str, opened: OpenedGroup, member: str, fallback: Membership) -> RaftNode:
        """Raft over an opened log. The membership is the checkpoint's; a group without one has the fallback."""
        found = opened.log.load_checkpoint()
        state = found[1] if found is not None else opened.log.base_state()
        membership = Membership.decode(Reader(state).blob()) if state is not None else fallback
        if opened.end != (0, 0):
            self._env.event(
                group_id,
                "RecordLost",
                f"{member} lost records behind entry {opened.log.last_index}, and had entries up to {opened.end[1]}: it takes them from "
                "its leader, and votes for no log that ends before",
            )
        term, vote = opened.log.load_vote()
        index = max(found[0] if found is not None else 0, opened.log.base_index)
        for entry in opened.log.memberships(index + 1, opened.commit_index)[-1:]:
            membership = replace(Membership.decode(entry.payload), index=entry.index)
        return RaftNode(
            self._raft_config(group_id, member),
            opened.log,
            term=term,
            vote=vote,
            membership=membership,
            commit_index=max(index, opened.commit_index),
            rng=self._env.rng,
            now_ms=self._env.clock.monotonic_ms(),
            doubtful=opened.doubtful,
            end=opened.end,
            lineage=lineage_of(group_id),
        )

    def _raft_config(self, group_id: str, member: str) -> RaftConfig:
        settings = self._env.settings
        return RaftConfig(
            member=member,
            process=self._env.store.process_count,
            lot=crc32(group_id.encode()),
            is_linked=partial(self._reaches, group_id),
            patience_ms=partial(self._patience_ms, group_id),
            may_lead=self._env.knows_time,
            heartbeat_ms=settings.heartbeat_ms,
            election_timeout_ms=settings.election_timeout_ms,
            quiesce_after_ms=settings.quiesce_after_ms,
        )

    def _reaches(self, group_id: str, node: str) -> bool:
        """Is the broker linked that the group's log calls so?"""
        return self._peers.is_linked(self._peers.far_groups.broker_of(group_id, node))

    def _patience_ms(self, group_id: str, node: str) -> int:
        return self._peers.patience_ms(self._peers.far_groups.broker_of(group_id, node))

    def attempt(self, group_id: str, act: Callable[[], None]) -> bool:
        """What goes wrong with a group costs this broker that group, and nothing else; without the meta group it can do
        nothing, so there only a disk is forgiven."""
        node, event = self._env.node, self._env.event
        try:
            act()
        except DiskError as error:
            event(group_id, "DiskFailed", f"{node} cannot apply committed entries: {error}")
            return False
        except Exception as error:
            if is_meta(group_id):
                raise
            self._give_up(group_id)
            event(
                group_id,
                "GroupFailed",
                f"{node} cannot apply committed entries because of an error in the broker: {type(error).__name__}: {error}",
            )
            return False
        return True

    def _give_up(self, group_id: str) -> None:
        """The group may be here in part. Nobody will use its log any more, which is whole: it is closed as at a clean stop,
        because the volume's own clean stop, which vouches for all logs, may follow without another word from this one."""
        group = self._copies.drop(group_id)
        if group is None:
            return
        self._leaderships.resign(group_id)
        try:
            group.log.close(clean=True)
        except DiskError as error:
            self._env.event(
                group_id, "DiskFailed", f"the log of {group.member} could not be made durable: {error}"
            )
