"""A stream's preferred leader (`supercluster.dev/preferred-leader`).

Any other leader hands over to that broker's replica once the broker is in contact, its replica has answered
and is caught up, and it is not about to restart. A hand-over that does not last is repeated less and less
often, since each one costs the stream a moment.
"""

from __future__ import annotations

from supercluster.broker.jetstream.config.metadata_keys import PREFERRED_LEADER_KEY
from supercluster.broker.jetstream.publish.held_stream import HeldStream
from supercluster.broker.jetstream.publish.host import StreamHost
from supercluster.broker.jetstream.replica.contact import is_current
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.raft.confchange import node_of

PREFERRED_CHECK_MS = 2000
PREFERRED_WAIT_MS_MAX = 64_000
"""Between two hand-overs at most; after twice that without one, the first wait is short again."""


class PreferredLeader:
    """What the leader of one stream does about it, while it leads."""

    def __init__(self, replica: Replica, stream: HeldStream, host: StreamHost) -> None:
        self._replica = replica
        self._stream = stream
        self._host = host
        self._check_ms = 0
        self._tried_ms: int | None = None
        self._wait_ms = PREFERRED_CHECK_MS

    def advance(self, now_ms: int) -> bool:
        """Hand over where that is due; True when a hand-over began."""
        voter = self._voter()
        if voter is None or now_ms < self._check_ms:
            return False
        self._check_ms = now_ms + PREFERRED_CHECK_MS
        if not is_current(self._replica, voter, now_ms) or self._host.takes_no_leaderships(node_of(voter)):
            return False
        if not self._replica.raft.transfer_leadership(voter, now_ms):
            return False
        is_first = self._tried_ms is None or now_ms - self._tried_ms >= 2 * PREFERRED_WAIT_MS_MAX
        self._wait_ms = PREFERRED_CHECK_MS if is_first else min(2 * self._wait_ms, PREFERRED_WAIT_MS_MAX)
        self._tried_ms, self._check_ms = now_ms, now_ms + self._wait_ms
        return True

    def deadline_ms(self) -> int | None:
        """When `advance` has something to do."""
        return self._check_ms if self._voter() is not None else None

    def _voter(self) -> str | None:
        """The voter that should lead in place of this one, while its broker is there."""
        preferred = dict(self._stream.assignment.config.metadata).get(PREFERRED_LEADER_KEY) or ""
        if not preferred or preferred == self._host.node or preferred not in self._host.brokers_in_contact():
            return None
        return next((v for v in self._replica.raft.membership.voters if node_of(v) == preferred), None)
