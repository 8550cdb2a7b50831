"""Between a consumer's pump and its clients: deliveries that wait until their operation is committed (SF-2).

A leader that is cut off goes on for a while as if it led, and messages that it hands out then may have been handed out
and acknowledged elsewhere, with confirmation. It commits nothing, though. So a message that will be acknowledged leaves
only behind the entry that says so; what becomes of it when the leader is deposed before is for `in_doubt`. A consumer
without acknowledgements has no such promise, and no such delay.

One consumer's deliveries and status messages stay in order: what comes behind a held one is held too.
"""

from __future__ import annotations

from collections import Counter, deque

from supercluster.broker.jetstream.consumer import ConsumerLeader
from supercluster.broker.jetstream.in_doubt import Deliver, Held
from supercluster.broker.jetstream.pull import Delivery

# A stream's leader pumps nothing while so much waits for commits that do not come.
HELD_BYTES_MAX = 16 * 1024 * 1024


class HandingOut:
    """Deliveries of one stream's consumers, on its leader."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._fresh: list[tuple[ConsumerLeader, list[Delivery]]] = []
        self._held: deque[Held] = deque()
        self._held_bytes = 0
        self._holds: Counter[ConsumerLeader] = Counter()

    @property
    def is_full(self) -> bool:
        """Is nothing to be pumped before something was committed?"""
        return self._held_bytes >= HELD_BYTES_MAX

    def add(self, leader: ConsumerLeader, deliveries: list[Delivery]) -> None:
        """What a pump returned; its operations are not proposed yet."""
        if deliveries:
            self._fresh.append((leader, deliveries))

    def proposed(self, index: int, term: int, now_ms: int) -> None:
        """The operations of everything fresh are in the log, up to the entry at `index`, of that term; or there were none
        to propose."""
        fresh, self._fresh = self._fresh, []
        for leader, deliveries in fresh:
            # What was served no message has no entry to wait for: it is told so at once.
            waits = leader.state.config.needs_ack and any(
                served.count for delivery in deliveries for served in delivery.served
            )
            if waits or self._holds[leader]:
                size_bytes = sum(len(item[3]) for delivery in deliveries for item in delivery.items)
                self._held.append(Held(index, term, now_ms, leader, deliveries, size_bytes))
                self._held_bytes += size_bytes
                self._holds[leader] += 1
            else:
                self._deliver(deliveries)

    def committed(self, index: int) -> None:
        """Entries up to `index` are applied: hand out what waited for them."""
        while self._held and self._held[0].index <= index:
            held = self._held.popleft()
            self._forget(held)
            self._deliver(held.deliveries)

    def not_proposed(self) -> None:
        """What is fresh was not appended."""
        fresh, self._fresh = self._fresh, []
        for leader, deliveries in reversed(fresh):
            self._take_back(leader, deliveries)

    def leave(self) -> list[Held]:
        """This leader is deposed. Returns what waits for entries that nobody knows the commit of."""
        self.not_proposed()
        held, self._held = self._held, deque()
        for each in held:
            self._forget(each)
        return list(held)

    def take_back(self, leader: ConsumerLeader | None = None) -> None:
        """The named consumer is gone; without a name, the stream is. Nothing of theirs was handed out."""
        if leader is None:
            self.not_proposed()
        kept: deque[Held] = deque()
        while self._held:
            held = self._held.pop()
            if leader is None or held.leader is leader:
                self._forget(held)
                self._take_back(held.leader, held.deliveries)
            else:
                kept.appendleft(held)
        self._held = kept

    def _forget(self, held: Held) -> None:
        self._held_bytes -= held.size_bytes
        self._holds[held.leader] -= 1
        if not self._holds[held.leader]:
            del self._holds[held.leader]

    def _take_back(self, leader: ConsumerLeader, deliveries: list[Delivery]) -> None:
        for delivery in reversed(deliveries):
            leader.take_back(delivery)
        # What only told of requests that are over is still true.
        self._deliver([delivery for delivery in deliveries if not delivery.served])
