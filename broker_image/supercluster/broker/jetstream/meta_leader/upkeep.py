"""The periodic duties of the meta group's leader: absent brokers and voters, unusable copies, targets of
moves, and the streams of a recovered map.
"""

from __future__ import annotations

from supercluster.broker.jetstream.meta_leader.absences import Absences
from supercluster.broker.jetstream.meta_leader.broker_requests import BrokerRequests
from supercluster.broker.jetstream.meta_leader.candidates import Candidates
from supercluster.broker.jetstream.meta_leader.copy_reports import CopyReports
from supercluster.broker.jetstream.meta_leader.followers import Followers
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.move_targets import MoveTargets
from supercluster.broker.jetstream.meta_leader.recovered_streams import RecoveredStreams
from supercluster.broker.jetstream.meta_leader.voter_upkeep import VoterUpkeep
from supercluster.broker.jetstream.replica.newcomers import Newcomers

UPKEEP_EVERY_MS = 1000


class Upkeep:
    """The leader's; made when it begins to serve, dropped when it stops."""

    def __init__(
        self,
        tail: MapTail,
        host: MetaHost,
        newcomers: Newcomers,
        brokers: BrokerRequests,
        candidates: Candidates,
        now_ms: int,
    ) -> None:
        self._tail = tail
        self._host = host
        self._due_ms = now_ms
        self._is_needed = False
        self._absences = Absences(tail, brokers)
        self._voters = VoterUpkeep(tail, newcomers, self._absences)
        self._recovered = RecoveredStreams(tail, host, candidates)
        self.targets = MoveTargets(tail, host, candidates, self._absences)
        self.followers = Followers(tail, host, candidates, self._absences)
        self.copies = CopyReports(tail, host, now_ms)

    def turn(self, now_ms: int) -> None:
        """Look, and take at most one step of each kind."""
        contact = self._host.brokers_in_contact()
        state = self._tail.state
        self._absences.look(now_ms, contact)
        # In a single cluster without moves nothing changes with time, while all are there who belong to it.
        is_one = len({record.cluster for record in state.brokers.values()}) < 2
        watched = state.moving or state.short or state.coming or state.leaving or state.away or self._absences
        recovered = bool(state.unconfirmed) or self._voters.is_needed(is_one=is_one)
        self._is_needed = bool(watched) or self.copies.is_needed or not is_one or recovered
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + UPKEEP_EVERY_MS
        self._absences.note(now_ms, contact)
        self.copies.advance(now_ms, contact)
        self._voters.look(now_ms, contact)
        self.targets.look(now_ms)
        self.followers.look(now_ms)
        self._recovered.look()

    def deadline_ms(self) -> int | None:
        return self._due_ms if self._is_needed else None
