"""After its process stood still, a leader asks its voters whether it still leads: what consumers are handed out waits for that."""

from __future__ import annotations

from supercluster.broker.jetstream.consumer.leaders import ConsumerLeaders
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.raft.config import ReadState, Role


class LeadershipCheck:
    """Of one stream's replica."""

    def __init__(self, replica: Replica, consumers: ConsumerLeaders) -> None:
        self._replica = replica
        self._consumers = consumers
        self._number = 0
        """Of the newest question."""

    def ask(self) -> None:
        """Nobody knows whether another one leads."""
        self._number += 1
        self._replica.raft.read_index(self._number)
        self._replica.host.touch_next(self._replica.id)

    def answered(self, reads: list[ReadState], failed: list[int]) -> None:
        """A majority has answered, or it could not be asked."""
        replica = self._replica
        if any(read.context == self._number for read in reads):
            self._consumers.leads_surely(replica.applied_index)
        if self._number in failed and replica.raft.role is Role.LEADER and replica.serves:
            self.ask()
