"""Brokers that are out of contact with the meta group's leader, and since when.

The leader keeps the times here to the millisecond, and records an absence in the map when it lasts. A new
leader restarts the timers, so a time-out can only become longer.
"""

from __future__ import annotations

from collections.abc import Container

from supercluster.broker.jetstream.meta.operations import note_away
from supercluster.broker.jetstream.meta_leader.broker_requests import BACK_MS, BrokerRequests
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError

# A broker that is out of contact for so long is noted in the map with the time since when; a link that breaks and is made
# again at once is not worth two entries.
AWAY_NOTED_MS = 5000


class Absences:
    def __init__(self, tail: MapTail, brokers: BrokerRequests) -> None:
        self._tail = tail
        self._brokers = brokers
        self._since_ms: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._since_ms)

    def ms(self, node: str, now_ms: int) -> int:
        """For how long this leader has not been in contact with the node."""
        return now_ms - self._since_ms.get(node, now_ms)

    def look(self, now_ms: int, contact: Container[str]) -> None:
        """See who is there; a broker that leaves and comes back after a while stays."""
        state = self._tail.state
        for node in state.brokers:
            if node in contact:
                was_away_ms = now_ms - self._since_ms.pop(node, now_ms)
                if node in state.leaving and was_away_ms >= BACK_MS:
                    self._brokers.came_back(node)
            else:
                self._since_ms.setdefault(node, now_ms)
        for node in self._since_ms.keys() - state.brokers.keys():
            del self._since_ms[node]

    def note(self, now_ms: int, contact: Container[str]) -> None:
        """Write down who is out of contact since when, and who is back. What an earlier leader wrote stands: this one has
        missed the broker for less long than it has been away."""
        state = self._tail.state
        for node, record in list(state.brokers.items()):
            absent_ms = self.ms(node, now_ms)
            try:
                if node in contact and node in state.away:
                    self._tail.propose(note_away(record, 0))
                elif absent_ms >= AWAY_NOTED_MS and node not in state.away:
                    since_ns = self._tail.time_ns() - absent_ms * 1_000_000
                    self._tail.propose(note_away(record, max(1, since_ns)))
            except NotAppendedError:
                return  # The next look tries again.
