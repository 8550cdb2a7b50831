"""A stream's preferred leader (`supercluster.dev/preferred-leader`): whoever else leads hands over to that broker's
replica, once the broker is there, its replica has everything, and it is not about to be restarted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supercluster.broker.jetstream.own_metadata import PREFERRED_LEADER_KEY
from supercluster.broker.raft.confchange import node_of

if TYPE_CHECKING:
    from supercluster.broker.jetstream.stream_group import StreamGroup

PREFERRED_CHECK_MS = 2000


class Preference:
    """What the leader of one stream does about it, while it leads."""

    def __init__(self, group: StreamGroup) -> None:
        self._group = group
        self._check_ms = 0

    def look(self, now_ms: int) -> bool:
        """Hand over where that is due; True when a hand-over began."""
        voter = self._voter()
        if voter is None or now_ms < self._check_ms:
            return False
        self._check_ms = now_ms + PREFERRED_CHECK_MS
        raft = self._group.raft
        progress = raft.progress.get(voter)
        if progress is None or progress.match < raft.commit_index:
            return False
        if self._group.host.takes_no_leaderships(node_of(voter)):
            return False
        return raft.transfer_leadership(voter, now_ms)

    def deadline_ms(self) -> int | None:
        """When `look` has something to do."""
        return self._check_ms if self._voter() is not None else None

    def _voter(self) -> str | None:
        """The voter that should lead in place of this one, while its broker is there."""
        group = self._group
        preferred = dict(group.assignment.config.metadata).get(PREFERRED_LEADER_KEY) or ""
        if not preferred or preferred == group.host.node or preferred not in group.host.brokers_in_contact():
            return None
        return next((v for v in group.raft.membership.voters if node_of(v) == preferred), None)
